import contextlib
import warnings

import pytest
import torch
import torch.distributed as dist
from ranks import BACKENDS, RankPool, shared_pool
from torch.distributed.algorithms.join import Join as TorchJoin
from torch.distributed.algorithms.join import Joinable as TorchJoinable
from torch.distributed.algorithms.join import JoinHook as TorchJoinHook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from teachdist.join import Join, Joinable, JoinHook, join

every_backend = pytest.mark.parametrize("backend", BACKENDS)


class Adder(Joinable):
    """Sums a number over the ranks in each iteration, and logs what happens to it."""

    def __init__(self, name="adder", log=None, group=None, notify=True, shadows=1):
        self.name = name
        self.log = [] if log is None else log
        self.group = group
        self.notify = notify
        self.shadows = shadows
        self.kwargs = None

    def __call__(self, number):
        work = Join.notify_join_context(self) if self.notify else None
        total = torch.tensor([float(number)])
        dist.all_reduce(total, group=self.group)
        if work is not None:
            work.wait()
        return total.item()

    def join_hook(self, **kwargs):
        self.kwargs = kwargs
        return AdderHook(self)

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return self.group or dist.group.WORLD


class AdderHook(JoinHook):
    def __init__(self, adder):
        self.adder = adder

    def main_hook(self):
        self.adder.log.append(f"{self.adder.name}.main")
        for _ in range(self.adder.shadows):
            dist.all_reduce(torch.zeros(1), group=self.adder.group)

    def post_hook(self, is_last_joiner):
        self.adder.log.append(f"{self.adder.name}.post({is_last_joiner})")


class Recorder:
    """The sizes of the all-reduces that this rank makes by dist.all_reduce."""

    def __enter__(self):
        self.sizes, self.original = [], dist.all_reduce

        def recording(tensor, *args, **kwargs):
            self.sizes.append(tensor.numel())
            return self.original(tensor, *args, **kwargs)

        dist.all_reduce = recording
        return self.sizes

    def __exit__(self, *exc):
        dist.all_reduce = self.original


def linear(weight=0.0, bias=0.0):
    model = torch.nn.Linear(1, 1)
    with torch.no_grad():
        model.weight.fill_(weight)
        model.bias.fill_(bias)
    return model


def weights(model):
    return [parameter.detach().flatten().tolist() for parameter in model.parameters()]


@every_backend
def test_documented_example(backend):
    def worker():
        torch.manual_seed(dist.get_rank())
        model = DistributedDataParallel(torch.nn.Linear(1, 1))
        optim = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
        start = weights(model)
        inputs = [torch.tensor([1.0]) for _ in range(10 + dist.get_rank())]
        iterations = 0
        with Join([model, optim]):
            for input in inputs:  # noqa: A001  as documented
                loss = model(input).sum()
                loss.backward()
                optim.step()
                iterations += 1
        return iterations, start, weights(model)

    (few, start, ours), (many, same_start, theirs) = shared_pool(2, backend).run(worker)
    assert (few, many) == (10, 11)
    assert start == same_start
    assert ours == theirs != start


@every_backend
@pytest.mark.parametrize("inputs", [(2, 3), (3, 2), (0, 3), (3, 3), (0, 0), (1, 4, 2), (5, 0, 0)])
def test_hooks_shadow_in_order_until_all_have_joined(backend, inputs):
    def train():
        log = []
        first, second = Adder("a", log), Adder("b", log)
        sums = []
        with Join([first, second]):
            sums += [(first(1), second(10)) for _ in range(inputs[dist.get_rank()])]
        return log, sums

    for mine, (log, sums) in zip(inputs, shared_pool(len(inputs), backend).run(train), strict=True):
        last = max(inputs) == mine
        shadows = ["a.main", "b.main"] * (max(inputs) - mine)
        assert log == [*shadows, f"a.post({last})", f"b.post({last})"]
        training = [sum(number > i for number in inputs) for i in range(mine)]
        assert sums == [(ranks, 10 * ranks) for ranks in training]


