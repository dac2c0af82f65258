"""TEACHDIST_RULES=nccl: sends of real ranks wait for their receives. And traces of real runs."""

import os

import pytest
import torch
import torch.distributed as dist
from scenes import play

from teachdist import tracing


def by_the_rules(program):
    """The program, with the variable set while it runs."""

    def scene(rank):
        os.environ["TEACHDIST_RULES"] = "nccl"
        try:
            return program(rank)
        finally:
            del os.environ["TEACHDIST_RULES"]

    return scene


def test_both_send_first_hangs_and_is_told():
    def program(rank):
        dist.send(torch.ones(5), 1 - rank)
        dist.recv(torch.ones(5), 1 - rank)

    for outcome in play(by_the_rules(program), timeout=1.5, options={"hint_after": 0.2}):
        assert "send(float32[5], dst=rank" in outcome.said
        assert "ranks 0 and 1 wait for each other" in outcome.said
        assert outcome.error is not None


def test_what_nccl_can_do_works():
    def program(rank):
        mine, theirs, other = torch.full((3,), float(rank)), torch.zeros(3), 1 - rank
        for sender in (0, 1):
            if rank == sender:
                dist.send(mine, other)
            else:
                dist.recv(theirs, other)
        tagged = [torch.zeros(3), torch.zeros(3)]
        works = [dist.irecv(t, other, tag=tag) for tag, t in zip((1, 2), tagged, strict=True)]
        works += [dist.isend(mine + tag, other, tag=tag) for tag in (2, 1)]
        for work in works:
            work.wait()
        return [t[0].item() for t in (theirs, *tagged)]

    values = [outcome.value for outcome in play(by_the_rules(program))]
    assert values == [[1.0, 2.0, 3.0], [0.0, 1.0, 2.0]]


def test_a_receive_must_name_its_source():
    def program(rank):
        if rank == 0:
            with pytest.raises(ValueError, match="a receive must name its source"):
                dist.recv(torch.ones(1))

    assert all(outcome.error is None for outcome in play(by_the_rules(program)))


def test_the_traces_of_a_real_run_are_judged():
    def program(rank):
        with tracing.trace() as t:
            dist.all_reduce(torch.ones(2))
            dist.send(torch.ones(2), 1 - rank)
            dist.recv(torch.ones(2), 1 - rank)
        traces = tracing.gather(t)
        assert not t.check("mpi").findings
        return str(traces.check("gloo")), [step.what for step in t.log.steps]

    for outcome in play(program):
        assert outcome.error is None, outcome.said
        said, steps = outcome.value
        assert "wait for each other: rank 0 waits in send(float32[2], dst=rank 1, tag=0) at" in said
        assert steps == ["begin", "wait"] * 3
