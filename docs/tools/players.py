"""Players in pages: from a scene to HTML, and from `<!-- show: ... -->` to a player.

    <!-- show: "ring", "all_reduce", ranks=4 -->      what teachdist.show(...) would show
    <!-- play: "ring", "all_reduce", ranks=4 -->      the same, playing by itself

Without JavaScript the still picture is shown.
"""

import ast
import re

from teachdist.notebook.show import show, waiting

_ASKED = re.compile(r"^<!-- (show|play): (.*?) -->$", re.MULTILINE)


def fill(text: str) -> str:
    """A page with its `show` and `play` comments replaced by players."""
    return _ASKED.sub(lambda asked: player(_shown(asked[2]), autoplay=asked[1] == "play"), text)


def player(shown, autoplay=False) -> str:
    """What `show` answered, as HTML for a page: its player, or its pictures if it has none."""
    stills = shown.html()
    if not shown.scenes:
        return f"<div>{stills}</div>"
    return waiting(shown.scenes, stills, autoplay)


def _shown(arguments):
    call = ast.parse(f"show({arguments})", mode="eval").body
    given = [ast.literal_eval(node) for node in call.args]
    named = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    return show(*given, **named)
