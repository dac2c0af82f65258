import os
import signal
import socket

import psutil
import pytest
from clusters import BACKEND, RANKS, needs_release

from teachdist import Cluster
from teachdist.notebook import ClusterError, RanksError
from teachdist.notebook.engines import rank


def total(start):
    import torch
    import torch.distributed as dist

    x = torch.tensor([start + dist.get_rank()])
    dist.all_reduce(x)
    return x.item()


def test_run_gives_a_list_by_rank(cluster):
    assert cluster.run(total, 10) == [10 * RANKS + sum(range(RANKS))] * RANKS


def test_the_id_of_an_engine_is_its_rank(cluster):
    assert cluster.client.ids == list(range(RANKS))
    assert cluster.client[:].apply_sync(total, 0) == [3] * RANKS
    assert cluster.pull("rank") == list(range(RANKS))


def test_a_function_of_a_script_sees_the_names_of_the_ranks(cluster):
    def of_a_script():
        return rank, world_size  # noqa: F821

    of_a_script.__module__ = "__main__"
    assert cluster.run(of_a_script) == [(r, RANKS) for r in range(RANKS)]


def speak():
    import torch.distributed as dist

    print("worker" if dist.get_rank() else "root")


def test_what_ranks_print_in_run_is_shown(cluster, capsys):
    cluster.run(speak)
    assert capsys.readouterr().out == "[rank 0] root\n[ranks 1-2] worker\n"


def test_push_and_pull(cluster):
    cluster.push(base=100)
    assert cluster.pull("base + rank") == [100, 101, 102]
    assert cluster.pull("base + rank", on=[2]) == [102]


def test_only_loopback_sockets_listen(cluster):
    for pid in cluster.run(os.getpid):
        listening = [c for c in psutil.Process(pid).net_connections() if c.status == "LISTEN"]
        assert {c.laddr.ip for c in listening} <= {"127.0.0.1", "::1"}


def fail_on_one():
    import torch.distributed as dist

    if dist.get_rank() == 1:
        raise ValueError("no such thing")
    dist.barrier()


@needs_release
def test_a_rank_that_raises_frees_the_others_and_is_the_culprit(cluster):
    cluster.push(kept=7)
    with pytest.raises(RanksError) as caught:
        cluster.run(fail_on_one)
    lines = str(caught.value).splitlines()
    assert lines[0] == "rank 1: ValueError: no such thing"
    assert lines[1].startswith("ranks 0,2: released from barrier() at ")
    assert caught.value.failures[0].rank == 1
    assert caught.value.stuck == []
    assert cluster.run(total, 0) == [3] * RANKS, "usable again, without a restart"
    assert cluster.pull("kept") == [7] * RANKS


def control_c(_):
    raise KeyboardInterrupt


def test_control_c_ends_what_ranks_do(cluster):
    asked = cluster.execute("import time\ntime.sleep(100)")
    with pytest.raises(KeyboardInterrupt):
        cluster.wait(asked, on_progress=control_c)
    assert [task.failure.name for task in asked] == ["KeyboardInterrupt"] * RANKS
    assert cluster.run(total, 0) == [3] * RANKS


def test_some_ranks_work_on_while_others_are_busy(cluster):
    asked = cluster.execute("import time\ntime.sleep(100)", on=[1])
    other = cluster.execute("rank + 10", on=[0, 2])
    cluster.wait(other)
    assert [task.items[-1][1]["data"]["text/plain"] for task in other] == ["10", "12"]
    assert cluster.busy == [1]
    with pytest.raises(ClusterError, match="rank 1 still at work on something earlier"):
        cluster.run(total, 0)
    with pytest.raises(KeyboardInterrupt):
        cluster.wait(asked, on_progress=control_c)
    assert cluster.run(total, 0) == [3] * RANKS


@needs_release
def test_exit_ends_the_cell_and_not_the_rank(cluster):
    asked = cluster.execute("if rank == 1:\n    exit()\ndist.barrier()")
    with pytest.raises(RanksError, match="rank 1: SystemExit"):
        cluster.wait(asked)
    assert cluster.run(total, 0) == [3] * RANKS


@needs_release
def test_ranks_that_cannot_meet_again_are_told_to_restart(cluster):
    asked = cluster.execute("dist.destroy_process_group() if rank == 1 else dist.barrier()")
    with pytest.raises(RanksError, match="rank 1 has finished: it left the group"):
        cluster.wait(asked)
    with pytest.raises(ClusterError, match=r"cannot meet anew; next: %ranks restart.*rank 1"):
        cluster.run(total, 0)
    cluster.restart()
    assert cluster.run(total, 0) == [3] * RANKS


def stop_zero():
    import os
    import signal

    import torch.distributed as dist

    if dist.get_rank() == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.barrier()


