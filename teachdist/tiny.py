"""A whole backend for torch.distributed in one file: read this one first.

    torch.distributed.init_process_group("tiny")  # nothing else in a program changes

The idea: *a collective is data*. An algorithm is a generator that says what one rank does, round by
round, in three words: `Send(to, chunk)`, `Recv(source, chunk)` and `Reduce(source, chunk)`, which
is receive and combine. It knows neither torch nor sockets. What is left for a backend is little:

- `Peers`: a socket to every other rank, found through the store. A thread with an event loop reads
  and writes; messages and receives meet as in MPI, the oldest that fit each other first;
- `Work`: the handle of a call, a coroutine of that loop; collectives run one behind the other;
- `Tiny`: what torch calls. Each method says which chunk is which tensor, no more.

A rank that died, left, is late or is in another call is named in an error. The price: data is
copied several times and every chunk is a message; all ranks are on one machine, their tensors in
host memory; there is no monitored barrier, and a send never waits for its receive. The large
backend is the same, made safe and fast:

- `collectives/`: more algorithms, with proof and price; `backend/execution/` chooses and runs them;
- `links/`: shared memory, few copies, back pressure, several machines;
- `backend/calls/`: arguments are checked; odd dtypes, sparse tensors, GPUs; calls are kept;
- `backend/group/`: ranks' calls are compared before data moves; recovery, split, shrink;
- `diagnose/`, `tracing/`: who is where, who is to blame, what was sent when.

Sources: torch's "Custom backends"; Thakur, Rabenseifner, Gropp, "Optimization of collective
communication operations in MPICH" (2005).
"""

import asyncio
import atexit
import contextlib
import functools
import os
import secrets
import struct
import threading

import torch
import torch.distributed as dist

from teachdist.collectives import Recv, Reduce, Send

# The algorithms: what one rank does, one round per yield


def reduce_scatter(rank, size):
    """Each chunk goes once around a ring and grows; at the end chunk r is complete on rank r."""
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield Send(right, (rank - 1 - step) % size), Reduce(left, (rank - 2 - step) % size)


def all_gather(rank, size):
    """Each rank's chunk goes once around; everybody passes on what came in the round before."""
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield Send(right, (rank - step) % size), Recv(left, (rank - 1 - step) % size)


def gather(rank, size, root):
    """Everybody sends its chunk to the root."""
    yield [Recv(r, r) for r in range(size) if r != root] if rank == root else [Send(root, rank)]


def scatter(rank, size, root):
    """The root sends everybody its chunk."""
    yield [Send(r, r) for r in range(size) if r != root] if rank == root else [Recv(root, rank)]


def all_to_all(rank, size):
    """In each round one rank to send to and one to hear; chunk s * size + d goes from s to d."""
    for step in range(1, size):
        to, source = (rank + step) % size, (rank - step) % size
        yield Send(to, rank * size + to), Recv(source, source * size + rank)


def all_reduce(rank, size):
    """Add up, then tell: all ranks end with the same bits."""
    yield from reduce_scatter(rank, size)
    yield from all_gather(rank, size)


def reduce(rank, size, root):
    """Add up, then tell the root."""
    yield from reduce_scatter(rank, size)
    yield from gather(rank, size, root)


def broadcast(rank, size, root):
    """A chunk to each, who tells all others."""
    yield from scatter(rank, size, root)
    yield from all_gather(rank, size)


HEADER = struct.Struct("!24sqq")  # the operation, its number or tag, how many bytes follow


