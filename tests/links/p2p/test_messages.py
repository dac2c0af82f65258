"""Mail: matching by sender and tag, both ways at once, with and without shared memory."""

import os
import random
import time

import pytest
import torch
import torch.distributed as dist
from scenes import play

HOSTS = [None, ("a", "b", "c")]
pytestmark = pytest.mark.parametrize("hosts", HOSTS, ids=["memory", "sockets"])


def perform(scene, hosts, n=2):
    outcomes = play(scene, n=n, hosts=hosts)
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return [outcome.value for outcome in outcomes]


def test_large_messages_cross_without_waiting_for_each_other(hosts):
    def scene(rank):
        x, y = torch.full((3_000_000,), float(rank)), torch.zeros(3_000_000)
        for _ in range(3):
            y.zero_()
            dist.send(x, 1 - rank)
            dist.recv(y, 1 - rank)
            assert y.eq(1 - rank).all()

    def ordered(rank):  # blocking sends that cross need one side to receive first
        x, y = torch.full((3_000_000,), float(rank)), torch.zeros(3_000_000)
        for _ in range(3):
            y.zero_()
            sent = dist.isend(x, 1 - rank)
            dist.recv(y, 1 - rank)
            sent.wait()
            assert y.eq(1 - rank).all()

    perform(ordered, hosts)
    perform(scene, hosts)


def test_tags_sort_messages(hosts):
    def scene(rank):
        if rank == 0:
            for tag in range(5):
                dist.send(torch.full((tag + 1,), float(tag)), 1, tag=tag)
            return
        for tag in (3, 0, 4, 1, 2):
            y = torch.zeros(tag + 1)
            dist.recv(y, 0, tag=tag)
            assert y.eq(tag).all()

    perform(scene, hosts)


def test_messages_of_one_tag_keep_their_order(hosts):
    def scene(rank):
        if rank == 0:
            for k in range(50):
                dist.send(torch.tensor([float(k)]), 1)
            return
        for k in range(50):
            y = torch.zeros(1)
            dist.recv(y, 0)
            assert y.item() == k

    perform(scene, hosts)


def test_receives_posted_first_are_served_in_order(hosts):
    def scene(rank):
        if rank == 0:
            dist.barrier()
            for k in range(10):
                dist.send(torch.tensor([float(k)]), 1)
            return
        ys = [torch.zeros(1) for _ in range(10)]
        works = [dist.irecv(y, 0) for y in ys]
        dist.barrier()
        for work in reversed(works):
            work.wait()
        assert [y.item() for y in ys] == list(range(10))

    perform(scene, hosts)


def test_from_whoever_sends(hosts):
    def scene(rank):
        if rank:
            dist.send(torch.tensor([float(rank)]), 0)
            return
        seen = {}
        for _ in range(2):
            y = torch.zeros(1)
            source = dist.recv(y)
            seen[source] = y.item()
        assert seen == {1: 1.0, 2: 2.0}

    perform(scene, hosts, n=3)


def test_sends_that_nobody_waits_for_arrive(hosts):
    def scene(rank):
        x, y = torch.full((500_000,), 1.0 + rank), torch.zeros(500_000)
        other = 1 - rank
        work = dist.isend(x, other), dist.irecv(y, other)
        until = time.monotonic() + 20
        while not all(w.is_completed() for w in work) and time.monotonic() < until:
            time.sleep(0.01)
        assert y.eq(2.0 - rank).all()

    perform(scene, hosts)


def test_what_was_sent_before_a_rank_left_can_be_received(hosts):
    """Rank 0 sends and destroys its group; rank 1 looks only then."""

    def scene(rank):
        mark = f"{os.environ['RANKS_DIRECTORY']}/left-{hosts is None}"
        if rank == 0:
            dist.send(torch.full((1000,), 5.0), 1, tag=1)
            dist.send(torch.full((1000,), 6.0), 1, tag=2)
            dist.destroy_process_group()
            open(mark, "w").close()
            return
        y = torch.zeros(1)
        dist.irecv(y, 0, tag=9)  # makes the connection
        while not os.path.exists(mark):
            time.sleep(0.01)
        for tag in (2, 1):
            y = torch.zeros(1000)
            dist.recv(y, 0, tag=tag)
            assert y.eq(4 + tag).all()

    perform(scene, hosts)


@pytest.mark.parametrize("seed", range(3))
def test_random_traffic(hosts, seed):
    """Messages of all sizes between three ranks, sent and received in different orders."""

    def scene(rank):
        chance = random.Random(seed)
        sizes = (0, 1, 5, 1000, 20_000, 300_000)
        requests = [
            (*chance.sample(range(3), 2), chance.randrange(4), chance.choice(sizes), k)
            for k in range(60)
        ]
        works, boxes = [], []
        for source, to, tag, size, k in requests:
            if source == rank:
                works.append(dist.isend(torch.full((size,), float(k)), to, tag=tag))
            if to == rank:
                y = torch.zeros(size)
                boxes.append((y, k))
                works.append(dist.irecv(y, source, tag=tag))
        random.Random(rank).shuffle(works)
        for work in works:
            work.wait()
        for y, k in boxes:
            assert y.eq(k).all(), k

    perform(scene, hosts, n=3)


def test_a_message_that_does_not_fit_names_both_sides(hosts):
    def scene(rank):
        if rank == 0:
            dist.send(torch.zeros(3), 1)
            dist.send(torch.zeros(4), 1)
            return None
        try:
            dist.recv(torch.zeros(4), 0)
        except dist.DistError as error:
            dist.recv(torch.zeros(4), 0)  # the next one fits
            return str(error)
        return None

    _, said = perform(scene, hosts)
    assert "float32[3]" in said
    assert "float32[4]" in said


def test_the_number_of_connections_is_known(hosts):
    def scene(rank):
        from teachdist.backend import communicators
        from teachdist.links.rendezvous.listener import P2P

        (communicator,) = communicators()
        before = communicator.links.connections, len(communicator.peers.sockets(P2P).connections)
        dist.all_reduce(torch.ones(1))
        between = communicator.links.connections
        if rank == 0:
            dist.send(torch.ones(1), 1)
        else:
            dist.recv(torch.ones(1), 0)
        return before, between, len(communicator.peers.sockets(P2P).connections)

    sockets = 0 if hosts is None else 1
    assert perform(scene, hosts) == [((0, 0), sockets, 1)] * 2
