import pytest
import torch

from teachdist.mesh.mesh_groups import backends_in_words, overrides_by_dim, pair, ranks_in_words


def test_ranks_in_words_are_short_and_tell_meshes_apart():
    ranks = torch.arange(128)
    assert ranks_in_words(ranks.reshape(2, 64)) == "0 to 127"
    assert ranks_in_words(torch.tensor([[1, 0]])) == "[[1, 0]]"
    backwards, swapped = ranks.flip(0), ranks.flip(0)
    swapped[100], swapped[101] = 26, 27
    assert ranks_in_words(backwards).startswith("[127, 126, 125")
    assert len(ranks_in_words(backwards)) < 100
    assert ranks_in_words(backwards) != ranks_in_words(swapped)


def test_overrides_in_every_form():
    options = object()
    assert [pair(form) for form in (None, "gloo", options, ("gloo", options))] == [
        (None, None), ("gloo", None), (None, options), ("gloo", options),
    ]  # fmt: skip
    assert overrides_by_dim(None, 2, None) == [(None, None)] * 2
    assert overrides_by_dim({"b": "x", 0: options}, 2, ("a", "b")) == [(None, options), ("x", None)]
    assert overrides_by_dim([None, "x"], 2, None) == [(None, None), ("x", None)]
    given = {0: "x"}
    overrides_by_dim(given, 1, None)
    assert given == {0: "x"}
    with pytest.raises(RuntimeError, match=r"do not exist: \[2\]. There are 0 to 1, called"):
        overrides_by_dim({2: "x"}, 2, ("a", "b"))
    with pytest.raises(RuntimeError, match="names dimension 1 twice, as 1 and as 'b'"):
        overrides_by_dim({"b": "x", 1: "y"}, 2, ("a", "b"))
    with pytest.raises(ValueError, match="1 entries for 2 dimensions"):
        overrides_by_dim(["x"], 2, None)


def test_backends_in_words():
    assert backends_in_words([(None, None)]) == ""
    words = backends_in_words([("gloo", None), (None, object())])
    assert words == " on backends gloo, default with object"