@every_backend
@pytest.mark.parametrize(("divide_by_initial", "last"), [(True, 0.5), (False, 1.0)])
def test_kwargs_reach_every_hook_and_ddp(backend, divide_by_initial, last):
    def train():
        model = DistributedDataParallel(linear())
        adder = Adder()
        optim = torch.optim.SGD(model.parameters(), lr=1.0)
        with Join([model, adder], divide_by_initial_world_size=divide_by_initial, other="thing"):
            for _ in range(10 + dist.get_rank()):
                optim.zero_grad()
                model(torch.ones(1)).sum().backward()
                optim.step()
                adder(1)
        return weights(model), adder.kwargs

    for trained, kwargs in shared_pool(2, backend).run(train):
        assert trained == [[-10 - last], [-10 - last]]
        assert kwargs == {"divide_by_initial_world_size": divide_by_initial, "other": "thing"}


def test_disabled_runs_no_hook_and_casts_no_vote():
    def train():
        adder = Adder()
        with Recorder() as sizes, Join([adder], enable=False):
            notified = Join.notify_join_context(adder)
            sums = [adder(1), adder(1)]
        return notified, sums, sizes, adder.log

    assert shared_pool(2).run(train) == [(None, [2, 2], [1, 1], [])] * 2


@every_backend
def test_one_vote_of_one_element_per_iteration(backend):
    def train():
        adder = Adder()
        with Recorder() as plain:
            adder(1)
        with Recorder() as joined, Join([adder]):
            adder(1)
        with Recorder() as throwing, Join([adder], throw_on_early_termination=True):
            adder(1)
        return len(plain), joined, len(throwing)

    # one to sum, one to vote, and the vote in which all have joined
    assert shared_pool(2, backend).run(train) == [(1, [1, 1, 1], 4)] * 2


@every_backend
def test_ddp_votes_first_in_its_forward(backend):
    def train():
        model = DistributedDataParallel(torch.nn.Linear(3, 2))
        with Recorder() as sizes, Join([model]):
            model(torch.ones(3))
            return list(sizes)

    # who trains, and who will synchronise; the gradients' buckets do not pass here
    assert shared_pool(2, backend).run(train) == [[1, 1]] * 2


@every_backend
def test_throw_raises_on_all_ranks(backend):
    def train(first):
        joinables = [Adder()] if first == "ours" else [DistributedDataParallel(linear())]
        done = 0
        try:
            with Join(joinables, throw_on_early_termination=True):
                for _ in range(10 + dist.get_rank()):
                    joinables[0](torch.ones(1))
                    done += 1
        except RuntimeError as error:
            return done, str(error)

    for first in ("ours", "torch's"):
        short, long = shared_pool(2, backend).run(train, first)
        assert short[0] == long[0] == 10
        assert short[1].startswith("Rank 0 exhausted all inputs")
        assert long[1].startswith("Detected at least one rank that exhausted inputs")


def test_throw_is_silent_for_even_inputs():
    def train():
        adder = Adder()
        with Join([adder], throw_on_early_termination=True):
            sums = [adder(1) for _ in range(3)]
        return sums, adder.log

    assert shared_pool(2).run(train) == [([2, 2, 2], ["adder.post(True)"])] * 2


@every_backend
def test_notify_returns_work_for_the_first_joinable_only(backend):
    def train():
        first, second = Adder(), Adder()
        before = Join.notify_join_context(first)
        with Join([first, second]):
            work = Join.notify_join_context(first)
            other = Join.notify_join_context(second)
            done = work.wait()
        after = Join.notify_join_context(first)
        return before, isinstance(work, dist.Work), done, other, after

    assert shared_pool(2, backend).run(train) == [(None, True, True, None, None)] * 2


def test_group_of_some_ranks():
    def train():
        group = dist.new_group([0, 2])
        if dist.get_rank() == 1:
            return None
        adder = Adder(group=group)
        with Join([adder]):
            return [adder(1) for _ in range(1 + dist.get_rank())]

    assert shared_pool(3).run(train) == [[2], None, [2, 1, 1]]


def test_refuses_what_cannot_be_joined():
    def train():
        other = dist.new_group([0, 1])
        with pytest.raises(ValueError, match=r"joinables\[1\], a Adder, is on process group"):
            Join([Adder(), Adder(group=other)])
        with pytest.raises(ValueError, match="at least one joinable"):
            Join([])
        with pytest.raises(TypeError, match=r"joinables\[1\] is a Linear, not a Joinable"):
            Join([Adder(), linear()])

    shared_pool(2).run(train)