class Peers:
    """The other ranks. All of this runs in one event loop, on one thread: it needs no locks."""

    def __init__(self, store, rank, size, limit):
        self.rank, self.size, self.limit, self.turn = rank, size, limit, asyncio.Lock()
        self.links, self.lost, self.messages, self.posted = {}, {}, [], []
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self._live, daemon=True).start()
        self.submit("meeting", self._meet(store)).result()

    def _live(self):
        torch.set_grad_enabled(False)
        with contextlib.closing(self.loop):
            self.loop.run_forever()

    def submit(self, name, coroutine, end=lambda: None):
        """Start a coroutine; the Future of what it returns. Its errors say where they come from."""

        async def named():
            try:
                return await coroutine
            except Exception as error:
                where = f"{name} on rank {self.rank} of {self.size}"
                raise dist.DistBackendError(f"{where}: {error}") from error
            finally:
                end()

        return asyncio.run_coroutine_threadsafe(named(), self.loop)

    async def _meet(self, store):
        """Connect to the lower ranks, accept the higher ones; a token keeps strangers out."""
        token, until = secrets.token_hex(12), self.loop.time() + self.limit

        async def accept(reader, writer):
            said, peer, _ = HEADER.unpack(await reader.readexactly(HEADER.size))
            if secrets.compare_digest(said, token.encode()):
                await self._read(peer, reader, writer)
            writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        store.set(f"tiny/{self.rank}", f"{server.sockets[0].getsockname()[1]} {token}")
        while missing := set(range(self.size)) - {self.rank, *self.links}:
            if (peer := min(missing)) < self.rank and store.check([f"tiny/{peer}"]):
                port, theirs = store.get(f"tiny/{peer}").decode().split()
                reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
                writer.write(HEADER.pack(theirs.encode(), self.rank, 0))
                self.loop.create_task(self._read(peer, reader, writer))
            elif self.loop.time() > until:
                raise TimeoutError(f"ranks {missing} have not come in {self.limit:g} s")
            await asyncio.sleep(0.002)
        server.close()
        store.delete_key(f"tiny/{self.rank}")  # all who needed it have connected

    async def _read(self, peer, reader, writer):
        """Take what a peer sends until it says goodbye (an empty operation) or is gone."""
        self.links[peer], end = writer, (-1, "has died: it is gone without a goodbye")
        with contextlib.suppress(OSError, EOFError):
            while end[0] < 0:
                op, number, size = HEADER.unpack(await reader.readexactly(HEADER.size))
                if op := op.rstrip(b"\0").decode():
                    self._match((peer, (op == "send", number), op, await reader.readexactly(size)))
                else:
                    end = number, "has left the group"
        writer.close()
        self.lost[peer] = end  # how many collectives it took part in, and why it is lost
        self._match()

    def _match(self, *new):
        """Give the oldest message that fits to the oldest receive; tell who waits in vain."""
        self.messages += new
        self.posted = [posted for posted in self.posted if not posted[2].done()]
        for source, key, future in self.posted:
            fits = (m for m in self.messages if m[1] == key and source in (m[0], None))
            if found := next(fits, None):
                self.messages.remove(found)
                future.set_result(found)
            for peer, (calls, why) in self.lost.items():
                needed = peer == source or (not key[0] and key[1] > calls)
                if (needed or len(self.lost) == self.size - 1) and not future.done():
                    future.set_exception(EOFError(f"rank {peer} {why}"))

    async def send(self, peer, op, number, data):
        """Send bytes to a peer; back when they are on their way."""
        if peer == self.rank:
            return self._match((peer, (op == "send", number), op, data))
        try:
            self.links[peer].write(HEADER.pack(op.encode(), number, len(data)) + data)
            await asyncio.wait_for(self.links[peer].drain(), self.limit)
        except OSError as error:
            raise EOFError(f"rank {peer} {self.lost.get(peer, (0, error))[1]}") from error

    async def receive(self, source, op, number, size):
        """Wait for a message of `size` bytes (source None: from anybody): who sent it, and it."""
        future = self.loop.create_future()
        self.posted.append((source, (op == "send", number), future))
        self._match()
        try:
            peer, _, theirs, data = await asyncio.wait_for(future, self.limit)
        except TimeoutError:
            who = "any rank" if source is None else f"rank {source}"
            limit = f"within the timeout of {self.limit:g} s"
            raise TimeoutError(f"{who} has sent nothing {limit}") from None
        if (theirs, len(data)) != (op, size):
            other = f"rank {peer} sends {len(data)} bytes for {theirs}"
            raise ValueError(f"{other}, expected {size} bytes for {op}")
        return peer, data

    async def leave(self, calls):
        """Say goodbye, and wait until all have read it."""
        for writer in self.links.values():
            with contextlib.suppress(OSError):
                writer.write(HEADER.pack(b"", calls, 0))
                writer.write_eof()
        while len(self.lost) < self.size - 1:
            await asyncio.sleep(0.002)


profiler = torch._C._autograd


class Work(dist.Work):
    """The handle of a call. `done` is the Future of who has sent, for a receive."""

    asked = threading.local()  # .work: whose future was asked for last

    def __init__(self, peers, title, number, call, inputs, outputs):
        super().__init__()
        event = profiler._record_function_with_args_enter(f"tiny:{title}", *inputs)
        closed = functools.partial(profiler._record_function_with_args_exit, event)
        self.done, ended = peers.submit(f"{title} {number}", call, closed), torch.futures.Future()
        # C++ does not see Future.set_exception, so an error is raised in a `then`. Callbacks may
        # wait for other calls, so they have a thread of their own.
        self.future = ended.then(lambda _: self.wait() and outputs)
        end = threading.Thread(target=ended.set_result, args=(None,), daemon=True)
        self.done.add_done_callback(lambda _: end.start())

    def wait(self, timeout=None):
        self.done.result(timeout.total_seconds() if timeout else None)
        return True

    def get_future(self):
        Work.asked.work = self
        return self.future

    def is_completed(self):
        return self.done.done()

    def _source_rank(self):
        return self.done.result()


