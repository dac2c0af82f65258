"""Bad input raises at the caller, before anything is sent; the group stays usable.

Each case is made by rank 1 alone. The error names what is wrong, the number of calls made stays as
it was, and then all ranks make the right call, which could not work if anything had been sent.
"""

import pickle
import warnings

import pytest
import torch
import torch.distributed as dist
from ranks import on
from torch._C._distributed_c10d import AllgatherOptions

N = 3


def ones(*shape, dtype=torch.float32):
    return torch.ones(shape or (6,), dtype=dtype)


def several(count=N, numel=6, odd=None, **how):
    """A list of tensors; odd=(i, tensor) puts another one at place i."""
    tensors = [ones(numel, **how) for _ in range(count)]
    if odd is not None:
        tensors[odd[0]] = odd[1]
    return tensors


WIDE = {"dtype": torch.float64}


def meta(numel=6):
    return torch.empty(numel, device="meta")


def overlapping():
    return torch.zeros(1).expand(6)


TWICE = [torch.zeros(6)] * N


def unpicklable():
    """Made anew where it is used, so that pickle does not find it by its name."""


unpicklable.__qualname__ = "somewhere.<locals>.unpicklable"
UNPICKLED = (AttributeError, TypeError, pickle.PicklingError)

# (a call that is wrong, exception, what its message must say); rooted calls have rank 1 as the root
BAD = {
    "broadcast": [
        (lambda: dist.broadcast(ones(), 7), ValueError, "7"),
        (lambda: dist.broadcast(ones(), -1), ValueError, "-1"),
        (lambda: dist.broadcast([1, 2], 0), TypeError, "tensor"),
        (lambda: dist.broadcast(overlapping(), 0), ValueError, "tensor has several elements"),
        (lambda: dist.broadcast(ones(), 0, group_src=1), ValueError, "both"),
    ],
    "all_reduce": [
        (lambda: dist.all_reduce("x"), TypeError, "tensor"),
        (lambda: dist.all_reduce(overlapping()), ValueError, "tensor has several elements"),
        (lambda: dist.all_reduce(ones(), dist.ReduceOp.BAND), ValueError, "BAND"),
    ],
    "reduce": [
        (lambda: dist.reduce(ones(), 5), ValueError, "5"),
        (lambda: dist.reduce(overlapping(), 1), ValueError, "tensor has several elements"),
        (lambda: dist.reduce(ones(), 1, dist.ReduceOp.BXOR), ValueError, "BXOR"),
    ],
    "all_gather": [
        (lambda: dist.all_gather(several(2), ones()), ValueError, "tensor_list must have 3"),
        (lambda: dist.all_gather(several(odd=(1, ones(4))), ones()), ValueError, "tensor_list[1]"),
        (lambda: dist.all_gather(several(odd=(2, ones(**WIDE))), ones()), (TypeError, ValueError),
         "float64"),
        (lambda: dist.all_gather(TWICE, ones()), ValueError, "tensor_list[1] shares its memory"),
        (lambda: dist.all_gather(several(odd=(0, overlapping())), ones()), ValueError,
         "tensor_list[0] has several elements"),
        (lambda: dist.all_gather(several(odd=(2, "x")), ones()), TypeError, "tensor_list"),
    ],
    "all_gather_into_tensor": [
        (lambda: dist.all_gather_into_tensor(ones(17), ones()), ValueError, "output has 17"),
        (lambda: dist.all_gather_into_tensor(ones(18, **WIDE), ones()), (TypeError, ValueError),
         "float64"),
    ],
    "gather": [
        (lambda: dist.gather(ones(), several(2), 1), ValueError, "gather_list must have 3"),
        (lambda: dist.gather(ones(), several(odd=(2, ones(5))), 1), ValueError, "gather_list[2]"),
        (lambda: dist.gather(ones(), TWICE, 1), ValueError, "gather_list[1] shares its memory"),
        (lambda: dist.gather(ones(), several(), 0), ValueError, "gather_list"),
        (lambda: dist.gather(ones(), None, 1), ValueError, "gather_list"),
        (lambda: dist.gather(ones(), None, 9), ValueError, "9"),
    ],
    "scatter": [
        (lambda: dist.scatter(ones(), several(4), 1), ValueError, "scatter_list must have 3"),
        (lambda: dist.scatter(ones(), several(odd=(0, ones(5))), 1), ValueError, "scatter_list[0]"),
        (lambda: dist.scatter(ones(), several(odd=(2, ones(**WIDE))), 1), (TypeError, ValueError),
         "float64"),
        (lambda: dist.scatter(ones(), several(), 0), ValueError, "scatter_list"),
        (lambda: dist.scatter(ones(), None, 1), ValueError, "scatter_list"),
        (lambda: dist.scatter(overlapping(), several(), 1), ValueError, "several elements"),
        (lambda: dist.scatter(ones(), None, 3), ValueError, "3"),
    ],
    "reduce_scatter": [
        (lambda: dist.reduce_scatter(ones(), several(2)), ValueError, "input_list must have 3"),
        (lambda: dist.reduce_scatter(ones(), several(odd=(1, ones(5)))), ValueError,
         "input_list[1]"),
        (lambda: dist.reduce_scatter(ones(), several(odd=(0, ones(**WIDE)))),
         (TypeError, ValueError), "float64"),
        (lambda: dist.reduce_scatter(ones(), several(), dist.ReduceOp.BOR), ValueError, "BOR"),
    ],
    "reduce_scatter_tensor": [
        (lambda: dist.reduce_scatter_tensor(ones(), ones(17)), ValueError, "input has 17"),
        (lambda: dist.reduce_scatter_tensor(ones(**WIDE), ones(18)), (TypeError, ValueError),
         "float64"),
        (lambda: dist.reduce_scatter_tensor(overlapping(), ones(18)), ValueError,
         "output has several"),
    ],
    "all_to_all": [
        (lambda: dist.all_to_all(several(), several(2)), ValueError, "input_tensor_list must have"),
        (lambda: dist.all_to_all(several(4), several()), ValueError,
         "output_tensor_list must have"),
        (lambda: dist.all_to_all(several(odd=(1, ones(5))), several()), ValueError,
         "rank 1 keeps 6 elements for itself but has room for 5"),
        (lambda: dist.all_to_all(several(), several(odd=(2, ones(**WIDE)))),
         (TypeError, ValueError), "float64"),
        (lambda: dist.all_to_all(TWICE, several()), ValueError, "output_tensor_list[1] shares"),
    ],
    "all_to_all_single": [
        (lambda: dist.all_to_all_single(ones(7), ones(7)), ValueError, "7 rows"),
        (lambda: dist.all_to_all_single(ones(), ones(), [2, 2, 3], [2, 2, 2]), ValueError,
         "output_split_sizes"),
        (lambda: dist.all_to_all_single(ones(), ones(), [2, 2, 2], [2, 4]), ValueError,
         "input_split_sizes"),
        (lambda: dist.all_to_all_single(ones(), ones(), [2, 2, 2], [2, -2, 6]), ValueError,
         "input_split_sizes"),
        (lambda: dist.all_to_all_single(ones(**WIDE), ones()), (TypeError, ValueError), "float64"),
    ],
    "send": [
        (lambda: dist.send(ones(), 9), ValueError, "9"),
        (lambda: dist.send(ones(), 1), ValueError, "rank"),
        (lambda: dist.send("x", 0), TypeError, "tensor"),
    ],
    "recv": [
        (lambda: dist.recv(ones(), 9), ValueError, "9"),
        (lambda: dist.recv(ones(), 1), ValueError, "rank"),
        (lambda: dist.recv(overlapping(), 0), ValueError, "several elements"),
    ],
    "all_gather_object": [
        (lambda: dist.all_gather_object([None] * N, unpicklable), UNPICKLED, "pickle"),
    ],
    "broadcast_object_list": [
        (lambda: dist.broadcast_object_list([1, unpicklable], 1), UNPICKLED, "pickle"),
        (lambda: dist.broadcast_object_list([1, 2], 9), ValueError, "9"),
    ],
    "gather_object": [
        (lambda: dist.gather_object(unpicklable, [None] * N, 1), UNPICKLED, "pickle"),
        (lambda: dist.gather_object("x", None, 1), ValueError, "gather_list"),
        (lambda: dist.gather_object("x", [None] * N, 0), ValueError, "gather_list"),
    ],
    "scatter_object_list": [
        (lambda: dist.scatter_object_list([None], [unpicklable] * N, 1), UNPICKLED, "pickle"),
        (lambda: dist.scatter_object_list([], ["x"] * N, 1), ValueError, "output_list"),
    ],
    "send_object_list": [
        (lambda: dist.send_object_list([unpicklable], 0), UNPICKLED, "pickle"),
        (lambda: dist.send_object_list(["x"], 1), ValueError, "rank"),
    ],
    "all_reduce_coalesced": [
        (lambda: dist.all_reduce_coalesced([ones(), overlapping()]), ValueError,
         "tensor has several elements"),
        (lambda: dist.all_reduce_coalesced([ones()], dist.ReduceOp.BAND), ValueError, "BAND"),
    ],
    "all_gather_coalesced": [
        (lambda: dist.all_gather_coalesced([several(2)], [ones()]), ValueError, "3"),
    ],
    "coalescing_manager": [
        (lambda: at_once(lambda: dist.all_reduce(overlapping())), ValueError,
         "tensor has several elements"),
        (lambda: at_once(lambda: dist.all_gather_into_tensor(ones(17), ones())), ValueError,
         "output has 17"),
    ],
    "batch_isend_irecv": [
        (lambda: dist.batch_isend_irecv([dist.P2POp(dist.irecv, overlapping(), 0)]), ValueError,
         "several elements"),
        (lambda: dist.P2POp(dist.send, ones(), 0), ValueError, "isend"),
    ],
}  # fmt: skip


