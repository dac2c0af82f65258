"""What the page on choosing a backend says about torch's backends, as far as a CPU can show it."""

import re
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import BACKENDS, run_ranks, shared_pool

PAGE = (Path(__file__).parents[1] / "docs" / "backends.md").read_text("utf-8")

CALLS = {
    "send": lambda t, n, r: dist.recv(t, 0) if r else dist.send(t, 1),
    "recv": lambda t, n, r: dist.recv(t, 1) if r == 0 else dist.send(t, 0),
    "broadcast": lambda t, n, r: dist.broadcast(t, src=0),
    "all_reduce": lambda t, n, r: dist.all_reduce(t),
    "reduce": lambda t, n, r: dist.reduce(t, dst=0),
    "all_gather": lambda t, n, r: dist.all_gather(blank(t, n), t),
    "gather": lambda t, n, r: dist.gather(t, blank(t, n) if r == 0 else None),
    "scatter": lambda t, n, r: dist.scatter(t, None if r else [t.clone() for _ in range(n)]),
    "reduce_scatter": lambda t, n, r: dist.reduce_scatter(t, [t.clone() for _ in range(n)]),
    "all_to_all": lambda t, n, r: dist.all_to_all(blank(t, n), [t.clone() for _ in range(n)]),
    "barrier": lambda t, n, r: dist.barrier(),
}
SUMS = {"all_reduce", "reduce", "reduce_scatter"}  # whose result differs from ones on every rank


def blank(tensor, n):
    return [torch.zeros_like(tensor) for _ in range(n)]


def table():
    """The page's table: operation -> column -> yes, no or ?."""
    rows = re.findall(r"^\| (.+) \|$", PAGE.partition("{#what-each-can-do}")[2], re.MULTILINE)
    rows = [row.split(" | ") for row in rows[:13]]
    return {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}


def test_the_table_has_four_built_in_backends_and_this_one():
    names = {column.split()[0] for column in table()["send"]}
    assert names == {"gloo", "mpi", "nccl", "xccl", "teachdist"}
    assert names - {"teachdist"} <= set(dist.Backend.backend_list)
    assert set(table()) == set(CALLS)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CALLS)
def test_operations_on_the_cpu(name, backend):
    """Each "yes" of the table in a CPU column that can be run here."""

    def job():
        ones = torch.ones(3)
        CALLS[name](ones, 2, dist.get_rank())
        return ones.tolist()

    assert table()[name][f"{backend} CPU"] == "yes"
    first, second = shared_pool(2, backend).run(job)
    wanted = [2.0 if name in SUMS else 1.0] * 3
    assert first == wanted
    if name != "reduce":  # only its destination's tensor is defined
        assert second == wanted


@pytest.mark.parametrize("name", CALLS)
def test_a_backend_for_gpus_takes_no_cpu_tensor(name):
    """What "no" means for NCCL and XCCL: they serve their device only, and torch says so."""
    assert dist.Backend.backend_capability["nccl"] == ["cuda"]
    assert dist.Backend.backend_capability["xccl"] == ["xpu"]
    for backend in ("nccl", "xccl"):
        assert table()[name][f"{backend} CPU"] == "no"

    def job():
        class ForGPUs(getattr(dist, "BackendBase", None) or dist._Backend):
            def __init__(self, store, rank, size, timeout):
                super().__init__(rank, size)

            def getBackendName(self):  # noqa: N802  torch's name
                return "for_gpus"

        dist.Backend.register_backend("for_gpus", ForGPUs, devices=["cuda"])
        dist.init_process_group("for_gpus", store=dist.HashStore(), rank=0, world_size=1)
        try:
            if name in ("send", "recv"):  # there is no other rank to ask
                return dist.get_backend_impl(None, torch.device("cpu"))
            CALLS[name](torch.ones(1), 1, 0)
        finally:
            dist.destroy_process_group()

    with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
        run_ranks(1, job, backend=None)


def test_mpi_has_no_reduce_scatter_in_the_table():
    assert {name for name, row in table().items() if row["mpi CPU"] == "no"} == {"reduce_scatter"}


def test_what_a_build_holds():
    """Gloo always, NCCL in CUDA builds, MPI only where torch was built with it."""
    assert dist.is_gloo_available()
    assert dist.is_nccl_available() == (sys.platform == "linux" and torch.version.cuda is not None)
    assert not dist.is_mpi_available()


def test_the_rule_of_thumb():
    default = dist.get_default_backend_for_device
    assert (default("cuda"), default("xpu"), default("cpu")) == ("nccl", "xccl", "gloo")


def test_torch_knows_more_than_four():
    assert {"gloo", "nccl", "mpi", "xccl", "ucc", "fake"} <= set(dist.Backend.backend_list)


def test_the_profiler_snippet_enters_a_module():
    with pytest.raises(TypeError, match="context manager"), torch.profiler:
        pass
    with torch.profiler.profile():
        pass
