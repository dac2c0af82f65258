"""The collectives as torch.distributed documents them, its own examples among them."""

import time

import pytest
import torch
import torch.distributed as dist
from ranks import on, raised, run_ranks
from values import bits

COLLECTIVES = [
    "broadcast",
    "all_reduce",
    "reduce",
    "all_gather",
    "all_gather_into_tensor",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all_single",
    "all_to_all",
    "barrier",
]


def start(name, group=None, **how):
    """Call one collective with the simplest arguments that fit; (what it returned, result)."""
    call = getattr(dist, name)
    rank = torch.tensor([float(dist.get_rank())])
    size = max(dist.get_world_size(group), 1)
    many = [torch.zeros(1) for _ in range(size)]
    first = 0 if group is None else dist.get_process_group_ranks(group)[0]
    leader = dist.get_rank() == first
    arguments = {
        "broadcast": (rank, first),
        "all_reduce": (rank,),
        "reduce": (rank, first),
        "all_gather": (many, rank),
        "all_gather_into_tensor": (torch.zeros(size), rank),
        "gather": (rank, many if leader else None, first),
        "scatter": (rank, many if leader else None, first),
        "reduce_scatter": (rank, many),
        "reduce_scatter_tensor": (rank, torch.zeros(size)),
        "all_to_all_single": (torch.zeros(size), torch.ones(size)),
        "all_to_all": (many, [torch.ones(1) for _ in range(size)]),
        "barrier": (),
    }[name]
    return call(*arguments, group=group, **how)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", COLLECTIVES)
def test_what_is_returned(name):
    """A Work for async_op=True, else None; None in both modes outside the group."""

    def job():
        import warnings

        warnings.simplefilter("ignore")
        handle = start(name, async_op=True)
        mine = isinstance(handle, dist.Work), handle.wait(), start(name)
        group = dist.new_group([0])
        if dist.get_rank() == 0:
            handle = start(name, group, async_op=True)
            return (*mine, isinstance(handle, dist.Work) and handle.wait(), start(name, group))
        from torch.distributed import GroupMember

        outside = GroupMember.NON_GROUP_MEMBER
        call, none = getattr(dist, name), torch.zeros(1)
        arguments = {
            "broadcast": (none, 0),
            "all_reduce": (none,),
            "reduce": (none, 0),
            "all_gather": ([none], none),
            "all_gather_into_tensor": (none, none),
            "gather": (none, None, 0),
            "scatter": (none, None, 0),
            "reduce_scatter": (none, [none]),
            "reduce_scatter_tensor": (none, none),
            "all_to_all_single": (none, none),
            "all_to_all": ([none], [none]),
            "barrier": (),
        }[name]
        seen = [call(*arguments, group=outside, async_op=late) for late in (True, False)]
        return (*mine, *seen)

    inside, outside = on(2, job)
    assert inside == (True, True, None, True, None)
    assert outside == (True, True, None, None, None)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_default_group(name):
    """Leaving group out, None and WORLD mean the same."""

    def job():
        for group in (None, dist.group.WORLD):
            start(name, group)
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=dist.group.WORLD)
        return tensor.item()

    assert on(2, job) == [2, 2]


# -- one after the other -------------------------------------------------------------------


def test_broadcast():
    def job():
        group = dist.new_group([1, 3])
        tensor = torch.full((2,), float(dist.get_rank()))
        dist.broadcast(tensor, src=2)
        seen = [tensor.tolist()]
        for how in ({"src": 3}, {"group_src": 1}):
            tensor = torch.full((2,), float(dist.get_rank()))
            if dist.get_rank() in (1, 3):
                dist.broadcast(tensor, group=group, **how)
            seen.append(tensor.tolist())
        return seen

    results = on(4, job)
    assert [seen[0] for seen in results] == [[2, 2]] * 4
    assert [seen[1:] for seen in results] == [
        [[0, 0]] * 2,
        [[3, 3]] * 2,
        [[2, 2]] * 2,
        [[3, 3]] * 2,
    ]


def test_broadcast_wants_equal_sizes():
    """Different sizes are an error that names both calls; `recover` makes the group usable."""

    def job():
        from teachdist.backend import recover

        tensor = torch.zeros(3 + dist.get_rank())
        error = raised(dist.broadcast, tensor, src=0)
        recover()
        tensor = torch.full((2,), float(dist.get_rank()))
        dist.broadcast(tensor, src=1)
        return error, tensor.tolist()

    # Ranks of its own: `recover` meets in every group, also in those that other tests have left.
    answers = run_ranks(2, job, backend="teachdist")
    (_, first), ((kind, text), second) = answers  # the root may have sent and gone on
    assert kind == "DistBackendError"
    assert "float32[3]" in text
    assert "float32[4]" in text
    assert first == second == [1, 1]


ROOTED = [("broadcast", "src"), ("reduce", "dst"), ("gather", "dst"), ("scatter", "src")]


@pytest.mark.parametrize(("name", "root"), ROOTED)
def test_root_given_twice(name, root):
    def job():
        call, tensor = getattr(dist, name), torch.zeros(1)
        both = {root: 0, f"group_{root}": 0}
        errors = [raised(call, tensor, **both)]
        if name in ("broadcast", "reduce"):
            errors.append(raised(call, tensor))
        return [error[0] for error in errors]

    assert on(2, job) == [["ValueError"] * (2 if name in ("broadcast", "reduce") else 1)] * 2


def test_all_reduce_example():
    def job():
        tensor = torch.arange(2, dtype=torch.int64) + 1 + 2 * dist.get_rank()
        dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
        return tensor.tolist()

    assert on(2, job) == [[4, 6], [4, 6]]


def test_all_reduce_complex():
    def job():
        tensor = torch.tensor([1 + 1j, 2 + 2j]) * (dist.get_rank() + 1)
        dist.all_reduce(tensor)
        return tensor.tolist()

    assert on(2, job) == [[3 + 3j, 6 + 6j]] * 2


@pytest.mark.parametrize("algorithm", ["ring", "direct", "doubling", "two_shot"])
def test_all_reduce_is_bitwise_identical(algorithm):
    """Floating-point sums depend on the order; all ranks get the same bits all the same."""

    def job():
        import teachdist

        torch.manual_seed(dist.get_rank())
        seen = []
        with teachdist.use(all_reduce=algorithm):
            for dtype in (torch.float32, torch.bfloat16, torch.complex64):
                for numel in (5, 70_001):
                    tensor = torch.randn(numel, dtype=dtype)
                    dist.all_reduce(tensor)
                    seen.append(bits(tensor))
        return seen

    results = on(4, job)
    assert all(seen == results[0] for seen in results)


def test_reduce():
    def job():
        group = dist.new_group([1, 3])
        tensor = torch.tensor([1, 2]) + 2 * dist.get_rank()
        dist.reduce(tensor, dst=0)
        seen = [tensor.tolist()]
        for how in ({"dst": 3}, {"group_dst": 1}):
            tensor = torch.tensor([1, 2]) + 2 * dist.get_rank()
            if dist.get_rank() in (1, 3):
                dist.reduce(tensor, group=group, **how)
            seen.append(tensor.tolist())
        return seen

    results = on(4, job)
    assert results[0][0] == [16, 20]
    assert results[3][1:] == [[10, 12]] * 2
    # What is not documented as output stays as it was.
    assert results[1] == [[3, 4]] * 3


def test_all_gather_example():
    def job():
        tensors = [torch.zeros(2, dtype=torch.int64) for _ in range(2)]
        dist.all_gather(tensors, torch.arange(2, dtype=torch.int64) + 1 + 2 * dist.get_rank())
        return [t.tolist() for t in tensors]

    assert on(2, job) == [[[1, 2], [3, 4]]] * 2


def test_all_gather_uneven():
    def job():
        rank = dist.get_rank()
        tensors = [torch.zeros(1), torch.zeros(2)]
        dist.all_gather(tensors, torch.full((rank + 1,), float(rank)))
        return [t.tolist() for t in tensors]

    assert on(2, job) == [[[0], [1, 1]]] * 2


def test_all_gather_complex():
    def job():
        tensors = [torch.zeros(2, dtype=torch.complex64) for _ in range(2)]
        dist.all_gather(tensors, torch.tensor([1 + 1j, 2 + 2j]) * (dist.get_rank() + 1))
        return [t.tolist() for t in tensors]

    assert on(2, job) == [[[1 + 1j, 2 + 2j], [2 + 2j, 4 + 4j]]] * 2


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", ["all_gather_into_tensor", "all_gather_single"])
def test_all_gather_into_tensor_example(name):
    """Concatenated and stacked outputs."""

    def job():
        gather = getattr(dist, name)
        tensor_in = torch.arange(2, dtype=torch.int64) + 1 + 2 * dist.get_rank()
        joined, stacked = torch.zeros(4, dtype=torch.int64), torch.zeros(2, 2, dtype=torch.int64)
        gather(joined, tensor_in)
        gather(stacked, tensor_in)
        error = raised(gather, torch.zeros(5, dtype=torch.int64), tensor_in)
        return joined.tolist(), stacked.tolist(), error

    for joined, stacked, (kind, text) in on(2, job):
        assert joined == [1, 2, 3, 4]
        assert stacked == [[1, 2], [3, 4]]
        assert kind == "ValueError"
        assert "output has 5 elements, expected 2 times the 2 of input" in text


def test_gather_example():
    def job():
        rank = dist.get_rank()
        tensor = torch.ones(2) + rank
        gather_list = [torch.zeros_like(tensor) for _ in range(2)] if rank == 0 else None
        dist.gather(tensor, gather_list, dst=0)
        default = [torch.zeros_like(tensor) for _ in range(2)] if rank == 0 else None
        dist.gather(tensor, default)
        return gather_list, default

    (gathered, default), other = on(2, job)
    assert [t.tolist() for t in gathered] == [t.tolist() for t in default] == [[1, 1], [2, 2]]
    assert other == (None, None)


def test_gather_list():
    """Required on the destination, refused elsewhere; all of one size."""

    def job():
        rank, tensor = dist.get_rank(), torch.ones(2)
        lists = [torch.zeros(2), torch.zeros(2)]
        wrong = raised(dist.gather, tensor, None if rank == 0 else lists, dst=0)
        sizes = raised(dist.gather, tensor, [torch.zeros(2), torch.zeros(3)], dst=rank)
        dist.gather(tensor, lists if rank == 0 else None, dst=0)  # the group goes on
        return wrong[0], sizes, lists[1].tolist()

    results = on(2, job)
    assert [wrong for wrong, _, _ in results] == ["ValueError"] * 2
    assert all("gather_list[1] has shape [3], expected [2]" in text for _, (_, text), _ in results)
    assert results[0][2] == [1, 1]


def test_scatter_example():
    def job():
        rank, seen = dist.get_rank(), []
        lists = [torch.ones(2), torch.ones(2) * 5] if rank == 0 else None
        for how in ({"src": 0}, {}, {"group_src": 0}):
            tensor = torch.zeros(2)
            dist.scatter(tensor, lists, **how)
            seen.append(tensor.tolist())
        return seen

    assert on(2, job) == [[[1, 1]] * 3, [[5, 5]] * 3]


def test_scatter_list():
    """Required on the source; all of one size."""

    def job():
        rank, tensor = dist.get_rank(), torch.zeros(2)
        missing = raised(dist.scatter, tensor, None, src=rank)
        sizes = raised(dist.scatter, tensor, [torch.ones(2), torch.ones(3)], src=rank)
        dist.barrier()
        return missing[0], sizes[1]

    for missing, text in on(2, job):
        assert missing == "ValueError"
        assert "scatter_list[1] has shape [3], expected [2]" in text


def test_scatter_complex():
    def job():
        z = torch.tensor([1 + 1j, 2 + 2j])
        tensor = torch.zeros(2, dtype=torch.complex64)
        dist.scatter(tensor, [z, 2 * z] if dist.get_rank() == 0 else None, src=0)
        return tensor.tolist()

    assert on(2, job) == [[1 + 1j, 2 + 2j], [2 + 2j, 4 + 4j]]


def test_reduce_scatter():
    def job():
        rank = dist.get_rank()
        output = torch.zeros(2)
        dist.reduce_scatter(output, [torch.full((2,), i + 10.0 * rank) for i in range(2)])
        return output.tolist()

    assert on(2, job) == [[10, 10], [12, 12]]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", ["reduce_scatter_tensor", "reduce_scatter_single"])
def test_reduce_scatter_tensor_example(name):
    """Concatenated and stacked inputs."""

    def job():
        scatter, results = getattr(dist, name), []
        for shape in ((4,), (2, 2)):
            output = torch.zeros(2, dtype=torch.int64)
            scatter(output, torch.arange(4).reshape(shape))
            results.append(output.tolist())
        return results

    assert on(2, job) == [[[0, 2]] * 2, [[4, 6]] * 2]


def test_all_to_all_single_example():
    def job():
        output = torch.empty(4, dtype=torch.int64)
        dist.all_to_all_single(output, torch.arange(4) + 4 * dist.get_rank())
        return output.tolist()

    assert on(4, job) == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]


def test_all_to_all_single_is_like_scatters():
    """The documented equivalence: a loop of scatters, one from each rank."""

    def job():
        rank, size = dist.get_rank(), dist.get_world_size()
        given = list((torch.arange(4) + 4 * rank).chunk(size))
        output = torch.empty(4, dtype=torch.int64)
        gathered = list(output.chunk(size))
        for i in range(size):
            dist.scatter(gathered[i], given if i == rank else [], src=i)
        return output.tolist()

    assert on(4, job) == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]


def test_all_to_all_single_splits():
    def job():
        rank = dist.get_rank()
        given = torch.full((6,), float(rank))
        output = torch.zeros(3 * (rank + 1))
        dist.all_to_all_single(output, given, [rank + 1] * 3, [1, 2, 3])
        return output.tolist()

    assert on(3, job) == [[0, 1, 2], [0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 1, 1, 2, 2, 2]]


def test_all_to_all_single_must_divide():
    def job():
        error = raised(dist.all_to_all_single, torch.zeros(5), torch.zeros(5))
        dist.barrier()
        return error

    for kind, text in on(4, job):
        assert kind in ("ValueError", "RuntimeError")
        assert "5" in text


def test_all_to_all_single_complex():
    def job():
        output = torch.zeros(2, dtype=torch.complex64)
        dist.all_to_all_single(output, torch.tensor([1 + 1j, 2 + 2j]) * (dist.get_rank() + 1))
        return output.tolist()

    assert on(2, job) == [[1 + 1j, 2 + 2j], [2 + 2j, 4 + 4j]]


def test_all_to_all():
    def job():
        given = list((torch.arange(4) + 4 * dist.get_rank()).chunk(4))
        outputs = [torch.zeros(1, dtype=torch.int64) for _ in range(4)]
        dist.all_to_all(outputs, given)
        return [t.item() for t in outputs]

    assert on(4, job) == [[r, 4 + r, 8 + r, 12 + r] for r in range(4)]


def test_all_to_all_of_unequal_tensors():
    def job():
        rank = dist.get_rank()
        given = [torch.full((d + 1, 2), float(rank)) for d in range(3)]
        outputs = [torch.zeros(rank + 1, 2) for _ in range(3)]
        dist.all_to_all(outputs, given)
        return [t[:, 0].tolist() for t in outputs]

    assert on(3, job) == [[[float(s)] * (r + 1) for s in range(3)] for r in range(3)]


def test_all_to_all_wants_one_per_rank():
    def job():
        error = raised(dist.all_to_all, [torch.zeros(1)] * 2, [torch.zeros(1)] * 3)
        dist.barrier()
        return error

    for kind, text in on(2, job):
        assert kind == "ValueError"
        assert "input_tensor_list must have 2 tensors, one per rank, got 3" in text


