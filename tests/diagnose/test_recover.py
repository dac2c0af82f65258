"""After a failure the same groups, models and meshes go on, under the next generation."""

import re
import threading
import time

import pytest
import torch
import torch.distributed as dist
from scenes import play
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from teachdist.backend import Released, communicators, recover, release


def total(group=None):
    x = torch.ones(3)
    dist.all_reduce(x, group=group)
    return x[0].item()


def generations():
    return sorted(communicator.generation for communicator in communicators())


def fail_on(culprit, rank, call):
    """One rank fails before `call`, the others in it; what this rank saw."""
    try:
        if rank == culprit:
            raise ValueError("bad batch")
        call()
    except ValueError as error:
        release(error)
        return error
    except Released as error:
        return error
    raise AssertionError("nobody was released")


def without_line(error):
    """The culprit's words and file."""
    return re.sub(r":\d+$", "", str(error).partition(" (")[0])


def values(outcomes):
    for outcome in outcomes:
        assert outcome.error is None, outcome.said
    return [outcome.value for outcome in outcomes]


def test_the_same_group_goes_on():
    def scene(rank):
        before = total()
        error = fail_on(1, rank, total)
        return before, without_line(error), recover(), total(), generations()

    quiet, culprit, other = values(play(scene, n=3))
    assert quiet == (3, "rank 1 failed: ValueError: bad batch, at test_recover.py", True, 3, [1])
    assert other == quiet
    assert culprit == (3, "bad batch", True, 3, [1])


def test_again_and_again():
    def scene(rank):
        seen = []
        for culprit in (0, 1, 2, 1):
            fail_on(culprit, rank, total)
            recover()
            seen.append(total())
        return seen, generations()

    assert values(play(scene, n=3)) == [([3] * 4, [4])] * 3


def test_numbers_of_calls_agree_afterwards():
    """Ranks were in different calls when it happened; sequence numbers must not differ."""

    def scene(rank):
        if rank == 1:
            release("rank 1 has had enough")
        else:
            for _ in range(3):
                with pytest.raises(Released, match="had enough"):
                    total()
        recover()
        return total(), len({communicator.sequence for communicator in communicators()})

    assert values(play(scene)) == [(2, 1)] * 2


def test_without_a_failure_nothing_changes():
    def scene(rank):
        pending = dist.all_reduce(torch.ones(1), async_op=True)
        answers = [recover(), recover()]
        pending.wait()
        return answers, generations(), total()

    assert values(play(scene, n=3)) == [([False, False], [0], 3)] * 3


def test_one_rank_that_knows_of_no_failure_meets_anew_too():
    def scene(rank):
        total()
        if rank == 0:
            release("rank 0 failed: alone")
        return recover(), total(), generations()

    assert values(play(scene, n=3)) == [(True, 3, [1])] * 3


def test_asynchronous_works_end_with_the_reason():
    def scene(rank):
        total()
        if rank == 1:
            release("rank 1 failed: no more")
            works = []
        else:
            works = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(3)]
        recover()
        said = []
        for work in works:
            with pytest.raises(RuntimeError, match="rank 1 failed: no more") as caught:
                work.wait()
            said.append(type(caught.value).__name__)
        return said, total()

    first, second = values(play(scene))
    assert first == (["Released"] * 3, 2)
    assert second == ([], 2)


def test_mail_of_the_old_generation_is_gone():
    def scene(rank):
        box = torch.zeros(2)
        if rank == 0:
            dist.isend(torch.full((2,), 7.0), 1).wait()
            release("rank 0 failed: after sending")
        else:
            pending = dist.irecv(torch.zeros(1), 0, tag=5)
        recover()
        if rank == 0:
            dist.send(torch.full((2,), 9.0), 1)
        else:
            with pytest.raises(RuntimeError):
                pending.wait()
            dist.recv(box, 0)
        return box[0].item()

    assert values(play(scene)) == [0, 9]