@needs_release
def test_a_stopped_rank_is_stuck_and_the_others_are_not(cluster):
    """Also when it hosts the store."""

    def press_stop(tasks):
        if any("has waited" in str(task.items) for task in tasks):
            raise KeyboardInterrupt

    pid = cluster.run(os.getpid)[0]
    asked = cluster.send(lambda _: (rank.call, (stop_zero, (), {})))
    try:
        with pytest.raises(KeyboardInterrupt):
            cluster.wait(asked, press_stop)
        assert cluster.busy == [0]
        with pytest.raises(ClusterError, match=r"rank 0 still at work.*restart"):
            cluster.run(total, 0)
    finally:
        os.kill(pid, signal.SIGCONT)
    cluster.restart()
    assert cluster.run(total, 0) == [3] * RANKS


def die_on_two():
    import os
    import signal

    import torch.distributed as dist

    if dist.get_rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def test_a_killed_rank_is_named_and_restart_heals(cluster):
    before = cluster.run(os.getpid)
    with pytest.raises(RanksError) as caught:
        cluster.run(die_on_two)
    lines = str(caught.value).splitlines()
    assert lines[0] == "rank 2: Died: its process ended (killed, or out of memory)"
    assert lines[-1] == "next: %ranks restart, or Cluster.restart()"
    with pytest.raises(ClusterError, match=r"rank 2 ended; next: %ranks restart"):
        cluster.run(total, 0)
    cluster.restart()
    assert cluster.run(total, 0) == [3] * RANKS
    assert cluster.client.ids == list(range(RANKS))
    assert not set(before) & set(cluster.run(os.getpid))


def test_stopped_ranks_are_restarted_too(cluster):
    for pid in cluster.run(os.getpid):
        os.kill(pid, signal.SIGSTOP)
    cluster.restart()
    assert cluster.run(total, 0) == [3] * RANKS


def test_attach_joins_in(cluster):
    cluster.push(shared="yes")
    with Cluster.attach(cluster.connection_file) as other:
        assert other.backend == BACKEND
        assert other.pull("shared") == ["yes"] * RANKS
        assert other.run(total, 0) == [3] * RANKS
    assert cluster.run(total, 0) == [3] * RANKS, "leaving leaves the ranks running"


def test_attach_fresh_makes_new_ranks_for_some(cluster):
    cluster.push(shared="yes")
    with Cluster.attach(cluster.connection_file, 2, fresh=True) as other:
        assert other.run(total, 0) == [1, 1]
        with pytest.raises(RanksError, match="NameError"):
            other.pull("shared")


def test_attach_where_nothing_is(tmp_path, cluster):
    with pytest.raises(ClusterError, match="no cluster there any more"):
        Cluster.attach(tmp_path / "ipcontroller-client.json")
    with pytest.raises(ClusterError, match=f"has {RANKS} ranks, 9 were asked for"):
        Cluster.attach(cluster.connection_file, 9)


def test_an_unknown_backend_is_one_line(cluster):
    with pytest.raises(ValueError, match=r"there is no backend 'glo'; did you mean 'gloo'\?"):
        Cluster.attach(cluster.connection_file, backend="cpu:glo,cuda:nccl", fresh=True)
    assert cluster.pull("rank") == list(range(RANKS)), "refused before the ranks are touched"
    with pytest.raises(ClusterError, match=r"backend 'mpi' cannot be used here: .+") as caught:
        Cluster.attach(cluster.connection_file, backend="mpi", fresh=True)
    assert "\n" not in str(caught.value)
    cluster.restart()


@needs_release
def test_an_exception_with_a_long_message_leaves_the_ranks_usable(cluster):
    with pytest.raises(RanksError, match=r"y \[\.\.\. 9,999,000 characters more\]"):
        cluster.wait(cluster.execute("raise ValueError('y' * 10_000_000)"))
    assert cluster.run(total, 0) == [3] * RANKS


def test_a_port_in_use_is_one_line(cluster, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setitem(cluster._settings, "port", port)
        with pytest.raises(ClusterError, match=f"port {port} on 127.0.0.1 is in use; leave port"):
            cluster.restart()
    monkeypatch.undo()
    cluster.restart()
    assert cluster.run(total, 0) == [3] * RANKS


@pytest.mark.parametrize("n", [0, -1, 1000, "4", 2.0, True, None])
def test_a_wrong_number_of_ranks(n):
    with pytest.raises(ValueError, match="number of ranks must be"):
        Cluster(n)


def test_a_stopped_cluster_says_so():
    with Cluster(1, "gloo", launcher="fork") as one:
        assert one.run(total, 5) == [5]
        assert repr(one) == "<Cluster of 1 rank, backend gloo>"
    one.stop()
    assert repr(one) == "<Cluster of 1 rank, stopped>"
    with pytest.raises(ClusterError, match="this cluster was stopped"):
        one.run(total, 5)
