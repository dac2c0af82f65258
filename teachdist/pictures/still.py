"""A scene as one still picture: time runs down, every rank has a line, every message is an arrow.

    rank 0    rank 1    rank 2
      |         |         |
      | --1-->  | --2-->  |     round 0
      |         |         |

It is what a saved notebook, GitHub and paper show in place of the player.
"""

from __future__ import annotations

import textwrap

from teachdist.pictures import svg

ROUND = 46  # height of a round
MOST_ROUNDS = 24
LEFT = 74  # for the names of rounds
BAR = 14


def still(scene: dict) -> str:
    """The SVG of a scene, with the scene as its metadata."""
    shown = scene["rounds"][:MOST_ROUNDS]
    hidden = len(scene["rounds"]) - len(shown)
    lane = max(84, _bar_width(scene) + 24)
    width = max(LEFT + scene["size"] * lane + 8, 360)
    centre = [LEFT + (rank + 0.5) * lane for rank in range(scene["size"])]
    block = scene["chunks"] * BAR + 8 if _bars_fit(scene) else 0

    title, y = _paragraph(scene["title"], 22, width, size=14)
    top = y + 24 + block
    bottom = top + max(len(shown), 1) * ROUND + (20 if hidden else 0)
    parts = [_tip(), title, *_ranks(centre, y + 16, top, bottom, width, len(shown))]
    for number, step in enumerate(shown):
        y_round = top + number * ROUND
        parts.append(svg.text(12, y_round + 28, f"round {number}", fill=svg.SOFT))
        drawn = [_message(scene, move, centre, y_round, lane) for move in step["moves"]]
        parts += [arrow for arrow, _ in drawn] + [label for _, label in drawn]
    if hidden:
        parts.append(svg.text(12, bottom - 6, f"and {hidden} more rounds", fill=svg.SOFT))
    height = bottom + 10
    if block:
        parts += _holdings(scene, scene["start"], centre, y + 24)
    if block and not hidden:
        parts += _holdings(scene, after(scene), centre, bottom + 8)
        height += block + 4
    if scene["fault"]:
        told, height = _paragraph(scene["fault"]["sentence"], height + 12, width, fill=svg.BAD)
        parts.append(told)
    return svg.document(width, height, "".join(parts), scene["title"], data=scene)


def _ranks(centre, y_name, top, bottom, width, rounds):
    """The shaded rounds, and over them a name and a line for each rank."""
    for number in range(0, rounds, 2):
        yield svg.rect(1, top + number * ROUND, width - 2, ROUND, svg.CARD)
    for rank, x in enumerate(centre):
        yield svg.rect(x - 30, y_name - 10, 11, 11, svg.colour(rank), rx=2)
        yield svg.text(x - 14, y_name, f"rank {rank}", bold=True)
        yield svg.line(x, top, x, bottom, stroke=svg.LINE, width=2)


def _paragraph(sentence, y, width, *, size=13, fill=svg.INK):
    """Bold text in as many lines as it needs: (SVG, the y below it)."""
    lines = textwrap.wrap(sentence, int(width / size * 1.6))
    drawn = [
        svg.text(12, y + 18 * number, words, size=size, fill=fill, bold=True)
        for number, words in enumerate(lines)
    ]
    return "".join(drawn), y + 18 * len(lines)


def after(scene: dict) -> list[dict]:
    """What each rank holds after all rounds: [{chunk: contributors}]."""
    held = [{int(chunk): set(who) for chunk, who in mine.items()} for mine in scene["start"]]
    for step in scene["rounds"]:
        before = [{chunk: set(who) for chunk, who in mine.items()} for mine in held]
        for move in step["moves"]:
            if move.get("lost"):
                continue
            for chunk in move["chunks"]:
                there = held[move["to"]].get(chunk, set()) if move["adds"] else set()
                held[move["to"]][chunk] = there | before[move["from"]].get(chunk, set())
    return [{chunk: sorted(who) for chunk, who in mine.items()} for mine in held]


def words(scene: dict) -> str:
    """The scene as text: one line per round."""
    lines = [scene["title"]]
    for number, step in enumerate(scene["rounds"]):
        said = [
            f"{move['from']}->{move['to']} {'+' if move['adds'] else ''}"
            f"{','.join(_label(scene, chunk) for chunk in move['chunks'])}"
            f"{' (nobody takes it)' if move.get('lost') else ''}"
            for move in step["moves"]
        ]
        lines.append(f"  round {number}: {'  '.join(said) or 'nothing'}")
        for rank, held in step.get("values", {}).items():
            lines.append(f"    rank {rank} then holds {held}")
    if scene["fault"]:
        lines.append(f"  {scene['fault']['sentence']}")
    return "\n".join(lines)


def _message(scene, move, centre, y, lane):
    start, end = centre[move["from"]], centre[move["to"]]
    lost = move.get("lost")
    paint = svg.BAD if lost else svg.colour(move["from"])
    dash = 'stroke-dasharray="5 4"' if lost else ""
    arrow = svg.line(
        start,
        y + 6,
        end,
        y + ROUND - 8,
        stroke=paint,
        width=2,
        extra=f'marker-end="url(#t)" {dash}',
    )
    names = [_label(scene, chunk) for chunk in move["chunks"]]
    label = ("+" if move["adds"] else "") + _short(names)
    wide = 7.2 * len(label) + 6
    near = 0.3 * min(1, lane / abs(end - start))  # close to the sender, where arrows don't cross
    x, y_label = start + (end - start) * near, y + 6 + (ROUND - 14) * near
    return (
        arrow,
        svg.rect(x - wide / 2, y_label - 8, wide, 16, "#fff", stroke=paint, rx=3)
        + svg.text(x, y_label + 4.5, label, size=12, anchor="middle"),
    )


def _holdings(scene, held, centre, y):
    """The chunks of every rank as bars, a slot for each contributor."""
    slots = scene["size"] if scene["reduces"] else 1
    slot = _slot(scene)
    parts = []
    for x, mine in zip(centre, held, strict=True):
        left = x - slots * slot / 2
        for chunk in range(scene["chunks"]):
            top = y + chunk * BAR
            who = mine.get(chunk, ())
            parts.append(svg.text(left - 5, top + 10, _label(scene, chunk), size=9, anchor="end"))
            parts.append(svg.rect(left, top, slots * slot, BAR - 3, "none", stroke=svg.LINE))
            for rank in who:
                at = left + rank * slot * (slots > 1)
                paint = svg.colour(rank)
                parts.append(svg.rect(at, top, slot, BAR - 3, paint))
                ink = svg.ON_COLOUR[rank % len(svg.COLOURS)]
                parts.append(
                    svg.text(at + slot / 2, top + 9.5, rank, size=9, anchor="middle", fill=ink)
                )
    return parts


def _bars_fit(scene):
    return scene["chunks"] <= 8 and scene["size"] <= 8


def _slot(scene):
    return 12 if scene["reduces"] else 40


def _bar_width(scene):
    if not _bars_fit(scene):
        return 0
    return _slot(scene) * (scene["size"] if scene["reduces"] else 1) + 16


def _label(scene, chunk):
    return scene["labels"][chunk] if scene["labels"] else str(chunk)


def _short(names):
    return ",".join(names) if len(names) <= 4 else f"{names[0]},…,{names[-1]}"


def _tip():
    return (
        '<defs><marker id="t" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{svg.SOFT}"/></marker></defs>'
    )
