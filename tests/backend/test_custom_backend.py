"""Writing a backend in Python, as torch documents it: the examples, methods and capabilities.

These tests are about torch: small backends that record what reaches them. Where this package
itself is meant (all methods defined, works that know their source, ...) the test says teachdist.
"""

import subprocess
import sys
import textwrap
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from my_backends import (
    METHODS,
    Base,
    MyBackend,
    MyWork,
    group_of,
    reach,
    recording,
)
from ranks import RankPool, raised, shared_pool

HERE = str(Path(__file__).parent)


def on(n, job, backend="teachdist"):
    """Run a job on ranks that can import what this file imports."""

    def prepare():
        if HERE not in sys.path:
            sys.path.insert(0, HERE)

    pool = shared_pool(n, backend)
    pool.run(prepare)
    return pool.run(job)


def alone(job):
    """Run a job on one rank without a process group."""
    return on(1, job, None)[0]


# -- the examples --------------------------------------------------------------------------


def test_minimal_example():
    def job():
        group_of(MyBackend)
        try:
            tensor = torch.ones(2)
            dist.all_reduce(tensor)
            impl = dist.get_backend_impl()
            return tensor.tolist(), impl.num_allreduces, type(impl).__name__, dist.get_backend()
        finally:
            dist.destroy_process_group()

    assert alone(job) == ([1, 1], 1, "MyBackend", "my_backend")


def test_my_work():
    """The example's handle: wait, get_future; is_completed of the object itself."""

    def job():
        impl = group_of(MyBackend)
        try:
            tensor = torch.ones(2)
            handle = dist.all_reduce(tensor, async_op=True)
            waited = handle.wait(timedelta(seconds=3))
            value = handle.get_future().wait()
            return waited, value[0].tolist(), impl.last.is_completed(), impl.last.asked
        finally:
            dist.destroy_process_group()

    assert alone(job) == (True, [1, 1], True, [timedelta(seconds=3)])


def test_handle_is_a_holder():
    """Other overrides than wait and get_future are not reached in this torch: see the docs."""

    def job():
        group_of(MyBackend)
        try:
            handle = dist.all_reduce(torch.ones(2), async_op=True)
            return handle.is_completed(), isinstance(handle, MyWork)
        finally:
            dist.destroy_process_group()

    assert alone(job) == (False, False)


def test_int8_example():
    """A collective of the backend's own, reached through get_backend_impl, and its fallback."""

    def all_reduce_int8(tensor, group=None):
        backend = dist.get_backend_impl(group, tensor.device)
        if not hasattr(backend, "allreduce_int8"):
            dist.all_reduce(tensor, group=group)
            return
        backend.allreduce_int8(tensor).wait()

    def job():
        group_of(MyBackend)
        try:
            results = []
            for values in ([1.0, -127.0], [1.0, 0.3], [0.0, 0.0]):
                tensor = torch.tensor(values)
                with torch.profiler.profile() as profile:
                    all_reduce_int8(tensor)
                results.append(tensor.tolist())
            shown = [e.key for e in profile.key_averages() if e.key.startswith("c10d::")]
            return results, shown
        finally:
            dist.destroy_process_group()

    def fallback():
        tensor = torch.full((2,), dist.get_rank() + 1.0)
        all_reduce_int8(tensor)
        return tensor.tolist()

    (exact, rounded, zeros), shown = alone(job)
    assert exact == [1, -127]
    assert rounded[0] == 1
    assert 0 < abs(rounded[1] - 0.3) < 1 / 127
    assert zeros == [0, 0]
    assert shown == []  # such methods bypass torch's own hooks
    assert on(2, fallback, "gloo") == [[3, 3]] * 2
    assert on(2, fallback) == [[3, 3]] * 2


def test_same_order_on_every_rank():
    """A special collective and a standard one in opposite order: teachdist names both."""

    def job():
        from teachdist.backend import recover

        tensor = torch.ones(1)
        calls = [dist.all_reduce, dist.get_backend_impl().communicator and dist.broadcast]
        first = calls[dist.get_rank()]
        error = raised(first, tensor, *([0] if first is dist.broadcast else []))
        recover()
        return error

    errors = on(2, job)
    text = " ".join(error[1] for error in errors if error)
    assert "all_reduce(float32[1], SUM)" in text
    assert "broadcast(float32[1], src=0)" in text


