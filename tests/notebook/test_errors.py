from teachdist.notebook.errors import Failure, RanksError


def failure(rank, name="ValueError", text="bad", when="", traceback=()):
    return Failure(rank, name, text, list(traceback), when)


RELEASED = (
    "Released",
    "rank 2 failed: ValueError: bad (rank 0 was released from barrier() at cell 1, line 6.)",
)


def test_the_earliest_cause_comes_first_and_its_traceback_is_shown():
    error = RanksError(
        [
            failure(0, *RELEASED, when="1"),
            failure(1, when="3", text="other", traceback=["late"]),
            failure(2, when="2", traceback=["line 1", "line 2"]),
            failure(3, *RELEASED, when="1"),
        ]
    )
    assert [one.rank for one in error.failures] == [2, 1, 0, 3]
    assert str(error).splitlines() == [
        "rank 1: ValueError: other",
        "rank 2: ValueError: bad",
        "ranks 0,3: released from barrier() at cell 1, line 6",
    ]
    shown = error._render_traceback_()
    assert shown[:3] == ["rank 2 failed first:", "line 1", "line 2"]
    assert shown[-1] == str(error).splitlines()[-1]


def test_of_equal_failures_the_lowest_rank_speaks():
    failures = [failure(r, when=str(9 - r), traceback=[f"of {r}"]) for r in range(3)]
    shown = RanksError(failures)._render_traceback_()
    assert shown == ["ranks 0-2 failed first:", "of 0", "", "ranks 0-2: ValueError: bad"]


def test_a_script_sees_the_ranks_traceback():
    """Nothing else shows it there: Python prints an exception's notes."""
    first = failure(1, when="1", traceback=["\x1b[31mFile train.py:4\x1b[0m", "KeyError"])
    error = RanksError([failure(0, *RELEASED, when="2"), first])
    assert error.__notes__ == ["On rank 1:\nFile train.py:4\nKeyError"]
    assert not hasattr(RanksError([failure(0)]), "__notes__")


def test_the_file_of_a_cell_is_no_name():
    assert failure(0, "SyntaxError", "incomplete (131.py, line 2)").what.endswith(
        "SyntaxError: incomplete (line 2)"
    )


def test_one_failure_needs_no_summary():
    assert RanksError([failure(0, traceback=["tb"])])._render_traceback_() == [
        "rank 0 failed first:",
        "tb",
        "",
    ]


def test_when_a_process_died_the_others_are_consequences():
    died = "Engine '1' died while running task 'abc'"
    lines = RanksError(
        [failure(0, "RuntimeError", "connection reset"), failure(1, "Died", died)]
    ).lines()
    assert lines[0].startswith("rank 1: Died")
    assert lines[1] == "rank 0: RuntimeError: connection reset"
    assert lines[-1].startswith("next: %ranks restart")


def test_stuck_ranks_are_named():
    lines = RanksError([failure(0)], stuck=[1, 2]).lines()
    assert lines[1] == "ranks 1-2: no answer, not even to an interrupt"
    assert lines[2].startswith("next: ")


def test_from_what_ipyparallel_delivers():
    class EngineError(Exception):
        ename, evalue, traceback = "EngineError", "Engine '2' died while running task 'x'", None

    found = Failure.of(2, EngineError())
    assert found.died
    assert found.what == "Died: its process ended (killed, or out of memory)"
    assert Failure.of(1, ValueError("plain")).what == "ValueError: plain"
    assert Failure.of(1, ValueError()).what == "ValueError"


def test_an_interrupt_needs_no_traceback():
    failures = [
        failure(r, "KeyboardInterrupt", "cell 1, line 2: f()", traceback=["tb"]) for r in (0, 1)
    ]
    assert RanksError(failures)._render_traceback_() == [
        "ranks 0-1: KeyboardInterrupt: cell 1, line 2: f()"
    ]


def test_a_killed_rank_is_told_once():
    died = Failure(2, "Died", "its process ended (killed, or out of memory)", [])
    lost = 'group "0", call 1: rank 2 is dead: it ended; rank 0 was in barrier() at cell 1, line 2.'
    lines = str(RanksError([failure(0, "DistNetworkError", lost), died])).splitlines()
    assert lines[:2] == [f"rank 2: {died.what}", "rank 0: was in barrier() at cell 1, line 2"]
    assert sum("rank 2" in line for line in lines) == 1


def test_a_message_of_ten_million_characters_is_cut():
    error = RanksError([failure(0, text="y" * 10_000_000, traceback=["y" * 10_000_000])])
    assert str(error).endswith("yyy [... 9,999,000 characters more]")
    shown = "\n".join(error._render_traceback_())
    assert "characters left out; all of it: print(sys.last_value.__notes__[0])" in shown
    assert len(shown) < 50_000