def at_once(call):
    """Inside of what collects several calls into one."""
    with dist._coalescing_manager():
        call()


def right(name):
    """The call as it should be made; what it gives."""
    rank = dist.get_rank()
    x, out = ones() * (rank + 1), torch.zeros(6)
    outs = [torch.zeros(6) for _ in range(N)]
    mine = rank == 1
    calls = {
        "broadcast": lambda: dist.broadcast(x, 0),
        "all_reduce": lambda: dist.all_reduce(x),
        "reduce": lambda: dist.reduce(x, 1),
        "all_gather": lambda: dist.all_gather(outs, x),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(ones(18), x),
        "gather": lambda: dist.gather(x, outs if mine else None, 1),
        "scatter": lambda: dist.scatter(out, several() if mine else None, 1),
        "reduce_scatter": lambda: dist.reduce_scatter(out, several()),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(out, ones(18)),
        "all_to_all": lambda: dist.all_to_all(outs, several()),
        "all_to_all_single": lambda: dist.all_to_all_single(out, x),
        "send": lambda: (
            [lambda: dist.recv(out, 1), lambda: dist.send(x, 0)][mine]() if rank < 2 else None
        ),
        "recv": lambda: (
            [lambda: dist.send(x, 1), lambda: dist.recv(out, 0)][mine]() if rank < 2 else None
        ),
        "all_gather_object": lambda: dist.all_gather_object([None] * N, "x"),
        "broadcast_object_list": lambda: dist.broadcast_object_list([1, "x"], 1),
        "gather_object": lambda: dist.gather_object("x", [None] * N if mine else None, 1),
        "scatter_object_list": lambda: dist.scatter_object_list([None], ["x"] * N, 1),
        "send_object_list": lambda: (
            [lambda: dist.recv_object_list([None], 1), lambda: dist.send_object_list(["x"], 0)][
                mine
            ]()
            if rank < 2
            else None
        ),
        "all_reduce_coalesced": lambda: dist.all_reduce_coalesced([x, out]),
        "all_gather_coalesced": lambda: dist.all_gather_coalesced([[o] for o in outs], [x]),
        "coalescing_manager": lambda: at_once(lambda: dist.all_reduce(x)),
        "batch_isend_irecv": lambda: [
            work.wait()
            for work in dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, x, (rank + 1) % N),
                    dist.P2POp(dist.irecv, out, (rank - 1) % N),
                ]
            )
        ],
    }
    calls[name]()