def test_every_group_that_failed_and_no_other():
    def scene(rank):
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        mine = pairs[rank // 2]
        total(mine)
        if rank == 0:
            members_of_pair = [m for m in communicators() if m.size == 2]
            members_of_pair[0].release("rank 0 failed: in the pair")
        elif rank == 1:
            with pytest.raises(Released, match="in the pair"):
                total(mine)
        met = recover()
        return met, generations(), total(mine), total()

    assert values(play(scene, n=4)) == [(True, [0, 1], 2, 4)] * 2 + [(False, [0, 0], 2, 4)] * 2


def test_a_mismatch_is_recovered_from():
    def scene(rank):
        x = torch.ones(3)
        with pytest.raises(dist.DistBackendError, match="rank 1 is in broadcast"):
            dist.broadcast(x, 0) if rank == 1 else dist.all_reduce(x)
        return recover(), total()

    assert values(play(scene, n=3)) == [(True, 3)] * 3


def test_on_several_hosts():
    def scene(rank):
        total()
        fail_on(3, rank, total)
        return recover(), total()

    assert values(play(scene, n=4, hosts="aabb")) == [(True, 4)] * 4


def test_models_and_meshes_stay_valid():
    def scene(rank):
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(3, 1), process_group=mesh.get_group())
        gradients = []
        for step in range(4):
            model.zero_grad()
            loss = model(torch.full((2, 3), float(rank + 1))).sum()
            try:
                if step == 1 and rank == 1:
                    raise ValueError("bad batch")
                loss.backward()
            except (ValueError, RuntimeError) as error:
                release(error)
                recover()
                continue
            gradients.append(model.module.weight.grad[0, 0].item())
        return gradients, total(mesh.get_group())

    # The mean of the ranks' gradients: 2 samples of 1 here, of 2 there.
    assert values(play(scene)) == [([3.0] * 3, 2)] * 2


@pytest.mark.parametrize("hosts", [None, "ab"])
def test_a_group_that_one_rank_has_destroyed_is_given_up(hosts):
    def scene(rank):
        store, pair = communicators()[0].shared, dist.new_group([0, 1])
        total(pair)
        if rank == 1:
            dist.destroy_process_group(pair)
            store.set("destroyed", "")
        else:
            store.wait(["destroyed"])
            release("rank 0 failed: early")
        answers = recover(), recover(), total()
        if rank == 0:
            with pytest.raises(Released, match=r"cannot meet anew: rank 1 is not in it"):
                total(pair)
        return answers

    outcomes = play(scene, hosts=hosts, options={"hint_after": 0.2})
    assert values(outcomes) == [(True, False, 2)] * 2
    said = [line for line in outcomes[0].log if 'group "1" cannot meet anew: rank 1' in line]
    assert len(said) == 1
    assert outcomes[0].seconds < 10


def test_groups_that_some_ranks_had_not_made_yet():
    """What is made afterwards has the same names on all ranks again."""

    def scene(rank):
        for local in (False, True):
            try:
                if rank == 1:
                    raise ValueError("on the way to new_group")
                dist.new_group([0, 2], use_local_synchronization=local)
                total(dist.new_group([0, 1, 2], use_local_synchronization=local))
            except (ValueError, Released) as error:
                release(error)
            assert recover()
        names = [dist.new_group(), dist.new_group([0, 1, 2], use_local_synchronization=True)]
        return [total(group) for group in names]

    outcomes = play(scene, n=3)
    assert values(outcomes) == [[3, 3]] * 3
    assert all(outcome.seconds < 10 for outcome in outcomes)


def test_a_rank_that_does_not_come_is_named():
    def scene(rank):
        if rank == 1:
            return "elsewhere"
        with pytest.raises(
            dist.DistBackendError, match=r"all ranks must call recover.*rank 1"
        ) as e:
            recover(timeout=0.3)
        return str(e.value)

    first, _ = play(scene)
    assert 'group "0"' in first.value


