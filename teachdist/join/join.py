"""Join: training goes on when some ranks run out of input first.

The idea
    Data-parallel ranks meet in collectives, once per batch. A rank with fewer batches stops
    coming, and the others wait for it for ever:

        rank 0    b0  b1  b2
        rank 1    b0  b1  b2  b3 ...waits for rank 0

    Inside ``with Join([model, optimizer])`` a rank that is through does not leave. It *shadows*
    the others: it enters every collective that they still make, with nothing to add.

        rank 0    b0  b1  b2 | s   s   ?  post       s     shadow of one iteration: the main hooks
        rank 1    b0  b1  b2   b3  b4 | ?  post      post  put things right: the post hooks

    Such a rank is said to have *joined*, as a thread that is through joins the others.

How a joined rank knows that somebody still trains
    By a vote in each iteration, an all-reduce of a single number. A rank that starts on a batch
    contributes 1 (`notify_join_context`, at the start of a forward pass) and does not wait for
    the result. A joined rank contributes 0 and reads the sum: that many ranks still train. At 0
    (the ? above) all have joined.

    With throw_on_early_termination a second vote follows, in which a joined rank contributes 1:
    then everybody knows that somebody ran out, and everybody raises.

Who knows what to shadow
    Only the class that makes the collectives. DDP averages buckets of gradients, an optimizer
    that shards its state broadcasts parameters. So whatever takes part is a `Joinable`, which
    hands out a `JoinHook`: `main_hook` makes the collectives of one iteration, `post_hook` runs
    once when all have joined. The ranks that joined last have seen all updates; post hooks mostly
    broadcast from one of these.

Cost
    One all-reduce of 4 bytes in each iteration, asynchronous for those that train. Joined ranks
    compute nothing, but their links stay busy.

Why the same messages as torch's
    torch's DDP and ZeroRedundancyOptimizer call torch's own notify_join_context. They read the
    attribute `_join_config` of the joinable and send the vote described above; this Join sets the
    same attribute and votes in the same way, so that torch's joinables and yours mix. Interface
    and semantics are those of torch.distributed.algorithms.join. What cannot work under Join, and
    how it is noticed, is in join_checks.py.
"""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Joinable as TorchJoinable

from teachdist.join.join_checks import Watch

SKEW = 1000  # iterations that a rank shadows before it warns that its share was small


@dataclass(frozen=True)
class JoinConfig:
    """What a joinable must know of the Join that it is in; torch reads the first three, too."""

    enable: bool = False
    throw_on_early_termination: bool = False
    is_first_joinable: bool = False
    watch: Watch | None = None


class JoinHook:
    """What a joined rank does instead of training; override either method, or both."""

    def main_hook(self) -> None:
        """Make the collectives of one training iteration: forward, backward, optimizer step."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Put things right once all have joined.

        Args:
            is_last_joiner: True on the ranks that trained longest; there may be several.
        """


class Joinable(ABC):
    """Base of classes that take part in a Join.

    A subclass calls `Join.notify_join_context(self)` before the collectives of each iteration.
    """

    _join_config = JoinConfig()

    @abstractmethod
    def join_hook(self, **kwargs) -> JoinHook:
        """Return the hook that shadows this object.

        Args:
            kwargs: those given to Join, the same for all joinables; take what you know.
        """

    @property
    @abstractmethod
    def join_device(self) -> torch.device:
        """The device on which Join may make its collectives."""

    @property
    @abstractmethod
    def join_process_group(self) -> dist.ProcessGroup:
        """The group whose ranks train together."""


Joinable.register(TorchJoinable)


