"""Double binary tree: two trees at once, so that no rank's links are idle.

The idea: in a binary tree half of the ranks are leaves, which receive but never send: half of the
bandwidth is wasted. So build a second tree over the same ranks in which the leaves of the first are
inside, and let each tree carry half of the data, cut into pieces that follow each other as in a
chain.

Number the ranks other than the root 1, 2, ..., p-1. In the in-order numbering of a binary tree the
odd numbers are the leaves. The second tree is the first one read from right to left (p odd) or
shifted by one (p even).

    p = 8, first tree: even pieces         second tree: odd pieces (each number moved on by one)

                0                                      0
                |                                      |
                4                                      5
            .---+---.                              .---+---.
            2       6                              3       7
          .-+-.   .-+-.                          .-+-.   .-+-.
          1   3   5   7                          2   4   6   1

Rank 0, the root, feeds both. All-reduce: each piece goes up its tree, added up on the way, and
comes down again as soon as it is complete.

Cost, with h = ceil(lg p) levels and k pieces: broadcast about (2h + k)(a + nb/k), reduce likewise
with g; with many pieces both come near nb, as a chain does, but with lg p in the place of p. (The
original colours the arrows of both trees so that no rank receives from two sides at once and proves
2h + k - 2; here the order is not arranged, and the tests show that 2h + k is kept.)

Source: Sanders, Speck, Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and
scan" (2009).
"""

from teachdist.collectives.catalog import algorithm
from teachdist.collectives.schedule import Recv, Reduce, Send

PIECES = 8
EACH = PIECES // 2  # pieces per tree


def _parent(i, count):
    """The parent of place i in the in-order tree over places 1..count; 0 is above the top."""
    bit = i & -i
    up = (i ^ bit) | (bit << 1)
    return up if up <= count else i ^ bit


def _children(i, count):
    """The places whose parent is i."""
    if i == 0:
        return [1 << (count.bit_length() - 1)] if count else []
    step = (i & -i) >> 1
    if step == 0:
        return []
    right = next((i + s for s in _halves(step) if i + s <= count), None)
    return [i - step] if right is None else [i - step, right]


def _halves(step):
    while step:
        yield step
        step >>= 1


def _depth(i, count):
    """How many arrows away from the root."""
    depth = 0
    while i:
        i, depth = _parent(i, count), depth + 1
    return depth


def position(rank, size, root):
    """Where `rank` is in each of the two trees: a pair of (parent, children, depth) in ranks."""
    count = size - 1
    v = (rank - root) % size

    def first(place):
        return place

    def second(place):
        if place == 0:
            return 0
        return count + 1 - place if count % 2 == 0 else place % count + 1

    trees = []
    for number_at in (first, second):
        place = next(place for place in range(size) if number_at(place) == v)
        parent = None if v == 0 else (number_at(_parent(place, count)) + root) % size
        children = [(number_at(child) + root) % size for child in _children(place, count)]
        trees.append((parent, children, _depth(place, count)))
    return trees


def _going_down(trees, number):
    """The sends and receives of a broadcast in its round `number`."""
    for tree, (parent, children, depth) in enumerate(trees):
        leaving, coming = number - depth, number - (depth - 1)
        if 0 <= leaving < EACH:
            yield from (Send(child, 2 * leaving + tree) for child in children)
        if 0 <= coming < EACH and parent is not None:
            yield Recv(parent, 2 * coming + tree)


def _going_up(trees, number, height):
    """The sends and reduces of a reduce in its round `number`: the deepest ranks begin."""
    for tree, (parent, children, depth) in enumerate(trees):
        leaving, coming = number - (height - depth), number - (height - depth - 1)
        if 0 <= leaving < EACH and parent is not None:
            yield Send(parent, 2 * leaving + tree)
        if 0 <= coming < EACH:
            yield from (Reduce(child, 2 * coming + tree) for child in children)


@algorithm("broadcast", "double_tree", chunks=PIECES, formula="<= (2*ceil(lg(p)) + k)*(a + n/k*b)")
def double_tree_broadcast(rank, size, *, root):
    """Each piece goes down its tree, one level per round."""
    trees, height = position(rank, size, root), (size - 1).bit_length()
    for number in range(height + EACH - 1):
        yield tuple(_going_down(trees, number))


@algorithm(
    "reduce",
    "double_tree",
    chunks=PIECES,
    formula="<= (2*ceil(lg(p)) + k)*(a + n/k*b + n/k*g)",
)
def double_tree_reduce(rank, size, *, root):
    """Each piece goes up its tree and is added up on the way."""
    trees, height = position(rank, size, root), (size - 1).bit_length()
    for number in range(height + EACH - 1):
        yield tuple(_going_up(trees, number, height))


@algorithm(
    "all_reduce",
    "double_tree",
    chunks=PIECES,
    formula="<= (4*ceil(lg(p)) + k - 2)*(2*a + 2*n/k*b + n/k*g)",
)
def double_tree(rank, size):
    """Up, and down again as soon as a piece has reached the top."""
    trees, height = position(rank, size, 0), (size - 1).bit_length()
    for number in range(2 * height + EACH - 1):
        yield (*_going_up(trees, number, height), *_going_down(trees, number - height))
