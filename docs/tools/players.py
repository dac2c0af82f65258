"""Players in pages: from a scene to HTML, and from `<!-- show: ... -->` to a player.

    <!-- show: "ring", "all_reduce", ranks=4 -->      what teachdist.show(...) would show
    <!-- play: "ring", "all_reduce", ranks=4 -->      the same, playing by itself

Without JavaScript the still picture is shown. The player is a module for notebooks; pages take it
as a plain script, since a browser loads no modules from files, and a class may read the site from a
memory stick.
"""

import ast
import json
import re
from html import escape
from pathlib import Path

from teachdist.notebook.show import show
from teachdist.pictures import svg

ROOT = Path(__file__).resolve().parents[2]
_ASKED = re.compile(r"^<!-- (show|play): (.*?) -->$", re.MULTILINE)


def fill(text: str) -> str:
    """A page with its `show` and `play` comments replaced by players."""
    return _ASKED.sub(lambda asked: player(_shown(asked[2]), autoplay=asked[1] == "play"), text)


def player(shown, autoplay=False) -> str:
    """What `show` answered, as HTML for a page: its player, or its pictures if it has none."""
    stills = "".join(svg.image(one, shown.text.partition("\n")[0]) for one in shown.svgs)
    if not shown.scenes:
        return f"<div>{stills}</div>"
    return player_of(shown.scenes, stills, autoplay)


def player_of(scenes, stills, autoplay=False) -> str:
    """HTML for a player of `scenes`; `stills` is what is shown where there is no JavaScript."""
    data = escape(json.dumps(scenes), quote=True)
    mark = ' data-autoplay="yes"' if autoplay else ""
    return f'<div class="td-player" data-scenes="{data}"{mark}>{stills}</div>'


def classic_script() -> str:
    """player.js as a script that defines `teachdistPlayer`."""
    module = (ROOT / "teachdist" / "notebook" / "player.js").read_text("utf-8")
    assert module.count("export default") == 1
    body = module.replace("export default", "globalThis.teachdistPlayer =")
    return f"(() => {{\n{body}\n}})();\n"


def _shown(arguments):
    call = ast.parse(f"show({arguments})", mode="eval").body
    given = [ast.literal_eval(node) for node in call.args]
    named = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    return show(*given, **named)
