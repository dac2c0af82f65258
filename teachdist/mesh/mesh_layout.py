"""The layout of a device mesh: a mesh is a number system.

The idea
    Eight ranks stand in a row, at positions 0 to 7. To lay them out as dp=2 by tp=4 is to write
    each position with two digits. The tp digit counts ones, the dp digit counts fours, as minutes
    and hours do on a clock:

                        tp=4:1
                        four steps of 1
                     +---+---+---+---+
        dp=2:4       | 0 | 1 | 2 | 3 |       position 6 = 1*4 + 2*1
        two steps    +---+---+---+---+       so its coordinate is (1, 2)
        of 4         | 4 | 5 |[6]| 7 |
                     +---+---+---+---+

    A digit is written ``size:stride``: it takes ``size`` values, and one more of it moves the
    position on by ``stride``. Reading a digit needs no table and no search:

        value = position // stride % size            6 // 4 % 2 = 1     6 // 1 % 4 = 2

What a DeviceMesh does is done to digits
    group         one digit runs, all others hold. From position 6, tp gives 4 5 6 7 and dp gives
                  2 6. The group starts where the running digits are 0, at 4 and at 2.
    slice         keep some dimensions; the digits left out hold their values. mesh["dp"] on the
                  rank at position 6 is 2 6.
    flatten       read neighbouring digits as one number. 2:4 beside 4:1 becomes 8:1: the dp wheel
                  turns exactly when the tp wheel has gone round (4 = 4*1), so both together are
                  one bigger wheel.
    unflatten     split a wheel into smaller ones: 8:1 as (2, 4) is 2:4 beside 4:1 again.
    concatenate   meshes cut from the same ranks, side by side: the dimensions of all of them.

    Flattening does not always give one wheel. Take three dimensions, (2, 2, 2):

        dp=2:4  cp=2:2  tp=2:1          cp 0          cp 1
                                      tp  0   1     tp  0   1
                               dp 0     [ 0] [ 1]     [ 2] [ 3]
                               dp 1     [ 4] [ 5]     [ 6] [ 7]

        dp with cp    2:4 2:2   is the wheel 4:2           0 2 4 6
        dp with tp    2:4 2:1   stays two wheels, for      0 1 4 5
                                cp holds between them

    So a dimension (`Dim`) is a tuple of digits, slowest first, mostly just one of them.

Positions are not ranks
    DeviceMesh("cpu", [[3, 1], [2, 0]]) has the same digits as any other 2 by 2 mesh. Which rank
    stands at a position is a list beside the layout, looked up once, at the very end.

Cost
    All questions about one rank are arithmetic on a handful of digits. Only listing the members
    of groups touches as many positions as it lists.

Why this way, and where it comes from
    One could keep the array of ranks and index it, as torch did for years. But a flattened
    (dp, tp) is no longer a view of that array, two meshes cut from the same ranks cannot be put
    side by side, and "do these two overlap?" means comparing lists. As digits all three are one
    line. Algebra of this kind is what CUTLASS describes under "CuTe layout algebra" in its
    documentation; torch's own `distributed/_mesh_layout.py` follows it, with composition and
    complement of nested layouts. Here both reduce to reading digits: what CuTe calls the
    complement are the positions at which all digits of the dimension are 0.
"""

from dataclasses import dataclass
from itertools import pairwise, product
from math import prod


@dataclass(frozen=True)
class Dim:
    """One dimension of a mesh: digits as (size, stride), the slowest first.

    Equal dimensions are written equally: digits of size 1 are dropped (they never turn), and
    wheels that turn together are merged.
    """

    digits: tuple[tuple[int, int], ...]

    def __post_init__(self):
        merged = []
        for size, stride in self.digits:
            if size == 1:
                continue
            if merged and merged[-1][1] == size * stride:
                size *= merged.pop()[0]
            merged.append((size, stride))
        object.__setattr__(self, "digits", tuple(merged))

    def __str__(self):
        return " ".join(f"{size}:{stride}" for size, stride in self.digits) or "1:0"

    @property
    def size(self) -> int:
        """How many positions lie along the dimension."""
        return prod(size for size, _ in self.digits)

    def index(self, position: int) -> int:
        """Where along the dimension a position lies: the digits read as one number."""
        index = 0
        for size, stride in self.digits:
            index = index * size + position // stride % size
        return index

    def start(self, position: int) -> int:
        """The position with this dimension's digits set to 0: where the group of it begins."""
        return position - sum(position // stride % size * stride for size, stride in self.digits)

    def offsets(self) -> list[int]:
        """How far from the start of a group its members stand, in the order of their index."""
        wheels = [range(0, size * stride, stride) for size, stride in self.digits]
        return [sum(values) for values in product(*wheels)]

    def groups(self, total: int) -> list[list[int]]:
        """All groups along the dimension among positions 0 to total - 1, as lists of positions."""
        starts = [position for position in range(total) if self.start(position) == position]
        return [[start + offset for offset in self.offsets()] for start in starts]


def row_major(shape: tuple[int, ...]) -> tuple[Dim, ...]:
    """The dimensions of an array of this shape, the last index moving fastest."""
    return tuple(Dim(((size, prod(shape[i + 1 :])),)) for i, size in enumerate(shape))


def flatten(dims: tuple[Dim, ...]) -> Dim:
    """One dimension that runs through all of these, the last of them fastest."""
    return Dim(tuple(digit for dim in dims for digit in dim.digits))


def unflatten(dim: Dim, sizes: tuple[int, ...]) -> tuple[Dim, ...]:
    """Dimensions of these sizes that flatten to `dim`.

    Raises ValueError when the sizes do not multiply to its size, or would cut through a digit in
    a way that no whole number of steps describes.
    """
    if prod(sizes) != dim.size:
        raise ValueError(f"sizes {tuple(sizes)} multiply to {prod(sizes)}, not to {dim.size}")
    wheels = list(dim.digits)
    parts = []
    for wanted in reversed(sizes):  # the fastest first: take from the right what it needs
        taken = []
        missing = wanted
        while missing > 1:
            size, stride = wheels.pop()
            if size % missing == 0:  # part of a wheel; what is left of it turns more slowly
                taken.insert(0, (missing, stride))
                wheels.append((size // missing, stride * missing))
                missing = 1
            elif missing % size == 0:
                taken.insert(0, (size, stride))
                missing //= size
            else:
                raise ValueError(f"size {wanted} of {tuple(sizes)} does not fit the digits {dim}")
        parts.insert(0, Dim(tuple(taken)))
    return tuple(parts)


def slowest_first(dims: tuple[Dim, ...]) -> bool:
    """Whether the dimensions stand in the order that they have in the mesh."""
    strides = [stride for _, stride in flatten(dims).digits]
    return strides == sorted(strides, reverse=True)


def disjoint(dims: tuple[Dim, ...]) -> bool:
    """Whether these are independent digits; if not, two coordinates can mean one position."""
    digits = sorted(flatten(dims).digits, key=lambda digit: digit[1], reverse=True)
    return all(slow[1] % (fast[0] * fast[1]) == 0 for slow, fast in pairwise(digits))
