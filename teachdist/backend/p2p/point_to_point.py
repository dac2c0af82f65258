"""Point to point: torch's send and recv as requests.

A send is over when its bytes are out, a receive when they have landed in the caller's tensor.
Both sides say what they are about (dtype and number of bytes), and a message that does not fit
its receive is an error that names both, not a wrong tail of old values.
"""

from functools import lru_cache

from teachdist.backend.calls.call import describe
from teachdist.backend.calls.checks import check, check_output
from teachdist.backend.calls.flat import flat, is_view_of, put_back, room, view_bytes
from teachdist.backend.calls.persistent import key_of
from teachdist.backend.execution.profiling import opened
from teachdist.backend.p2p import rendezvous, requests
from teachdist.backend.p2p.requests import Message
from teachdist.backend.torch_patches import in_blocking_recv
from teachdist.diagnose import poison
from teachdist.links.transport.header import number_of


def send(communicator, tensor, dst, tag):
    """Send a tensor to group rank `dst`; a Work."""
    closing = opened("send", [tensor])
    message = _again(communicator, _outgoing, tensor, dst, tag)
    how = rendezvous if rendezvous.is_on() else requests
    return how.send(communicator, message, dst, tag, [tensor], closing)


def receive(communicator, tensor, src, tag):
    """Receive a tensor from group rank `src`, None for anybody; a Work."""
    if src == communicator.rank and in_blocking_recv():
        raise ValueError(
            f"recv: src={src} is this rank itself, which cannot send while it waits; use isend and "
            "irecv to send to oneself"
        )
    closing = opened("recvAnySource" if src is None else "recv", [tensor])
    message = _again(communicator, _incoming, tensor, src, tag)
    how = rendezvous if rendezvous.is_on() else requests
    return how.receive(communicator, message, src, tag, [tensor], closing)


def words(communicator, kind, tensor, peer, tag):
    """How a send or a receive is named in messages; peer: a rank of the group, None for anybody."""
    side = "dst" if kind == "send" else "src"
    who = "any" if peer is None else communicator.who(peer)
    return describe(kind, tensor, f"{side}={who}", f"tag={tag}")


def _again(communicator, make, tensor, peer, tag):
    """The Message that `make` makes, or that of such a message before (`calls/persistent.py`)."""
    key = key_of(make, (tensor, peer, tag)) if not poison.on() else None
    known = communicator.persistent.parcels.get(key)
    if known is not None:
        return known
    message = make(communicator, tensor, peer, tag)
    if key is not None and is_view_of(message.values, tensor):
        message.values = message.landed = None
        communicator.persistent.keep_parcel(key, message)
    return message


def _outgoing(communicator, tensor, dst, tag):
    check(tensor, "send", "tensor")
    check_address(communicator, dst, tag, "send", "dst")
    said = words(communicator, "send", tensor, dst, tag)
    values = flat(tensor)
    return Message(view_bytes(values), said, kind_of(tensor.dtype), values)


def _incoming(communicator, tensor, src, tag):
    check_output(tensor, "recv", "tensor")
    check_address(communicator, src, tag, "recv", "src")
    said = words(communicator, "recv", tensor, src, tag)
    values = room(tensor)
    poisoned = poison.Poisoned([tensor]) if poison.on() else None
    under = tensor if poisoned is None else poisoned.real(tensor)

    def landed():
        if not is_view_of(values, under):
            put_back(values, under)

    view = view_bytes(values)
    return Message(view, said, kind_of(tensor.dtype), values, landed, poisoned)


@lru_cache(maxsize=64)
def kind_of(dtype):
    """A fingerprint of what a message holds: the dtype; its length is checked apart."""
    return number_of(f"message {dtype}")


def check_address(communicator, peer, tag, op, argument):
    """The peer must be a rank of the group, the tag not one of the backend's own."""
    if peer is not None and not 0 <= peer < communicator.size:
        raise ValueError(
            f"{op}: {argument}={peer} is not a rank of this group of {communicator.size}; its "
            f"ranks are 0 to {communicator.size - 1}"
        )
    if tag < 0:
        raise ValueError(f"{op}: tag={tag} must not be negative")
