"""How long would that take on another device? By its FLOPs and the bytes that it touches.

An operation takes as long as the slower of two things, computing and moving its tensors through
memory (the roofline model), and a little for being started:

    seconds = max(FLOPs / peak FLOPs, bytes / bandwidth) + overhead

torch's own FLOP counter knows the FLOPs of matrix products, convolutions and attention; everything
else is bound by memory. Views cost nothing. No device reaches its peak: the presets say what part
is assumed.

Source: Williams, Waterman, Patterson, "Roofline" (2009); peaks from the makers' data sheets
(NVIDIA H100 SXM: 989 TFLOP/s in bfloat16, 67 in float32, 3.35 TB/s; A100: 312, 19.5, 2.04).
"""

from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


@dataclass(frozen=True)
class Device:
    """A device to compute on. flops: per second in 16-bit types; flops32 in float32 and wider.

    bandwidth: bytes per second of its memory. overhead: seconds to start an operation. reached:
    what part of the peaks a program gets.
    """

    name: str
    flops: float
    flops32: float
    bandwidth: float
    overhead: float = 5e-6
    reached: float = 0.5

    def seconds(self, flops, nbytes, dtype):
        """How long an operation takes."""
        peak = self.flops if dtype.itemsize <= 2 else self.flops32
        return max(flops / peak, nbytes / self.bandwidth) / self.reached + self.overhead


DEVICES = {
    device.name: device
    for device in (
        Device("h100", 989e12, 67e12, 3.35e12),
        Device("a100", 312e12, 19.5e12, 2.04e12),
    )
}


class Roofline:
    """Prices operations on a device."""

    def __init__(self, device):
        self._device = device

    def seconds(self, function, args, kwargs, out):
        """How long an operation takes that was called with these arguments."""
        tensors = [*tensors_of(args), *tensors_of(kwargs.values()), *tensors_of((out,))]
        if not tensors:
            return 0.0
        counted = flop_registry.get(function._overloadpacket)
        flops = counted(*args, **kwargs, out_val=out) if counted is not None else 0
        nbytes = sum(t.numel() * t.element_size() for t in tensors)
        return self._device.seconds(flops, nbytes, tensors[0].dtype)


def tensors_of(values):
    """The tensors among arguments or results, those in lists included."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_of(value)


class Counting(TorchDispatchMode):
    """While it is on, each operation of this thread moves the rank's clock by the model."""

    def __init__(self, clock, device):
        super().__init__()
        self._clock, self._price = clock, Roofline(device).seconds

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = function(*args, **kwargs)
        if not self._clock.inside and not function.is_view:
            self._clock.pending += self._price(function, args, kwargs, out)
        return out


def device(given):
    """A Device from itself or its name; a ValueError lists the names."""
    if isinstance(given, Device):
        return given
    if given not in DEVICES:
        raise ValueError(f"device: {given!r} is not known; there are {', '.join(DEVICES)}")
    return DEVICES[given]
