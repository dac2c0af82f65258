"""What the ranks said, in an order that does not depend on luck.

Ranks answer when they are ready, so showing their output as it arrives gives another picture at
each run. Here it is gathered, ranks that said the same are put together, and groups are ordered
by their lowest rank: two runs of a deterministic cell give the same bytes, which is what lets a
test compare a saved notebook.

Users print megabytes, on one line too. So each character is looked at a fixed number of times, and
of a rank's text no more than ``MOST`` characters are shown, its first and its last ones: a front
end that is sent too much drops everything.
"""

import itertools
import re
import sys

from teachdist.notebook.cells import figures
from teachdist.words import ranks_label

MOST = 20_000  # characters of one rank; 64 ranks stay below what Jupyter's server lets through

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def plain(text):
    """``text`` without terminal colours, and as a terminal shows it after carriage returns."""
    text = _ANSI.sub("", text)
    if "\r" not in text:
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rpartition("\r")[2] for line in lines)


def cut(text, remedy, most=MOST):
    """``text``, or its head and tail around a line that says how much is left out.

    ``remedy`` says how to see all of it. Both ends are whole lines, unless a line is too long.
    """
    if len(text) <= most:
        return text
    head = text[: most // 2]
    head = head[: head.rfind("\n") + 1 or len(head)].rstrip("\n")
    tail = text[-(most // 2) :]
    tail = tail[tail.find("\n") + 1 :] or tail
    left = len(text) - len(head) - len(tail)
    return f"{head}\n[... {left:,} of {len(text):,} characters left out; {remedy}]\n{tail}"


def merged(items):
    """``items`` (see ``Task.items``) where pieces of one stream that follow each other are one."""
    together = []
    for kind, some in itertools.groupby(items, key=lambda item: item[0]):
        if kind in ("stdout", "stderr"):
            together.append((kind, "".join(text for _, text in some)))
        else:
            together += some
    return together


def parse_ranks(text):
    """``"0,2-3"`` -> [0, 2, 3]; raises ValueError."""
    ranks = set()
    for piece in text.split(","):
        ends = [end.strip() for end in piece.split("-")]
        if len(ends) > 2 or not all(end.isdecimal() for end in ends):
            raise ValueError(f"expected ranks such as 0,2 or 1-3, got {text!r}")
        ranks.update(range(int(ends[0]), int(ends[-1]) + 1))
    return sorted(ranks)


def group(by_rank):
    """``{rank: value}`` -> list of (ranks, value): equal values together, lowest rank first."""
    groups = []
    for rank in sorted(by_rank):
        for ranks, value in groups:
            if value == by_rank[rank]:
                ranks.append(rank)
                break
        else:
            groups.append(([rank], by_rank[rank]))
    return groups


def label(ranks, text, note=""):
    """``text`` behind ``[ranks 0-3]``, its further lines aligned under the first."""
    head = f"[{ranks_label(ranks)}{note}] "
    return head + text.rstrip("\n").replace("\n", "\n" + " " * len(head))


def collapse(by_rank, remedy=None, note=""):
    """``{rank: text}`` -> one text, rank by rank, equal ones once; empty texts say nothing.

    ``remedy``: see ``cut``; without it nothing is left out. ``note`` goes into the labels.
    """
    groups = group({rank: plain(text) for rank, text in by_rank.items()})
    return "\n".join(
        label(ranks, _fitting(text, remedy), note) for ranks, text in groups if text.strip()
    )


def _fitting(text, remedy):
    return text if remedy is None else cut(text, remedy)


def parts(items):
    """What a rank said, in its order, as a list of ("text", str) and ("rich", bundle, metadata).

    Args:
        items: as ``Task.items`` has them. What went to stderr is left out: see ``errors_of``.
    """
    found = []
    for kind, content in merged([item for item in items if item[0] != "stderr"]):
        if kind == "stdout":
            found.append(("text", plain(content)))
        elif set(content["data"]) == {"text/plain"}:
            found.append(("text", plain(content["data"]["text/plain"]) + "\n"))
        else:
            found.append(("rich", content["data"], content.get("metadata", {})))
    return _texts_joined(found)


def _texts_joined(found):
    joined = []
    for kind, some in itertools.groupby(found, key=lambda part: part[0]):
        if kind == "text":
            joined.append(("text", "".join(text for _, text in some)))
        else:
            joined += some
    return joined


def errors_of(items):
    """What a rank wrote to stderr."""
    return plain("".join(content for kind, content in items if kind == "stderr"))


def script(by_rank, remedy=None):
    """``{rank: items}`` -> what to show: ("print", text), ("display", bundle, metadata), in order.

    Texts that follow each other are one print. A picture comes under the label of its ranks; when
    several ranks end with pictures of their own, these stand side by side.
    """
    groups = group({rank: parts(items) for rank, items in by_rank.items()})
    pictures = [_last_pictures(said) for _, said in groups]
    together = sum(map(bool, pictures)) > 1
    shown = []
    for (ranks, said), last in zip(groups, pictures, strict=True):
        shown += _script_of(ranks, said[: -len(last)] if together and last else said, remedy)
    if together:
        columns = [
            (ranks_label(ranks), [bundle for _, bundle, _ in last])
            for (ranks, _), last in zip(groups, pictures, strict=True)
            if last
        ]
        shown.append(("display", figures.side_by_side(columns), {}))
    return _prints_joined(shown)


def _last_pictures(said):
    """The pictures that end what a rank said; none if others come before."""
    number = next((n for n, part in enumerate(said) if figures.is_picture(part)), len(said))
    last = said[number:]
    return last if all(figures.is_picture(part) for part in last) else []


def _script_of(ranks, said, remedy):
    shown, labelled = [], False
    for kind, *what in said:
        if kind == "text" and what[0].strip():
            shown.append(("print", label(ranks, _fitting(what[0], remedy))))
        elif kind == "rich":
            if not labelled:
                shown.append(("print", f"[{ranks_label(ranks)}]"))
            shown.append(("display", *what))
        labelled = labelled or bool(shown)
    return shown


def _prints_joined(shown):
    joined = []
    for kind, some in itertools.groupby(shown, key=lambda one: one[0]):
        if kind == "print":
            joined.append(("print", "\n".join(text for _, text in some)))
        else:
            joined += some
    return joined


def show(by_rank, remedy=None):
    """Show what ranks said: pictures through IPython, texts with print. ``remedy``: see ``cut``."""
    for kind, *what in script(by_rank, remedy):
        if kind == "print":
            print(what[0])  # noqa: T201
        else:
            from IPython.display import display

            display(what[0], raw=True, metadata=what[1])
    complaints = collapse({rank: errors_of(items) for rank, items in by_rank.items()}, remedy)
    if complaints:
        print(complaints, file=sys.stderr)  # noqa: T201


def whole(by_rank):
    """All that ranks printed, as one text; what went to stderr comes last."""
    texts = [what[0] for kind, *what in script(by_rank) if kind == "print"]
    complaints = collapse({rank: errors_of(items) for rank, items in by_rank.items()})
    return "\n".join([*texts, complaints] if complaints else texts)


def show_late(by_rank):
    """Show what threads and children of ranks printed when their cell was over."""
    remedy = "write it to a file to keep all of it"
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        texts = {
            rank: "".join(text for kind, text in items if kind == name)
            for rank, items in by_rank.items()
        }
        if text := collapse(texts, remedy, ", after its cell"):
            print(text, file=stream)
