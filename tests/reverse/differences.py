"""Gradients compared with central differences of the program in the float64 oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx

from tvm_cascade import Gradient, gradient
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.evaluate import oracle

Array = NDArray[Any]
Arrays = Mapping[str, Array]

STEP = 1e-5
ERROR = 1e-6
"""Of a derivative along a random direction, as a share of the sum of magnitudes: a difference's own is some 1e-9."""

DIRECTIONS = 3


def drawn(func: tirx.PrimFunc, given: Mapping[str, Array] = {}) -> dict[str, Array]:
    """Values of a function's inputs by name: those that are given, others normal, and masks that keep a diagonal."""
    rng, values = np.random.default_rng(5), dict[str, Array]()
    for param in oracle.signature(func).inputs:
        shape, dtype = tuple(int(extent) for extent in param.ty.shape), str(param.ty.dtype)
        if param.name in given:
            values[param.name] = given[param.name]
        elif dtype == "bool":
            values[param.name] = (rng.random(shape) < 0.6) | np.eye(*shape[-2:], dtype=bool)
        else:
            values[param.name] = rng.standard_normal(shape) if "float" in dtype else rng.integers(0, 3, shape, dtype)
    return values


def evaluated(func: tirx.PrimFunc, values: Arrays) -> dict[str, Array]:
    """The outputs of a function at values by name."""
    return oracle.evaluate(func, [values[param.name] for param in oracle.signature(func).inputs])


def adjoints(found: Gradient, values: Arrays) -> tuple[dict[str, Array], dict[str, Array]]:
    """Random adjoints of outputs, and those of inputs, from what the forward function gives."""
    results = evaluated(found.forward, values)
    rng = np.random.default_rng(6)
    asked = [param.name for param in oracle.signature(found.backward).inputs]
    given = {f"d_{name}": rng.standard_normal(value.shape) for name, value in results.items()}
    given = {name: value for name, value in given.items() if name in asked}
    return given, evaluated(found.backward, {**values, **results, **given})


def assert_gradient(func: tirx.PrimFunc, given: Mapping[str, Array] = {}, **options: Any) -> Gradient:
    """Derivatives along random directions, one input at a time; a gradient of zeros is none."""
    found, values = gradient(func, **options), drawn(func, given)
    of, ours = adjoints(found, values)
    assert ours and all(np.isfinite(value).all() and np.abs(value).max() > 0 for value in ours.values())
    for name, value in ours.items():
        for seed in range(DIRECTIONS):
            along = np.random.default_rng(seed).standard_normal(value.shape)
            expected = _difference(func, values, name.removeprefix("d_"), along, of)
            scale = np.abs(value * along).sum() + abs(expected)
            assert abs((value * along).sum() - expected) <= ERROR * scale, name
    return found


def _difference(func: tirx.PrimFunc, values: Arrays, name: str, along: Array, of: Arrays) -> float:
    """The derivative of Σ adjoint·output as an input moves along a direction."""
    ends = []
    for side in (1, -1):
        results = evaluated(func, {**values, name: values[name] + side * STEP * along})
        ends.append(sum((results[one.removeprefix("d_")] * adjoint).sum() for one, adjoint in of.items()))
    return float(ends[0] - ends[1]) / (2 * STEP)


def sums_of(func: tirx.PrimFunc) -> dict[str, Sequence[int]]:
    """By buffer, the extents that its reduction runs over."""

    program = read_program(func)
    assert isinstance(program, Program)
    return {s.buffer.name: [int(s.extents[v]) for v in s.reduce] for s in program.stages if s.reduce}
