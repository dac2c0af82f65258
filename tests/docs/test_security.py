"""What the page on security says of who listens where, asked of the system."""

import os
import socket

import psutil
import pytest
import torch.distributed as dist
from ranks import run_ranks


def listening():
    """The addresses on which this process listens."""
    found = psutil.Process().net_connections()
    return {one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN}


EVERYWHERE = {"::", "0.0.0.0"}


@pytest.mark.parametrize("ours", [True, False])
def test_a_job_whose_store_is_ours_listens_on_the_loopback_only(ours):
    """Started by hand on one machine; with torch's store it listens on all interfaces as well."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def job():
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        if ours:
            from teachdist.stores import rendezvous

            rendezvous.use_for_rendezvous()
        dist.init_process_group("teachdist")
        try:
            dist.barrier()
            return listening()
        finally:
            dist.destroy_process_group()

    first, second = run_ranks(2, job, backend=None)
    assert first - EVERYWHERE == second == {"127.0.0.1"}
    assert bool(first & EVERYWHERE) != ours