# -- registration --------------------------------------------------------------------------


def test_registered_while_running():
    """An unknown name becomes usable by register_backend; a class can be the creator."""

    def job():
        before = "late_backend" in dist.Backend.backend_list
        dist.Backend.register_backend("late_backend", MyBackend, devices=["cpu"])
        impl = group_of(MyBackend, name="late_backend")
        try:
            attribute = dist.Backend.LATE_BACKEND
            return before, attribute, dist.get_backend(), impl.made[1:], type(impl.made[0]).__name__
        finally:
            dist.destroy_process_group()

    before, attribute, name, made, store = alone(job)
    assert not before
    assert attribute == name == "late_backend"
    assert made == (0, 1, timedelta(seconds=1800))
    assert store.endswith("Store")


def test_extended_creator():
    """extended_api=True: the creator gets torch's options object, and the user's."""

    def job():
        seen = []

        def create(dist_backend_opts, pg_options):
            seen.append((type(dist_backend_opts).__name__, pg_options))
            opts = dist_backend_opts
            seen.append((opts.group_rank, opts.group_size))
            return MyBackend(opts.store, opts.group_rank, opts.group_size, opts.timeout)

        dist.Backend.register_backend("extended", create, extended_api=True, devices=["cpu"])
        mine = Base.Options("extended")
        how = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
        dist.init_process_group("extended", pg_options=mine, **how)
        dist.destroy_process_group()
        return seen[0][0], seen[0][1] is mine, seen[1]

    kind, same, place = alone(job)
    assert kind.endswith("DistributedBackendOptions")
    assert same
    assert place == (0, 1)


def test_creator_runs_for_every_group():
    def job():
        made = []

        def create(store, rank, size, timeout):
            made.append((rank, size, timeout))
            return MyBackend(store, rank, size, timeout)

        dist.Backend.register_backend("counted", create, devices=["cpu"])
        group_of(create, name="counted", timeout=timedelta(seconds=9))
        dist.new_group([0])
        dist.new_group([0], timeout=timedelta(seconds=5))
        dist.destroy_process_group()
        return made

    whole, nine, five = timedelta(seconds=1800), timedelta(seconds=9), timedelta(seconds=5)
    assert alone(job) in (
        [(0, 1, nine), (0, 1, whole), (0, 1, five)],
        [(0, 1, nine), (0, 1, nine), (0, 1, five)],
    )


def test_devices_of_a_backend():
    """devices=None means cpu and cuda; a string means that one."""

    def job():
        dist.Backend.register_backend("both", MyBackend)
        dist.Backend.register_backend("one", MyBackend, devices="cpu")
        return dist.Backend.backend_capability["both"], dist.Backend.backend_capability["one"]

    assert alone(job) == (["cpu", "cuda"], ["cpu"])


def test_base_class():
    """rank() and size() are what was given; name() is what getBackendName answers."""
    backend = MyBackend(dist.HashStore(), 2, 5, timedelta(seconds=1))
    assert isinstance(backend, Base)
    assert (backend.rank(), backend.size()) == (2, 5)
    assert backend.name() == backend.getBackendName() == "my_backend"


def test_backend_base_has_no_public_name_yet():
    """The documentation says dist.BackendBase; when torch has it, this fails: simplify Base."""
    assert not hasattr(dist, "BackendBase")


def test_plugs_in():
    """One Python backend serves the default group, a ProcessGroup, subgroups and a mesh."""

    def job():
        from torch.distributed.device_mesh import init_device_mesh

        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        dist.group.WORLD.allreduce([tensor]).wait()
        dist.all_reduce(tensor, group=dist.new_group([0, 1]))
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        dist.all_reduce(tensor, group=mesh.get_group("dp"))
        kinds = {type(dist.get_backend_impl(g)).__name__ for g in (None, mesh.get_group("dp"))}
        return tensor.item(), kinds

    assert on(2, job) == [(16, {"Backend"})] * 2


# -- entry points --------------------------------------------------------------------------

