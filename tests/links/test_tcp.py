"""Room for what comes in over sockets: used again, and never much of it."""

import torch

from teachdist.links.tcp import Rooms


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