def test_barrier_waits_for_the_last():
    def job():
        rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
        for late in (False, True):
            if rank == 1:
                time.sleep(0.2)  # the others have time to leave too early
                store.set(f"came {late}", "yes")
            handle = dist.barrier(async_op=late)
            if late:
                assert handle.wait()
            assert store.check([f"came {late}"])
        return True

    assert on(3, job) == [True] * 3


@pytest.mark.parametrize(
    "name", ["reduce", "all_reduce", "reduce_scatter", "reduce_scatter_tensor"]
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_reduce_ops(name):
    """Each operation on int64, elementwise; SUM is the default."""
    expected = {
        None: [4, 6],
        "SUM": [4, 6],
        "PRODUCT": [3, 8],
        "MIN": [1, 2],
        "MAX": [3, 4],
        "BAND": [1, 0],
        "BOR": [3, 6],
        "BXOR": [2, 6],
    }

    def job():
        import warnings

        warnings.simplefilter("ignore")
        rank, seen = dist.get_rank(), {}
        for op in expected:
            how = {} if op is None else {"op": getattr(dist.ReduceOp, op)}
            tensor = torch.tensor([1, 2]) + 2 * rank
            if name == "reduce":
                dist.reduce(tensor, dst=0, **how)
            elif name == "all_reduce":
                dist.all_reduce(tensor, **how)
            else:
                output = torch.zeros(2, dtype=torch.int64)
                given = [tensor, tensor] if name == "reduce_scatter" else tensor.repeat(2)
                getattr(dist, name)(output, given, **how)
                tensor = output
            seen[op] = tensor.tolist()
        return seen

    results = on(2, job)
    assert results[0] == expected
    if name != "reduce":
        assert results[1] == expected


def test_all_reduce_coalesced():
    def job():
        tensors = [torch.full((n,), float(dist.get_rank())) for n in (1, 3)]
        with pytest.warns(FutureWarning):
            dist.all_reduce_coalesced(tensors)
        return [t.tolist() for t in tensors]

    assert on(3, job) == [[[3], [3, 3, 3]]] * 3


def test_strided_tensors():
    """Views that are not contiguous give correct results and are written in place."""

    def job():
        rank = dist.get_rank()
        base = torch.zeros(4, 4)
        column = base[:, 1]
        column.fill_(rank + 1)
        dist.all_reduce(column)
        outputs = list(torch.zeros(4, 2).unbind(1))
        dist.all_gather(outputs, torch.full((4, 2), float(rank))[:, 0])
        dist.broadcast(base.t()[2], src=1)
        whole = torch.arange(8.0).reshape(2, 4).t()
        dist.scatter(base[:, 3], [whole[:, 0], whole[:, 1]] if rank == 0 else None, src=0)
        return base.tolist(), [t.tolist() for t in outputs]

    for rank, (base, outputs) in enumerate(on(2, job)):
        assert [row[:3] for row in base] == [[0, 3, 0]] * 4
        assert [row[3] for row in base] == [4 * rank + i for i in range(4)]
        assert outputs == [[0] * 4, [1] * 4]


def test_in_place_forms():
    """An output that is a part of the input, or the input itself, as NCCL allows."""

    def job():
        rank, size = dist.get_rank(), dist.get_world_size()
        whole = torch.arange(6.0) * (rank + 1)
        dist.reduce_scatter_single(whole[2 * rank : 2 * rank + 2], whole)
        gathered = torch.zeros(6)
        gathered[2 * rank : 2 * rank + 2] = rank + 1
        dist.all_gather_single(gathered, gathered[2 * rank : 2 * rank + 2])
        swapped = torch.arange(3.0) + 10 * rank
        dist.all_to_all_single(swapped, swapped)
        assert size == 3
        return whole[2 * rank : 2 * rank + 2].tolist(), gathered.tolist(), swapped.tolist()

    for rank, (summed, gathered, swapped) in enumerate(on(3, job)):
        assert summed == [6.0 * 2 * rank, 6.0 * (2 * rank + 1)]
        assert gathered == [1, 1, 2, 2, 3, 3]
        assert swapped == [rank, 10 + rank, 20 + rank]
