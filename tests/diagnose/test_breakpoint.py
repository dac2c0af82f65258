"""`dist.breakpoint` on one rank: who has the prompt, who waits, and what q does to them."""

import logging
import os
import pty
import select
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

from teachdist.backend import Options, guard
from teachdist.testing.pool import context

LIMIT = 30.0


def debugged(rank, path, terminal, scene, pipe):
    """One rank's process; the one with a terminal reads its commands from there."""
    if terminal is not None:
        os.dup2(os.open(terminal, os.O_RDWR), 0)
        os.dup2(0, 1)
    dist.init_process_group(
        "teachdist",
        store=dist.FileStore(path, 2),
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=LIMIT),
        pg_options=Options(timeout=timedelta(seconds=LIMIT), hint_after=0.3),
    )
    handler = logging.Handler()
    handler.emit = lambda record: pipe.send(record.getMessage())
    logging.getLogger("teachdist").addHandler(handler)
    began = time.monotonic()
    try:
        with guard():
            said = scene(rank)
    except BaseException as error:  # noqa: BLE001  BdbQuit, and what others make of it
        said = f"{type(error).__name__}: {error}"
    pipe.send((said, began, time.monotonic()))
    dist.destroy_process_group()


class Debugged:
    """Two ranks, one of which stops at a prompt that the test can read and answer."""

    def __init__(self, tmp_path, scene, at=0):
        self._master, slave = pty.openpty()
        self._text = ""
        self.pipes, self.processes = [], []
        for rank in range(2):
            here, there = context.Pipe()
            terminal = os.ttyname(slave) if rank == at else None
            args = (rank, str(tmp_path / "store"), terminal, scene, there)
            process = context.Process(target=debugged, args=args, daemon=True)
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def until(self, text):
        """Read the terminal until `text` has appeared since the last time; all that was read."""
        until = time.monotonic() + LIMIT
        while text not in self._text:
            assert select.select([self._master], [], [], until - time.monotonic())[0], self._text
            self._text += os.read(self._master, 4096).decode()
        before, _, self._text = self._text.partition(text)
        return before

    def type(self, line):
        os.write(self._master, line.encode() + b"\n")

    def next_from(self, rank):
        """The next thing that a rank has logged (a text) or its answer (a tuple)."""
        assert self.pipes[rank].poll(LIMIT)
        return self.pipes[rank].recv()

    def answers(self):
        answers = []
        for rank in range(2):
            while isinstance(said := self.next_from(rank), str):
                pass
            answers.append(said)
        return answers

    def end(self):
        for process in self.processes:
            process.join(5)
            process.kill()
        os.close(self._master)


@pytest.fixture
def debug(tmp_path):
    made = []

    def start(scene, at=0):
        made.append(Debugged(tmp_path, scene, at))
        return made[-1]

    yield start
    for each in made:
        each.end()


def stop_at_0(rank):
    dist.breakpoint(0)
    return "went on"


def stop_at_1_the_third_time(rank):
    for _ in range(3):
        dist.breakpoint(1, skip=2)
    return "went on"


def test_one_prompt_and_the_other_rank_waits_for_its_end(debug):
    ranks = debug(stop_at_0)
    ranks.until("(Pdb) ")
    ranks.type("p __import__('torch').distributed.get_rank() + 40")
    assert "40" in ranks.until("(Pdb) ")
    assert "rank 1 has waited" in ranks.next_from(1)
    ranks.type("c")
    (said, _, ended), (other, began, other_ended) = ranks.answers()
    assert said == other == "went on"
    assert other_ended >= began
    assert abs(other_ended - ended) < 5


def test_skip_and_another_rank(debug):
    ranks = debug(stop_at_1_the_third_time, at=1)
    ranks.until("(Pdb) ")
    ranks.type("c")
    assert [said for said, *_ in ranks.answers()] == ["went on"] * 2


def test_quitting_frees_the_other_rank(debug):
    ranks = debug(stop_at_0)
    ranks.until("(Pdb) ")
    ranks.type("q")
    (said, *_), (other, *_) = ranks.answers()
    assert said.startswith("BdbQuit")
    assert other.startswith("Released: rank 0 failed: BdbQuit, at test_breakpoint.py:")
    assert "(rank 1 was released from barrier() at test_breakpoint.py:" in other


def test_the_waiting_rank_says_that_the_other_is_in_the_debugger(debug):
    ranks = debug(stop_at_0)
    ranks.until("(Pdb) ")
    said = ranks.next_from(1)
    assert "rank 1 has waited" in said
    assert "rank 0 is stopped in the debugger at test_breakpoint.py:" in said
    ranks.type("c")
    ranks.answers()


def test_the_session_outlasts_the_timeout_of_the_group(debug):
    """breakpoint(timeout_s=3600) sets it for every group."""

    ranks = debug(longer_than_the_timeout)
    ranks.until("(Pdb) ")
    ranks.type("c")
    assert [said for said, *_ in ranks.answers()] == [3600.0] * 2


def longer_than_the_timeout(rank):
    from teachdist.backend import communicators

    dist.breakpoint(0)
    return communicators()[0].timeout
