"""A whole backend for torch.distributed in one file: read this one first.

    torch.distributed.init_process_group("tiny")  # nothing else in a program changes

The idea: *a collective is data*. An algorithm is a generator that says what one rank does, round by
round, in three words: `Send(to, chunk)`, `Recv(source, chunk)` and `Reduce(source, chunk)`, which
is receive and combine. It knows neither torch nor sockets. What is left for a backend is little:

- `Peers`: a socket to every other rank, found through the store. A thread for each reads what
  comes; messages and receives meet as in MPI, the oldest that fit each other first;
- `Work`: the handle of a call. Each call runs on a thread of its own, behind the one before it;
- `Tiny`: what torch calls. Each method says which chunk is which tensor, no more.

A rank that died, left, is late or is in another call is named in an error. The price: data is
copied two or three times, every chunk is a message and every call a thread; all ranks are on one
machine, and their tensors in host memory. The large backend is the same, made safe and fast:

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
        self.submit(asyncio.wait_for(self._meet(store), limit)).result()

    def _live(self):
        torch.set_grad_enabled(False)
        with contextlib.closing(self.loop):
            self.loop.run_forever()

    def submit(self, coroutine):
        """Start a coroutine; the concurrent Future of what it returns."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    async def _meet(self, store):
        """Connect to the lower ranks, accept the higher ones; a token keeps strangers out."""
        token = secrets.token_hex(12)

        async def accept(reader, writer):
            with contextlib.suppress(OSError, EOFError):
                said, peer, _ = HEADER.unpack(await reader.readexactly(HEADER.size))
                if secrets.compare_digest(said, token.encode()):
                    await self._read(peer, reader, writer)
            writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        store.set(f"tiny/{self.rank}", f"{server.sockets[0].getsockname()[1]} {token}")
        for peer in range(self.rank):
            while not store.check([f"tiny/{peer}"]):
                await asyncio.sleep(0.005)
            port, theirs = store.get(f"tiny/{peer}").decode().split()
            reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
            writer.write(HEADER.pack(theirs.encode(), self.rank, 0))
            self.reading = self.loop.create_task(self._read(peer, reader, writer))
        while len(self.links) + len(self.lost) < self.size - 1:
            await asyncio.sleep(0.005)
        server.close()
        store.delete_key(f"tiny/{self.rank}")  # all who needed it have connected

    async def _read(self, peer, reader, writer):
        """Take what a peer sends until it says goodbye (an empty operation) or is gone."""
        self.links[peer] = writer
        end = -1, "has died: its connection ended without a goodbye"
        with contextlib.suppress(OSError, EOFError):
            while end[0] < 0:
                op, number, size = HEADER.unpack(await reader.readexactly(HEADER.size))
                if op := op.rstrip(b"\0").decode():
                    self._arrived(peer, op, number, await reader.readexactly(size))
                else:
                    end = number, "has left the group"
        writer.close()
        self.lost[peer] = end  # how many collectives it took part in, and why it is lost
        self._match()

    def _arrived(self, peer, op, number, data):
        self.messages.append((peer, (op == "send", number), op, data))
        self._match()

    def _match(self):
        """Give the oldest message that fits to the oldest receive; tell who waits in vain."""
        self.posted = [asked for asked in self.posted if not asked[2].done()]
        for source, key, future in self.posted:
            fits = (m for m in self.messages if m[1] == key and source in (m[0], None))
            if found := next(fits, None):
                self.messages.remove(found)
                future.set_result(found)
                continue
            for peer, (calls, why) in self.lost.items():
                needed = peer == source or (not key[0] and key[1] > calls)
                if (needed or len(self.lost) == self.size - 1) and not future.done():
                    future.set_exception(EOFError(f"rank {peer} {why}"))

    async def send(self, peer, op, number, data):
        """Send bytes to a peer; back when they are on their way."""
        if peer == self.rank:
            return self._arrived(peer, op, number, data)
        try:
            self.links[peer].write(HEADER.pack(op.encode(), number, len(data)) + data)
            await asyncio.wait_for(self.links[peer].drain(), self.limit)
        except OSError as error:
            why = self.lost.get(peer, (0, f"takes no data: {error!r}"))[1]
            self.fail(op, number, f"rank {peer} {why}")

    async def receive(self, source, op, number, size):
        """Wait for a message of `size` bytes (source None: from anybody): who sent it, and it."""
        future = self.loop.create_future()
        self.posted.append((source, (op == "send", number), future))
        self._match()
        try:
            peer, _, theirs, data = await asyncio.wait_for(future, self.limit)
        except TimeoutError:
            who = "anybody" if source is None else f"rank {source}"
            self.fail(op, number, f"nothing came from {who} in {self.limit:g} s")
        except EOFError as error:
            self.fail(op, number, str(error))
        if (theirs, len(data)) != (op, size):
            other = f"rank {peer} sends {len(data)} bytes for {theirs}"
            self.fail(op, number, f"{other}, expected {size} bytes")
        return peer, data

    def fail(self, op, number, why):
        where = f"{op} {number} on rank {self.rank} of {self.size}"
        raise dist.DistBackendError(f"{where}: {why}") from None

    async def leave(self, calls):
        """Say goodbye, and wait until all have read it."""
        for writer in self.links.values():
            with contextlib.suppress(OSError):
                writer.write(HEADER.pack(b"", calls, 0))
                writer.write_eof()
        while len(self.lost) < self.size - 1:
            await asyncio.sleep(0.005)


