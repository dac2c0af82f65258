"""Pipeline schedules: stages on different ranks pass activations and gradients along."""

import pytest
import torch
import torch.distributed as dist
from both import gradients, mlp, on_both, world
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)

MICROBATCHES = 8
WIDTH = 6


def layers(count):
    """The whole network, a layer per stage."""
    torch.manual_seed(0)
    return [mlp(WIDTH, WIDTH, WIDTH) for _ in range(count)]


def data():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 2 * MICROBATCHES, WIDTH, generator=generator)


def mean_square(output, target):
    return (output - target).square().mean()


def run(backend, kind, per_rank):
    """A step of the pipeline: losses (on the last rank) and the gradients of this rank's stages."""
    rank, size = dist.get_rank(), dist.get_world_size()
    total = size * per_rank
    whole = layers(total)
    mine = range(rank, total, size)
    stages = [
        PipelineStage(whole[i], i, total, torch.device("cpu"), group=world(backend)) for i in mine
    ]
    schedule = kind(
        stages if per_rank > 1 else stages[0], n_microbatches=MICROBATCHES, loss_fn=mean_square
    )
    inputs, target = data()
    losses = []
    first = (inputs,) if rank == 0 else ()
    if rank == size - 1:
        output = schedule.step(*first, target=target, losses=losses)
    else:
        output = schedule.step(*first)
    return (
        [loss.detach() for loss in losses],
        output.detach() if rank == size - 1 else None,
        [gradients(stage.submod) for stage in stages],
    )


@pytest.mark.parametrize(
    ("kind", "per_rank"), [(ScheduleGPipe, 1), (Schedule1F1B, 1), (ScheduleInterleaved1F1B, 2)]
)
@pytest.mark.parametrize("n", [4, 2])
def test_schedule(kind, per_rank, n):
    results = on_both(run, kind, per_rank, uses=set(), n=n)
    losses, output, _ = results[-1]
    assert len(losses) == MICROBATCHES

    whole = torch.nn.Sequential(*layers(n * per_rank))
    inputs, target = data()
    alone = whole(inputs)
    mean_square(alone, target).backward()
    torch.testing.assert_close(output, alone)
    torch.testing.assert_close(torch.stack(losses).mean(), mean_square(alone, target))
    for rank, (_, _, found) in enumerate(results):
        for stage, grads in zip(range(rank, n * per_rank, n), found, strict=True):
            torch.testing.assert_close(grads, gradients(whole[stage]))
