"""The digits of a layout against the array that they describe, indexed by numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teachdist.mesh.mesh_layout import Dim, disjoint, flatten, row_major, slowest_first, unflatten

SHAPES = [(8,), (2, 4), (4, 2), (2, 2, 2), (3, 2), (1, 4), (2, 1, 3), (2, 3, 4), (1,), ()]


def positions(shape):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_index_is_the_coordinate(shape):
    dims = row_major(shape)
    for coordinate, position in np.ndenumerate(positions(shape)):
        assert tuple(dim.index(position) for dim in dims) == coordinate


@pytest.mark.parametrize("shape", SHAPES)
def test_groups_are_the_lines_of_the_array(shape):
    array = positions(shape)
    for axis, dim in enumerate(row_major(shape)):
        lines = np.moveaxis(array, axis, -1).reshape(-1, shape[axis])
        assert dim.groups(array.size) == lines.tolist()


def test_flatten_turns_wheels_that_carry_into_one():
    dp, cp, tp = row_major((2, 2, 2))
    assert flatten((dp, cp)) == Dim(((4, 2),))
    assert flatten((dp, cp, tp)) == Dim(((8, 1),))
    assert str(flatten((dp, tp))) == "2:4 2:1"
    assert flatten((dp, tp)).offsets() == [0, 1, 4, 5]
    assert flatten(()) == Dim(()) == Dim(((1, 7),))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_flattened_groups_are_the_lines_of_the_transposed_array(shape, data):
    kept = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True))
    array = positions(shape)
    others = [axis for axis in range(len(shape)) if axis not in kept]
    lines = array.transpose(others + kept).reshape(-1, np.prod([shape[a] for a in kept], dtype=int))
    dims = row_major(tuple(shape))
    dim = flatten(tuple(dims[axis] for axis in kept))
    assert dim.size == lines.shape[1]
    assert dim.groups(array.size) == lines.tolist()
    for line in lines.tolist():
        assert [dim.index(position) for position in line] == list(range(len(line)))
        assert {dim.start(position) for position in line} == {line[0]}


@given(st.lists(st.integers(1, 4), max_size=4))
def test_unflatten_undoes_flatten(sizes):
    dims = row_major(tuple(sizes))
    assert unflatten(flatten(dims), tuple(sizes)) == dims


def test_unflatten_two_wheels():
    dp_tp = flatten(row_major((2, 2, 4))[::2])  # 2:8 4:1
    assert [str(part) for part in unflatten(dp_tp, (2, 2, 2))] == ["2:8", "2:2", "2:1"]
    assert [str(part) for part in unflatten(dp_tp, (1, 8))] == ["1:0", "2:8 4:1"]
    with pytest.raises(ValueError, match="multiply to 6, not to 8"):
        unflatten(dp_tp, (2, 3))
    with pytest.raises(ValueError, match="does not fit the digits 2:6 3:1"):
        unflatten(flatten(row_major((2, 2, 3))[::2]), (3, 2))


def test_order_and_overlap():
    dp, cp, tp = row_major((2, 2, 2))
    assert slowest_first((dp, tp))
    assert not slowest_first((tp, dp))
    assert disjoint((tp, dp))
    assert not disjoint((dp, dp))
    assert not disjoint((flatten((dp, cp)), cp))
