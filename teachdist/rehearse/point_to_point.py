"""Send and receive between virtual ranks.

Messages and receives meet at the receiver's desk, as MPI has it: receives that wait are *posted*,
messages that nobody has asked for yet are *unexpected*; the first that fit each other match, by
source and tag, in the order in which they were sent.

A send is buffered: its values are copied and it is over once the port has let it go. Where the job
has no buffers it waits for its receive, as NCCL's do, and programs in which everybody sends first
come to a stop.
"""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from teachdist.backend.calls.call import describe
from teachdist.backend.calls.checks import check, check_output
from teachdist.backend.calls.flat import flat, is_view_of, put_back, room
from teachdist.backend.execution.profiling import opened
from teachdist.backend.p2p.point_to_point import check_address
from teachdist.backend.torch_patches import in_blocking_recv
from teachdist.diagnose.call_site import call_site
from teachdist.rehearse.work import VirtualWork


@dataclass(eq=False)
class Message:
    """A send, posted at a time of the sender's clock.

    times: when it left, when its port was free again and when it arrived; None until it is matched
    if there are no buffers.
    """

    source: int
    tag: int
    dtype: object
    count: int
    values: object
    posted: float
    work: VirtualWork
    times: tuple | None = None
    number: int = 0  # of its sender's operations


@dataclass(eq=False)
class Receive:
    """A receive. source: None for anybody."""

    source: int | None
    tag: int
    tensor: object
    posted: float
    work: VirtualWork
    number: int = 0  # of the rank's operations


@dataclass
class Desk:
    """What waits at one rank of a group."""

    posted: list = field(default_factory=list)
    unexpected: list = field(default_factory=list)


def send(communicator, tensor, dst, tag):
    """Send a tensor to group rank `dst`; a Work."""
    clock, job = communicator.whose.clock, communicator.job
    closing = opened("send", [tensor])
    clock.enter()
    try:
        check(tensor, "send", "tensor")
        check_address(communicator, dst, tag, "send", "dst")
        words = describe("send", tensor, f"dst={communicator.who(dst)}", f"tag={tag}")
        work = _work(communicator, words, [tensor], closing, dst)
        values = flat(tensor)
        if job.values and job.buffers and is_view_of(values, tensor):
            values = values.clone()
        nbytes = tensor.numel() * tensor.element_size()
        ranks = communicator.group.ranks
        message = Message(
            communicator.rank, tag, tensor.dtype, tensor.numel(), values, clock.time, work
        )
        message.number = communicator.mails
        if job.buffers:
            _leave(communicator.group, message, dst, clock.time)
        job.record_message(ranks[communicator.rank], ranks[dst], nbytes)
        _deliver(communicator.group, dst, message)
    finally:
        clock.leave()
    return work


def receive(communicator, tensor, src, tag):
    """Receive a tensor from group rank `src`, None for anybody; a Work."""
    if src == communicator.rank and in_blocking_recv():
        raise ValueError(
            f"recv: src={src} is this rank itself, which cannot send while it waits; use isend and "
            "irecv to send to oneself"
        )
    clock = communicator.whose.clock
    closing = opened("recvAnySource" if src is None else "recv", [tensor])
    clock.enter()
    try:
        check_output(tensor, "recv", "tensor")
        check_address(communicator, src, tag, "recv", "src")
        source = "any" if src is None else communicator.who(src)
        words = describe("recv", tensor, f"src={source}", f"tag={tag}")
        work = _work(communicator, words, [tensor], closing, src)
        _post(
            communicator.group,
            communicator.rank,
            Receive(src, tag, tensor, clock.time, work, communicator.mails),
            communicator.job,
        )
    finally:
        clock.leave()
    return work


def _work(communicator, words, outputs, closing, peer):
    communicator.usable(words)
    communicator.mails += 1
    entry = communicator.entry(f"{words} at {call_site(4)}", communicator.mails, (), p2p=True)
    communicator.whose.clock.at(entry)
    return VirtualWork(outputs, communicator, entry.call, (communicator, entry, peer), closing)


def _leave(group, message, dst, now):
    """The message leaves at `now`, and the send is over when its port is free again."""
    nbytes = message.count * message.dtype.itemsize
    ends = group.ranks[message.source], group.ranks[dst]
    message.times = group.job.prices.message(*ends, nbytes, now)
    message.work.settle(message.times[0], message.times[1])


def _desk(group, rank):
    return group.desks.setdefault(rank, Desk())


def _deliver(group, rank, message):
    desk = _desk(group, rank)
    for posted in desk.posted:
        if _fit(posted, message):
            if posted.source is None and group.job.orders is not None:
                break
            desk.posted.remove(posted)
            _hand_over(group, posted, message)
            return
    desk.unexpected.append(message)


def _post(group, rank, receive, job):
    desk = _desk(group, rank)
    if job.orders is not None and (receive.source is None or _claimed(desk, receive)):
        desk.posted.append(receive)
        return
    found = {}  # the first of each source
    for message in desk.unexpected:
        if _fit(receive, message):
            found.setdefault(message.source, message)
    if not found:
        desk.posted.append(receive)
        return
    ways = list(found.values())
    message = ways[job.scheduler.choose("message", ways)]
    desk.unexpected.remove(message)
    _hand_over(group, receive, message)


def _claimed(desk, receive):
    """Whether a receive from anybody, posted before, may take what this one asks for."""
    return any(posted.source is None and posted.tag == receive.tag for posted in desk.posted)


def match(group, rank, receive, message):
    """Decide that a posted receive from anybody takes this message; others may go on by that."""
    desk = _desk(group, rank)
    desk.posted.remove(receive)
    desk.unexpected.remove(message)
    _hand_over(group, receive, message)
    for waiting in list(desk.unexpected):
        first = next((posted for posted in desk.posted if _fit(posted, waiting)), None)
        if first is not None and first.source is not None:
            desk.posted.remove(first)
            desk.unexpected.remove(waiting)
            _hand_over(group, first, waiting)


def _fit(receive, message):
    return receive.source in (None, message.source) and receive.tag == message.tag


def _hand_over(group, receive, message):
    tensor, work = receive.tensor, receive.work
    work.source = message.source
    if message.times is None:
        _leave(group, message, work.communicator.rank, max(message.posted, receive.posted))
    group.job.matches.append(
        (message.work.words, work.words, message.source, work.communicator.rank)
    )
    left, _, arrived = message.times
    culprit = group.ranks[message.source]
    if message.dtype != tensor.dtype or message.count != tensor.numel():
        work.settle(left, arrived, culprit, _misfit(group, work, message))
        return
    if group.job.values:
        with torch.no_grad():
            out = room(tensor)
            out.copy_(message.values)
            if not is_view_of(out, tensor):
                put_back(out, tensor)
    work.settle(left, arrived, culprit)


def _misfit(group, work, message):
    communicator = work.communicator
    return dist.DistBackendError(
        f'group "{communicator.title}": {communicator.who(communicator.rank)} is in '
        f"{work.words}, but {communicator.who(message.source)} sent with {message.work.words}. "
        "Dtype and number of elements must be the same on both sides."
    )
