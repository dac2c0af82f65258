"""What would hang elsewhere: found from a run that went well here, with its lines."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from teachdist import rehearse
from teachdist.rehearse import BrokenRules
from teachdist.rules import RULES, judge, table


def broken(program, rules, ranks=2):
    """What the rules say of a program that runs here."""
    with pytest.raises(BrokenRules) as caught:
        rehearse(program, ranks=ranks, rules=rules)
    return str(caught.value)


def kept(program, ranks=2, rules=tuple(RULES)):
    answer = rehearse(program, ranks=ranks)
    for name in rules:
        assert answer.check(name), answer.check(name)
    return answer


def both_send_first():
    other = 1 - dist.get_rank()
    dist.send(torch.ones(2), other)
    dist.recv(torch.ones(2), other)


@pytest.mark.parametrize("rules", ["gloo", "mpi", "nccl-eager"])
def test_both_send_first(rules):
    words = broken(both_send_first, rules)
    assert "ranks 0 and 1 wait for each other" in words
    assert "rank 0 waits in send(float32[2], dst=rank 1, tag=0) at test_rules.py:" in words


def test_a_send_after_a_receive_is_well():
    def program():
        rank = dist.get_rank()
        for sender in (0, 1):
            if rank == sender:
                dist.send(torch.ones(2), 1 - rank)
            else:
                dist.recv(torch.ones(2), 1 - rank)

    kept(program)


def ring(batched):
    def program():
        rank, size = dist.get_rank(), dist.get_world_size()
        right, left = (rank + 1) % size, (rank - 1) % size
        mine, theirs = torch.ones(3), torch.ones(3)
        if batched:
            pair = [dist.P2POp(dist.isend, mine, right), dist.P2POp(dist.irecv, theirs, left)]
            works = dist.batch_isend_irecv(pair)
        else:
            works = [dist.isend(mine, right), dist.irecv(theirs, left)]
        for work in works:
            work.wait()

    return program


def test_a_ring_in_a_batch_is_well_everywhere():
    kept(ring(batched=True), ranks=4)


def test_a_ring_without_a_batch_meets_in_a_circle():
    answer = kept(ring(batched=False), ranks=4, rules=("gloo", "mpi"))
    words = str(answer.check("nccl"))
    assert "ranks 0-3 wait for each other in a circle" in words
    assert "its communicator's first use" in words
    assert "one after the other" in str(answer.check("nccl-eager"))


def test_the_order_of_single_operations_of_a_pair():
    def program():
        other = 1 - dist.get_rank()
        works = [dist.isend(torch.ones(2), other), dist.irecv(torch.ones(2), other)]
        for work in works:
            work.wait()

    kept(program, rules=("gloo", "mpi"))
    words = broken(program, "nccl")
    assert "wait for each other" in words
    assert "one after the other, in the order in which they were begun" in words


def test_a_batch_of_some_ranks_that_is_the_first_call():
    def program(first):
        rank = dist.get_rank()
        if first:
            dist.barrier()
        if rank < 2:
            kind = dist.isend if rank == 0 else dist.irecv
            for work in dist.batch_isend_irecv([dist.P2POp(kind, torch.ones(1), 1 - rank)]):
                work.wait()

    words = broken(lambda: program(False), "nccl", ranks=3)
    assert "first use, for rank 2" in words
    kept(lambda: program(True), ranks=3)


def test_groups_in_another_order():
    def program():
        groups = [dist.new_group([0, 1]) for _ in range(2)]
        if dist.get_rank():
            groups.reverse()
        works = [dist.all_reduce(torch.ones(1), group=g, async_op=True) for g in groups]
        for work in works:
            work.wait()

    kept(program, rules=("gloo", "mpi"))
    assert "the same order on all of them" in broken(program, "nccl-eager")


def test_no_tags():
    def program():
        if dist.get_rank() == 0:
            dist.isend(torch.ones(1), 1, tag=1).wait()
            dist.isend(torch.zeros(1), 1, tag=2).wait()
        else:
            works = [dist.irecv(torch.ones(1), 0, tag=tag) for tag in (2, 1)]
            for work in works:
                work.wait()

    kept(program, rules=("gloo",))
    assert "there are no tags" in broken(program, "nccl")


def test_nobody_in_particular():
    def program():
        if dist.get_rank() == 0:
            dist.recv(torch.ones(1))
        else:
            dist.send(torch.ones(1), 0)

    words = broken(program, "nccl")
    assert "rank 0: recv(float32[1], src=any, tag=0) at test_rules.py:" in words
    assert "must name its source" in words
    answer = kept(program, rules=("gloo", "mpi"))
    assert "taken to go as they went" in str(answer.check("gloo"))


def test_uneven_sizes():
    def program():
        sizes = [1, 3]
        parts = [torch.zeros(n) for n in sizes]
        dist.all_gather(parts, torch.ones(sizes[dist.get_rank()]))

    assert "need the same sizes" in broken(program, "nccl")


def test_reductions_that_are_not_there():
    def program(op):
        dist.all_reduce(torch.ones(2, dtype=torch.int32), op)

    assert "no average" in broken(lambda: program(dist.ReduceOp.AVG), "gloo")
    assert "no bitwise" in broken(lambda: program(dist.ReduceOp.BOR), "nccl")


def test_objects_are_noted():
    def program():
        dist.all_gather_object([None, None], 1)

    answer = kept(program)
    assert "torch.cuda.set_device" in str(answer.check("nccl"))


def test_a_send_that_nobody_receives():
    def program():
        if dist.get_rank() == 0:
            dist.isend(torch.ones(1), 1)

    assert "nobody answers it" in broken(program, "gloo")


def test_unknown_rules():
    with pytest.raises(ValueError, match="expected one of nccl, nccl-eager, gloo, mpi"):
        rehearse(both_send_first, ranks=2, rules="smpi")


def test_every_rule_has_words_and_a_source():
    lines = table()[2:]
    assert len(lines) == sum(len(rules.rules) for rules in RULES.values())
    assert all(len([cell for cell in line.split("|") if cell.strip()]) == 3 for line in lines)


def test_the_log_of_one_rank_says_what_it_cannot_see():
    answer = rehearse(both_send_first, ranks=2)
    assert "rank 1 is not in the log" in str(judge({0: answer.logs[0]}, "gloo"))


def test_the_page_has_the_rules():
    page = Path(__file__).parents[2] / "docs" / "rules.md"
    assert "\n".join(table()) in page.read_text("utf-8")
