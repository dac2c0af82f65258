"""Dumps of torch's flight recorder: read without running anything, and put into a sentence."""

import json
import os
import pickle

import pytest
import torch
import torch.distributed as dist

from teachdist.cli import main
from teachdist.tracing.flight import DumpError, explain, load

GROUPS = {
    "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
    "1": {"name": "1", "desc": "tp", "ranks": "[2, 3]"},
}


def entry(op, number, line, group=("0", "default_pg"), state="completed", size=10, **more):
    frames = [
        {"name": "all_reduce", "filename": "/x/torch/distributed/distributed_c10d.py", "line": 1},
        {"name": "step", "filename": "/home/me/train.py", "line": line},
    ]
    return {
        "profiling_name": f"nccl:{op}", "collective_seq_id": number, "p2p_seq_id": 0,
        "process_group": group, "input_sizes": [[size]], "input_dtypes": ["Float"],
        "state": state, "retired": state == "completed", "is_p2p": False, "frames": frames, **more,
    }  # fmt: skip


def dumped(folder, calls, dump=pickle.dumps, ending=""):
    for rank, entries in calls.items():
        told = {"version": "2.10", "pg_config": GROUPS, "entries": entries}
        data = dump(told)
        data = data if isinstance(data, bytes) else data.encode()
        (folder / f"nccl_trace_rank_{rank}{ending}").write_bytes(data)
    return folder


DONE = [entry("all_reduce", 1, 10), entry("all_reduce", 2, 11)]
LAST = entry("all_reduce", 3, 12, state="started")


@pytest.mark.parametrize(("dump", "ending"), [(pickle.dumps, ""), (json.dumps, ".json")])
def test_who_did_not_come(tmp_path, dump, ending):
    calls = {0: [*DONE, LAST], 1: [*DONE, LAST], 2: DONE, 3: [*DONE, LAST]}
    found = explain(load(dumped(tmp_path, calls, dump, ending)))
    assert found == (
        'group "0", call 3: ranks 0, 1 and 3 wait in all_reduce(float32[10]) at train.py:12. Not '
        "there: rank 2 made no call of this group after call 2, all_reduce(float32[10]) at "
        "train.py:11."
    )


def test_who_is_in_another_call(tmp_path):
    other = entry("broadcast", 3, 20, state="started")
    calls = {0: [*DONE, LAST], 1: [*DONE, LAST], 2: [*DONE, other], 3: [*DONE, LAST]}
    found = explain(load(dumped(tmp_path, calls)))
    assert "call 3: rank 2 is in broadcast(float32[10]) at train.py:20; ranks 0, 1 and 3" in found


def test_who_gave_another_size(tmp_path):
    other = entry("all_reduce", 3, 12, state="started", size=11)
    found = explain(
        load(dumped(tmp_path, {r: [*DONE, other if r == 1 else LAST] for r in range(4)}))
    )
    assert "rank 1 is in all_reduce(float32[11]) at train.py:12" in found


def test_who_is_in_another_group(tmp_path):
    inner = entry("all_gather", 1, 30, ("1", "tp"), state="started")
    calls = {0: [*DONE, LAST], 1: [*DONE, LAST], 2: [*DONE, inner], 3: [*DONE, LAST]}
    first, second = explain(load(dumped(tmp_path, calls))).splitlines()
    assert first == (
        'group "tp", call 1: rank 2 waits in all_gather(float32[10]) at train.py:30. Not there: '
        'rank 3 is in call 3 of group "0", all_reduce(float32[10]) at train.py:12.'
    )
    assert 'rank 2 is in call 1 of group "tp", all_gather(float32[10]) at train.py:30' in second


def test_a_rank_that_left_no_dump(tmp_path):
    found = explain(load(dumped(tmp_path, {r: [*DONE, LAST] for r in (0, 1, 3)})))
    assert "Not there: rank 2 left no dump." in found
    assert "No dump of rank 2" in found


def test_messages(tmp_path):
    waiting = {"is_p2p": True, "p2p_seq_id": 1, "collective_seq_id": 2, "state": "started"}
    calls = {rank: list(DONE) for rank in range(4)}
    calls[0].append(entry("recv 0<-1", 2, 40, **waiting))
    calls[1].append(entry("recv 1<-0", 2, 41, **waiting))
    found = explain(load(dumped(tmp_path, calls)))
    assert "rank 0 waits in recv(float32[10], 0<-1) at train.py:40: rank 1 is in recv" in found


def test_nothing_hangs(tmp_path):
    assert explain(load(dumped(tmp_path, dict.fromkeys(range(4), DONE)))).startswith("Nothing")


def test_a_thousand_ranks(tmp_path):
    calls = {rank: [*DONE, LAST] if rank != 700 else DONE for rank in range(1000)}
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(1000)))}}
    for rank, entries in calls.items():
        told = {"version": "2.10", "pg_config": groups, "entries": entries}
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(told))
    assert "ranks 0-699 and 701-999 wait in all_reduce" in explain(load(tmp_path))


class Evil:
    def __reduce__(self):
        return os.system, ("echo ran",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (pickle.dumps(Evil()), "asks for .*system, which a dump does not need"),
        (pickle.dumps({"version": "2.10", "pg_config": {}}), "is no dump of a flight recorder"),
        (pickle.dumps({"version": "7.0"}), "version 7.0 of the format"),
        (b"\x80\x04garbage", "is no dump of a flight recorder"),
        (b"", "is no dump of a flight recorder"),
    ],
)
def test_what_is_no_dump_is_refused(tmp_path, content, said, capfd):
    (tmp_path / "rank_0").write_bytes(content)
    with pytest.raises(DumpError, match=f"rank_0: .*{said}"):
        load(tmp_path)
    assert "ran" not in capfd.readouterr().out.split()


def test_the_command(tmp_path, capsys):
    dumped(tmp_path, {0: [*DONE, LAST], 1: DONE, 2: [*DONE, LAST], 3: [*DONE, LAST]})
    assert main(["explain", str(tmp_path)]) == 0
    assert "Not there: rank 1 made no call" in capsys.readouterr().out


def test_what_torch_records_of_gloo(tmp_path):
    """The real recorder: a call has its words and its line. (When it is over gloo notes later.)"""

    def recorded(folder):
        os.environ["TORCH_FR_BUFFER_SIZE"] = "100"
        group = dist.new_group([0, 1], backend="gloo")
        dist.all_reduce(torch.ones(7), group=group)
        rank = dist.get_rank()
        with open(f"{folder}/rank_{rank}", "wb") as file:
            file.write(torch._C._distributed_c10d._dump_fr_trace())

    from teachdist.testing.pool import RankPool

    with RankPool(2, "gloo") as pool:
        pool.run(recorded, str(tmp_path))
    found = load(tmp_path)
    assert sorted(found) == [0, 1]
    if found[0].calls:  # the recorder is made with the first group of a process
        assert found[0].calls[-1].words == "all_reduce(float32[7])"
        assert found[0].calls[-1].site.startswith("test_flight.py:")
