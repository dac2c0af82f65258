"""What the ranks said, in an order that does not depend on luck.

Ranks answer when they are ready, so showing their output as it arrives gives another picture at
each run. Here it is gathered, ranks that said the same are put together, and groups are ordered
by their lowest rank: two runs of a deterministic cell give the same bytes, which is what lets a
test compare a saved notebook.
"""

import re

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def plain(text):
    """``text`` without terminal colours, and as a terminal shows it after carriage returns."""
    text = _ANSI.sub("", text).replace("\r\n", "\n")
    return re.sub(r"[^\n]*\r", "", text)


def name_ranks(ranks):
    """``[0, 1, 2, 5]`` -> ``"ranks 0-2,5"``; ``[3]`` -> ``"rank 3"``."""
    runs = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {text}"


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


def label(ranks, text):
    """``text`` behind ``[ranks 0-3]``, its further lines aligned under the first."""
    head = f"[{name_ranks(ranks)}] "
    return head + text.rstrip("\n").replace("\n", "\n" + " " * len(head))


def collapse(by_rank):
    """``{rank: text}`` -> one text, rank by rank, equal ones once; empty texts say nothing."""
    groups = group({rank: plain(text) for rank, text in by_rank.items()})
    return "\n".join(label(ranks, text) for ranks, text in groups if text.strip())


def parts(items):
    """What a rank said, in its order, as a list of ("text", str) and ("rich", bundle, metadata).

    Args:
        items: as ``Task.items`` has them. What went to stderr is left out: see ``errors_of``.
    """
    found = []
    for kind, content in items:
        if kind == "stderr":
            continue
        if kind == "stdout":
            new = ("text", plain(content))
        elif set(content["data"]) == {"text/plain"}:
            new = ("text", plain(content["data"]["text/plain"]) + "\n")
        else:
            new = ("rich", content["data"], content.get("metadata", {}))
        if new[0] == "text" and found and found[-1][0] == "text":
            new = ("text", found.pop()[1] + new[1])
        found.append(new)
    return found


def errors_of(items):
    """What a rank wrote to stderr."""
    return "".join(plain(content) for kind, content in items if kind == "stderr")


def script(by_rank):
    """``{rank: items}`` -> what to show: ("print", text), ("display", bundle, metadata), in order.

    Texts that follow each other are one print. A picture comes under the label of its ranks.
    """
    shown = []
    for ranks, said in group({rank: parts(items) for rank, items in by_rank.items()}):
        labelled = False
        for kind, *what in said:
            if kind == "text" and what[0].strip():
                _print(shown, label(ranks, what[0]))
                labelled = True
            elif kind == "rich":
                if not labelled:
                    _print(shown, f"[{name_ranks(ranks)}]")
                labelled = True
                shown.append(("display", *what))
    return shown


def _print(shown, text):
    if shown and shown[-1][0] == "print":
        text = shown.pop()[1] + "\n" + text
    shown.append(("print", text))


def show(by_rank):
    """Show what ranks said: pictures through IPython, texts with print."""
    import sys

    for kind, *what in script(by_rank):
        if kind == "print":
            print(what[0])  # noqa: T201
        else:
            from IPython.display import display

            display(what[0], raw=True, metadata=what[1])
    complaints = collapse({rank: errors_of(items) for rank, items in by_rank.items()})
    if complaints:
        print(complaints, file=sys.stderr)  # noqa: T201