def test_a_named_meeting():
    """Whoever calls all ranks can name the occasion: a rank that missed one cannot lag behind."""

    def scene(rank):
        if rank == 0:
            release("rank 0 failed: early")
            with pytest.raises(dist.DistBackendError):
                recover("first", timeout=0.2)
        else:
            dist.get_backend()
        return recover("second"), total()

    assert values(play(scene, n=2)) == [(True, 2)] * 2


def test_a_missed_meeting_heals():
    def scene(rank):
        store = communicators()[0].shared
        if rank == 0:
            release("rank 0 failed: early")
            with pytest.raises(dist.DistBackendError):
                recover(timeout=0.2)
            store.set("gave up", "")
            recover()
        else:
            store.wait(["gave up"])
            recover()
            if communicators()[0].meetings == 1:  # it was at the first meeting, alone
                recover()
        return total()

    assert [o.value for o in play(scene)] == [2, 2]


def test_other_threads_are_released_too():
    def scene(rank):
        group = dist.new_group()
        total(group)
        seen = []

        def waits():
            try:
                total(group)
            except Released as error:
                seen.append(str(error))

        if rank == 0:
            thread = threading.Thread(target=waits)
            thread.start()
            fail_on(1, rank, total)
            recover()
            thread.join()
        else:
            fail_on(1, rank, total)
            recover()
        return [without_line(text) for text in seen], total(group)

    first, second = values(play(scene))
    assert first == (["rank 1 failed: ValueError: bad batch, at test_recover.py"], 2)
    assert second == ([], 2)


@pytest.mark.parametrize("where", ["hook", "callback"])
def test_a_hook_of_ddp_that_raises(where):
    """On one rank, on autograd's thread or a future's: the others are freed; training goes on."""

    def scene(rank):
        model = DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
        broken = [rank == 1]

        def hook(_, bucket):
            if where == "hook" and broken[0]:
                raise ValueError("no gradient today")
            future = dist.all_reduce(bucket.buffer() / 2, async_op=True).get_future()

            def then(done):
                if broken[0]:
                    raise ValueError("no gradient today")
                return done.value()[0]

            return future.then(then)

        model.register_comm_hook(None, hook)
        said = ""
        try:
            model(torch.ones(1, 2)).sum().backward()
            dist.barrier()
        except RuntimeError as error:
            said = str(error)
            release(error)
        except ValueError as error:
            said = str(error)
            release(error)
        recover()
        broken[0] = False
        model.zero_grad()
        model(torch.full((1, 2), float(rank + 1))).sum().backward()
        return said, model.module.weight.grad.tolist()

    first, second = values(play(scene))
    assert "no gradient today" in second[0]
    assert "rank 1 failed" in first[0]
    assert "no gradient today" in first[0]
    assert first[1] == second[1] == [[1.5, 1.5]]


def test_a_send_that_nobody_took_is_dropped_at_once():
    def scene(rank):
        total()
        work = dist.isend(torch.ones(3_000_000), 1) if rank == 0 else None
        if rank == 1:
            release("rank 1 failed: no room")
        began = time.monotonic()
        recover()
        took = time.monotonic() - began
        if work is not None:
            with pytest.raises(RuntimeError):
                work.wait()
        return took, total()

    for took, both in values(play(scene)):
        assert took < 4
        assert both == 2


def test_a_store_that_does_not_answer_keeps_nobody():
    """The process that hosts it may be the one that is stopped."""

    class Deaf:
        def __getattr__(self, name):
            return lambda *_: threading.Event().wait(20)

    def scene(rank):
        total()
        communicator = communicators()[0]
        kept, communicator.peers.store = communicator.peers.store, Deaf()
        began = time.monotonic()
        try:
            if rank == 1:
                release("rank 1 failed: at once")
            else:
                with pytest.raises(Released, match="at once"):
                    total()
        finally:
            communicator.peers.store = kept
        return time.monotonic() - began

    assert all(took < 5 for took in values(play(scene)))
