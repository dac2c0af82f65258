"""Room for what comes in over sockets: used again, and never much of it."""

import os

import torch
import torch.distributed as dist
from ranks import shared_pool

from teachdist.links.collective.tcp import Rooms


def test_room_is_used_again():
    rooms = Rooms()
    first = rooms.take(1000, torch.float32)
    rooms.give_back(first)
    assert rooms.take(1000, torch.float32) is first
    assert rooms.take(1000, torch.float32) is not first
    assert rooms.take(1000, torch.float64).dtype == torch.float64


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(Rooms, "MOST_BYTES", 1 << 20)
    rooms = Rooms()
    for numel in (100_000, 200_000, 300_000):
        for room in [rooms.take(numel, torch.float32) for _ in range(20)]:
            rooms.give_back(room)
            kept = sum(tensor.nbytes for free in rooms._free.values() for tensor in free)
            assert kept == rooms._bytes <= Rooms.MOST_BYTES + room.nbytes


def test_a_kept_call_does_not_hold_on_to_what_it_received():
    def job():
        from teachdist.backend import communicators

        os.environ["TEACHDIST_SHM"] = "0"
        try:
            group = dist.new_group(backend="teachdist")
            x = torch.ones(100_000)
            for _ in range(2):
                dist.all_reduce(x, group=group)
        finally:
            del os.environ["TEACHDIST_SHM"]
        (communicator,) = [m for m in communicators() if m.name == group.group_name]
        kept = list(communicator.persistent._known.values())
        return len(kept), [step.known for call in kept for step in call.script.steps]

    for kept, known in shared_pool(2, "teachdist").run(job):
        assert kept == 1
        assert known
        assert not any(known)
