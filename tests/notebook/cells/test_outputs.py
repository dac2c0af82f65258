import pytest

from teachdist.notebook.cells import outputs


@pytest.mark.parametrize(
    ("ranks", "name"),
    [
        ([3], "rank 3"),
        ([0, 1, 2, 3], "ranks 0-3"),
        ([5, 0, 1], "ranks 0-1,5"),
        ([0, 2], "ranks 0,2"),
    ],
)
def test_name_ranks_and_back(ranks, name):
    assert outputs.name_ranks(ranks) == name
    assert outputs.parse_ranks(name.split()[1]) == sorted(ranks)


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
    same = [PICTURE]
    shown = outputs.script({0: [("stdout", "x\n"), PICTURE], 1: same, 2: same})
    assert shown == [
        ("print", "[rank 0] x"),
        ("display", PICTURE[1]["data"], {}),
        ("print", "[ranks 1-2]"),
        ("display", PICTURE[1]["data"], {}),
    ]


def test_show_prints_once_per_text(capsys):
    outputs.show({0: [("stdout", "a")], 1: [("stdout", "a"), ("stderr", "careful")]})
    captured = capsys.readouterr()
    assert captured.out == "[ranks 0-1] a\n"
    assert captured.err == "[rank 1] careful\n"


def test_a_carriage_return_overwrites_its_line():
    assert outputs.plain("10%\r50%\r100%\nok\r\nend") == "100%\nok\nend"