asked = threading.local()  # the Work whose future was asked for last


class Work(dist.Work):
    """The handle of a call. `done` is the Future of who has sent, for a receive."""

    def __init__(self, done, outputs, event):
        super().__init__()
        self.done, ended = done, torch.futures.Future()
        # C++ does not see Future.set_exception, so an error is raised in a `then`. Callbacks may
        # wait for other calls, so they have a thread of their own.
        self.future = ended.then(lambda _: self.wait() and outputs)
        end = threading.Thread(target=ended.set_result, args=(None,), daemon=True)
        done.add_done_callback(lambda _: (_profiler_exit(event), end.start()))

    def wait(self, timeout=None):
        self.done.result(timeout.total_seconds() if timeout else None)
        return True

    def get_future(self):
        asked.work = self
        return self.future

    def is_completed(self):
        return self.done.done()

    def _source_rank(self):
        return self.done.result()


def repaired(name):
    """A method of torch's holder around a Work, which passes on only `wait` and `get_future`."""
    old = getattr(dist.Work, name)

    def method(holder):
        asked.work = None
        with contextlib.suppress(RuntimeError):
            holder.get_future()
        return old(holder) if asked.work is None else getattr(asked.work, name)()

    return method


dist.Work.is_completed, dist.Work._source_rank = map(repaired, ("is_completed", "_source_rank"))
_profiler_enter = torch._C._autograd._record_function_with_args_enter
_profiler_exit = torch._C._autograd._record_function_with_args_exit

