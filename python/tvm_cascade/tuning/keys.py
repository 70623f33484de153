"""The kind of a function: what it has in common with those of other lengths, whose trials tell of it.

    softmax of float32[16, 1000]   and of float32[16, 1024]:   the same program over buckets 16 and 1024

Two functions are of a kind if they are tuned for the same device and options, and their programs are the same text
where each number, of which some come from lengths, is replaced by its bucket. Designs of another function of the kind
are looked up in the function's own space, so that a kind decides which are tried or taken, and never what is computed.
"""

from __future__ import annotations

import hashlib
import math
import re

from tvm import tirx

from tvm_cascade.devices.device import Cpu, Device
from tvm_cascade.driver.backend import Goal
from tvm_cascade.options import FuseOptions

_EXACT = 16
"""Numbers up to this, such as powers and halves, are no lengths, and have a bucket of their own."""

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d*)?(?:e[-+]?\d+)?(?![\w.])", re.IGNORECASE)


def bucket(extent: int) -> int:
    """The largest of the lengths that are tuned together: the next power of two."""
    return extent if extent <= _EXACT else 1 << (extent - 1).bit_length()


def tuned_for(goal: Goal) -> str:
    """The device and the options of a kernel that are not at their defaults, in words."""
    default = FuseOptions()
    options = {
        name: value
        for name, field in FuseOptions.__dataclass_fields__.items()
        if field.metadata["tuned"] and (value := getattr(goal.options, name)) != getattr(default, name)
    }
    return f"{goal.target.kind.name} {device_words(goal.device)} {options}"


def device_words(device: Device) -> str:
    """What tells one device from another."""
    machine = f"{device.cores} cores, {device.vector_bytes} bytes" if isinstance(device, Cpu) else device.arch
    return f"{device.name} {machine}".strip()


def kind_of(func: tirx.PrimFunc, goal: Goal) -> str:
    """The kind of a function: what it is tuned for, and a digest of its text with numbers by their buckets."""
    text = _NUMBER.sub(_bucketed, func.with_attr("global_symbol", "main").script(show_meta=True))
    return f"{tuned_for(goal)}; {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _bucketed(number: re.Match[str]) -> str:
    value = float(number[0])
    if 1 / _EXACT <= value <= _EXACT or value == 0.0:
        return number[0]
    return f"2^{math.ceil(math.log2(value))}" if value > 1 else f"2^-{math.ceil(-math.log2(value))}"
