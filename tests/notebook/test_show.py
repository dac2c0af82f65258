"""show(): every kind of thing gives text, a still picture that any viewer shows, and a scene."""

import base64
import json
import re
import xml.etree.ElementTree as ET
from html import unescape
from types import SimpleNamespace

import IPython
import pytest

import teachdist
from teachdist.collectives import Reduce, Send, prove
from teachdist.notebook import show
from teachdist.notebook.show import Shown, page
from teachdist.tracing import Trace, TracedCall, TracedRound


def sides():
    """An all_reduce among two ranks by `linear`, as both recorded it."""
    one = TracedCall("all_reduce", "all_reduce(float32[2])", "linear", "g", 0, 0, 2, 8, 1.0)
    two = TracedCall("all_reduce", "all_reduce(float32[2])", "linear", "g", 0, 1, 2, 8, 1.0)
    one.rounds = [
        TracedRound(0, {}, {1: ((0,), 8)}, (0,), 1.0, 1.1),
        TracedRound(1, {1: ((0,), 8)}, {}, (), 1.1, 1.2),
    ]
    two.rounds = [
        TracedRound(0, {0: ((0,), 8)}, {}, (), 1.0, 1.1),
        TracedRound(1, {}, {0: ((0,), 8)}, (), 1.1, 1.2),
    ]
    one.ended = two.ended = 1.2
    return [Trace(calls=[one]), Trace(calls=[two])]


def wrong(rank, size):
    yield Send((rank + 1) % size, 0), Reduce((rank - 1) % size, 0)


class Drawn:
    def _repr_svg_(self):
        return '<svg xmlns="http://www.w3.org/2000/svg"/>'

    def __str__(self):
        return "a mesh"


THINGS = {
    "algorithm": lambda: show("ring", "all_reduce", 4),
    "generator": lambda: show(wrong, "all_reduce", 3),
    "trace": lambda: show(sides()),
    "one rank": lambda: show(sides()[0]),
    "timeline": lambda: show(sides(), view="timeline"),
    "predicted": lambda: show(sides(), view="cost"),
    "bytes": lambda: show(sides(), view="bytes"),
    "matrix": lambda: show(dict(enumerate(sides())), view="matrix"),
    "proof": lambda: show(prove("ring", "all_reduce", ranks=range(1, 5))),
    "refuted": lambda: show(prove(wrong, "all_reduce", ranks=3)),
    "cost": lambda: show(teachdist.cost("binomial", "reduce", ranks=4)),
    "prices": lambda: show("barrier", view="cost"),
    "svg": lambda: show(Drawn()),
}


@pytest.fixture(autouse=True)
def _live(monkeypatch):
    """As a reader sees it, not as a notebook is stored."""
    monkeypatch.delenv("TEACHDIST_LIVE", raising=False)


@pytest.mark.parametrize("thing", THINGS)
def test_a_picture_is_text_and_an_image_that_sanitisers_keep(thing):
    bundle = THINGS[thing]()._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/plain"].strip()
    images = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', bundle["text/html"])
    assert images or thing == "refuted"
    for image in images:
        assert ET.fromstring(base64.b64decode(image)).tag.endswith("svg")
    assert "<svg" not in bundle["text/html"]
    assert "<script" not in bundle["text/html"]


@pytest.mark.parametrize("thing", sorted(set(THINGS) - {"timeline"}))
def test_the_same_thing_twice_is_the_same_picture(thing):
    """A saved notebook is compared with a new run."""
    assert THINGS[thing]()._repr_mimebundle_() == THINGS[thing]()._repr_mimebundle_()


def test_the_picture_carries_its_scene():
    shown = show("ring", "all_reduce", 4)
    (data,) = (n for n in ET.fromstring(shown.svgs[0]).iter() if n.tag.endswith("metadata"))
    assert json.loads(data.text) == json.loads(json.dumps(shown.scenes[0]))


def test_the_fault_of_a_wrong_generator_is_in_the_text():
    assert "without the contribution of" in str(show(wrong, "all_reduce", 3))


def test_recorded_and_planned_rounds_read_alike():
    recorded, planned = str(show(sides())), str(show("linear", "all_reduce", 2))
    assert recorded.splitlines()[1:] == planned.splitlines()[1:]


def test_the_live_player_knows_times_and_the_saved_picture_does_not(monkeypatch):
    shown = show(sides())
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=True))
    html = shown._repr_mimebundle_()["text/html"]
    player = re.search(r'<div class="td-player" data-scenes="([^"]*)"><img .*></div>', html)
    (scene,) = json.loads(unescape(player[1]))
    assert scene["rounds"][0]["note"] == "100000 to 100000 µs"
    assert "note" not in shown.scenes[0]["rounds"][0]
    monkeypatch.setenv("TEACHDIST_LIVE", "0")
    assert shown._repr_mimebundle_()["text/html"] == shown.html()


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: show("rign", "all_reduce"), ValueError, "did you mean 'ring'"),
        (lambda: show("ring", "all_reduce", view="matrix"), ValueError, "is for traces"),
        (lambda: show(sides(), view="price"), ValueError, "expected rounds, timeline"),
        (lambda: show(3), TypeError, "int can't be drawn"),
        (lambda: show("ring", "all_reduce").save("x.png"), ValueError, "ends in .svg or .html"),
    ],
)
def test_what_cannot_be_drawn_is_an_error_that_says_so(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_saving_gives_a_picture_or_a_page_that_needs_nothing_else(tmp_path):
    shown = show("ring", "all_reduce", 3)
    shown.save(tmp_path / "ring.svg")
    assert ET.fromstring((tmp_path / "ring.svg").read_text()).tag.endswith("svg")
    shown.save(tmp_path / "ring.html")
    html = (tmp_path / "ring.html").read_text()
    assert "class Player" in html
    assert not re.search(r"""(?:src|href)=|import |from ["']|https?://(?!www\.w3\.org)""", html)


@pytest.mark.parametrize("part", ["title", "meaning"])
def test_words_cannot_end_the_script_of_a_page(part):
    hostile = {**show("ring", "all_reduce", 2).scenes[0], part: "</script><b>"}
    assert "</script><b>" not in page([hostile])
    assert page([hostile]).count("</script>") == 1


@pytest.mark.parametrize("view", ["timeline", "cost"])
def test_measured_times_are_not_stored(view, monkeypatch):
    monkeypatch.setenv("TEACHDIST_LIVE", "0")
    bundle = show(sides(), view=view)._repr_mimebundle_()
    assert bundle == {"text/plain": "(measured times: run this cell to see yours)"}


def test_predicted_beside_measured_as_text():
    """From when the last rank came to when the last one left; prices of the default topology."""
    head, row = str(show(sides(), view="cost")).splitlines()
    assert head.split() == ["call", "algorithm", "bytes", "predicted", "measured"]
    assert " ".join(row.split()) == "all_reduce(float32[2]) linear 8 bytes 60 us 200 ms x 3.3e+03"


def test_nothing_recorded_is_said():
    assert repr(show(Trace())) == "no collective was called"
    assert isinstance(show([Trace(), Trace()]), Shown)
