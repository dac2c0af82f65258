"""A picture of a mesh: the ranks as an array, with the groups of one rank in colour.

The last dimension runs to the right and the one before it downwards; two further dimensions
arrange such blocks to the right and downwards, and so on. In the coordinates of a cell only one
differs from this rank's where the cell is coloured: that one is the dimension of the group.

In a notebook the picture is an SVG; elsewhere it is text.
"""

from itertools import product

from torch.distributed import GroupMember, get_process_group_ranks

from teachdist.pictures import svg

CELL, GAP, MARGIN, LINE = (46, 30), 14, 16, 20  # sizes in pixels; a cell is (wide, high)
ME = svg.INK  # this rank's own cell


class MeshPicture:
    """What `DeviceMesh.show()` returns; a notebook displays it, `str()` is the text."""

    def __init__(self, mesh):
        self.shape = mesh.shape
        self.names = mesh.mesh_dim_names or tuple(f"dim {i}" for i in range(mesh.ndim))
        self.rank = mesh.get_rank()
        self.coordinate = mesh.get_coordinate()
        sizes = ", ".join(
            f"{name}={size}" for name, size in zip(self.names, self.shape, strict=True)
        )
        self.title = f"DeviceMesh ({sizes}) on {mesh.device_type}, seen from rank {self.rank}"
        self.cells = {}  # coordinate -> rank
        if self.coordinate is not None or mesh.size() == len(mesh._ranks):
            ranks = mesh.mesh
            self.cells = {
                at: int(ranks[at]) for at in product(*(range(size) for size in self.shape))
            }
        self.legend = self._legend(mesh)

    def _legend(self, mesh):
        """Lines of (index of the dimension or None, text)."""
        if self.coordinate is None:
            return [(None, f"rank {self.rank} is not in this mesh and has no groups in it")]
        lines = [(None, f"rank {self.rank} at {tuple(self.coordinate)}")]
        for i, name in enumerate(self.names):
            members, local = self._neighbours(i), self.coordinate[i]
            if mesh._groups:
                group = mesh._group(i)
                if group is not GroupMember.NON_GROUP_MEMBER:
                    members, local = get_process_group_ranks(group), mesh.get_local_rank(i)
            lines.append((i, f"{name} {self._way(i)}  {_list(members)}; here local rank {local}"))
        return lines

    def _neighbours(self, dim):
        return [rank for at, rank in self.cells.items() if self._along(at) in (dim, "me")]

    def _along(self, at):
        """The dimension in whose group a cell lies, "me" for this rank's own, else None."""
        if self.coordinate is None:
            return None
        differ = [i for i, index in enumerate(at) if index != self.coordinate[i]]
        if not differ:
            return "me"
        return differ[0] if len(differ) == 1 else None

    def _way(self, dim):
        """Arrow of a dimension: right or down, double for those that arrange blocks."""
        from_last = len(self.shape) - 1 - dim
        return ("→", "↓", "⇒", "⇓")[min(from_last, 2 + from_last % 2)]

    def _place(self, at):
        """The left upper corner of a cell, from the corner of the array."""
        corner, step = [0, 0], list(CELL)
        for from_last, index in enumerate(reversed(at)):
            axis = from_last % 2
            corner[axis] += index * step[axis]
            step[axis] = step[axis] * self.shape[-1 - from_last] + GAP
        return corner

    def svg(self) -> str:
        """The picture as SVG."""
        top = MARGIN + LINE + 6
        corners = {at: self._place(at) for at in self.cells}
        right = max([x + CELL[0] for x, _ in corners.values()], default=0)
        below = max([y + CELL[1] for _, y in corners.values()], default=0)
        texts = [self.title, *(text for _, text in self.legend)]
        width = max(right, *(18 + 9 * len(text) for text in texts)) + 2 * MARGIN
        height = top + below + LINE * len(self.legend) + MARGIN
        parts = [svg.text(MARGIN, MARGIN + 12, self.title, bold=True)]
        for at, (x, y) in corners.items():
            parts += self._cell(at, MARGIN + x, top + y)
        for line, (dim, text) in enumerate(self.legend):
            y = top + below + LINE * (line + 1)
            parts.append(svg.rect(MARGIN, y - 11, 12, 12, ME if dim is None else svg.colour(dim)))
            parts.append(svg.text(MARGIN + 18, y, text))
        return svg.document(width, height, "".join(parts), self.title)

    def _cell(self, at, x, y):
        along = self._along(at)
        fill, ink = ("#fff", svg.INK) if along is None else (ME, "#fff")
        if isinstance(along, int):
            fill, ink = svg.colour(along), svg.ON_COLOUR[along % len(svg.ON_COLOUR)]
        wide, high = CELL
        yield svg.rect(x, y, wide - 4, high - 4, fill, stroke=svg.SOFT, rx=4)
        middle = (x + (wide - 4) / 2, y + high / 2 + 3)
        yield svg.text(*middle, self.cells[at], anchor="middle", fill=ink)

    def __str__(self):
        """The picture as text: this rank in brackets, others with the letter of their group."""
        wide, high = CELL
        rows = {}
        for at, rank in self.cells.items():
            x, y = self._place(at)
            rows.setdefault(y, {})[x] = self._mark(at, rank)
        lines, previous = [self.title, ""], None
        for y, row in sorted(rows.items()):
            if previous is not None and y - previous > high:
                lines.append("")
            line, before = "", None
            for x, text in sorted(row.items()):
                line += "   " if before is not None and x - before > wide else ""
                line += f"{text:>6}"
                before = x
            lines.append(line.rstrip())
            previous = y
        letters = [" " if dim is None else _letter(dim) for dim, _ in self.legend]
        lines += ["", *(f"{a} {text}" for a, (_, text) in zip(letters, self.legend, strict=True))]
        return "\n".join(lines)

    __repr__ = __str__

    def _mark(self, at, rank):
        along = self._along(at)
        if along is None:
            return f"{rank} "
        return f"[{rank}]" if along == "me" else f"{rank}{_letter(along)}"

    def _repr_mimebundle_(self, include=None, exclude=None):
        words = "; ".join([self.title, *(text for _, text in self.legend)])
        return {"text/plain": str(self), "text/html": svg.image(self.svg(), words)}


def _list(ranks):
    if len(ranks) > 12:
        return f"{len(ranks)} ranks {', '.join(map(str, ranks[:3]))}, ... {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}"


def _letter(dim):
    return "abcdefghijklmnopqrstuvwxyz"[dim % 26]
