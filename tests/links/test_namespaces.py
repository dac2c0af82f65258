"""Two hosts on one machine: network namespaces joined by a virtual cable, two ranks in each.

Ranks of one namespace share memory, ranks of two talk over the cable; hierarchical algorithms use
both. Needs root and iproute2, so it is skipped where these are not to be had, and in CI.
"""

import ctypes
import os
import shutil
import subprocess
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist
from calls import CALLS
from ranks import shared_pool

_CLONE_NEWNET = 0x40000000


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def cable():
    """Two namespaces; their names."""
    if os.environ.get("CI"):
        pytest.skip("makes network namespaces, which CI must not do as root")
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("needs root and the command `ip` to make network namespaces")
    tag = uuid.uuid4().hex[:6]
    names = [f"td{tag}{end}" for end in "ab"]
    try:
        for name in names:
            ip("netns", "add", name)
        ends = [f"ve{tag}{end}" for end in "ab"]
        ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for i, (name, end) in enumerate(zip(names, ends, strict=True)):
            ip("link", "set", end, "netns", name)
            inside = ("-n", name)
            ip(*inside, "link", "set", end, "name", "cable0")
            ip(*inside, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "cable0")
            ip(*inside, "-6", "addr", "add", f"fd77::{i + 1}/64", "dev", "cable0", "nodad")
            ip(*inside, "link", "set", "cable0", "up")
            ip(*inside, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        remove(names)
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    yield names
    remove(names)


def remove(names):
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def move_to(name):
    """This thread, and those it starts, live in a network namespace from now on."""
    with open(f"/var/run/netns/{name}") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def scene(names, address, algorithms):
    import teachdist.backend
    from teachdist.backend import communicators

    rank = int(os.environ["RANK"])
    with open("/proc/self/ns/net") as home:
        move_to(names[rank // 2])
        try:
            if address is None:
                os.environ["TEACHDIST_SOCKET_IFNAME"] = "cable0"
                path = Path(os.environ["RANKS_DIRECTORY"], "store")
                path.unlink(missing_ok=True) if rank == 0 else None
                store = dist.FileStore(str(path) + "-ns", 4)
            else:
                store = dist.TCPStore(address, 29771, 4, rank == 0, timedelta(seconds=20))
            dist.init_process_group("teachdist", store=store, rank=rank, world_size=4)
            with teachdist.backend.use(**algorithms):
                for call in CALLS.values():
                    for n in (5, 400_000):
                        call(None, rank, 4, n)
            (communicator,) = communicators()
            kinds = {peer: type(link).__name__ for peer, link in communicator.links.kinds.items()}
            listens = communicator.peers.known(rank).address[0]
            connections = communicator.links.connections
            dist.destroy_process_group()
            return kinds, listens, connections
        finally:
            os.environ.pop("TEACHDIST_SOCKET_IFNAME", None)
            ctypes.CDLL(None).setns(home.fileno(), _CLONE_NEWNET)


TWO_LEVELS = {
    "all_reduce": "two_level",
    "broadcast": "two_level",
    "reduce": "two_level",
    "all_gather": "two_level",
    "barrier": "two_level",
}


@pytest.mark.parametrize(
    ("address", "listens"),
    [
        ("10.77.0.1", ["10.77.0.1", "10.77.0.2"]),
        ("fd77::1", ["fd77::1", "fd77::2"]),
        (None, ["10.77.0.1", "10.77.0.2"]),
    ],
    ids=["IPv4", "IPv6", "an interface by name"],
)
def test_two_hosts(cable, address, listens):
    found = shared_pool(4, backend=None).run(scene, cable, address, TWO_LEVELS)
    for rank, (kinds, at, connections) in enumerate(found):
        here = rank ^ 1
        assert kinds == {
            peer: "ShmLinks" if peer == here else "TcpLinks" for peer in range(4) if peer != rank
        }
        assert at == listens[rank // 2]
        assert connections <= 2


def test_the_algorithms_of_the_catalogue(cable):
    shared_pool(4, backend=None).run(scene, cable, "10.77.0.1", {})
    simple = {"all_reduce": "ring", "broadcast": "binomial", "all_to_all": "bruck"}
    shared_pool(4, backend=None).run(scene, cable, "10.77.0.1", simple)


def test_an_interface_that_is_not_there():
    from teachdist.links.rendezvous.address import address_of_interface

    with pytest.raises(ValueError, match="no such interface"):
        address_of_interface("nowhere9")
