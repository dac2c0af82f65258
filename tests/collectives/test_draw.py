"""Pictures are well-formed, describe themselves, and show each message and contribution."""

import xml.etree.ElementTree as ET

import pytest

from teachdist.collectives import Reduce, Send, catalog, draw_svg, frames, get

NS = {"s": "http://www.w3.org/2000/svg"}
ENTRIES = [(op, name) for op, names in catalog().items() for name in names]


def texts(root):
    return [element.text for element in root.iterfind(".//s:text", NS)]


@pytest.mark.parametrize(("op", "name"), ENTRIES)
def test_every_algorithm_can_be_drawn(op, name):
    for size in filter(get(op, name).serves, (1, 4, 5)):
        root = ET.fromstring(draw_svg(name, op, size))
        assert root.find("s:title", NS).text.startswith(f"{name} {op} on {size} rank")
        assert root.get("role") == "img"
        assert [f"rank {rank}" for rank in range(size)] == [
            words for words in texts(root) if words.startswith("rank ")
        ]
        busy = [frame["round"] for frame in frames(name, size, op) if frame["messages"]]
        assert [f"round {number}" for number in busy] == [
            words for words in texts(root) if words.startswith("round ")
        ]


def test_arrows_and_labels():
    root = ET.fromstring(draw_svg("ring", "all_reduce", 3))
    heads = root.findall(".//s:path[@class='td-rim']", NS)
    assert len(heads) == 4 * 3
    labels = [words for words in texts(root) if words.strip("+").isdigit()]
    assert sorted(labels) == ["+0", "+0", "+1", "+1", "+2", "+2", "0", "0", "1", "1", "2", "2"]


def test_the_description_tells_the_rounds():
    root = ET.fromstring(draw_svg("binomial", "broadcast", 4, root=1))
    assert root.find("s:title", NS).text == "binomial broadcast on 4 ranks, root 1"
    assert root.find("s:desc", NS).text.startswith("round 0: 1 -> 3 gives chunk 0. round 1: ")


def test_a_cell_has_a_stripe_for_each_contributor():
    root = ET.fromstring(draw_svg("direct", "all_reduce", 3))
    stripes = [
        path.get("d").count("M")
        for path in root.iterfind(".//s:path", NS)
        if path.get("class") is None and "v" in path.get("d")
    ]
    # Before: one cell with one stripe for each rank. After: three cells with each rank's stripe.
    assert stripes == [1, 1, 1, 3, 3, 3]


def test_a_wrong_algorithm_is_drawn_with_its_fault():
    def twice(rank, size):
        for _ in range(2):
            yield Send(1 - rank, 0), Reduce(1 - rank, 0)

    root = ET.fromstring(draw_svg(twice, "all_reduce", 2))
    assert any("counts ranks 0 and 1 twice" in words for words in texts(root))


def test_hosts_are_named():
    root = ET.fromstring(draw_svg("two_level", "all_reduce", 4, hosts=(0, 0, 1, 1)))
    assert [words for words in texts(root) if words.startswith("host")] == [
        "host 0",
        "host 0",
        "host 1",
        "host 1",
    ]


def test_the_same_picture_every_time():
    assert draw_svg("bruck", "all_gather", 5) == draw_svg("bruck", "all_gather", 5)


def test_too_many_ranks():
    with pytest.raises(ValueError, match=r"33 ranks don't fit .* at most 32"):
        draw_svg("ring", "all_reduce", 33)