def test_a_joinable_has_three_things():
    whole = {
        "join_hook": lambda self, **kwargs: JoinHook(),
        "join_device": property(lambda self: torch.device("cpu")),
        "join_process_group": property(lambda self: None),
    }
    assert isinstance(type("Whole", (Joinable,), whole)().join_hook(), JoinHook)
    for missing in whole:
        part = {name: what for name, what in whole.items() if name != missing}
        with pytest.raises(TypeError, match=missing):
            type("Part", (Joinable,), part)()


def test_hooks_may_override_either_method_or_none():
    assert JoinHook().main_hook() is None
    assert JoinHook().post_hook(is_last_joiner=True) is None


class TorchAdder(Adder, TorchJoinable):
    """The same written against torch's classes."""

    def __init__(self):
        TorchJoinable.__init__(self)
        Adder.__init__(self)

    def __call__(self, number):
        work = TorchJoin.notify_join_context(self)
        total = torch.tensor([float(number)])
        dist.all_reduce(total)
        if work is not None:
            work.wait()
        return total.item()

    def join_hook(self, **kwargs):
        class Hook(TorchJoinHook):
            def main_hook(hook):  # noqa: N805
                dist.all_reduce(torch.zeros(1))

            def post_hook(hook, is_last_joiner):  # noqa: N805
                self.log.append(is_last_joiner)

        return Hook()


@every_backend
def test_ours_and_torchs_mix(backend):
    def train(manager, adder):
        with manager([adder]):
            sums = [adder(1) for _ in range(1 + dist.get_rank())]
        return sums, adder.log

    pool = shared_pool(2, backend)
    assert pool.run(lambda: train(Join, TorchAdder())) == [([2], [False]), ([2, 1], [True])]
    ours = [([2], ["adder.main", "adder.post(False)"]), ([2, 1], ["adder.post(True)"])]
    assert pool.run(lambda: train(TorchJoin, Adder())) == ours
    ranks = pool.run(lambda: isinstance(DistributedDataParallel(linear()), Joinable))
    assert ranks == [True, True]


@every_backend
def test_same_weights_as_under_torchs_join(backend):
    def train(manager):
        torch.manual_seed(0)
        model = DistributedDataParallel(
            torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8)),
            find_unused_parameters=True,
        )
        optim = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(dist.get_rank())
        with manager([model], divide_by_initial_world_size=False):
            for i in range((3, 7, 5)[dist.get_rank()]):
                with model.no_sync() if i % 2 else contextlib.nullcontext():
                    model(torch.randn(3, 4)).square().sum().backward()
                if i % 2 == 0:
                    optim.step()
                    optim.zero_grad()
        return [tensor.tolist() for tensor in model.state_dict().values()]

    pool = shared_pool(3, backend)
    ours = pool.run(train, Join)
    assert ours == pool.run(train, TorchJoin)
    assert ours[0] == ours[1] == ours[2]


def test_the_model_is_free_again_after_leaving():
    def train():
        model = DistributedDataParallel(linear())
        with Join([model]):
            model(torch.ones(1)).sum().backward()
        with Recorder() as sizes, torch.no_grad():
            if dist.get_rank() == 0:  # alone, as under no Join
                model(torch.ones(1))
        with Join([model]), Recorder() as again:
            model(torch.ones(1)).sum().backward()
        with TorchJoin([model]):
            model(torch.ones(1)).sum().backward()
        with Recorder() as torchs, torch.no_grad():
            model(torch.ones(1))
        return sizes, again, torchs

    assert shared_pool(2).run(train) == [([], [1, 1], [1, 1])] * 2  # torch's goes on voting


def test_an_exception_inside_passes_through():
    def train():
        adder = Adder()
        with pytest.raises(KeyError, match="mine"), Join([adder]):  # noqa: PT012
            adder(1)
            raise KeyError("mine")
        return adder.log, Join.notify_join_context(adder)

    assert shared_pool(2).run(train) == [([], None)] * 2


def test_warns_of_idle_ranks_once():
    def train():
        join.SKEW = 3
        adder = Adder()
        inputs = 9 * dist.get_rank()
        if inputs:
            with Join([adder]):
                return [adder(1) for _ in range(inputs)][-1]
        with (
            pytest.warns(UserWarning, match="rank 0 has had 3 inputs less") as caught,
            Join([adder]),
        ):
            pass
        return len(caught)

    with RankPool(2) as pool:
        assert pool.run(train) == [1, 1.0]


