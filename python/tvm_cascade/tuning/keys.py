"""The kind of a function: what it has in common with those of other lengths, whose trials tell of it.

    softmax of float32[16, 1000]   and of float32[16, 1024]:   the same folds over buckets 16 and 1024

Two functions are of a kind if they are tuned for the same device and options, their parameters have the same names and
dtypes and extents of the same buckets, and their folds have the same steps over the same elements. Numbers in these, of
which some come from lengths, count by their bucket too. Designs of another function of the kind are looked up in the
function's own space, so that a kind decides which are tried or taken, and never what is computed.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator

from tvm import tirx
from tvm.ir import prim

from tvm_cascade.analysis.extract import Reductions
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.devices.device import Cpu, Device
from tvm_cascade.driver.backend import Goal
from tvm_cascade.options import FuseOptions
from tvm_cascade.steps.program import program_of
from tvm_cascade.transform.fuse_function import read_function

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


def signature_of(func: tirx.PrimFunc, goal: Goal) -> str:
    """What all functions of a kind have in common that is seen without deriving folds."""
    params = ", ".join(_parameter(param) for param in func.params)
    return f"{tuned_for(goal)}; {params}"


def kind_of(func: tirx.PrimFunc, goal: Goal) -> str:
    """The kind of a function: its signature, and a digest of its folds and of what else it computes."""
    program = read_function(func)
    told = "\n".join(_folds(program, goal.options)) if isinstance(program, Program) else func.script()
    digest = hashlib.sha256(_NUMBER.sub(_bucketed, told).encode()).hexdigest()[:16]
    return f"{signature_of(func, goal)}; {digest}"


def _parameter(param: tirx.Var) -> str:
    if not tirx.is_buffer_var(param):
        return param.name
    extents = [str(bucket(int(e)) if isinstance(e, prim.IntImm) else e) for e in param.ty.shape]
    return f"{param.name}: {dtype_of(param)}[{', '.join(extents)}]"


def _folds(program: Program, options: FuseOptions) -> Iterator[str]:
    """The steps of each fold and its elements; then each stage by what it writes and how it reduces."""
    for candidate in Reductions(program, options.rescalable_casts, options.reference).cascades():
        if candidate.group is not None:
            yield str(program_of(candidate.group.fold))
            for atom in candidate.group.atoms.atoms.values():
                yield f"{atom.symbol} = {atom.expression}"
    for stage in program.stages:
        yield f"{stage.buffer.name} {dtype_of(stage.buffer)} {stage.reducer} {len(stage.spatial)} {len(stage.reduce)}"


def _bucketed(number: re.Match[str]) -> str:
    value = float(number[0])
    if 1 / _EXACT <= value <= _EXACT or value == 0.0:
        return number[0]
    return f"2^{math.ceil(math.log2(value))}" if value > 1 else f"2^-{math.ceil(-math.log2(value))}"
