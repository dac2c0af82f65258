"""Work: every method of the documentation, as far as torch lets Python reach it."""

import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import on, raised
from threaded import opts_of, threaded

from teachdist.backend.work import AllWorks, Work


def test_asynchronous_handle():
    """isinstance, wait, is_completed, is_success, exception, result, synchronize."""

    def job():
        import warnings

        warnings.simplefilter("ignore")
        tensor = torch.ones(2)
        handle = dist.all_reduce(tensor, async_op=True)
        waited = handle.wait()
        return (
            isinstance(handle, dist.Work),
            waited,
            handle.is_completed(),
            handle.is_success(),
            handle.exception(),
            [t.tolist() for t in handle.result()],
            handle.synchronize(),
            tensor.tolist(),
        )

    assert on(2, job) == [(True, True, True, True, None, [[2, 2]], None, [2, 2])] * 2


def test_output_is_right_after_wait():
    """CPU: after wait, and after a synchronous call, whatever uses the output is right."""

    def job():
        late = torch.tensor([float(dist.get_rank())])
        handle = dist.all_reduce(late, async_op=True)
        handle.wait()
        late.add_(100)
        now = torch.tensor([float(dist.get_rank())])
        dist.all_reduce(now)
        return late.item(), (now + 100).item()

    assert on(2, job) == [(101, 101)] * 2


def test_before_the_end():
    """is_completed and is_success are False, result raises; the source of a collective too."""

    def job():
        import warnings

        warnings.simplefilter("ignore")
        rank, tensor = dist.get_rank(), torch.ones(1)
        if rank == 1:
            dist.recv(torch.zeros(1), src=0)
            dist.all_reduce(tensor)
            return None
        handle = dist.all_reduce(tensor, async_op=True)
        early = handle.is_completed(), handle.is_success(), raised(handle.result)
        dist.send(torch.zeros(1), dst=1)
        handle.wait()
        return early, handle.is_success(), raised(handle.source_rank)[0]

    early, success, source = on(2, job)[0]
    assert early[:2] == (False, False)
    assert early[2][0] == "RuntimeError"
    assert success
    assert source == "RuntimeError"


def test_get_future():
    """A Future of the list of output tensors; done, value, then, callbacks."""

    def job():
        tensor = torch.ones(2)
        future = dist.all_reduce(tensor, async_op=True).get_future()
        value = future.wait()
        chained = future.then(lambda f: f.value()[0] * 10).wait()
        gathered = [torch.zeros(1) for _ in range(2)]
        lists = dist.all_gather(gathered, torch.ones(1), async_op=True).get_future().wait()
        barrier = dist.barrier(async_op=True).get_future().wait()
        return (
            isinstance(future, torch._C.Future),
            future.done(),
            value[0] is tensor or value[0].data_ptr() == tensor.data_ptr(),
            [t.tolist() for t in future.value()],
            chained.tolist(),
            len(lists),
            barrier,
        )

    assert on(2, job) == [(True, True, True, [[2, 2]], [20, 20], 2, [])] * 2


def test_future_of_point_to_point():
    def job():
        tensor = torch.full((1,), float(dist.get_rank()))
        first = dist.get_rank() == 0
        handle = dist.isend(tensor, dst=1) if first else dist.irecv(tensor, src=0)
        return handle.get_future().wait()[0].item()

    assert on(2, job) == [0, 0]


def test_get_future_result():
    """A Future of WorkResult's number for success."""

    def job():
        handle = dist.all_reduce(torch.ones(1), async_op=True)
        future = handle.get_future_result()
        called = []
        future.then(lambda f: called.append(f.value())).wait()
        from torch._C._distributed_c10d import WorkResult

        return future.wait(), future.value() == WorkResult.SUCCESS.value, called

    assert on(2, job) == [(0, True, [0])] * 2


def test_boxed():
    def job():
        handle = dist.all_reduce(torch.ones(1), async_op=True)
        again = dist.Work.unbox(handle.boxed())
        return isinstance(again, dist.Work), again.wait(), again.is_completed()

    assert on(2, job) == [(True, True, True)] * 2


def test_block_current_stream():
    """On the CPU there is no stream: the caller itself waits."""

    def job():
        tensor = torch.ones(1)
        handle = dist.all_reduce(tensor, async_op=True)
        handle.block_current_stream()
        return tensor.item()

    assert on(2, job) == [2, 2]


def test_source_rank():
    """After a receive from anybody it is the sender; dist.recv tells by it who sent."""

    def job():
        rank, tensor = dist.get_rank(), torch.zeros(1)
        if rank != 0:
            return dist.send(torch.tensor([float(rank)]), dst=0)
        import warnings

        warnings.simplefilter("ignore")
        handle = dist.irecv(tensor)
        handle.wait()
        first = handle.source_rank(), tensor.item()
        return {first, (dist.recv(tensor), tensor.item())}

    assert on(3, job)[0] == {(1, 1.0), (2, 2.0)}


