"""The file for Perfetto: its events are those of the format, one track per rank."""

import json

import pytest
from recording import record

from teachdist.tracing import Trace, TracedCall, TracedRound, save_chrome
from teachdist.tracing.chrome import events


def traces(sides):
    return {rank: Trace(calls=[call]) for rank, call in sides.items()}


def of(found, phase, **wanted):
    return [e for e in found if e["ph"] == phase and wanted.items() <= e.items()]


def test_a_track_for_each_rank_with_the_call_and_its_rounds():
    found = events(traces(record()))
    for rank in range(4):
        (name,) = of(found, "M", name="thread_name", tid=rank)
        assert name["args"] == {"name": f"rank {rank}"}
        (call,) = of(found, "X", cat="call", tid=rank)
        assert (call["name"], call["ts"], call["dur"]) == ("all_reduce", 0, 6000)
        assert call["args"]["algorithm"] == "ring"
        rounds = of(found, "X", cat="round", tid=rank)
        assert [(r["name"], r["ts"], r["dur"]) for r in rounds] == [
            (f"round {k}", 1000 * k, 1000) for k in range(6)
        ]
    assert of(found, "X", name="round 0", tid=0)[0]["args"] == {
        "sends": {"rank 1": "chunk 3 (8 bytes)"},
        "takes": {"rank 3": "chunk 2 (8 bytes)"},
    }


def test_every_message_is_an_arrow_between_blocks_of_the_same_round():
    sides = record("all_to_all", "bruck", 5)
    found = events(traces(sides))
    starts = {e["id"]: e for e in of(found, "s")}
    ends = {e["id"]: e for e in of(found, "f")}
    messages = sum(len(step.sends) for call in sides.values() for step in call.rounds)
    assert len(starts) == len(ends) == messages
    blocks = of(found, "X", cat="round")

    def block(event):
        (one,) = (
            b
            for b in blocks
            if b["tid"] == event["tid"] and b["ts"] < event["ts"] < b["ts"] + b["dur"]
        )
        return one

    for number, start in starts.items():
        sender, taker = block(start), block(ends[number])
        assert sender["name"] == taker["name"]
        assert f"rank {taker['tid']}" in sender["args"]["sends"]
        assert start["ts"] < ends[number]["ts"]


def test_segments_are_blocks_of_their_own():
    call = TracedCall("barrier", "barrier()", "linear", "g", 0, 0, 1, 0, 1.0, 2.0)
    spans = [(1.0, 1.25), (1.5, 1.75)]
    call.rounds = [TracedRound(0, {}, {}, (), 1.0, 1.75, spans=spans)]
    found = of(events({0: Trace(calls=[call])}), "X", cat="round")
    assert [(e["ts"], e["dur"], e["args"]["segment"]) for e in found] == [
        (0, 250_000, 0),
        (500_000, 250_000, 1),
    ]


@pytest.mark.parametrize("given", ["by rank", "list", "one"])
def test_the_file_is_json(given, tmp_path):
    by_rank = traces(record())
    what = {"by rank": by_rank, "list": list(by_rank.values()), "one": by_rank[2]}[given]
    path = save_chrome(what, tmp_path / "trace.json")
    read = json.loads(path.read_text())
    tracks = {e["tid"] for e in read["traceEvents"] if e["ph"] == "X"}
    assert tracks == ({2} if given == "one" else {0, 1, 2, 3})
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]


def test_no_calls_are_an_empty_picture():
    assert of(events({0: Trace()}), "X") == []
