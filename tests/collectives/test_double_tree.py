"""The two trees: each is a tree over all ranks, and nobody is inside both."""

import pytest

from teachdist.collectives.double_tree import position


@pytest.mark.parametrize("root", [0, 2])
@pytest.mark.parametrize("size", [3, 4, 5, 8, 13, 16, 31, 32])
def test_two_trees(size, root):
    places = [position(rank, size, root) for rank in range(size)]
    for tree in (0, 1):
        for rank in range(size):
            parent, children, depth = places[rank][tree]
            assert (parent is None) == (rank == root)
            assert depth <= (size - 1).bit_length()
            assert len(children) <= 2
            for child in children:
                assert places[child][tree][0] == rank
                assert places[child][tree][2] == depth + 1
        assert sum(len(place[tree][1]) for place in places) == size - 1
    for rank in range(size):
        if rank != root:
            (_, first, _), (_, second, _) = places[rank]
            assert not (first and second), rank
