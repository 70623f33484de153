"""Named input patterns along the axis of a chain's first reduction; all other inputs are normal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import ir, tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.passes import along_axis
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import dtype_of, loads_of, within
from tvm_cascade.evaluate.inputs import INPUTS
from tvm_cascade.evaluate.oracle import signature

Array = NDArray[Any]
_PLAIN = "normal"


def drawn(program: Program, groups: Sequence[Group], kind: str, rng: np.random.Generator) -> list[Array]:
    """Arrays for the inputs of a program, in order.

    Parameters
    ----------
    groups : its cascades; without any, the pattern runs along the last axis of every float input.
    kind : a name of `evaluate.inputs.INPUTS`. Integers that serve as indices stay in range whatever the kind.
    """
    followed = [pair for group in groups for pair in along_axis(program, group.members[:1])]
    arrays = []
    for param in signature(program.func).inputs:
        shape, dtype = tuple(int(extent) for extent in param.ty.shape), dtype_of(param)
        axis = next((k for buffer, k in followed if buffer.same_as(param)), None)
        limit = _index_limit(program, param)
        if limit is not None:
            arrays.append(rng.integers(0, limit, shape).astype(dtype))
        elif dtype.startswith("float8"):
            arrays.append(rng.standard_normal(shape).astype(dtype))
        elif not shape:
            arrays.append(np.ones(shape, dtype))
        else:
            pattern = _PLAIN if axis is None and groups else kind
            arrays.append(INPUTS[pattern](rng, shape, dtype, axis=-1 if axis is None else axis))
    return arrays


def _index_limit(program: Program, param: tirx.Var) -> int | None:
    """The smallest extent that the values of an integer parameter index; None where they index nothing."""
    if not dtype_of(param).startswith(("int", "uint")):
        return None
    limits = (
        int(extent)
        for load in within(program.func.body, ir.TensorLoad)
        for index, extent in zip(load.indices, load.source.ty.shape, strict=True)
        if any(inner.source.same_as(param) for inner in loads_of(index))
    )
    return min(limits, default=None)
