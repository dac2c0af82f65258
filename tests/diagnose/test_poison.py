"""Pending outputs under TEACHDIST_POISON, and that nothing else changes."""

import pytest
import torch
import torch.distributed as dist
from scenes import play
from torch.nn.parallel import DistributedDataParallel

from teachdist.diagnose.poison import Poisoned, poison_like, poisoning


def values(outcomes):
    for outcome in outcomes:
        assert outcome.error is None, outcome.said
    return [outcome.value for outcome in outcomes]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]
)
def test_poison_is_no_result(dtype):
    poison = poison_like(torch.zeros(2, dtype=dtype))
    assert poison.dtype == dtype
    assert (poison != torch.zeros(2, dtype=dtype)).all()


def test_poison_hides_and_comes_off():
    x = torch.arange(4.0)
    poisoned = Poisoned([x, x])
    assert x.isnan().all()
    assert poisoned.real(x).tolist() == [0, 1, 2, 3]
    poisoned.lift()
    assert x.tolist() == [0, 1, 2, 3]
    poisoned.lift()


def test_whoever_does_not_wait_sees_poison():
    def scene(rank):
        x = torch.full((3,), rank + 1.0)
        strided = torch.ones(4, 2).t()
        with poisoning():
            works = [dist.all_reduce(x, async_op=True), dist.all_reduce(strided, async_op=True)]
        dist.barrier()  # both are over long since, but nobody has been told
        early = [x.isnan().all().item(), strided.isnan().all().item()]
        for work in works:
            work.wait()
        return early, x.tolist(), strided.sum().item()

    assert values(play(scene)) == [([True, True], [3, 3, 3], 16)] * 2


def test_lists_receives_and_roots():
    def scene(rank):
        out = [torch.zeros(1), torch.zeros(1)]
        source, box = torch.full((1,), float(rank)), torch.zeros(1)
        with poisoning():
            gather = dist.all_gather(out, source, async_op=True)
            cast = dist.broadcast(source, 0, async_op=True)
            mail = dist.irecv(box, 1 - rank)
            dist.send(torch.full((1,), 5.0 + rank), 1 - rank)
        early = [t.isnan().item() for t in (*out, source, box)]
        gather.wait()
        cast.wait()
        mail.wait()
        return early, [t.item() for t in (*out, source, box)]

    first, second = values(play(scene))
    assert first == ([True, True, False, True], [0, 1, 0, 6])
    assert second == ([True, True, True, True], [0, 1, 0, 5])


def test_futures_and_models_see_results():
    def scene(rank):
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(3, 1))
        x = torch.ones(1)
        with poisoning():
            model(torch.full((2, 3), rank + 1.0)).sum().backward()
            future = dist.all_reduce(x, async_op=True).get_future()
        return model.module.weight.grad[0, 0].item(), future.wait()[0].item(), x.item()

    assert values(play(scene)) == [(3, 2, 2)] * 2
