"""Making, asking, leaving and making again a process group, as torch.distributed documents it."""

import os
import re
import subprocess
import sys
import textwrap
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import raised, shared_pool


def on(n, job, *args):
    """Run a job on ranks without a process group."""
    return shared_pool(n, backend=None).run(job, *args)


def total(init):
    """Make a group by init(rank, size), add up ones, leave; (rank, size, sum, name)."""
    init(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    try:
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        return dist.get_rank(), dist.get_world_size(), tensor.item(), dist.get_backend()
    finally:
        dist.destroy_process_group()


def new_path(name):
    return str(Path(os.environ["RANKS_DIRECTORY"], name))


def free_port(shared):
    """A port that rank 0 picks and the others read from a file."""
    import socket

    path = Path(new_path(shared))
    if os.environ["RANK"] == "0":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        path.with_suffix(".new").write_text(str(port))
        path.with_suffix(".new").rename(path)
    until = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.005)
    return int(path.read_text())


# -- ways ----------------------------------------------------------------------------------


def tcp(rank, size):
    url = f"tcp://127.0.0.1:{free_port('tcp')}"
    dist.init_process_group("teachdist", init_method=url, rank=rank, world_size=size)


def tcp_all_in_the_url(rank, size):
    url = f"tcp://127.0.0.1:{free_port('url')}?rank={rank}&world_size={size}"
    dist.init_process_group("teachdist", init_method=url)


def shared_file(rank, size):
    url = f"file://{new_path('sharedfile')}"
    dist.init_process_group("teachdist", init_method=url, rank=rank, world_size=size)


def environment(rank, size):
    os.environ["MASTER_PORT"] = str(free_port("env"))
    dist.init_process_group("teachdist", init_method="env://")


def nothing_at_all(rank, size):
    os.environ["MASTER_PORT"] = str(free_port("default"))
    dist.init_process_group("teachdist")


def explicit_store(rank, size):
    store = dist.TCPStore("127.0.0.1", free_port("store"), size, rank == 0)
    dist.init_process_group("teachdist", store=store, rank=rank, world_size=size)


def mesh(rank, size):
    os.environ["MASTER_PORT"] = str(free_port("mesh"))
    from torch.distributed.device_mesh import init_device_mesh

    init_device_mesh("cpu", (size,), backend_override={0: "teachdist"})


def by_attribute(rank, size):
    store = dist.FileStore(new_path("attribute"), size)
    dist.init_process_group(dist.Backend.TEACHDIST, store=store, rank=rank, world_size=size)


def upper_case(rank, size):
    store = dist.FileStore(new_path("upper"), size)
    dist.init_process_group("TEACHDIST", store=store, rank=rank, world_size=size)


def group_name(rank, size):
    store = dist.FileStore(new_path("named"), size)
    how = {"store": store, "rank": rank, "world_size": size}
    dist.init_process_group("teachdist", group_name="ignored", **how)


WAYS = [
    tcp,
    tcp_all_in_the_url,
    shared_file,
    environment,
    nothing_at_all,
    explicit_store,
    by_attribute,
    upper_case,
    group_name,
]


@pytest.mark.parametrize("way", WAYS)
def test_ways(way):
    """All of them give the same working group."""
    assert on(4, total, way) == [(rank, 4, 4, "teachdist") for rank in range(4)]


