"""One set of colours, in Python and in JavaScript."""

import json
import re
from pathlib import Path

import teachdist
from teachdist.pictures import svg

PLAYER = Path(teachdist.__file__).parent / "notebook" / "player.js"


def test_the_player_and_the_pictures_paint_alike():
    module = PLAYER.read_text("utf-8")
    for name, ours in (("COLOURS", svg.COLOURS), ("ON_COLOUR", svg.ON_COLOUR)):
        (theirs,) = re.findall(rf"^const {name} = (\[.*\]);", module, flags=re.MULTILINE)
        assert json.loads(theirs) == list(ours)


def test_what_is_written_is_escaped():
    assert "&lt;b&gt;" in svg.text(0, 0, "<b>")
    assert "&lt;b&gt;" in svg.document(1, 1, "", "<b>")
    assert "<b>" not in svg.image("<svg/>", '"><b>')
