"""Calls that come again: a training step makes the same calls on the same tensors for hours.

Checking arguments, wording the call, choosing an algorithm, cutting tensors and writing the script
of the call (`execution/executor.py`) take ten times as long as moving a few bytes. None of it
changes while the operation, its arguments and the place, shape and dtype of the tensors stay the
same. So a call is kept under those, and the next one like it begins where the work begins.

    all_reduce(x, SUM)     (address, shape, dtype of x) ---> Call, Script     known: play
                                        |
                                        '---- not known: check, word, choose, cut, write, play, keep

What is kept must not keep the caller's memory alive: tensors in it are *lent*, views of an address
that own nothing. They are used only while a caller's tensor of that address, shape and dtype is in
his hands. Kept are only plain calls: contiguous CPU tensors that the call uses in place, with
little scratch.
"""

import ctypes

import torch

from teachdist.backend.calls.flat import scratch

MOST = 512  # calls kept per group
MOST_SCRATCH = 1 << 16  # bytes of scratch that a kept script may hold
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Persistent:
    """The calls that one rank of a group has made and may make again.

    place: the rank and the group's size, which end the arguments of every call.
    right(call): whether a kept call is to run as it did: no other algorithm is wanted by now.
    """

    def __init__(self, place, right):
        self.place = place
        self._known = {}
        self._right = right
        self.parcels = {}  # messages, kept for the same reason

    def call(self, make, *arguments):
        """make(*arguments, rank, size), a `Call`, or the one that was kept of the same call."""
        key = key_of(make, arguments)
        known = self._known.get(key)
        if known is not None and self._right(known):
            return known
        call = make(*arguments, *self.place)
        if key is not None and not call.write_back and call.then is None:
            call.kept = _Kept(self._known, key, extents(arguments))
        return call

    def keep_parcel(self, key, parcel):
        """Keep a message whose bytes are the caller's own."""
        if len(self.parcels) >= MOST:
            self.parcels.clear()
        self.parcels[key] = parcel

    def forget(self):
        """The links are new: nothing of before can run."""
        self._known.clear()
        self.parcels.clear()


class _Kept:
    """What a call needs in order to be kept."""

    def __init__(self, known, key, extents):
        self.known, self.key, self.extents = known, key, extents

    def lend(self, by_chunk):
        """Lent views in place of a call's flat tensors; None if some are not the caller's own."""
        for tensor in by_chunk.values():
            begin, end = extent(tensor)
            if begin != end and not any(a <= begin and end <= b for a, b in self.extents):
                return None
        return {chunk: lend(tensor) for chunk, tensor in by_chunk.items()}

    def keep(self, call, script):
        """The call has run by `script`, which was written for lent views."""
        if script.scratch > MOST_SCRATCH:
            return
        if len(self.known) >= MOST:
            self.known.clear()
        call.script = script
        call.after = [lend(tensor) for tensor in call.after if call.reducer.name == "AVG"]
        call.bind = call.outputs = call.kept = None
        self.known[self.key] = call


def key_of(make, arguments):
    """What must be the same for a call to be the same; None if it cannot be kept."""
    key = [make]
    return tuple(key) if _add(key, arguments) else None


def _add(key, arguments):
    for argument in arguments:
        kind = type(argument)
        if kind in _PLAIN:
            dtype = argument.dtype
            if (
                not argument.is_cpu
                or argument.layout is not _STRIDED
                or not argument.is_contiguous()
                or dtype.is_complex  # whose conjugate shares its memory
                or argument.is_neg()
            ):
                return False
            key += (argument.data_ptr(), argument.shape, dtype)
        elif kind is int:
            key.append(argument)
        elif kind in _LISTS:
            key.append(len(argument))
            if argument and not _add(key, argument):
                return False
        elif kind is _ReduceOp:
            number = int(argument.op)
            if number == _PREMUL_SUM:  # it has a factor
                return False
            key.append(number)
        elif isinstance(argument, torch.Tensor):
            return False
        else:
            key.append(argument)
    return True


_STRIDED = torch.strided
_LISTS = (list, tuple)
_ReduceOp = torch.distributed.ReduceOp
_PREMUL_SUM = int(_ReduceOp.RedOpType.PREMUL_SUM)


def extents(arguments):
    """Where the tensors among a call's arguments lie."""
    found = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            found.append(extent(argument))
        elif type(argument) in _LISTS:
            found += extents(argument)
    return found


def extent(tensor):
    """The addresses of a contiguous tensor's first byte and of that after its last."""
    begin = tensor.data_ptr()
    return begin, begin + tensor.nbytes


def lend(tensor):
    """A view of a flat tensor's memory that does not keep it alive."""
    if not tensor.numel():
        return scratch(0, tensor.dtype)
    memory = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
    return torch.frombuffer(memory, dtype=torch.uint8).view(tensor.dtype)
