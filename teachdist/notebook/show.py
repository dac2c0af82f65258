"""``teachdist.show(...)``: whatever can be looked at, as a picture that steps where it can.

    teachdist.show("ring", "all_reduce", ranks=4)       an algorithm of the catalogue
    teachdist.show(my_generator, "all_reduce")          your own; a wrong one up to its first fault
    teachdist.show(trace)                               recorded calls; or a list, one per rank
    teachdist.show(trace, view="timeline")              also "cost", "bytes" and "matrix"
    teachdist.show(teachdist.prove(...))                a proof or a counter-example
    teachdist.show(teachdist.cost(...))                 predicted time over size and over ranks
    teachdist.show("all_reduce", view="cost")           all algorithms for a collective
    teachdist.show(cluster.status())                    where every rank is, and who waits for whom
    teachdist.show(mesh)                                anything that draws itself as SVG

An answer has three forms: text (a terminal), a still picture (GitHub, wherever there is no
JavaScript) and the player, a script that takes the picture's place. It is no widget: a widget is
an error message once its kernel is gone, and this plays on in a saved notebook. The still picture
is an image in HTML because JupyterLab takes bare SVG out of notebooks that it doesn't trust. It
holds no times, so that a saved notebook can be compared with a new run; for that, TEACHDIST_LIVE=0
marks a run that stores: then there are no players, and no pictures of measured times.
"""

import functools
import json
import sys
from html import escape
from pathlib import Path

from teachdist.collectives import DEFINITIONS, Cost, CounterExample, Proof
from teachdist.environment import switch
from teachdist.pictures import charts, plot_cost, recorded, svg
from teachdist.pictures.compared import predicted_beside_measured
from teachdist.pictures.scene import scene
from teachdist.pictures.still import still, words

VIEWS = {"bytes": charts.bytes_per_rank, "matrix": charts.matrix}
TIMED = ("timeline", "cost")
MOST_STILLS = 8
PRICED_SIZES = tuple(4**k for k in range(2, 15))  # bytes
PRICED_RANKS = (2, 4, 8, 16, 32, 64, 128)
_PLAYER = Path(__file__).with_name("player.js")


class Shown:
    """What `show` answers: `text`, the still pictures `svgs`, and `scenes` for the player.

    `save("x.svg")` writes the first still picture, `save("x.html")` a page with the player that
    needs nothing else. `timed`: text and pictures hold measured times, so they aren't stored.
    """

    def __init__(self, text, svgs, scenes=(), live_scenes=None, timed=False):
        self.text = text
        self.timed = timed
        self.svgs = list(svgs)
        self.scenes = list(scenes)
        self._live_scenes = self.scenes if live_scenes is None else live_scenes

    def __repr__(self):
        return self.text

    def _repr_mimebundle_(self, include=None, exclude=None):
        if self.timed and _stores():
            return {"text/plain": "(measured times: run this cell to see yours)"}
        html = self.html()
        if self._live_scenes and in_live_notebook():
            html = f"{waiting(self._live_scenes, html)}\n<script>{script()}</script>"
        return {"text/plain": self.text, "text/html": html}

    def html(self):
        """The still pictures as HTML."""
        return "\n".join(svg.image(one, self.text.partition("\n")[0]) for one in self.svgs)

    def save(self, path):
        """Write the picture to a file: .svg for the still one, .html for the player."""
        path = Path(path)
        if path.suffix == ".svg":
            path.write_text(self.svgs[0], encoding="utf-8")
        elif path.suffix == ".html" and self.scenes:
            path.write_text(page(self.scenes), encoding="utf-8")
        else:
            forms = ".svg or .html" if self.scenes else ".svg"
            raise ValueError(f"path: expected a name that ends in {forms}, got {path.name!r}")


