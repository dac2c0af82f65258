"""The page of benchmarks: its tables are those of the stored run, with what was wanted beside."""

import json

import benchmarks
import pytest

from teachdist.bench.targets import SHARED_MEMORY, target


def row(op, nbytes, ranks, shm, tcp, threads=1):
    seconds = {"gloo": 100e-6, "shm": shm * 1e-6, "tcp": tcp * 1e-6}
    return {"op": op, "nbytes": nbytes, "ranks": ranks, "threads": threads, "seconds": seconds} | {
        "copy": 8e9
    }


@pytest.fixture
def found():
    return {
        "command": "teachdist bench --ranks 2,4",
        "arguments": {"links": ["shm", "tcp"]},
        "machine": {
            "system": "Linux",
            "processors": 2,
            "python": "3.11",
            "torch": "2.14",
            "load": 0.5,
        },
        "rows": [
            row("all_reduce", 8, 2, 10, 50),
            row("all_reduce", 1 << 20, 2, 50, 200),
            row("barrier", 0, 2, 20, 100),
            row("all_reduce", 8, 4, 20, 125),
            row("barrier", 0, 4, 12.5, 90),
        ],
    }


def test_a_column_for_every_number_of_ranks_and_what_was_wanted(found):
    lines = benchmarks.table(found["rows"], "shm").splitlines()
    assert lines[0] == "| operation | bytes | 2 ranks, 1 thread | 4 ranks, 1 thread | wanted |"
    assert lines[2:] == [
        "| all_reduce | 8 | 10 | 5 | 4.5 |",
        "| all_reduce | 1M | *2* |  | 3.5 |",
        "| barrier |  | *5* | 8 | 6 |",
    ]


def test_sockets_are_held_against_one(found):
    lines = benchmarks.table(found["rows"], "tcp").splitlines()
    assert lines[2:] == [
        "| all_reduce | 8 | 2 | *0.8* | 1 |",
        "| all_reduce | 1M | *0.5* |  | 1 |",
        "| barrier |  | 1 | 1.1 | 1 |",
    ]


def test_what_overlap_could_reach_at_best(found):
    assert benchmarks.at_best(found["rows"]) == []
    for ranks, alone in ((2, 50e-6), (2, 40e-6), (4, 100e-6)):
        found["rows"].append(row("overlap", 8, ranks, 40, 50) | {"alone": alone})
    (said,) = benchmarks.at_best(found["rows"])
    assert "2 to 2.5 with 2 ranks and 1 thread; 1 to 1 with 4 ranks and 1 thread." in said
    assert said in benchmarks.tables(found)


def test_the_page_says_how_it_was_measured(found, tmp_path):
    stored = tmp_path / "run.json"
    stored.write_text(json.dumps(found))
    page = benchmarks.fill("before\n\n<!-- benchmark -->\n", stored)
    assert page.startswith("before\n\nMeasured by `teachdist bench --ranks 2,4` on 2 processors")
    assert "torch 2.14" in page
    assert "8.0 GB/s" in page
    assert page.index("Ranks that share memory") < page.index("Sockets alone")
    assert benchmarks.MARK not in page


def test_a_page_without_the_mark_stays_as_it_is(tmp_path):
    assert benchmarks.fill("nothing here", tmp_path / "not there") == "nothing here"
    assert benchmarks.fill(benchmarks.MARK, tmp_path / "not there") == benchmarks.NONE


@pytest.mark.parametrize(
    ("op", "nbytes", "wanted"),
    [
        ("all_reduce", 8, 4.5),
        ("all_reduce", 1 << 16, 4.5),
        ("all_reduce", 1 << 20, 3.5),
        ("all_reduce", 1 << 24, 2),
        ("all_reduce", 1 << 26, 1.6),
        ("gather", 8, None),
    ],
)
def test_targets(op, nbytes, wanted):
    assert target(op, nbytes) == wanted
    assert target(op, nbytes, "tcp") == 1
    assert all(len(ratios) == 4 for ratios in SHARED_MEMORY.values())
