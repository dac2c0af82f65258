"""An order among ranks."""

import pytest
import torch
import torch.distributed as dist

from teachdist import rehearse
from teachdist.testing import Sequencer


@pytest.mark.ranks(3)
def test_steps_follow_each_other_on_whatever_rank():
    steps = dist.TCPStore("localhost", 1, 3, dist.get_rank() == 0)
    step = 2 - dist.get_rank()
    with Sequencer()(step):
        steps.append("taken", str(step))
    dist.barrier()
    assert steps.get("taken") == b"012"


@pytest.mark.ranks(2)
def test_sequencers_made_at_one_place_are_one():
    first, second = Sequencer(), Sequencer()
    if dist.get_rank():
        with first(1):
            pass
        with second(0):
            pass
    else:
        with first(0):
            pass
        with second(1):
            dist.send(torch.ones(1), 1)
    if dist.get_rank():
        dist.recv(torch.ones(1), 0)


def told(program):
    with pytest.raises(rehearse.RehearsalError) as caught:
        rehearse(program, ranks=2)
    return str(caught.value)


def test_a_step_that_cannot_come_is_told_at_once():
    def program():
        with Sequencer()(dist.get_rank() + 1):
            pass

    words = told(program)
    assert "Nobody can go on: ranks 0 and 1 wait in TCPStore." in words


@pytest.mark.parametrize(
    ("steps", "words"), [((0, 0), "step 0 was taken already"), ((-1, 0), "begin at 0, got -1")]
)
def test_wrong_steps(steps, words):
    def program():
        with Sequencer()(steps[dist.get_rank()]):
            pass

    assert words in told(program)


def test_after_a_failure_the_next_step_does_not_begin():
    begun = []

    def program():
        with Sequencer()(dist.get_rank()):
            begun.append(dist.get_rank())
            raise KeyError("lost")

    assert "rank 0 failed: KeyError: 'lost'" in told(program)
    assert begun == [0]