def show(
    what,
    op=None,
    ranks=4,
    *,
    root=0,
    hosts=None,
    chunks=None,
    layout=None,
    columns=None,
    view="rounds",
    nbytes=1 << 20,
    topology=None,
):
    """Draw `what`: see the head of this module for all that it may be.

    `op` is the collective, when `what` is a generator or a name that several collectives have;
    `ranks`, `root`, `hosts` (a host for each rank) and `chunks` are the case that is drawn.
    `layout` is "ring", "line" or "grid" (with `columns`); the messages decide when not given.
    `view` is "rounds"; for traces also "timeline", "cost" (predicted beside measured), "bytes" or
    "matrix"; for algorithms also "cost", with `nbytes` and `topology` as `teachdist.cost` has them.

    Raises:
        ValueError: a name that doesn't exist, or a view that doesn't fit.
        TypeError: nothing here knows how to draw `what`.
    """
    drawn = {"layout": layout, "columns": columns}
    if _is_trace(what):
        return _show_trace(what, view, drawn, topology)
    if view not in ("rounds", "cost"):
        raise ValueError(f"view: {view!r} is for traces; algorithms have 'rounds' and 'cost'")
    if isinstance(what, Cost):
        return _show_prices(what.op, what.ranks, what.nbytes, what.topology, str(what))
    if isinstance(what, (Proof, CounterExample)):
        return _show_verdict(what, drawn)
    if view == "cost":
        collective = what if what in DEFINITIONS else op
        text = f"predicted time of the algorithms for {collective}"
        return _show_prices(collective, ranks, nbytes, topology, text)
    if isinstance(what, str) or callable(what):
        found = scene(what, op, ranks, root=root, hosts=hosts, chunks=chunks, **drawn)
        return Shown(words(found), [still(found)], [found])
    if hasattr(what, "_repr_svg_"):
        return Shown(str(what), [what._repr_svg_()], timed=getattr(what, "timed", False))
    raise TypeError(
        f"what: {type(what).__name__} can't be drawn; show() takes an algorithm, a trace, a proof, "
        "a cost, a status or a mesh"
    )


def page(scenes):
    """A page of HTML with the player and all that it needs."""
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(scenes[0]["title"])}</title><body style="max-width: 1100px; margin: auto">
<main>{waiting(scenes)}</main><script>
{script()}
</script></body></html>
"""


def waiting(scenes, stills="", autoplay=False):
    """HTML that `script()` makes a player of; until then, and without it, it shows `stills`."""
    data = escape(json.dumps(scenes), quote=True)
    mark = ' data-autoplay="yes"' if autoplay else ""
    return f'<div class="td-player" data-scenes="{data}"{mark}>{stills}</div>'


@functools.cache
def script():
    """The player's script, with names of its own: a page may hold it more than once."""
    return f"(() => {{\n{_PLAYER.read_text('utf-8')}\n}})();\n"


def _is_trace(what):
    one = what
    if isinstance(what, dict):
        one = next(iter(what.values()), None)
    elif isinstance(what, (list, tuple)):
        one = what[0] if what else None
    return hasattr(one, "calls") or (hasattr(one, "rounds") and hasattr(one, "sequence"))


def _show_trace(traces, view, drawn, topology):
    calls = recorded.together(traces)
    if view in VIEWS:
        return Shown(charts.words(calls), [VIEWS[view](calls)])
    if view == "timeline":
        return Shown(f"{len(calls)} calls", [charts.timeline(calls)], timed=True)
    if view == "cost":
        from teachdist.tracing import compare

        compared = compare(traces, topology)
        return Shown(str(compared), [predicted_beside_measured(compared)], timed=True)
    if view != "rounds":
        known = ", ".join(("rounds", *TIMED, *VIEWS))
        raise ValueError(f"view: expected {known}, got {view!r}")
    if not calls:
        return Shown("no collective was called", [])
    scenes = [recorded.recorded_scene(sides, **drawn) for sides in calls]
    timed = [recorded.recorded_scene(sides, **drawn, times=True) for sides in calls]
    text = "\n".join(map(words, scenes))
    return Shown(text, map(still, scenes[:MOST_STILLS]), scenes, timed)


def _show_verdict(verdict, drawn):
    """The verdict's words, over the rounds if the algorithm can still be found by its name."""
    case = {"ranks": max((n for n in getattr(verdict, "sizes", ()) if n <= 8), default=None)}
    if isinstance(verdict, CounterExample):
        case = {"ranks": verdict.size, "root": verdict.root, "hosts": verdict.hosts}
    algorithm = getattr(verdict, "algorithm", None) or verdict.name
    try:
        found = scene(algorithm, verdict.op, **case, **drawn)
    except (ValueError, TypeError):
        return Shown(str(verdict), [])
    return Shown(str(verdict), [still(found)], [found])


def _show_prices(op, ranks, nbytes, topology, text):
    over_size = plot_cost(op, nbytes=list(PRICED_SIZES), ranks=ranks, topology=topology)
    over_ranks = plot_cost(op, nbytes=nbytes, ranks=list(PRICED_RANKS), topology=topology)
    return Shown(text, [over_size, over_ranks])


def _stores():
    """Whether the outputs of this run will be stored, or compared with stored ones."""
    return not switch("TEACHDIST_LIVE", True)


def in_live_notebook():
    """Whether somebody looks on: a kernel, and not a run that stores."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if _stores() or get_ipython is None:
        return False
    return getattr(get_ipython(), "kernel", None) is not None
