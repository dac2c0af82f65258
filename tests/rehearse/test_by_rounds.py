"""Algorithms of the catalogue and of one's own, chosen by the program, and what they cost."""

import pytest
import torch
import torch.distributed as dist

import teachdist
from teachdist import rehearse
from teachdist.collectives import Recv, Send


def calls():
    """Some collectives; what they gave."""
    rank, size = dist.get_rank(), dist.get_world_size()
    total = torch.arange(7.0) * (rank + 1)
    dist.all_reduce(total)
    everything = torch.empty(size * 3)
    dist.all_gather_single(everything, torch.full((3,), float(rank)))
    part = torch.empty(2)
    dist.reduce_scatter_single(part, torch.arange(size * 2.0), op=dist.ReduceOp.AVG)
    lists = [torch.empty(2) for _ in range(size)]
    dist.all_gather(lists, torch.tensor([float(rank), 1.0]))
    return [total.tolist(), everything.tolist(), part.tolist(), [t.tolist() for t in lists]]


@pytest.mark.parametrize("name", ["ring", "bruck", "direct"])
def test_by_an_algorithm_the_values_are_those_of_the_definition(name):
    def program():
        with teachdist.use(all_reduce=name, all_gather=name, reduce_scatter=name):
            return calls()

    assert rehearse(program, ranks=5).results == rehearse(calls, ranks=5).results


def test_sums_are_in_the_order_of_the_algorithm():
    def program():
        values = torch.tensor([1e8, 1.0, -1e8, 1.0])[dist.get_rank()].reshape(1).clone()
        with teachdist.use(all_reduce="doubling"):
            dist.all_reduce(values)
        return values.item()

    # In pairs: (1e8 + 1) + (-1e8 + 1) = 1e8 - 1e8; the definition goes on with the sum: 1.
    assert rehearse(program, ranks=4).results == [0.0] * 4


def test_one_of_ones_own(scratch):
    @teachdist.algorithm("broadcast")
    def relay(rank, size, *, root):
        place = (rank - root) % size
        for step in range(size - 1):
            if place == step:
                yield Send((rank + 1) % size, 0)
            elif place == step + 1:
                yield Recv((rank - 1) % size, 0)
            else:
                yield ()

    def program():
        tensor = torch.full((3,), float(dist.get_rank()))
        with teachdist.use(broadcast="relay"):
            dist.broadcast(tensor, 0)
        return tensor.tolist()

    slow = teachdist.Topology(alpha=1.0, beta=0.0, name="slow")
    answer = rehearse(program, ranks=4, topology=slow, clock="modelled")
    assert answer.results == [[0.0] * 3] * 4
    assert answer.seconds == pytest.approx(3, abs=0.1)


def test_ranks_that_choose_differently_are_told():
    def program():
        with teachdist.use(all_reduce="ring" if dist.get_rank() else "direct"):
            dist.all_reduce(torch.ones(1))

    with pytest.raises(rehearse.RehearsalError, match="must choose the same algorithm"):
        rehearse(program, ranks=2)


def test_a_trace_has_the_rounds_of_the_algorithm():
    def program():
        with teachdist.trace() as trace, teachdist.use(all_reduce="ring"):
            dist.all_reduce(torch.ones(8))
        return trace

    traces = rehearse(program, ranks=4).results
    assert [len(trace.calls) for trace in traces] == [1] * 4
    call = traces[1].calls[0]
    assert (call.algorithm, call.rank, call.size, len(call.rounds)) == ("ring", 1, 4, 6)
    assert call.rounds[0].sends == {2: ((0,), 8)}
