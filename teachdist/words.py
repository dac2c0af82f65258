"""How ranks, sizes, times and tables are written, everywhere alike.

Ranks that follow each other are drawn together, since "ranks 0-1023" is read at once and a list of
1,024 numbers never. Sizes are binary (1 KiB is 1,024 bytes), as memory is. Plain Python without
torch: the browser's Python writes the same words.
"""

from __future__ import annotations


def ranks_words(ranks, and_="and") -> str:
    """Ranks within a sentence: [0, 1, 2, 5] -> "ranks 0-2 and 5"; [3] -> "rank 3"."""
    names = []
    for first, last in _runs(ranks):
        if last - first > 1:
            names.append(f"{first}-{last}")
        else:
            names += [str(rank) for rank in range(first, last + 1)]
    text = f" {and_} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {text}"


def ranks_label(ranks) -> str:
    """Ranks as a label without blanks inside: [0, 1, 2, 5] -> "ranks 0-2,5"; [3] -> "rank 3"."""
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in _runs(ranks))
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {text}"


def in_seconds(seconds: float) -> str:
    """A time as s, ms or us with three digits: 0.00143 -> "1.43 ms"."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1 or unit == "us":
            return f"{seconds * scale:.3g} {unit}"
    raise AssertionError("unreachable")


def in_bytes(nbytes: float) -> str:
    """A size in bytes, KiB, MiB or GiB with four digits: 1536 -> "1.5 KiB"."""
    for unit in ("bytes", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.4g} GiB"


def table(rows) -> str:
    """Rows of texts in aligned columns, two blanks apart; a text may have several lines."""
    cells = [[cell.split("\n") for cell in row] for row in rows]
    widths = [
        max(len(line) for cell in column for line in cell) for column in zip(*cells, strict=True)
    ]
    lines = []
    for row in cells:
        for number in range(max(map(len, row))):
            found = (cell[number] if number < len(cell) else "" for cell in row)
            padded = (text.ljust(width) for text, width in zip(found, widths, strict=True))
            lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _runs(numbers):
    """Numbers as (first, last) of those that follow each other."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs
