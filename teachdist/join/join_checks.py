"""What cannot work under Join, and how it is noticed.

A joined rank enters the collectives that its hooks know. If training ranks make others, calls are
paired that do not belong together: wrong sums, or waiting for ever. Four such mistakes can be seen.

A collective in the forward pass of a DDP model
    DDP's hook shadows DDP's collectives, not those of the model inside. Every process group counts
    its collectives; if the count differs before and after the model's forward, the model made one,
    and that is an error from the first iteration on. SyncBatchNorm is the common case, and is
    refused on entering.

no_sync() on some ranks only
    In no_sync a backward pass makes no collectives. If one rank is in it and another is not, the
    latter waits for the former. It happens easily: "synchronise after the last batch", when the
    last batch is another one on each rank. DDP votes in each forward on whether anybody will
    synchronise, so that joined ranks know. Inside Join that vote carries both numbers: 1 for a
    rank that will, 1/4096 for a rank that won't, 0 for a joined one. Sums of up to 4095 such
    numbers are exact in 32 bits, and both above 0 is an error on every rank. The price is that
    training ranks now wait for the result.

    Entering a Join inside no_sync would train without ever averaging, and is refused.

A joinable that does not call notify_join_context
    Then the vote is missing, and joined ranks take other collectives for it. If a rank leaves the
    block having made collectives, but without a single vote, it says so.

A hook that shadows too much or too little
    Counting also tells how many collectives an iteration made, and how many the hooks make. Where
    all iterations made the same number and the hooks another one, the joined rank says so.

The last two look at joinables of this package only: torch's classes are taken to be right, and DDP
rightly makes different numbers in different iterations.
"""

import functools

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Joinable as TorchJoinable
from torch.nn.parallel import DistributedDataParallel

ONE_WITHOUT_SYNC = 1 / 4096


class Watch:
    """Watches one Join, from entering to leaving."""

    def __init__(self, joinables, group):
        self._joinables = joinables
        self._group = group
        self._undo = []
        self._entered_at = self._iteration_at = issued(group)
        self._inputs = 0
        self._made = set()  # how many collectives iterations made
        for joinable in joinables:
            if isinstance(joinable, DistributedDataParallel):
                refuse_what_ddp_cannot_shadow(joinable)
        for joinable in joinables:
            if isinstance(joinable, DistributedDataParallel):
                self._watch_forward(joinable)
                self._watch_no_sync(joinable)

    def stop(self):
        """Take away everything that the watch has attached."""
        while self._undo:
            self._undo.pop()()

    # Collectives in the forward pass of a DDP model

    def _watch_forward(self, ddp):
        before = None

        def remember(module, args):
            nonlocal before
            before = issued(ddp.process_group)

        def compare(module, args, output):
            made = (issued(ddp.process_group) or 0) - (before or 0)
            if made:
                raise RuntimeError(
                    f"the forward pass of {type(module).__name__} made {made} collective(s) on the "
                    "process group of its DistributedDataParallel. Ranks that have joined cannot "
                    "shadow those: take them out of forward, or give all ranks as many inputs and "
                    "leave Join away."
                )

        self._undo.append(ddp.module.register_forward_pre_hook(remember).remove)
        self._undo.append(ddp.module.register_forward_hook(compare).remove)

    # no_sync on some ranks only

    def _watch_no_sync(self, ddp):
        vote = functools.partial(vote_on_sync, ddp)
        ddp._check_global_requires_backward_grad_sync = vote
        self._undo.append(lambda: delattr(ddp, "_check_global_requires_backward_grad_sync"))

    # Counting collectives of our own joinables

    def _counts(self):
        ours = not any(isinstance(joinable, TorchJoinable) for joinable in self._joinables)
        return ours and self._entered_at is not None

    def one_input(self):
        """An iteration begins: this rank is about to vote."""
        self._end_iteration()
        self._inputs += 1

    def _end_iteration(self):
        now = issued(self._group)
        if self._inputs and self._counts():
            self._made.add(now - self._iteration_at)
        self._iteration_at = now

    def inputs_are_through(self):
        """Check that the training that is over has voted."""
        self._end_iteration()
        if self._counts() and not self._inputs and self._iteration_at > self._entered_at:
            first = type(self._joinables[0]).__name__
            raise RuntimeError(
                f"{self._iteration_at - self._entered_at} collective(s) were made inside Join, but "
                f"{first}, the first joinable, never called Join.notify_join_context(self). It has "
                "to, before its collectives of each iteration; otherwise ranks that have joined "
                "mistake those for the vote on who still trains."
            )

    def one_iteration_shadowed(self):
        """Check that the hooks make as many collectives as an iteration does."""
        now = issued(self._group)
        if self._counts():
            shadowed = now - self._iteration_at
            if len(self._made) == 1 and shadowed not in self._made:
                hooks = ", ".join(type(joinable).__name__ for joinable in self._joinables)
                raise RuntimeError(
                    f"the join hooks of {hooks} make {shadowed} collective(s) per iteration, the "
                    f"vote included, but training made {self._made.pop()}: main_hook has to make "
                    "the collectives of an iteration, each of them once"
                )
        self._iteration_at = now


def issued(group):
    """How many collectives this rank has made on the group, or None if the group does not count."""
    try:
        return group._get_sequence_number_for_group()
    except RuntimeError:
        return None


def refuse_what_ddp_cannot_shadow(ddp):
    """Raise ValueError for a DDP model that is bound to go wrong under Join."""
    for name, module in ddp.module.named_modules():
        if isinstance(module, torch.nn.SyncBatchNorm) and module.training:
            raise ValueError(
                f"the model has a SyncBatchNorm at {name or 'its root'!r}, which makes collectives "
                "in the forward pass; ranks that have joined cannot shadow those. Use BatchNorm, "
                "put it into eval mode, or give all ranks as many inputs and leave Join away."
            )
    if not ddp.require_backward_grad_sync:
        raise ValueError(
            "Join was entered inside no_sync(): gradients would never be averaged. Enter no_sync() "
            "inside Join, for the iterations that are to accumulate."
        )


def vote_on_sync(ddp, is_joined_rank):
    """DDP's vote on whether this iteration's backward pass synchronises, with its no-votes.

    Returns whether it does on a joined rank, otherwise None, as the method that it replaces.
    """
    mine = 0.0
    if not is_joined_rank:
        mine = 1.0 if ddp.require_backward_grad_sync else ONE_WITHOUT_SYNC
    votes = torch.full((1,), mine, device=ddp.device)
    dist.all_reduce(votes, group=ddp.process_group)
    syncing, rest = divmod(votes.item(), 1)
    without = round(rest / ONE_WITHOUT_SYNC)
    if syncing and without:
        raise RuntimeError(
            f"in this iteration {without} rank(s) are in no_sync() and {syncing:.0f} are not. "
            "Decide that by the number of the iteration, never by which input is the last: under "
            "Join ranks have different last inputs."
        )
    return bool(syncing) if is_joined_rank else None
