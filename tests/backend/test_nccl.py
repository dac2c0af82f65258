"""What the documentation says of NCCL and CUDA: run where there is a GPU, skipped elsewhere.

Each rank has a GPU of its own; most statements can be seen by one rank.
"""

import os
import pickle
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import RankPool, raised

GPUS = torch.cuda.device_count() if dist.is_available() and dist.is_nccl_available() else 0
pytestmark = [
    pytest.mark.skipif(GPUS == 0, reason="needs a GPU and NCCL"),
    pytest.mark.filterwarnings("ignore"),
]
two_gpus = pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")


def on_gpus(n, job, **how):
    """Run a job on n ranks under nccl."""

    def whole():
        import warnings

        warnings.simplefilter("ignore")
        rank = int(os.environ["RANK"])
        torch.cuda.set_device(rank % torch.cuda.device_count())
        store = dist.FileStore(str(Path(os.environ["RANKS_DIRECTORY"], "store")), n)
        given = {"backend": "nccl", "timeout": timedelta(seconds=60)} | how
        dist.init_process_group(store=store, rank=rank, world_size=n, **given)
        try:
            return job()
        finally:
            dist.destroy_process_group()

    with RankPool(n, None, timeout=120) as pool:
        return pool.run(whole)


def ones(count=4):
    return torch.ones(count, device="cuda")


# -- initialization ------------------------------------------------------------------------


def test_backend_from_the_device():
    def job():
        return dist.get_backend(), dist.group.WORLD.bound_device_id

    assert on_gpus(1, job, backend=None, device_id=torch.device("cuda:0"))[0] == (
        "nccl",
        torch.device("cuda:0"),
    )


def test_device_as_a_number():
    def job():
        return dist.group.WORLD.bound_device_id

    assert on_gpus(1, job, device_id=0) == [torch.device("cuda:0")]


def test_a_device_forms_the_communicator_at_once():
    def job():
        backend = dist.group.WORLD._get_backend(torch.device("cuda"))
        early = backend._is_initialized()
        dist.all_reduce(ones())
        return early, backend._is_initialized()

    assert on_gpus(1, job, device_id=torch.device("cuda:0")) == [(True, True)]
    assert on_gpus(1, job) == [(False, True)]


def test_two_ranks_cannot_share_a_gpu():
    def job():
        torch.cuda.set_device(0)
        return raised(dist.all_reduce, torch.ones(1, device="cuda:0"))

    for error in on_gpus(2, job):
        assert error is not None


def test_options():
    def job():
        dist.destroy_process_group()
        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
        how = {"store": dist.HashStore(), "rank": 0, "world_size": 1, "pg_options": options}
        dist.init_process_group("nccl", **how)
        x = ones()
        dist.all_reduce(x)
        used = dist.group.WORLD._get_backend(torch.device("cuda")).options
        return used.is_high_priority_stream, x.tolist()

    assert on_gpus(1, job) == [(True, [1, 1, 1, 1])]


def test_without_a_name_both_backends_are_made():
    def job():
        on_cpu, on_gpu = torch.ones(1), ones(1)
        dist.all_reduce(on_cpu)
        dist.all_reduce(on_gpu)
        kinds = [dist.group.WORLD._get_backend(torch.device(d)).name() for d in ("cpu", "cuda")]
        return on_cpu.item(), on_gpu.item(), kinds

    assert on_gpus(1, job, backend=None) == [(1, 1, ["gloo", "nccl"])]


def alone(blocking):
    """Rank 1 never comes; how it ends for rank 0."""

    def whole():
        os.environ["TORCH_NCCL_BLOCKING_WAIT"] = blocking
        rank = int(os.environ["RANK"])
        torch.cuda.set_device(rank)
        store = dist.FileStore(str(Path(os.environ["RANKS_DIRECTORY"], "store")), 2)
        limit = timedelta(seconds=2)
        dist.init_process_group("nccl", store=store, rank=rank, world_size=2, timeout=limit)
        if rank == 1:
            store.wait(["over"], timedelta(seconds=15))  # killed with the pool, at the latest
            return None
        error = raised(dist.all_reduce(ones(), async_op=True).wait)
        torch.cuda.synchronize()
        return error

    with RankPool(2, None, timeout=60, grace=1) as pool:
        return pool.outcomes(whole)[0]


@two_gpus
def test_blocking_wait_raises_on_the_host():
    error = alone("1")
    assert "imed out" in str(error) or "timeout" in str(error)


@two_gpus
def test_a_timeout_ends_the_process():
    """Not an exception that can be handled: what runs on the GPU might compute on rubbish."""
    assert type(alone("0")).__name__ == "RankDiedError"