def test_mesh_makes_the_default_group():
    def job():
        before = dist.is_initialized()
        try:
            mesh(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
            return before, dist.is_initialized()
        finally:
            dist.destroy_process_group()

    assert on(2, job) == [(False, True)] * 2


def test_rank0_serves_the_environment():
    """The store's server listens at MASTER_ADDR:MASTER_PORT in rank 0's process."""

    def job():
        environment(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        try:
            store = dist.distributed_c10d._get_default_store()
            while hasattr(store, "underlying_store"):
                store = store.underlying_store
            return store.host, store.port == int(os.environ["MASTER_PORT"])
        finally:
            dist.destroy_process_group()

    assert on(2, job) == [(os.environ.get("MASTER_ADDR", "localhost"), True)] * 2


# -- wrong ways ----------------------------------------------------------------------------


def test_needed_first():
    def job():
        calls = [dist.get_rank, dist.barrier, lambda: dist.all_reduce(torch.ones(1))]
        return dist.is_initialized(), [raised(call) for call in calls]

    initialized, errors = on(1, job)[0]
    assert not initialized
    assert all(kind == "ValueError" and "initialized" in text for kind, text in errors)


WRONG = {
    "both": {"init_method": "env://", "store": True, "rank": 0, "world_size": 1},
    "store without rank": {"store": True, "world_size": 1},
    "store without size": {"store": True, "rank": 0},
    "file without rank": {"init_method": "file:///tmp/never-made", "world_size": 1},
    "mpi": {"backend": "mpi", "store": True, "rank": 0, "world_size": 1},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    def job():
        how = dict(WRONG[case])
        if how.get("store"):
            how["store"] = dist.HashStore()
        return raised(dist.init_process_group, how.pop("backend", "teachdist"), **how)

    def clean():
        assert not dist.is_initialized()

    assert on(1, job)[0] is not None
    on(1, clean)


@pytest.mark.parametrize("missing", ["MASTER_PORT", "MASTER_ADDR", "WORLD_SIZE", "RANK"])
def test_environment_is_required(missing):
    def job():
        before = os.environ.pop(missing)
        try:
            return raised(dist.init_process_group, "teachdist", init_method="env://")
        finally:
            os.environ[missing] = before

    kind, text = on(1, job)[0]
    assert kind == "ValueError"
    assert missing in text


def test_rank_and_size_as_arguments():
    """Instead of the variables."""

    def job():
        rank, size = int(os.environ.pop("RANK")), int(os.environ.pop("WORLD_SIZE"))
        os.environ["RANK"] = str(rank)
        port = free_port("arguments")
        del os.environ["RANK"]
        os.environ["MASTER_PORT"] = str(port)
        try:
            dist.init_process_group("teachdist", rank=rank, world_size=size)
            dist.destroy_process_group()
        finally:
            os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(size)
        return True

    assert on(2, job) == [True, True]


# -- afterwards ----------------------------------------------------------------------------


def test_what_the_group_says():
    """get_rank, get_world_size, get_backend, of the world, a subgroup and from outside."""

    def job():
        group = dist.new_group([1, 3])
        outside = dist.GroupMember.NON_GROUP_MEMBER
        kind = dist.get_backend()
        return (
            dist.get_rank(),
            dist.get_world_size(),
            kind,
            isinstance(kind, str),
            (dist.get_rank(group), dist.get_world_size(group)),
            (dist.get_rank(outside), dist.get_world_size(outside)),
            raised(dist.get_backend, outside)[0],
        )

    results = shared_pool(4, "teachdist").run(job)
    assert [r[0] for r in results] == [0, 1, 2, 3]
    assert {r[1:4] for r in results} == {(4, "teachdist", True)}
    assert [r[4] for r in results] == [(-1, -1), (0, 2), (-1, -1), (1, 2)]
    assert {r[5:] for r in results} == {((-1, -1), "ValueError")}


def test_backend_names():
    assert dist.Backend("GLOO") == "gloo" == dist.Backend.GLOO
    assert dist.Backend.NCCL == "nccl"
    assert isinstance(dist.Backend.MPI, str)
    assert all(hasattr(dist.Backend, name) for name in ("UCC", "XCCL", "UNDEFINED"))
    with pytest.raises(ValueError, match="string"):
        dist.Backend(7)


def test_availability():
    assert dist.is_available()
    assert dist.is_gloo_available()
    assert isinstance(dist.is_mpi_available(), bool)
    assert isinstance(dist.is_nccl_available(), bool)
    assert isinstance(dist.distributed_c10d.is_xccl_available(), bool)
    assert dist.is_nccl_available() <= torch.backends.cuda.is_built()


def test_torchelastic(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert not dist.is_torchelastic_launched()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a job")
    assert dist.is_torchelastic_launched()


def test_default_backends():
    """teachdist does not put itself in the place of the defaults."""

    def job():
        import teachdist.backend  # noqa: F401

        of = dist.get_default_backend_for_device
        found = of("cpu"), of("cuda"), of(torch.device("cuda:0")), of("xpu")
        dist.Backend.register_backend("forhpu", lambda *args: None, devices=["hpu"])
        return found, of("hpu")

    assert on(1, job)[0] == (("gloo", "nccl", "nccl", "xccl"), "forhpu")


def test_autodetected_backend():
    """Without a backend's name the one of the accelerator serves, here the CPU's."""

    def job():
        store = dist.FileStore(new_path("auto"), 2)
        dist.init_process_group(store=store, rank=int(os.environ["RANK"]), world_size=2)
        try:
            tensor = torch.ones(1)
            dist.all_reduce(tensor)
            return tensor.item(), dist.get_backend_config(), torch.accelerator.is_available()
        finally:
            dist.destroy_process_group()

    for value, config, accelerator in on(2, job):
        assert value == 2
        assert "cpu:gloo" in config or accelerator


def test_timeout_of_the_group():
    """init's timeout is that of its operations; a stuck one raises, it does not abort."""

    def job():
        rank = int(os.environ["RANK"])
        store = dist.FileStore(new_path("timeout"), 2)
        limit = timedelta(seconds=0.5)
        dist.init_process_group("teachdist", store=store, rank=rank, world_size=2, timeout=limit)
        error = raised(dist.barrier) if rank == 0 else None
        done = Path(new_path("done"))
        if rank == 0:
            done.touch()
        while not done.exists():
            time.sleep(0.005)
        dist.destroy_process_group()
        return error

    (kind, text), _ = on(2, job)
    assert kind == "DistBackendError"
    assert "timeout of 0.5 s" in text
    assert "rank 1" in text


def test_options_of_another_backend():
    """pg_options must be of the right kind; the error says which."""

    def job():
        wrong = (getattr(dist, "BackendBase", None) or dist._Backend).Options("other")
        how = {"store": dist.HashStore(), "rank": 0, "world_size": 1, "pg_options": wrong}
        error = raised(dist.init_process_group, "teachdist", **how)
        if dist.is_initialized():
            dist.destroy_process_group()
        return error

    kind, text = on(1, job)[0]
    assert kind == "TypeError"
    assert "teachdist.Options" in text


# -- leaving and coming back ---------------------------------------------------------------


def test_destroy():
    """Afterwards nothing is initialized and a collective raises."""

    def job():
        shared_file(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        impl = dist.get_backend_impl()
        dist.destroy_process_group()
        opts = torch._C._distributed_c10d.AllreduceOptions()
        late = raised(impl.allreduce, [torch.ones(1)], opts)
        return dist.is_initialized(), raised(dist.all_reduce, torch.ones(1))[0], late

    for initialized, kind, (_, text) in on(2, job):
        assert not initialized
        assert kind == "ValueError"
        assert "destroyed" in text


def test_destroy_one_group():
    """The default group stays usable."""

    def job():
        group = dist.new_group([0, 1])
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=group)
        dist.destroy_process_group(group)
        error = raised(dist.all_reduce, tensor, group=group)
        dist.all_reduce(tensor)
        return tensor.item(), error is not None

    assert shared_pool(2, "teachdist").run(job) == [(4, True)] * 2


def test_again_in_the_same_process():
    """destroy, synchronize by other means, init: on a new port, and on the very same store."""

    def job():
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        sums = []
        for round_ in range(3):
            port = free_port(f"again{round_}")  # ranks meet here, outside torch.distributed
            how = {"init_method": f"tcp://127.0.0.1:{port}", "rank": rank, "world_size": size}
            dist.init_process_group("teachdist", **how)
            tensor = torch.ones(1)
            dist.all_reduce(tensor)
            sums.append(tensor.item())
            dist.destroy_process_group()
        store = dist.FileStore(new_path("same"), size)
        for _ in range(3):
            dist.init_process_group("teachdist", store=store, rank=rank, world_size=size)
            tensor = torch.full((1,), float(rank))
            dist.all_reduce(tensor, group=dist.new_group([0, 1]))
            sums.append(tensor.item())
            dist.destroy_process_group()
        return sums

    assert on(2, job) == [[2, 2, 2, 1, 1, 1]] * 2


def test_every_trainer_leaves_by_itself(tmp_path):
    """Workers that are spawned call destroy; the parent that spawned them doesn't."""
    program = tmp_path / "train.py"
    program.write_text(
        textwrap.dedent(
            """
            import sys
            import torch
            import torch.distributed as dist
            import torch.multiprocessing as mp

            def worker(rank, path):
                how = dict(init_method=f"file://{path}", rank=rank, world_size=2)
                dist.init_process_group("teachdist", **how)
                tensor = torch.ones(1)
                dist.all_reduce(tensor)
                print(f"{rank} {tensor.item()}", flush=True)
                dist.destroy_process_group()

            if __name__ == "__main__":
                mp.start_processes(worker, args=(sys.argv[1],), nprocs=2, start_method="fork")
                assert not dist.is_initialized()
            """
        )
    )
    command = [sys.executable, program, tmp_path / "store"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    # Two ranks write at once: a line may follow the other without a break.
    assert sorted(re.findall(r"\d 2\.0", done.stdout)) == ["0 2.0", "1 2.0"]


EXIT = """
import os, sys
import torch
import torch.distributed as dist

rank = int(sys.argv[1])
dist.init_process_group("teachdist", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
"""


def run_two(tmp_path, *programs):
    """Two programs as ranks 0 and 1; (exit status, output) of each."""
    runs = []
    for rank, program in enumerate(programs):
        file = tmp_path / f"rank{rank}.py"
        file.write_text(EXIT + textwrap.dedent(program))
        command = [sys.executable, file, str(rank), tmp_path / "store"]
        runs.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    said = [run.communicate(timeout=120)[0] for run in runs]
    return list(zip([run.returncode for run in runs], said, strict=True))


def test_exit_without_destroy(tmp_path):
    """The process ends by itself and quickly; what was sent and not waited for gets out."""
    sender = """
        dist.isend(torch.arange(2_000_000.0), dst=1)
    """
    receiver = """
        tensor = torch.zeros(2_000_000)
        dist.recv(tensor, src=0)
        print(tensor[-1].item())
    """
    (first, _), (second, said) = run_two(tmp_path, sender, receiver)
    assert (first, second) == (0, 0), said
    assert "1999999.0" in said


def test_forked_child(tmp_path):
    """A child leaves its parent's group alone, and is told when it tries to use it."""
    program = """
        pid = os.fork()
        if pid == 0:
            try:
                dist.all_reduce(torch.ones(1))
            except RuntimeError as error:
                print("child:", str(error).splitlines()[0], flush=True)
            dist.destroy_process_group()
            sys.exit(0)
        os.waitpid(pid, 0)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        print("sum", tensor.item())
        dist.destroy_process_group()
    """
    for status, said in run_two(tmp_path, program, program):
        assert status == 0, said
        assert "child: this process is a fork of rank" in said
        assert "sum 2.0" in said


# -- exceptions ----------------------------------------------------------------------------


def test_exception_classes():
    kinds = [dist.DistError, dist.DistBackendError, dist.DistNetworkError, dist.DistStoreError]
    assert all(issubclass(kind, RuntimeError) for kind in kinds)
    assert all(issubclass(kind, dist.DistError) for kind in kinds[1:])


def test_which_errors_are_raised():
    """A mismatch is a DistBackendError; others may have the words of the first."""

    def job():
        rank = int(os.environ["RANK"])
        shared_file(rank, 2)
        error = raised(dist.all_reduce, torch.ones(1 + rank))
        dist.destroy_process_group()
        return error[0]

    kinds = on(2, job)
    assert all(issubclass(getattr(dist, k, dist.DistBackendError), dist.DistError) for k in kinds)
    assert "DistBackendError" in kinds


@pytest.mark.parametrize("backend", ["gloo", "teachdist"])
def test_connections_are_made_when_needed(backend):
    """gloo does so with TORCH_GLOO_LAZY_INIT, this package always: none before the first call."""

    def job():
        os.environ["TORCH_GLOO_LAZY_INIT"] = "1"
        store = dist.FileStore(new_path(f"lazy-{backend}"), 3)
        dist.init_process_group(backend, store=store, rank=int(os.environ["RANK"]), world_size=3)
        before = None
        if backend == "teachdist":
            before = dist.get_backend_impl().communicator.links.connections
        x, whole = torch.ones(1), [torch.zeros(1) for _ in range(3)]
        dist.all_reduce(x)
        dist.all_gather(whole, x)
        dist.destroy_process_group()
        del os.environ["TORCH_GLOO_LAZY_INIT"]
        return before, x.item(), [t.item() for t in whole]

    for before, total, whole in on(3, job):
        assert before in (None, 0)
        assert (total, whole) == (3, [3, 3, 3])