COMBINE = {"SUM": torch.add, "AVG": torch.add, "PREMUL_SUM": torch.add, "PRODUCT": torch.mul}
COMBINE |= {"MIN": torch.minimum, "MAX": torch.maximum, "BAND": torch.bitwise_and}
COMBINE |= {"BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}
alive = set()  # torch may keep only the C++ half of a backend
atexit.register(lambda: [backend.shutdown() for backend in list(alive)])
os.register_at_fork(after_in_child=alive.clear)  # a child has no part in its parent's groups


class Tiny(getattr(dist, "BackendBase", None) or dist._Backend):
    """What torch calls. A part of a call is (algorithm, chunks held, chunks wanted)."""

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
                self.peers.submit(self.peers.leave(self.calls)).result(10)
            self.peers.loop.call_soon_threadsafe(self.peers.loop.stop)

    abort = shutdown

    def _start(self, title, parts, inputs, outputs, how=(None, None)):
        """A collective: behind those before it, numbered so that ranks can compare."""
        self.calls += 1

        async def call(number):
            async with self.peers.turn:
                for part in parts:
                    await self._perform(title, number, *part, *how)

        return self._work(title, call(self.calls), inputs, outputs)

    def _work(self, title, call, inputs, outputs):
        event = _profiler_enter(f"tiny:{title}", *inputs)
        return Work(self.peers.submit(call), outputs, event)

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
        factor = {"AVG": lambda: 1 / self.n, "PREMUL_SUM": lambda: op.factor}.get(name)
        return COMBINE[name], factor and factor()

    def _in_place(self, op, algorithm, tensors, *root, how=(None, None), wanted=True):
        parts = []
        for tensor in tensors:
            flat = tensor.contiguous().view(-1)
            held = dict(enumerate(flat.tensor_split(self.n)))
            parts.append((algorithm(*self.place, *root), held, held if wanted else {}))
            parts.append(((), {0: flat}, {0: tensor} if wanted else {}))  # where flat is a copy
        return self._start(op, parts, tensors, tensors, how)

    def _by_rank(self, tensors, op):
        if len(tensors) != self.n:
            raise ValueError(f"{op}: expected {self.n} tensors, one per rank, got {len(tensors)}")
        return dict(enumerate(tensors))

    def allreduce(self, tensors, opts):
        how = self._how(opts.reduceOp, tensors[0])
        return self._in_place("all_reduce", all_reduce, tensors, how=how)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors, opts):
        return self._in_place("broadcast", broadcast, tensors, opts.rootRank)

    def reduce(self, tensors, opts):
        how, mine = self._how(opts.reduceOp, tensors[0]), self.me == opts.rootRank
        return self._in_place("reduce", reduce, tensors, opts.rootRank, how=how, wanted=mine)

    def barrier(self, opts):
        return self._in_place("barrier", all_reduce, [torch.empty(0)], how=(torch.add, None))

    def allgather(self, output_lists, inputs, opts, op="all_gather"):
        parts = [
            (all_gather(*self.place), {self.me: own}, self._by_rank(outputs, op))
            for outputs, own in zip(output_lists, inputs, strict=True)
        ]
        return self._start(op, parts, inputs, [t for outputs in output_lists for t in outputs])

    def allgather_coalesced(self, output_lists, inputs, opts):
        return self.allgather([list(o) for o in zip(*output_lists, strict=True)], inputs, opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts):
        lists = [self._cut(output, "all_gather_single") for output in outputs]
        return self.allgather(lists, inputs, opts, "_all_gather_base")

    def all_gather_single(self, output, own, opts):
        return self.all_gather_single_coalesced([output], [own], opts)

    def reduce_scatter(self, outputs, input_lists, opts, op="reduce_scatter"):
        parts = [
            (reduce_scatter(*self.place), self._by_rank(inputs, op), {self.me: output})
            for inputs, output in zip(input_lists, outputs, strict=True)
        ]
        inputs = [t for inputs in input_lists for t in inputs]
        return self._start(op, parts, inputs, outputs, self._how(opts.reduceOp, outputs[0]))

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        lists = [self._cut(tensor, "reduce_scatter_single") for tensor in inputs]
        return self.reduce_scatter(outputs, lists, opts, "_reduce_scatter_base")

    def reduce_scatter_single(self, output, whole, opts):
        return self.reduce_scatter_single_coalesced([output], [whole], opts)

    _allgather_base, _reduce_scatter_base = all_gather_single, reduce_scatter_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def gather(self, output_lists, inputs, opts):
        outputs = output_lists[0] if self.me == opts.rootRank else []
        wanted = self._by_rank(outputs, "gather") if outputs else {}
        algorithm = gather(*self.place, opts.rootRank)
        return self._start("gather", [(algorithm, {self.me: inputs[0]}, wanted)], inputs, outputs)

    def scatter(self, outputs, input_lists, opts):
        inputs = input_lists[0] if self.me == opts.rootRank else []
        held = self._by_rank(inputs, "scatter") if inputs else {}
        algorithm = scatter(*self.place, opts.rootRank)
        return self._start("scatter", [(algorithm, held, {self.me: outputs[0]})], inputs, outputs)

    def alltoall(self, outputs, inputs, opts):
        held = {self.me * self.n + d: t for d, t in self._by_rank(inputs, "all_to_all").items()}
        wanted = {s * self.n + self.me: t for s, t in self._by_rank(outputs, "all_to_all").items()}
        parts = [(all_to_all(*self.place), held, wanted)]
        return self._start("all_to_all", parts, inputs, outputs)

    def all_to_all_single(self, output, whole, output_splits, input_splits, opts):
        outputs = self._cut(output, "all_to_all_single", output_splits)
        return self.alltoall(outputs, self._cut(whole, "all_to_all_single", input_splits), opts)

    alltoall_base = all_to_all_single

    def _cut(self, tensor, op, splits=()):
        if not splits and tensor.shape[0] % self.n:
            raise ValueError(f"{op}: {tensor.shape[0]} rows do not go evenly to {self.n} ranks")
        return tensor.split(splits) if splits else tensor.tensor_split(self.n)

    def send(self, tensors, to, tag):
        call = self._perform("send", tag, [[Send(to, 0)]], {0: tensors[0]}, {})
        return self._work("send", call, tensors, tensors)

    def recv(self, tensors, source, tag, title="recv"):
        call = self._perform("send", tag, [[Recv(source, 0)]], {}, {0: tensors[0]})
        return self._work(title, call, tensors, tensors)

    def recv_anysource(self, tensors, tag):
        return self.recv(tensors, None, tag, "recvAnySource")


def register():
    """Make the name known; importing this file is enough, torch's entry point calls it too."""
    if "tiny" not in dist.Backend.backend_list:
        dist.Backend.register_backend("tiny", Tiny, devices=["cpu"])


register()
