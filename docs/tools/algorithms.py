"""The catalogue as pages: for each collective its algorithms with player, cost, proof and code."""

import inspect
from pathlib import Path

import players

from teachdist.collectives import DEFINITIONS, PRESETS, catalog, cost, get, lower_bound, prove
from teachdist.notebook.show import show
from teachdist.words import in_bytes, in_seconds

ROOT = Path(__file__).resolve().parents[2]
SIZES = (1 << 10, 1 << 20, 1 << 26)  # bytes
RANKS = (4, 64)
PROVEN = range(1, 17)


def pages() -> dict[str, str]:
    """A page for each collective and one for all."""
    found = {f"algorithms/{op}.md": page(op) for op in DEFINITIONS}
    rows = [
        f"| [{op}]({op}.md) | {DEFINITIONS[op].meaning} | {', '.join(names)} |"
        for op, names in catalog().items()
    ]
    found["algorithms/index.md"] = _INDEX + "\n".join(rows) + "\n"
    return found


def page(op: str) -> str:
    """The page of one collective."""
    definition = DEFINITIONS[op]
    names = catalog()[op]
    parts = [f"# {op}", f"{definition.meaning[0].upper()}{definition.meaning[1:]}."]
    if op != "barrier":
        parts += ["## What they cost", _prices(op, names), players.player(_plots(op)), _LEGEND]
    parts += [_section(op, name) for name in names]
    return "\n\n".join(parts) + "\n"


def _section(op, name):
    """One algorithm: idea, player, proof, cost and code."""
    made = get(op, name)
    ranks = next((n for n in (4, 8, 2) if made.serves(n)), 4)
    hosts = tuple(rank // (ranks // 2) for rank in range(ranks)) if made.takes_hosts else None
    shown = show(made, ranks=ranks, hosts=hosts)
    module = inspect.getmodule(made.generator)
    path = Path(inspect.getsourcefile(made.generator)).resolve().relative_to(ROOT)
    verdict = str(prove(made, ranks=PROVEN))
    code = inspect.getsource(made.generator).rstrip()
    return "\n\n".join(
        [
            f"## {name}",
            made.doc,
            players.player(shown),
            f"{verdict[0].upper()}{verdict[1:]}.",
            f"Cost: `{made.formula}`. " if made.formula else "",
            f"```python\n{code}\n```",
            f'??? note "The idea, from `{path}`"\n\n' + _indented(module.__doc__),
        ]
    )


def _indented(text):
    lines = ["```text", *inspect.cleandoc(text or "").splitlines(), "```"]
    return "\n".join(f"    {line}".rstrip() for line in lines)


def _prices(op, names):
    """Predicted times as a table: a row for each algorithm, a column for each size and ranks."""
    cases = [(nbytes, ranks) for ranks in RANKS for nbytes in SIZES]
    head = "| algorithm | " + " | ".join(f"{in_bytes(n)}, {p} ranks" for n, p in cases) + " |"
    rows = [head, "| --- |" + " ---: |" * len(cases)]
    for name in names:
        cells = [
            in_seconds(cost(name, op, nbytes=n, ranks=p).seconds)
            if get(op, name).serves(p)
            else "–"
            for n, p in cases
        ]
        rows.append(f"| [{name}](#{name}) | {' | '.join(cells)} |")
    bounds = [in_seconds(lower_bound(op, n, p, PRESETS["loopback"]).seconds) for n, p in cases]
    rows.append(f"| *no algorithm can beat* | {' | '.join(bounds)} |")
    return "\n".join(rows)


def _plots(op):
    return show(op, view="cost", ranks=8)


_LEGEND = (
    "Predicted by `teachdist.cost` for one host (topology `loopback`): a message of n bytes takes "
    "alpha + n beta seconds, combining n bytes n gamma seconds."
)
_INDEX = """# Algorithms

Every algorithm is a Python generator over three words, `Send`, `Recv` and `Reduce`. The pages show
each with its rounds to step through, what `teachdist.prove` says of it, what it costs, and its
code: the code that real ranks run.

| collective | what it means | algorithms |
| --- | --- | --- |
"""
