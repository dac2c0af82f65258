"""Point to point: torch's send and recv as letters of the group's mail.

A send is over when its bytes are out, a receive when they have landed in the caller's tensor.
Both sides say what they are about (dtype and number of bytes), and a message that does not fit
its receive is an error that names both, not a wrong tail of old values.
"""

import sys
from functools import lru_cache

import torch.distributed as dist

from teachdist.backend import parcels
from teachdist.backend.again import key_of
from teachdist.backend.call import describe
from teachdist.backend.checks import check, check_output
from teachdist.backend.memory import flat, is_view_of, put_back, room, view_bytes
from teachdist.backend.parcels import Parcel
from teachdist.backend.profiling import opened
from teachdist.diagnose import poison
from teachdist.links.header import number_of


def send(member, tensor, dst, tag):
    """Send a tensor to group rank `dst`; a Work."""
    closing = opened("send", [tensor])
    parcel = _again(member, _outgoing, tensor, dst, tag)
    return parcels.send(member, parcel, dst, tag, [tensor], closing)


def receive(member, tensor, src, tag):
    """Receive a tensor from group rank `src`, None for anybody; a Work."""
    if src == member.rank and _in_blocking_recv():
        raise ValueError(
            f"recv: src={src} is this rank itself, which cannot send while it waits; use isend and "
            "irecv to send to oneself"
        )
    closing = opened("recvAnySource" if src is None else "recv", [tensor])
    parcel = _again(member, _incoming, tensor, src, tag)
    return parcels.receive(member, parcel, src, tag, [tensor], closing)


def _again(member, make, tensor, peer, tag):
    """The Parcel that `make` makes, or the one of the same message before (see `again.py`)."""
    key = key_of(make, (tensor, peer, tag)) if not poison.on() else None
    known = member.again.parcels.get(key)
    if known is not None:
        return known
    parcel = make(member, tensor, peer, tag)
    if key is not None and is_view_of(parcel.values, tensor):
        parcel.values = parcel.landed = None
        member.again.keep_parcel(key, parcel)
    return parcel


def _outgoing(member, tensor, dst, tag):
    check(tensor, "send", "tensor")
    check_address(member, dst, tag, "send", "dst")
    words = describe("send", tensor, f"dst={member.who(dst)}", f"tag={tag}")
    values = flat(tensor)
    return Parcel(view_bytes(values), words, kind_of(tensor.dtype), values)


def _incoming(member, tensor, src, tag):
    check_output(tensor, "recv", "tensor")
    check_address(member, src, tag, "recv", "src")
    source = "any" if src is None else member.who(src)
    words = describe("recv", tensor, f"src={source}", f"tag={tag}")
    values = room(tensor)
    veil = poison.Veil([tensor]) if poison.on() else None
    under = tensor if veil is None else veil.real(tensor)

    def landed():
        if not is_view_of(values, under):
            put_back(values, under)

    view = view_bytes(values)
    return Parcel(view, words, kind_of(tensor.dtype), values, landed, veil)


def _in_blocking_recv():
    """Whether torch called for dist.recv and not for dist.irecv; it tells no difference."""
    frame = sys._getframe(2)
    for _ in range(6):
        if frame is None:
            return False
        code, frame = frame.f_code, frame.f_back
        if code.co_name == "recv" and code.co_filename == _TORCHS:
            return True
    return False


_TORCHS = dist.distributed_c10d.__file__


@lru_cache(maxsize=64)
def kind_of(dtype):
    """A fingerprint of what a message holds: the dtype; its length is checked apart."""
    return number_of(f"mail {dtype}")


def check_address(member, peer, tag, op, argument):
    """The peer must be a rank of the group, the tag not one of the backend's own."""
    if peer is not None and not 0 <= peer < member.size:
        raise ValueError(
            f"{op}: {argument}={peer} is not a rank of this group of {member.size}; its ranks are "
            f"0 to {member.size - 1}"
        )
    if tag < 0:
        raise ValueError(f"{op}: tag={tag} must not be negative")
