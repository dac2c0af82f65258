"""Object collectives, as torch.distributed documents them."""

import pickle

import pytest
import torch
import torch.distributed as dist
from ranks import on, raised, shared_pool

OBJECTS = ["foo", 12, {1: 2}]


def test_broadcast_object_list():
    def job():
        seen = []
        for how in ({"src": 0}, {"group_src": 0}, {}, {"src": 0, "device": torch.device("cpu")}):
            objects = list(OBJECTS) if dist.get_rank() == 0 else [None] * 3
            returned = dist.broadcast_object_list(objects, **how)
            seen.append((returned, objects))
        return seen, raised(dist.broadcast_object_list, [1], src=0, group_src=0)[0]

    assert on(3, job) == [([(None, OBJECTS)] * 4, "ValueError")] * 3


def test_all_gather_object():
    def job():
        rank = dist.get_rank()
        output = [None] * dist.get_world_size()
        returned = dist.all_gather_object(output, OBJECTS[rank])
        group = dist.new_group([0])
        alone = [None]
        dist.all_gather_object(alone, rank, group=group)
        return returned, output, alone

    results = on(3, job)
    assert [result[:2] for result in results] == [(None, OBJECTS)] * 3
    assert [result[2] for result in results] == [[0], [None], [None]]


def test_gather_object():
    def job():
        rank = dist.get_rank()
        output = [None] * 3 if rank == 0 else None
        dist.gather_object(OBJECTS[rank], output, dst=0)
        default = [None] * 3 if rank == 0 else None
        returned = dist.gather_object(OBJECTS[rank], default)
        wrong = raised(dist.gather_object, 1, None if rank == 0 else [None] * 3, dst=0)
        both = raised(dist.gather_object, 1, None, dst=0, group_dst=0)
        return returned, output, default, wrong[0], both[0]

    first, *others = on(3, job)
    assert first == (None, OBJECTS, OBJECTS, "ValueError", "ValueError")
    assert others == [(None, None, None, "ValueError", "ValueError")] * 2


def test_scatter_object_list():
    def job():
        seen = []
        for how in ({"src": 0}, {}, {"group_src": 0}):
            output = [None]
            given = OBJECTS if dist.get_rank() == 0 else [None] * 3
            returned = dist.scatter_object_list(output, given, **how)
            seen.append((returned, output))
        errors = [
            raised(dist.scatter_object_list, [], OBJECTS, src=0),
            raised(dist.scatter_object_list, [None], OBJECTS, src=0, group_src=0),
        ]
        return seen, [error[0] for error in errors]

    assert on(3, job) == [([(None, [each])] * 3, ["ValueError"] * 2) for each in OBJECTS]


CALLS = {
    "broadcast_object_list": lambda obj: ([obj], 0),
    "all_gather_object": lambda obj: ([None, None], obj),
    "gather_object": lambda obj: (obj, [None, None] if dist.get_rank() == 0 else None, 0),
    "scatter_object_list": lambda obj: ([None], [obj, obj], 0),
}


@pytest.mark.parametrize("name", CALLS)
def test_blocking_and_picklable(name):
    """No async_op, so they block; what cannot be pickled is an error where it is given."""

    def job():
        call = getattr(dist, name)
        error = raised(call, *CALLS[name](1), async_op=True)
        unpicklable = raised(call, *CALLS[name](lambda: 0)) if dist.get_rank() == 0 else None
        return error[0], unpicklable and unpicklable[0]

    def fine():
        getattr(dist, name)(*CALLS[name](5))
        return True

    pool = shared_pool(2, "teachdist")
    first, second = pool.run(job)
    assert first[0] == second[0] == "TypeError"
    assert first[1] in ("PicklingError", "AttributeError", "TypeError")
    assert pool.run(fine) == [True, True]


@pytest.mark.parametrize("name", CALLS)
def test_unpickling_runs_code(name):
    """Whoever receives runs what the sender says: only for ranks that are trusted."""

    class Runs:
        def __reduce__(self):
            return exec, ("import torch.distributed as dist; dist._what_ran = 1",)

    def job():
        dist._what_ran = 0
        getattr(dist, name)(*CALLS[name](Runs()))
        return dist._what_ran

    results = on(2, job)
    assert 1 in results


def test_five_steps():
    """First a collective of the sizes, then one of the bytes: what a recording backend sees."""

    def job():
        import teachdist

        objects = list(OBJECTS) if dist.get_rank() == 0 else [None] * 3
        with teachdist.trace() as t:
            dist.broadcast_object_list(objects, src=0)
        return [(call.op, "int64[3]" in call.words, "uint8" in call.words) for call in t.calls]

    assert on(2, job) == [[("broadcast", True, False), ("broadcast", False, True)]] * 2


def test_fan_in_unpickles_everything():
    """gather_object: every rank pickles one object, the destination unpickles one per rank."""

    def job():
        counts = {"dumps": 0, "loads": 0}
        c10d = dist.distributed_c10d
        pickler, unpickler = c10d._pickler, c10d._unpickler

        def dumping(*args):
            counts["dumps"] += 1
            return pickler(*args)

        def loading(*args):
            counts["loads"] += 1
            return unpickler(*args)

        c10d._pickler, c10d._unpickler = dumping, loading
        try:
            output = [None] * 4 if dist.get_rank() == 0 else None
            dist.gather_object(dist.get_rank(), output, dst=0)
        finally:
            c10d._pickler, c10d._unpickler = pickler, unpickler
        return counts

    first, *others = on(4, job)
    assert first == {"dumps": 1, "loads": 4}
    assert others == [{"dumps": 1, "loads": 0}] * 3


def test_objects_cost_more_than_tensors():
    """A tensor as an object: more bytes, and more collectives, than the tensor itself."""

    def job():
        import teachdist

        tensor = torch.zeros(1000)
        with teachdist.trace() as as_object:
            dist.all_gather_object([None, None], tensor)
        with teachdist.trace() as as_tensor:
            dist.all_gather([torch.zeros(1000), torch.zeros(1000)], tensor)
        counts = len(as_object.calls), len(as_tensor.calls)
        return counts, sum(c.nbytes for c in as_object.calls), as_tensor.calls[0].nbytes

    for counts, for_object, for_tensor in on(2, job):
        assert counts == (2, 1)
        assert for_object > for_tensor == 8000


def test_many_small_objects_against_one_tensor():
    """The same numbers as Python objects take many times the bytes of the tensor."""
    numbers = list(range(10_000, 20_000))
    as_objects = len(pickle.dumps([{"value": number} for number in numbers]))
    assert as_objects > 1.5 * torch.tensor(numbers, dtype=torch.int32).nbytes