def test_leaves_warning_filters_alone():
    def train(manager):
        before = list(warnings.filters)
        with manager([Adder()]):
            pass
        return warnings.filters == before

    with RankPool(2) as pool:
        assert pool.run(train, Join) == [True, True]
        assert pool.run(train, TorchJoin) == [False, False]


def test_returns_itself():
    def enter():
        with Join([Adder()]) as entered:
            return isinstance(entered, Join)

    assert shared_pool(2).run(enter) == [True, True]


def test_initialising_the_base_class_is_optional():
    class Forgetful(TorchJoinable):
        def __init__(self):
            pass

        join_hook = Adder.join_hook
        join_device = Adder.join_device
        join_process_group = Adder.join_process_group

    def train(adder):
        with pytest.raises(AssertionError, match="constructor calls"):
            TorchJoin.notify_join_context(adder)
        return Join.notify_join_context(adder)

    assert shared_pool(2).run(lambda: train(Forgetful())) == [None, None]


# What cannot work under Join


class Talkative(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = linear()

    def forward(self, x):
        dist.all_reduce(torch.ones(1))
        return self.inner(x)


@every_backend
def test_collective_in_forward_is_named(backend):
    def train():
        model = DistributedDataParallel(Talkative())
        named = pytest.raises(RuntimeError, match="forward pass of Talkative made 1 collective")
        with named, Join([model]):
            model(torch.ones(1))
        model(torch.ones(1))  # fine without Join

    shared_pool(2, backend).run(train)


def test_sync_batch_norm_is_refused():
    def train():
        model = DistributedDataParallel(torch.nn.Sequential(linear(), torch.nn.Identity()))
        model.module[1] = torch.nn.SyncBatchNorm(1)  # DDP takes one only on a GPU
        with pytest.raises(ValueError, match="SyncBatchNorm at '1'"), Join([model]):
            pass
        model.eval()
        with Join([model]):
            pass

    shared_pool(2).run(train)


@every_backend
def test_no_sync_on_some_ranks_is_named_on_all(backend):
    def train():
        model = DistributedDataParallel(linear())
        inputs = (1, 2, 3)[dist.get_rank()]
        named = pytest.raises(RuntimeError, match=r"2 rank\(s\) are in no_sync\(\) and 1 are not")
        with named, Join([model]):
            for i in range(inputs):
                last = i == inputs - 1
                with contextlib.nullcontext() if last else model.no_sync():
                    model(torch.ones(1)).sum().backward()

    shared_pool(3, backend).run(train)


def test_join_inside_no_sync_is_refused():
    def train():
        model = DistributedDataParallel(linear())
        refused = pytest.raises(ValueError, match=r"entered inside no_sync\(\)")
        with refused, model.no_sync(), Join([model]):
            pass

    shared_pool(2).run(train)


@every_backend
def test_missing_vote_is_named(backend):
    def train():
        silent = Adder(notify=False)
        named = pytest.raises(RuntimeError, match="Adder, the first joinable, never called")
        with named, Join([silent]):
            silent(1)

    shared_pool(2, backend).run(train)


def test_missing_vote_of_uneven_inputs_is_named_by_the_rank_that_is_through():
    def train():
        silent = Adder(notify=False)
        with Join([silent]):
            for _ in range(1 + dist.get_rank()):
                silent(1)

    with RankPool(2, grace=0.5) as pool:
        outcomes = pool.outcomes(train)
    assert "never called Join.notify_join_context" in str(outcomes[0])
    assert isinstance(outcomes[1], Exception)


@every_backend
def test_hook_that_shadows_too_little_is_named(backend):
    def train():
        lazy = Adder(shadows=0)
        with Join([lazy]):
            for _ in range(2 + 2 * dist.get_rank()):
                lazy(1)

    with RankPool(2, backend, grace=0.5) as pool:
        outcomes = pool.outcomes(train)
    assert "hooks of Adder make 1 collective(s) per iteration" in str(outcomes[0])
    assert "but training made 2" in str(outcomes[0])
