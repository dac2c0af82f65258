"""What torch's profilers show of this backend."""

import pytest
import torch
import torch.distributed as dist
from ranks import on

pytestmark = pytest.mark.filterwarnings("ignore")


def test_documented_example():
    """A profiled all_reduce of a randn(20, 10): the operator and the backend's event, once each."""

    def job():
        tensor = torch.randn(20, 10)
        with torch.profiler.profile() as profile:
            dist.all_reduce(tensor)
        return {event.key: event.count for event in profile.key_averages()}

    for counts in on(2, job):
        assert counts["teachdist:all_reduce"] == 1
        assert counts["c10d::allreduce_"] == 1


CALLS = {
    "all_reduce": lambda t, n, r: dist.all_reduce(t),
    "broadcast": lambda t, n, r: dist.broadcast(t, src=0),
    "reduce": lambda t, n, r: dist.reduce(t, dst=0),
    "all_gather": lambda t, n, r: dist.all_gather([torch.zeros(2) for _ in range(n)], t),
    "_all_gather_base": lambda t, n, r: dist.all_gather_single(torch.zeros(2 * n), t),
    "_reduce_scatter_base": lambda t, n, r: dist.reduce_scatter_single(torch.zeros(1), t),
    "reduce_scatter": lambda t, n, r: dist.reduce_scatter(t, [torch.zeros(2) for _ in range(n)]),
    "gather": lambda t, n, r: dist.gather(
        t, [torch.zeros(2) for _ in range(0 if r else n)] or None
    ),
    "scatter": lambda t, n, r: dist.scatter(t, None if r else [torch.ones(2)] * n, src=0),
    "all_to_all": lambda t, n, r: dist.all_to_all_single(torch.zeros(2), t),
    "barrier": lambda t, n, r: dist.barrier(),
    "send": lambda t, n, r: dist.recv(t, 0) if r else dist.send(t, 1),
    "recv": lambda t, n, r: dist.recv(t, 0) if r else dist.send(t, 1),
    "recvAnySource": lambda t, n, r: dist.recv(t) if r else dist.send(t, 1),
}


@pytest.mark.parametrize("title", CALLS)
@pytest.mark.parametrize("profiler", ["torch.profiler", "torch.autograd.profiler"])
def test_every_operation(title, profiler):
    """Events as users know them, asynchronous (closed on another thread), beside torch's own."""

    def job():
        rank, tensor = dist.get_rank(), torch.ones(2)
        where = torch.profiler if profiler == "torch.profiler" else torch.autograd.profiler
        with where.profile() as profile:
            CALLS[title](tensor, 2, rank)
            tensor.add(1)
        events = list(profile.events() if profiler == "torch.profiler" else profile.function_events)
        named = [event for event in events if event.name == f"teachdist:{title}"]
        torchs = any(event.name == "aten::add" for event in events)
        return [(event.is_async, event.count) for event in named], torchs

    results = on(2, job)
    sides = {"send": [0], "recv": [1], "recvAnySource": [1]}.get(title, [0, 1])
    for rank in sides:
        assert results[rank] == ([(True, 1)], True)


def test_shapes_of_the_inputs():
    def job():
        with torch.autograd.profiler.profile(record_shapes=True) as profile:
            dist.all_reduce(torch.ones(3, 4), async_op=True).wait()
        return [e.input_shapes for e in profile.function_events if e.name == "teachdist:all_reduce"]

    assert on(2, job) == [[[[3, 4]]]] * 2


def test_nothing_without_a_profiler():
    def job():
        from teachdist.backend.execution.profiling import opened

        return opened("all_reduce", [torch.ones(1)])

    assert on(2, job) == [None, None]


def test_a_callback_that_calls_a_collective_does_not_hang():
    """Events close on the thread of callbacks, which may be waiting for the very call."""

    def job():
        def again(done):
            x = done.value()[0].clone()
            dist.all_reduce(x)
            return x

        with torch.profiler.profile():
            future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
            return future.then(again).wait().tolist()

    assert on(2, job) == [[4.0, 4.0]] * 2
