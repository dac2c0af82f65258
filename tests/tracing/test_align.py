"""Clocks of hosts that differ are put together by the calls that they share."""

import time

import pytest
import torch
import torch.distributed as dist

from teachdist import rehearse
from teachdist.tracing.align import shifts
from teachdist.tracing.blame import blame
from teachdist.tracing.program import Program


def late():
    for step in range(10):
        if dist.get_rank() == step % 4:
            time.sleep(0.02)
        dist.all_reduce(torch.ones(3))


@pytest.mark.parametrize("apart", [0.0, 3.5, -1000.0])
def test_hosts_that_are_apart(apart):
    logs = rehearse(late, ranks=4).logs
    plain = blame(logs)
    hosts = {0: "a", 1: "a", 2: "b", 3: "b"}
    for rank in (2, 3):
        logs[rank].began += apart
        operations = {id(step.operation): step.operation for step in logs[rank].steps}
        for operation in operations.values():
            operation.ended += apart
        for step in logs[rank].steps:
            step.when += apart
            step.until = step.until + apart if step.until is not None else None
    moved = shifts(Program(logs), hosts)
    assert moved[0] == moved[1] == 0.0
    assert moved[2] == moved[3] == pytest.approx(-apart, abs=0.002)
    assert blame(logs, hosts).seconds == pytest.approx(plain.seconds, abs=0.005)
