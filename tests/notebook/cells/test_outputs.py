import pytest

from teachdist.notebook.cells import outputs


@pytest.mark.parametrize("text", ["", "a", "1-", "0,,2", "-1"])
def test_parse_ranks_refuses(text):
    with pytest.raises(ValueError, match="expected ranks such as"):
        outputs.parse_ranks(text)


def test_collapse_is_ordered_by_lowest_rank_and_aligned():
    said = {2: "b\n", 0: "a\nmore\n", 3: "a\nmore\n", 1: "\x1b[31mb\x1b[0m\n", 4: ""}
    assert outputs.collapse(said) == "[ranks 0,3] a\n            more\n[ranks 1-2] b"


def result(text):
    return ("result", {"data": {"text/plain": text}})


PICTURE = ("display", {"data": {"image/png": "abc", "text/plain": "<Figure>"}, "metadata": {}})


def test_texts_and_results_in_the_order_in_which_they_came():
    items = [("stdout", "one\n"), ("stderr", "hm\n"), result("2"), ("stdout", "three\n")]
    assert outputs.script({0: items}) == [("print", "[rank 0] one\n         2\n         three")]
    assert outputs.errors_of(items) == "hm\n"


def test_pictures_come_under_the_label_of_their_ranks():
    same = [PICTURE, ("stdout", "y\n")]
    shown = outputs.script({0: [("stdout", "x\n"), PICTURE], 1: same, 2: same})
    assert shown == [
        ("print", "[rank 0] x"),
        ("display", PICTURE[1]["data"], {}),
        ("print", "[ranks 1-2]"),
        ("display", PICTURE[1]["data"], {}),
        ("print", "[ranks 1-2] y"),
    ]


def test_pictures_of_several_ranks_at_their_end_stand_side_by_side():
    shown = outputs.script({0: [("stdout", "x\n"), PICTURE], 1: [PICTURE], 2: []})
    assert [kind for kind, *_ in shown] == ["print", "display"]
    assert shown[0][1] == "[rank 0] x"
    assert shown[1][1]["text/plain"] == "rank 0 <Figure>\nrank 1 <Figure>"
    html = shown[1][1]["text/html"]
    assert html.startswith("<table><tr><th>rank 0</th><th>rank 1</th></tr>")
    assert html.count('<img src="data:image/png;base64,abc">') == 2


def test_show_prints_once_per_text(capsys):
    outputs.show({0: [("stdout", "a")], 1: [("stdout", "a"), ("stderr", "careful")]})
    captured = capsys.readouterr()
    assert captured.out == "[ranks 0-1] a\n"
    assert captured.err == "[rank 1] careful\n"


def test_a_carriage_return_overwrites_its_line():
    assert outputs.plain("10%\r50%\r100%\nok\r\nend") == "100%\nok\nend"


MUCH = 10_000_000


def test_ten_million_characters_on_one_line():
    """Anything that looks at a character again and again would take minutes."""
    line = "x" * MUCH
    assert outputs.plain(line) == line
    assert outputs.plain("gone\r" + line + "\nnext") == line + "\nnext"
    assert outputs.plain("\x1b[" + "1" * MUCH).endswith("1")
    pieces = [("stdout", "x" * 10)] * 100_000
    assert outputs.parts(pieces) == [("text", "x" * 1_000_000)]
    shown = outputs.script({0: [("stdout", line)], 1: [("stdout", line)]}, "all of it: there")
    assert len(shown[0][1]) < 2 * outputs.MOST


def test_cut_keeps_whole_lines_and_says_how_much_is_gone():
    lines = [f"line {n}" for n in range(10_000)]
    text = "\n".join(lines)
    kept = outputs.cut(text, "all of it: there", most=1_000).splitlines()
    middle = next(n for n, line in enumerate(kept) if line.startswith("[..."))
    assert kept[:middle] == lines[:middle]
    assert kept[middle + 1 :] == lines[middle + 1 - len(kept) :]
    gone = len("\n".join(lines[middle : middle + 1 - len(kept)])) + 2
    assert kept[middle] == f"[... {gone:,} of {len(text):,} characters left out; all of it: there]"
    assert outputs.cut("short", "", most=5) == "short"
    one = outputs.cut("a" * 500 + "b" * 500, "r", most=100)
    assert one.splitlines() == ["a" * 50, "[... 900 of 1,000 characters left out; r]", "b" * 50]


def test_whole_leaves_nothing_out():
    said = {0: [("stdout", "x" * 30_000), ("stderr", "hm")], 1: []}
    assert outputs.whole(said) == f"[rank 0] {'x' * 30_000}\n[rank 0] hm"


def test_what_came_after_the_cell_is_labelled(capsys):
    late = [("stdout", "a"), ("stderr", "b"), ("stdout", "c\n")]
    outputs.show_late({0: late, 1: late})
    assert capsys.readouterr() == (
        "[ranks 0-1, after its cell] ac\n",
        "[ranks 0-1, after its cell] b\n",
    )