PACKAGE = {
    "my_package.py": """
        import torch.distributed as dist

        Base = getattr(dist, "BackendBase", None) or dist._Backend

        class MyBackend(Base):
            def __init__(self, store, rank, size, timeout):
                super().__init__(rank, size)
            def getBackendName(self):
                return "my_backend"
            def shutdown(self):
                pass

        def register_backend():
            dist.Backend.register_backend("my_backend", MyBackend, devices=["cpu"])
    """,
    "my_package-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n",
}
PROGRAM = """
    import sys
    from importlib.metadata import entry_points
    import torch.distributed as dist

    found = [e.name for e in entry_points(group="torch.distributed.backends")]
    before = "my_package" in sys.modules
    dist.init_process_group(NAME, store=dist.HashStore(), rank=0, world_size=1)
    print(sorted(found), before, "my_package" in sys.modules, dist.get_backend())
    dist.destroy_process_group()
"""


def installed(path, name, program):
    """Run a program where a package with an entry point of that name is installed."""
    files = PACKAGE | {
        "my_package-1.0.dist-info/entry_points.txt": (
            f"[torch.distributed.backends]\n{name} = my_package:register_backend\n"
        )
    }
    for file, text in files.items():
        (path / file).parent.mkdir(exist_ok=True)
        (path / file).write_text(textwrap.dedent(text))
    start = f"import sys; sys.path.insert(0, {str(path)!r})\nNAME = {name!r}\n"
    return subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_entry_point(tmp_path):
    """An installed package needs no import: its module is loaded when its name is first used."""
    done = installed(tmp_path, "my_backend", PROGRAM)
    assert done.returncode == 0, done.stderr
    assert "'my_backend'" in done.stdout
    assert done.stdout.strip().endswith("False True my_backend")


def test_entry_point_must_have_the_name(tmp_path):
    """A function that registers another name does not make the entry point's name usable."""
    done = installed(tmp_path, "other_name", PROGRAM)
    assert done.returncode != 0
    assert "other_name" in done.stderr


def test_entry_point_of_teachdist():
    """teachdist declares one, in the form of the documentation."""
    import tomllib
    from pathlib import Path

    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    declared = tomllib.loads(text)["project"]["entry-points"]["torch.distributed.backends"]
    assert declared == {
        "teachdist": "teachdist.backend:register",
        "tiny": "teachdist.tiny:register",
    }


# -- methods -------------------------------------------------------------------------------


REACHABLE = sorted(METHODS - {"allreduce_sparse", "gather_single"})


@pytest.mark.parametrize("name", REACHABLE)
def test_method_is_reached(name):
    """An override is entered once, with torch's arguments, and what it returns is a Work."""

    def job():
        import warnings

        warnings.simplefilter("ignore")
        impl = group_of(recording(), name="recording")
        try:
            call = reach(name)
            returned = call()
            seen = [entry for entry in impl.calls if entry[0] == name]
            shapes = [type(arg).__name__ for arg in seen[0][1]]
            return len(seen), shapes, returned is None or isinstance(returned, dist.Work)
        finally:
            dist.destroy_process_group()

    count, shapes, fine = alone(job)
    assert count == 1
    assert fine
    last = {"send": "int", "recv": "int", "recv_anysource": "int", "monitored_barrier": "bool"}
    assert shapes[-1].endswith(last.get(name, "Options")), shapes


def test_options_objects():
    """Reduce op, root and timeout travel in the options."""

    def job():
        impl = group_of(recording(), name="recording")
        try:
            dist.all_reduce(torch.ones(1), op=dist.ReduceOp.MAX)
            dist.broadcast(torch.ones(1), 0)
            dist.barrier()
            found = {name: args[-1] for name, args in impl.calls}
            return (
                found["allreduce"].reduceOp == dist.ReduceOp.MAX,
                found["broadcast"].rootRank,
                found["broadcast"].rootTensor,
                isinstance(found["barrier"].device_ids, list),
                isinstance(found["allreduce"].timeout, timedelta),
            )
        finally:
            dist.destroy_process_group()

    assert alone(job) == (True, 0, 0, True, True)


def test_override_what_you_support():
    """A backend with allreduce alone works for that; anything else is an error with its name."""

    def job():
        group_of(MyBackend)
        try:
            dist.all_reduce(torch.ones(1))
            return raised(dist.broadcast, torch.ones(1), 0)
        finally:
            dist.destroy_process_group()

    kind, text = alone(job)
    assert kind == "RuntimeError"
    assert "my_backend" in text


