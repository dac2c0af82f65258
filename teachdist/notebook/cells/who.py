"""``%ranks who``: the names that cells have defined, and what they are on each rank."""

from teachdist.notebook.cells.outputs import group
from teachdist.words import ranks_label, table


def who_table(by_rank):
    """A table of ``[{name: text} of each rank]``: a line per name, or one per different value."""
    rows = []
    for name in sorted({name for names in by_rank for name in names}):
        values = {r: names[name] for r, names in enumerate(by_rank) if name in names}
        shown = name
        for ranks, text in group(values):
            rows.append((shown, ranks_label(ranks), text))
            shown = ""
    return table(rows) if rows else "no cell has defined a name"