def case(name, number):
    """On each rank: the wrong call (rank 1), then the right one and a sum."""
    warnings.simplefilter("ignore")
    call, kinds, _ = BAD[name][number]
    group = dist.group.WORLD
    before = group._get_sequence_number_for_group()
    found = None
    if dist.get_rank() == 1:
        try:
            call()
        except Exception as error:  # noqa: BLE001  it is looked at below
            found = isinstance(error, kinds), f"{type(error).__name__}: {error}"
        else:
            found = False, "nothing was raised"
    counted = group._get_sequence_number_for_group() - before
    right(name)
    x = ones()
    dist.all_reduce(x)
    return found, counted, x[0].item()


CASES = [(name, number) for name, cases in BAD.items() for number in range(len(cases))]


@pytest.mark.parametrize(("name", "number"), CASES)
def test_bad_input(name, number):
    results = on(N, case, name, number)
    fine, text = results[1][0]
    assert fine, text
    assert BAD[name][number][2] in text
    assert [counted for _, counted, _ in results] == [0] * N
    assert [total for _, _, total in results] == [N] * N


def test_a_root_outside_the_group():
    """The root is a rank of the job, but not of the group."""

    def job():
        group = dist.new_group([1, 2])
        if dist.get_rank() == 0:
            return None
        found = []
        for call in (
            lambda: dist.broadcast(ones(), 0, group=group),
            lambda: dist.reduce(ones(), 0, group=group),
            lambda: dist.gather(ones(), None, 0, group=group),
            lambda: dist.scatter(ones(), None, 0, group=group),
            lambda: dist.send(ones(), 0, group=group),
            lambda: dist.recv(ones(), 0, group=group),
            lambda: dist.broadcast(ones(), group=group, group_src=2),
            lambda: dist.reduce(ones(), group=group, group_dst=-1),
        ):
            try:
                call()
            except (ValueError, RuntimeError) as error:
                found.append(str(error))
            else:
                found.append(None)
        x = ones()
        dist.all_reduce(x, group=group)
        return found, x[0].item()

    for found, total in on(N, job)[1:]:
        assert None not in found
        assert total == 2


def test_a_device_that_is_not_supported():
    """torch itself takes meta tensors for a rehearsal and asks no backend; so ask it directly."""

    def job():
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        assert dist.all_reduce(meta()) is None  # if torch refuses one day, this can go
        found = []
        for call in (
            lambda: backend.broadcast([meta()], dist.BroadcastOptions()),
            lambda: backend.allreduce([meta()], dist.AllreduceOptions()),
            lambda: backend.allgather([several(odd=(1, meta()))], [ones()], AllgatherOptions()),
            lambda: backend.all_gather_single(ones(18), meta(), AllgatherOptions()),
            lambda: backend.send([meta()], (dist.get_rank() + 1) % N, 0),
            lambda: backend.recv([meta()], (dist.get_rank() + 1) % N, 0),
        ):
            with pytest.raises(ValueError) as caught:  # noqa: PT011  the text is looked at below
                call()
            found.append(str(caught.value))
        x = ones()
        dist.all_reduce(x)
        return found, x[0].item()

    for found, total in on(N, job):
        for name, text in zip(("tensor", "tensor", "tensor_list[1]"), found, strict=False):
            assert f"{name} is on meta; this backend serves cpu and cuda" in text
        assert all("is on meta" in text for text in found)
        assert total == N