def test_gather_single_is_not_reached_yet():
    """torch documents it among the methods but calls no override; teachdist has it all the same."""

    def job():
        impl = group_of(recording(), name="recording")
        try:
            error = raised(dist.gather_single, torch.ones(1), torch.zeros(1), 0)
            return error, [name for name, _ in impl.calls]
        finally:
            dist.destroy_process_group()

    error, calls = alone(job)
    assert error is not None
    assert "gather_single" not in calls


def test_teachdist_defines_all_methods():
    """All twenty-two of the documentation's table are its own."""

    def job():
        from teachdist.backend import Backend

        return [name for name in sorted(METHODS) if name not in vars(Backend)]

    assert len(METHODS) == 22
    assert alone(job) == []


def test_teachdist_works():
    """Every collective of teachdist returns a Work, monitored_barrier None."""

    def job():
        import warnings

        warnings.simplefilter("ignore")
        dist.init_process_group("teachdist", store=dist.HashStore(), rank=0, world_size=1)
        try:
            impl, seen = dist.get_backend_impl(), {}
            for name in REACHABLE:
                own = getattr(impl, name)

                def noting(*args, name=name, own=own):
                    seen[name] = own(*args)
                    return seen[name]

                setattr(type(impl), name, lambda self, *args, noting=noting: noting(*args))
                if name in ("send", "recv", "recv_anysource"):
                    continue
                call = reach(name)
                call()
            return {name: isinstance(work, dist.Work) for name, work in seen.items()}
        finally:
            dist.destroy_process_group()

    kinds = on(1, job, None)[0]
    assert kinds.pop("monitored_barrier") is False
    assert all(kinds.values())


def test_none_is_allowed():
    """recv_anysource and end_coalescing may return None."""

    def job():
        kind = recording()
        kind.recv_anysource = kind.end_coalescing = lambda self, *args: None
        dist.Backend.register_backend("none_allowed", kind, devices=["cpu"])
        group_of(kind, name="none_allowed")
        try:
            with dist._coalescing_manager(device=torch.device("cpu")):
                pass
            return dist.group.WORLD.recv_anysource([torch.ones(1)], 0)
        finally:
            dist.destroy_process_group()

    assert alone(job) is None


# -- capabilities --------------------------------------------------------------------------


def test_coalescing_brackets_a_batch():
    """supports_coalescing: batch_isend_irecv and use_batch go through start and end."""

    def job():
        impl = group_of(recording(), name="recording", size=2, rank=0)
        try:
            ops = [
                dist.P2POp(dist.isend, torch.ones(1), 1),
                dist.P2POp(dist.irecv, torch.ones(1), 1),
            ]
            works = dist.batch_isend_irecv(ops)
            order = [name for name, _ in impl.calls]
            impl.calls.clear()
            dist.send_object_list([1], dst=1, use_batch=True)
            return order, [work.wait() for work in works], [name for name, _ in impl.calls]
        finally:
            dist.destroy_process_group()

    order, waited, objects = alone(job)
    assert order == ["start_coalescing", "send", "recv", "end_coalescing"]
    assert waited == [True]
    assert objects == ["start_coalescing", "send", "end_coalescing"] * 2


def test_properties_are_read_only():
    backend = MyBackend(dist.HashStore(), 0, 1, timedelta(seconds=1))
    assert backend.supports_coalescing is False
    with pytest.raises(AttributeError):
        backend.supports_coalescing = True


def test_without_coalescing_one_work_each():
    """teachdist answers a batch with one request per operation, as documented."""

    def job():
        rank, got = dist.get_rank(), torch.zeros(1)
        ops = [
            dist.P2POp(dist.isend, torch.ones(1), 1 - rank),
            dist.P2POp(dist.irecv, got, 1 - rank),
        ]
        works = dist.batch_isend_irecv(ops)
        return len(works), [work.wait() for work in works], got.item()

    assert on(2, job) == [(2, [True, True], 1)] * 2