def repaired(name):
    """A method of torch's holder around a Work, which passes on only `wait` and `get_future`."""
    old = getattr(dist.Work, name)

    def method(holder):
        Work.asked.work = None
        with contextlib.suppress(RuntimeError):
            holder.get_future()
        work = Work.asked.work
        return old(holder) if work is None else getattr(work, name)()

    return method


dist.Work.is_completed, dist.Work._source_rank = map(repaired, ("is_completed", "_source_rank"))

COMBINE = {"SUM": torch.add, "AVG": torch.add, "PREMUL_SUM": torch.add, "PRODUCT": torch.mul}
COMBINE |= {"MIN": torch.minimum, "MAX": torch.maximum, "BAND": torch.bitwise_and}
COMBINE |= {"BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}
alive = set()  # torch may keep only the C++ half of a backend
atexit.register(lambda: [backend.shutdown() for backend in list(alive)])
os.register_at_fork(after_in_child=alive.clear)  # a child has no part in its parent's groups


class Tiny(getattr(dist, "BackendBase", None) or dist._Backend):
    """What torch calls. Each method says which chunk is which tensor, no more."""

    supports_splitting = supports_coalescing = supports_shrinking = property(lambda self: False)
    supports_reconfigure = supports_window = property(lambda self: False)
    supports_time_estimate = _supports_time_estimate = property(lambda self: False)
    options = property(lambda self: dist._Backend.Options("tiny"))

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self.place, self.me, self.n, self.calls = (rank, size), rank, size, 0
        self.peers = Peers(store, rank, size, timeout.total_seconds())
        alive.add(self)

    def getBackendName(self):
        return "tiny"

    def _get_sequence_number_for_group(self):
        return self.calls

    def set_timeout(self, timeout):
        self.peers.limit = timeout.total_seconds()

    def shutdown(self):
        if self in alive:
            alive.remove(self)
            with contextlib.suppress(TimeoutError):
                self.peers.submit("leaving", self.peers.leave(self.calls)).result(10)
            self.peers.loop.call_soon_threadsafe(self.peers.loop.stop)

    abort = shutdown

    def _start(self, op, parts, inputs, outputs, how=(None, None)):
        """A collective, behind those before it; a part is (algorithm, chunks held, wanted)."""
        self.calls += 1

        async def call(number):
            async with self.peers.turn:
                for part in parts:
                    await self._perform(op, number, *part, *how)

        return Work(self.peers, op, self.calls, call(self.calls), inputs, outputs)

    async def _perform(self, op, number, rounds, held, wanted, combine=None, factor=None):
        """Run an algorithm on copies of the chunks held; the caller's tensors change at the end."""
        chunks = {c: torch.empty(t.numel(), dtype=t.dtype) for c, t in {**held, **wanted}.items()}
        for c, tensor in held.items():
            chunks[c].copy_(tensor.reshape(-1))
            if factor is not None:
                chunks[c].mul_(factor)
        source = None
        for actions in rounds:
            for action in actions:
                if type(action) is Send:
                    data = chunks[action.chunk].view(torch.uint8).numpy().tobytes()
                    await self.peers.send(action.to, op, number, data)
            for action in actions:
                if type(action) is not Send:
                    mine = chunks[action.chunk]
                    source, data = await self.peers.receive(action[0], op, number, mine.nbytes)
                    theirs = torch.tensor(bytearray(data), dtype=torch.uint8).view(mine.dtype)
                    combine(mine, theirs, out=mine) if type(action) is Reduce else mine.copy_(
                        theirs
                    )
        for c, tensor in wanted.items():
            tensor.copy_(chunks[c].view(tensor.shape))
        return source

    def _how(self, op, tensor):
        """How two contributions combine, and by what each is multiplied before."""
        name, empty = getattr(op, "op", op).name, torch.empty(0, dtype=tensor.dtype)
        COMBINE[name](empty, empty, out=empty)  # what torch can't do is an error here and now
        factor = {"AVG": 1 / self.n}.get(name) if name != "PREMUL_SUM" else op.factor
        return COMBINE[name], factor

    def _each(self, tensors):
        """Chunk r is tensor r."""
        if len(tensors) != self.n:
            raise ValueError(f"expected a tensor for each of {self.n} ranks, got {len(tensors)}")
        return dict(enumerate(tensors))

    def _in_place(self, op, algorithm, tensors, *root, how=(None, None), keep=True):
        parts = []
        for tensor in tensors:
            flat = tensor.view(-1) if tensor.is_contiguous() else tensor  # then rows are chunks
            chunks = self._each(flat.tensor_split(self.n))
            parts.append((algorithm(*self.place, *root), chunks, chunks if keep else {}))
        return self._start(op, parts, tensors, tensors, how)

    def allreduce(self, tensors, opts):
        if tensors[0].is_sparse:
            raise NotImplementedError("all_reduce of a sparse tensor: backend teachdist has it")
        how = self._how(opts.reduceOp, tensors[0])
        return self._in_place("all_reduce", all_reduce, tensors, how=how)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors, opts):
        return self._in_place("broadcast", broadcast, tensors, opts.rootRank)

    def reduce(self, tensors, opts):
        how, keep = self._how(opts.reduceOp, tensors[0]), self.me == opts.rootRank
        return self._in_place("reduce", reduce, tensors, opts.rootRank, how=how, keep=keep)

    def barrier(self, opts):
        return self._in_place("barrier", all_reduce, [torch.empty(0)], how=(torch.add, None))

    def allgather(self, lists, inputs, opts, title="all_gather"):
        each = zip(inputs, lists, strict=True)
        parts = [(all_gather(*self.place), {self.me: x}, self._each(outs)) for x, outs in each]
        return self._start(title, parts, inputs, [out for outs in lists for out in outs])

    def allgather_coalesced(self, lists, inputs, opts):
        return self.allgather(list(zip(*lists, strict=True)), inputs, opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts):
        lists = [output.tensor_split(self.n) for output in outputs]
        return self.allgather(lists, inputs, opts, "_all_gather_base")

    def all_gather_single(self, output, own, opts):
        return self.all_gather_single_coalesced([output], [own], opts)

    def reduce_scatter(self, outputs, lists, opts, title="reduce_scatter"):
        each = zip(lists, outputs, strict=True)
        parts = [(reduce_scatter(*self.place), self._each(ins), {self.me: x}) for ins, x in each]
        inputs, how = [x for ins in lists for x in ins], self._how(opts.reduceOp, outputs[0])
        return self._start(title, parts, inputs, outputs, how)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        lists = [whole.tensor_split(self.n) for whole in inputs]
        return self.reduce_scatter(outputs, lists, opts, "_reduce_scatter_base")

    def reduce_scatter_single(self, output, whole, opts):
        return self.reduce_scatter_single_coalesced([output], [whole], opts)

    _allgather_base, _reduce_scatter_base = all_gather_single, reduce_scatter_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def gather(self, lists, inputs, opts):
        wanted = self._each(lists[0]) if self.me == opts.rootRank else {}
        parts = [(gather(*self.place, opts.rootRank), {self.me: inputs[0]}, wanted)]
        return self._start("gather", parts, inputs, list(wanted.values()))

    def scatter(self, outputs, lists, opts):
        held = self._each(lists[0]) if self.me == opts.rootRank else {}
        parts = [(scatter(*self.place, opts.rootRank), held, {self.me: outputs[0]})]
        return self._start("scatter", parts, list(held.values()), outputs)

    def alltoall(self, outputs, inputs, opts, result=None):
        held = {self.me * self.n + d: x for d, x in self._each(inputs).items()}
        wanted = {s * self.n + self.me: x for s, x in self._each(outputs).items()}
        parts, result = [(all_to_all(*self.place), held, wanted)], result or (inputs, outputs)
        return self._start("all_to_all", parts, *result)

    def all_to_all_single(self, output, whole, output_splits, input_splits, opts):
        outs = output.split(output_splits) if output_splits else output.tensor_split(self.n)
        ins = whole.split(input_splits) if input_splits else whole.tensor_split(self.n)
        return self.alltoall(outs, ins, opts, ([whole], [output]))

    alltoall_base = all_to_all_single

    def send(self, tensors, to, tag):
        call = self._perform("send", tag, [[Send(to, 0)]], {0: tensors[0]}, {})
        return Work(self.peers, "send", tag, call, tensors, tensors)

    def recv(self, tensors, source, tag, title="recv"):
        call = self._perform("send", tag, [[Recv(source, 0)]], {}, {0: tensors[0]})
        return Work(self.peers, title, tag, call, tensors, tensors)

    def recv_anysource(self, tensors, tag):
        return self.recv(tensors, None, tag, "recvAnySource")


def register():
    """Make the name known; importing this file is enough, torch's entry point calls it too."""
    if "tiny" not in dist.Backend.backend_list:
        dist.Backend.register_backend("tiny", Tiny, devices=["cpu"])


register()
