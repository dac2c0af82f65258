import pytest

from teachdist.notebook.cells import hints
from teachdist.notebook.errors import Failure

NO_GROUP = ValueError("Default process group ..., please make sure to call init_process_group.")


@pytest.mark.parametrize(
    ("error", "running", "says"),
    [
        (NameError("name 'rank' is not defined"), True, "'rank' is known on the ranks; begin the"),
        (NameError("name 'rank' is not defined"), False, "ranks; start ranks with %ranks 4, and"),
        (NameError("name 'known' is not defined"), True, "'known' is known on the ranks"),
        (NameError("name 'known' is not defined"), False, None),
        (NameError("name 'other' is not defined"), True, None),
        (NO_GROUP, True, "in no process group, the ranks are; begin the cell with %%ranks"),
        (ValueError("other"), True, None),
    ],
)
def test_here(error, running, says):
    hint = hints.hint_here(error, running, lambda name: name == "known")
    assert hint == "" if says is None else says in hint


def test_on_ranks():
    failures = [Failure(0, "NameError", "name 'x' is not defined", [])]
    assert "'x' is defined in the notebook's own process" in hints.hint_on_ranks(failures, {"x"})
    assert hints.hint_on_ranks(failures, {"y"}) == ""
    assert hints.hint_on_ranks([Failure(0, "ValueError", "x", [])], {"x"}) == ""