def test_wait_with_timeout():
    """The documented try/except: wait raises no sooner than the timeout and the work goes on."""

    def job():
        tensor = torch.ones(1)
        if dist.get_rank() == 1:
            dist.recv(torch.zeros(1), src=0)
            return dist.all_reduce(tensor)
        handle = dist.all_reduce(tensor, async_op=True)
        began = time.monotonic()
        try:
            handle.wait(timedelta(seconds=0.3))
            error = None
        except RuntimeError as failed:
            error = str(failed)
        took = time.monotonic() - began
        dist.send(torch.zeros(1), dst=1)
        return error, took, handle.wait(), tensor.item()

    error, took, waited, value = on(2, job)[0]
    assert "0.3 s" in error
    assert took >= 0.3
    assert (waited, value) == (True, 2)


def test_ddp_hook_example():
    """The documented communication hook: the future of an asynchronous all_reduce."""

    def job():
        from torch.nn.parallel import DistributedDataParallel

        def allreduce(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            group = dist.group.WORLD if state is None else state
            tensor = bucket.buffer().div_(group.size())
            future = dist.all_reduce(tensor, group=group, async_op=True).get_future()
            return future.then(lambda f: f.value()[0])

        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
        model.register_comm_hook(state=None, hook=allreduce)
        model(torch.full((1, 2), dist.get_rank() + 1.0)).sum().backward()
        return model.module.weight.grad.tolist()

    assert on(2, job) == [[[1.5, 1.5]]] * 2


def test_failure_travels_as_it_is():
    """wait, exception, is_success and the future tell of one failure, and nothing crashes."""

    def job(backend, rank):
        opts = opts_of("AllreduceOptions", True)
        work = backend.allreduce([torch.ones(1 + rank)], opts)
        error = raised(work.wait)
        future = raised(work.get_future().wait)
        return (
            error,
            type(work.exception()).__name__,
            work.is_success(),
            work.is_completed(),
            future,
        )

    for error, kind, success, completed, future in threaded(2).run(job):
        assert error[0] == kind
        assert "float32[1]" in error[1]
        assert "float32[2]" in error[1]
        assert (success, completed) == (False, True)
        assert "float32[2]" in future[1]


def test_failure_through_the_reducer():
    """DDP's backward waits in C++: a rank that is missing is an exception there, not a crash."""

    def job():
        from torch.nn.parallel import DistributedDataParallel

        from teachdist.backend import recover, release

        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(2, 1))
        loss = model(torch.ones(1, 2)).sum()
        if dist.get_rank() == 1:
            release(ValueError("no gradient today"))
            error = None
        else:
            error = raised(loss.backward)
        recover()
        return error

    error, _ = on(2, job)
    assert "rank 1 failed: ValueError: no gradient today" in error[1]


def test_first_settlement_counts():
    work = Work([])
    work.finish()
    work.finish(ValueError("late"))
    assert work.wait()
    assert work.exception() is None


def test_future_after_the_end():
    """A future that is asked for late is done at once, on either outcome."""
    good, bad = Work([torch.ones(1)]), Work([])
    good.finish()
    bad.finish(ValueError("it broke"))
    assert good.get_future().done()
    assert good.get_future() is good.get_future()
    with pytest.raises(RuntimeError, match="it broke"):
        bad.get_future().wait()


def test_callback_may_wait_for_another_collective():
    """Futures complete on a thread of their own, so a callback may call and wait."""

    def job():
        second = torch.ones(1)

        def also(future):
            dist.all_reduce(second)
            return future.value()[0] + second

        first = torch.ones(1)
        return dist.all_reduce(first, async_op=True).get_future().then(also).wait().item()

    assert on(2, job) == [4, 4]


@pytest.mark.parametrize("deep", [1, 3])
def test_callback_may_wait_for_another_future(deep):
    """As PowerSGD's do: no completion queues behind a callback that waits for it."""

    def job():
        def more(left):
            future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
            if left:
                return future.then(lambda done: done.value()[0] + more(left - 1).wait())
            return future.then(lambda done: done.value()[0])

        return more(deep).wait().item()

    assert on(2, job) == [2 + 2 * deep] * 2


def test_callback_may_wait_for_an_earlier_future():
    def job():
        works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(2)]
        futures = [work.get_future() for work in works]
        both = futures[0].then(lambda first: first.value()[0] + futures[1].wait()[0])
        return both.wait().item()

    assert on(2, job) == [4, 4]


def test_waiting_threads():
    """Several threads may wait for one work."""
    work, seen = Work([]), []
    threads = [threading.Thread(target=lambda: seen.append(work.wait())) for _ in range(3)]
    for thread in threads:
        thread.start()
    work.finish()
    for thread in threads:
        thread.join()
    assert seen == [True] * 3


class TestAllWorks:
    def test_over_when_all_are(self):
        parts = [Work([torch.zeros(1)]), Work([torch.ones(1)])]
        both = AllWorks(parts)
        parts[0].finish()
        assert not both.is_completed()
        parts[1].finish()
        assert both.is_completed()
        assert both.is_success()
        assert both.wait()
        assert [t.item() for t in both.result()] == [0, 1]
        assert [t.item() for t in both.get_future().wait()] == [0, 1]

    def test_failed_when_one_is(self):
        parts = [Work([]), Work([])]
        both = AllWorks(parts)
        parts[0].finish()
        parts[1].finish(ValueError("second"))
        assert not both.is_success()
        assert str(both.exception()) == "second"
        with pytest.raises(ValueError, match="second"):
            both.wait()

    def test_of_nothing(self):
        assert AllWorks([]).wait()
