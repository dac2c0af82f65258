import pytest
from IPython.core.error import UsageError

from teachdist.notebook import arguments


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%ranks st", {"status", "stop", "--backend"}),
        ("%ranks 4 ", {"--backend", "--launcher", "--profile"}),
        ("%%ranks --tr", {"--trace", "--here", "--on", "--predict", "--as-script"}),
    ],
)
def test_completions(line, expected):
    assert expected <= set(arguments.completions(line))


def test_words_are_completed_in_their_place_only():
    assert "status" not in arguments.completions("%ranks 4 st")
    assert "status" not in arguments.completions("%%ranks st")


@pytest.mark.parametrize("read", [arguments.line_words, arguments.cell_words])
def test_help_names_every_flag(read):
    with pytest.raises(arguments.Help) as caught:
        read("--help")
    parser = arguments.LINE if read is arguments.line_words else arguments.CELL
    assert str(caught.value).startswith(f"usage: {parser.form}\n")
    assert all(flag in str(caught.value) for flag in parser.flags())


def test_a_wrong_word_is_answered_with_the_right_one():
    with pytest.raises(ValueError, match="got 'stats'; did you mean 'status'"):
        arguments.line_words("stats")
    with pytest.raises(UsageError, match="unrecognized arguments: now"):
        arguments.line_words("stop now")
    assert arguments.line_words("output file.txt").more == "file.txt"
