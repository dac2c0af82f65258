import pytest

from teachdist.notebook.cells import predict

CELL = """
# predict rank 0: tensor([[1, 2],
# predict rank 0:         [3, 4]])
# predict ranks 1-2: 7
# predict: nothing special
dist.all_reduce(x)   # predict this: not a prediction
x
"""


def test_predictions_by_rank():
    assert predict.predictions(CELL, range(4)) == {
        0: "tensor([[1, 2],\n        [3, 4]])",
        1: "7",
        2: "7",
        3: "nothing special",
    }
    assert predict.predictions(CELL, [2]) == {2: "7"}
    assert predict.predictions("x = 1  # predict rank 0: 1", [0]) == {}


@pytest.mark.parametrize(
    ("predicted", "got", "same"),
    [
        ("tensor([6,10])", "tensor([ 6., 10.])", True),
        ("6.0", "6", True),
        ("6.05", "6", False),
        ("16", "1 6", True),
        ("tensor([6])", "tensor([7.])", False),
    ],
)
def test_alike(predicted, got, same):
    assert predict.alike(predicted, got) == same


def test_side_by_side():
    table = predict.compare({0: "6", 1: "6"}, {0: "tensor(6)", 1: "6", 2: "a\nb"})
    assert table.splitlines() == [
        "        predicted  got",
        "rank 0  6          tensor(6)  no",
        "rank 1  6          6          yes",
        "rank 2  (nothing)  a          no",
        "                   b",
        "1 of 3 ranks as predicted",
    ]


def test_answer_is_text_even_of_a_picture():
    items = [("stdout", "a\n"), ("display", {"data": {"image/png": "x"}})]
    assert predict.answer(items) == "a\n<picture>"