def test_split():
    """ProcessGroup.split_group calls split: a child on communicators, an error elsewhere."""

    def job():
        rank, size = dist.get_rank(), dist.get_world_size()
        parts = [[0, 1], [2, 3]]
        mine = parts[rank // 2]
        child = dist.group.WORLD.split_group(mine, group_name=f"part{rank // 2}")
        apart = [(rank + 1) % size]
        other = raised(dist.group.WORLD.split_group, apart, group_name=f"other{rank}")
        tensor = torch.tensor([float(rank)])
        child.allreduce([tensor]).wait()
        impl = child._get_backend(torch.device("cpu"))
        return tensor.item(), child.size(), child.rank(), type(impl).__name__, other

    results = on(4, job)
    assert [r[0] for r in results] == [1, 1, 5, 5]
    assert [r[1:3] for r in results] == [(2, 0), (2, 1), (2, 0), (2, 1)]
    assert {r[3] for r in results} == {"Backend"}
    # The documentation says None for others, with which torch 2.14 would crash.
    assert {r[4][0] for r in results} == {"ValueError"}


def test_split_group_on_the_cpu():
    """Before 2.15 split_group itself wants an accelerator; since then it calls split."""

    def job():
        error = raised(dist.split_group, split_ranks=[[0], [1]])
        if error is not None:
            return error[0]
        sums = []
        for parts in ([[0], [1]], [[0, 1]]):
            x = torch.ones(1)
            dist.all_reduce(x, group=dist.split_group(split_ranks=parts))
            sums.append(x.item())
        return sums

    since = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)
    assert on(2, job) == [[1, 2] if since else "RuntimeError"] * 2


def test_options_property():
    """split needs options when it is called without: teachdist's are those of the group."""

    def job():
        from teachdist.backend import Options

        options = Options(timeout=timedelta(seconds=17), all_reduce="ring")
        group = dist.new_group([0, 1], pg_options=options)
        impl = dist.get_backend_impl(group)
        child = group.split_group([0, 1], group_name="child")
        inherited = child._get_backend(torch.device("cpu")).options
        return impl.options is options, inherited.algorithms

    assert on(2, job) == [(True, {"all_reduce": "ring"})] * 2


def test_shrink():
    """shrink_group leaves out ranks, which need not call it; the rest goes on without them.

    It counts a group that the rank left out does not count, and groups are named by counting: so
    these ranks serve no other test.
    """

    def job():
        group = dist.new_group([0, 1, 2])
        tensor = torch.tensor([float(dist.get_rank())])
        if dist.get_rank() == 1:
            return None
        smaller = dist.shrink_group([1], group=group)
        dist.all_reduce(tensor, group=smaller)
        return tensor.item(), dist.get_world_size(smaller), dist.get_rank(smaller)

    with RankPool(3, "teachdist") as pool:
        assert pool.run(job) == [(2, 2, 0), None, (2, 2, 1)]


def test_shrink_calls_the_backend():
    """The ranks to leave out arrive in shrink, with flags and options."""

    def job():
        group = dist.new_group([0, 1])
        impl, seen = dist.get_backend_impl(group), []
        own = type(impl).shrink

        def shrink(self, *args):
            seen.append(args)
            return own(self, *args)

        type(impl).shrink = shrink
        try:
            if dist.get_rank() == 0:
                dist.shrink_group([1], group=group)
        finally:
            type(impl).shrink = own
        return seen

    with RankPool(2, "teachdist") as pool:
        assert pool.run(job) == [[([1], 0, None)], []]


def test_detail_mode():
    """TORCH_DISTRIBUTED_DEBUG=DETAIL wraps the backend and must keep it alive."""

    def job():
        import gc
        import os
        from pathlib import Path

        dist.set_debug_level(dist.DebugLevel.DETAIL)
        try:
            store = dist.FileStore(str(Path(os.environ["RANKS_DIRECTORY"], "detail")), 2)
            how = {"store": store, "rank": int(os.environ["RANK"]), "world_size": 2}
            dist.init_process_group("teachdist", **how)
            gc.collect()
            tensor = torch.ones(1)
            dist.all_reduce(tensor)
            dist.broadcast(tensor, 0)
            return tensor.item()
        finally:
            dist.destroy_process_group()
            dist.set_debug_level(dist.DebugLevel.OFF)

    assert on(2, job, None) == [2, 2]