# -- point to point ------------------------------------------------------------------------


@two_gpus
def test_tags_mean_nothing():
    """Messages pair in order, whatever their tags."""

    def job():
        a, b = torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda")
        if dist.get_rank() == 0:
            dist.send(a + 1, 1, tag=1)
            dist.send(b + 2, 1, tag=2)
        else:
            dist.recv(a, 0, tag=2)
            dist.recv(b, 0, tag=1)
        return a.item(), b.item()

    assert on_gpus(2, job)[1] == (1, 2)


@two_gpus
def test_a_batch_uses_the_current_device():
    def job():
        me, other = dist.get_rank(), 1 - dist.get_rank()
        got = torch.zeros(1, device="cuda")
        ops = [
            dist.P2POp(dist.isend, ones(1) * me, other),
            dist.P2POp(dist.irecv, got, other),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return got.item(), got.device.index == torch.cuda.current_device()

    assert on_gpus(2, job) == [(1, True), (0, True)]


# -- object collectives --------------------------------------------------------------------


def objects(name, item):
    """A call of an object collective with one object; what came back."""
    got = [None] * dist.get_world_size()
    calls = {
        "broadcast_object_list": lambda: dist.broadcast_object_list(item, 0),
        "all_gather_object": lambda: dist.all_gather_object(got, item[0]),
        "gather_object": lambda: dist.gather_object(item[0], got, 0),
        "scatter_object_list": lambda: dist.scatter_object_list(got, item, 0),
    }
    calls[name]()
    return item if name == "broadcast_object_list" else got


OBJECTS = ["broadcast_object_list", "all_gather_object", "gather_object"]


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_travel_on_the_current_device(name):
    def job():
        from torch.distributed import distributed_c10d as c10d

        devices, original = set(), c10d._object_to_tensor

        def spy(obj, device, *rest, **more):
            devices.add(str(device))
            return original(obj, device, *rest, **more)

        c10d._object_to_tensor = spy
        try:
            got = objects(name, ["something"])
        finally:
            c10d._object_to_tensor = original
        return got, devices, f"cuda:{torch.cuda.current_device()}"

    for got, devices, current in on_gpus(1, job):
        assert got == ["something"]
        assert devices in ({current}, {"cuda"})


@two_gpus
def test_object_lists_travel_on_the_current_device():
    """send_object_list and recv_object_list."""

    def job():
        box = [{"rank": 0}] if dist.get_rank() == 0 else [None]
        if dist.get_rank() == 0:
            dist.send_object_list(box, 1)
        else:
            dist.recv_object_list(box, 0)
        return box

    assert on_gpus(2, job) == [[{"rank": 0}]] * 2


@pytest.mark.parametrize("name", [*OBJECTS, "scatter_object_list"])
def test_gpu_tensors_are_copied_through_pickles(name):
    """The whole tensor is in the pickle, so it has been to the host; it comes back to a GPU."""

    def job():
        x = ones(1000)
        (got,) = objects(name, [x])
        return len(pickle.dumps(x)) > x.nbytes, got.device.type, torch.equal(got, x)

    assert on_gpus(1, job) == [(True, "cuda", True)]


@two_gpus
def test_gpu_tensors_in_object_lists():
    def job():
        x = torch.ones(1000, device="cuda:0")
        box = [x] if dist.get_rank() == 0 else [None]
        if dist.get_rank() == 0:
            dist.send_object_list(box, 1)
        else:
            dist.recv_object_list(box, 0)
        return len(pickle.dumps(x)) > x.nbytes, box[0].device == x.device

    assert on_gpus(2, job) == [(True, True)] * 2


@two_gpus
def test_an_unpickled_tensor_is_where_it_was():
    """On the sender's device, whatever device the receiver uses; and that starts a context."""

    def job():
        x = ones(1000)
        got = [None] * 2
        dist.all_gather_object(got, x)
        used = torch.cuda.memory_allocated(1 - dist.get_rank()) > 0
        return [t.device.index for t in got], used

    assert on_gpus(2, job) == [([0, 1], True)] * 2


# -- streams and handles -------------------------------------------------------------------


def test_work_on_the_same_stream_sees_the_output():
    def job():
        x = ones(1_000_000)
        work = dist.all_reduce(x, async_op=True)
        work.wait()  # the stream waits, not this thread
        doubled = 2 * x
        other = torch.cuda.Stream()
        other.wait_stream(torch.cuda.current_stream())  # another stream has to be told
        with torch.cuda.stream(other):
            tripled = 3 * x
        torch.cuda.synchronize()
        return doubled[-1].item(), tripled[-1].item()

    assert on_gpus(1, job) == [(2, 3)]


def test_block_current_stream():
    def job():
        x = ones(1_000_000)
        work = dist.all_reduce(x, async_op=True)
        returned = work.block_current_stream()
        after = x + 1
        torch.cuda.synchronize()
        return returned, after[-1].item(), work.is_completed()

    assert on_gpus(1, job) == [(None, 2, True)]


def test_block_current_stream_of_a_python_work_is_reached():
    def job():
        seen = []

        class Mine(dist.Work):
            def wait(self, timeout=None):
                return True

            def block_current_stream(self):
                seen.append("mine")

        Mine().block_current_stream()
        return seen

    assert on_gpus(1, job) == [["mine"]]


def test_future_of_a_collective():
    """wait() lets the streams wait; then() runs when they are through and hands on its value."""

    def job():
        x = ones(1000)
        work = dist.all_reduce(x, async_op=True)
        future = work.get_future()
        doubled = future.then(lambda done: 2 * done.value()[0])
        future.wait()
        after = x + 1
        result = doubled.wait()
        torch.cuda.synchronize()
        return after[0].item(), result[0].item(), type(future).__name__

    assert on_gpus(1, job) == [(2, 2, "Future")]


def test_future_result():
    def job():
        from torch._C._distributed_c10d import WorkResult

        called = []
        work = dist.all_reduce(ones(), async_op=True)
        future = work.get_future_result()
        future.then(lambda done: called.append(done.value())).wait()
        return future.wait() == future.value() == WorkResult.SUCCESS.value, len(called)

    assert on_gpus(1, job) == [(True, 1)]


def test_wait_needs_no_timeout():
    def job():
        x = ones()
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        y = x + 1
        work.synchronize()
        return y.tolist()

    assert on_gpus(1, job) == [[2, 2, 2, 2]]


def test_blocking_wait_is_not_for_futures():
    """A future's wait() only makes streams wait, even under TORCH_NCCL_BLOCKING_WAIT."""

    def job():
        future = dist.all_reduce(ones(), async_op=True).get_future()
        future.wait()
        torch.cuda.synchronize()
        return future.value()[0].tolist(), dist.barrier(async_op=True).wait()

    assert on_gpus(1, job)[0][0] == [1, 1, 1, 1]


# -- collectives ---------------------------------------------------------------------------


def test_bitwise_operations_are_refused():
    def job():
        x = torch.ones(2, dtype=torch.int32, device="cuda")
        ops = dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR
        return [raised(dist.all_reduce, x, op) is not None for op in ops]

    assert on_gpus(1, job) == [[True] * 3]


def test_barrier():
    """It takes one device id, and holds the caller until it is over."""

    def job():
        torch.cuda._sleep(50_000_000)
        dist.barrier(device_ids=[torch.cuda.current_device()])
        idle = torch.cuda.current_stream().query()
        return idle, raised(dist.barrier, device_ids=0) is not None

    assert on_gpus(1, job) == [(True, True)]


def test_a_sparse_tensor_reaches_its_own_method():
    def job():
        calls = []

        class Recording(dist._Backend):
            def __init__(self, store, rank, size, timeout):
                super().__init__(rank, size)

            def allreduce_sparse(self, tensors, opts):
                calls.append((len(tensors), type(opts).__name__))
                return dist.Work()

        dist.Backend.register_backend("sparse_only", Recording, devices=["cuda"])
        store = dist.HashStore()
        dist.destroy_process_group()
        dist.init_process_group("cuda:sparse_only", store=store, rank=0, world_size=1)
        raised(dist.all_reduce, torch.sparse_coo_tensor([[0]], [1.0], (3,), device="cuda"))
        return calls

    assert on_gpus(1, job)[0][0][0] == 1


# -- this package ----------------------------------------------------------------------------


@pytest.mark.parametrize("delegate", [None, False])
def test_cuda_tensors_through_this_package(delegate):
    """By NCCL where every rank has a GPU, or through the host's memory: the same results."""

    def job():
        import teachdist

        group = dist.new_group(backend="teachdist", pg_options=teachdist.Options(delegate=delegate))
        x = ones()
        with teachdist.trace() as record:
            dist.all_reduce(x, group=group)
        torch.cuda.synchronize()
        return x.tolist(), [call.algorithm for call in record.calls]

    ((values, algorithms),) = on_gpus(1, job)
    assert values == [1, 1, 1, 1]
    assert (algorithms == ["nccl"]) == (delegate is None)