class Join:
    """Context manager in which ranks may have different numbers of inputs.

    Args:
        joinables: what makes collectives in each iteration. Their hooks run in this order; the
            first casts the votes, on its device.
        enable: False switches it off, for inputs that are known to be even.
        throw_on_early_termination: raise on all ranks as soon as one runs out, in place of
            shadowing.
        kwargs: handed to the join_hook of every joinable.

    Raises:
        ValueError: no joinables, or joinables of different process groups.
        TypeError: something that is not Joinable.
        RuntimeError: on leaving with throw_on_early_termination, if a rank still has input; and
            what join_checks.py describes.

    As torch.distributed.algorithms.Join.
    """

    def __init__(self, joinables, enable=True, throw_on_early_termination=False, **kwargs):
        self._joinables = list(joinables)
        if not self._joinables:
            raise ValueError("Join needs at least one joinable")
        for i, joinable in enumerate(self._joinables):
            if not isinstance(joinable, Joinable):
                raise TypeError(f"joinables[{i}] is a {type(joinable).__name__}, not a Joinable")
        self._hooks = [joinable.join_hook(**kwargs) for joinable in self._joinables]
        self._group, *others = [j.join_process_group or dist.group.WORLD for j in self._joinables]
        for i, group in enumerate(others, start=1):
            if group != self._group:
                raise ValueError(
                    f"joinables[{i}], a {type(self._joinables[i]).__name__}, is on process group "
                    f"{group.group_name!r} and the first is on {self._group.group_name!r}: all "
                    "have to train on the same group"
                )
        self._device = self._joinables[0].join_device
        self._enable = enable
        self._throw = throw_on_early_termination

    def __enter__(self):
        if self._enable:
            self._watch = Watch(self._joinables, self._group)
            for i, joinable in enumerate(self._joinables):
                joinable._join_config = JoinConfig(True, self._throw, i == 0, self._watch)
        return self

    def __exit__(self, kind, error, trace):
        if not self._enable:
            return
        try:
            if kind is None:
                self._watch.inputs_are_through()
                self._shadow()
        finally:
            self._watch.stop()
            for joinable in self._joinables:
                joinable._join_config = JoinConfig()

    def _shadow(self):
        rounds = 0
        while training := self._vote(0):
            if self._throw:
                self._vote(1)
                raise RuntimeError(
                    f"Rank {dist.get_rank(self._group)} exhausted all inputs, and {training} of "
                    f"{dist.get_world_size(self._group)} ranks still have some "
                    "(throw_on_early_termination=True)."
                )
            for hook in self._hooks:
                hook.main_hook()
            self._watch.one_iteration_shadowed()
            rounds += 1
            if rounds == SKEW:
                warnings.warn(
                    f"rank {dist.get_rank(self._group)} has had {SKEW} inputs less than others "
                    "and still waits for them: uneven shares leave ranks idle",
                    stacklevel=3,
                )
        for hook in self._hooks:
            hook.post_hook(rounds == 0)

    def _vote(self, mine):
        votes = torch.full((1,), float(mine), device=self._device)
        dist.all_reduce(votes, group=self._group)
        return int(votes.item())

    @staticmethod
    def notify_join_context(joinable: Joinable) -> dist.Work | None:
        """Say that this rank starts on another input; a joinable calls it in each iteration.

        Returns:
            For the first joinable of a Join the Work of the vote, which goes on in the background;
            else None.

        Raises:
            RuntimeError: with throw_on_early_termination, if a rank has run out of input.
        """
        config = getattr(joinable, "_join_config", JoinConfig())
        if not config.enable or not config.is_first_joinable:
            return None
        device, group = joinable.join_device, joinable.join_process_group
        if getattr(config, "watch", None):
            config.watch.one_input()
        work = dist.all_reduce(torch.ones(1, device=device), group=group, async_op=True)
        if config.throw_on_early_termination:
            joined = torch.zeros(1, device=device)
            dist.all_reduce(joined, group=group)
            if joined.item():
                raise RuntimeError(
                    f"Detected at least one rank that exhausted inputs, as rank "
                    f"{dist.get_rank(group)} started on another one "
                    "(throw_on_early_termination=True)."
                )
        return work
