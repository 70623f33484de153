"""Plans of gradients of attention, and their kernels against the float64 oracle."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tvm import tirx

import tvm_cascade
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.devices.cards import H200
from tvm_cascade.devices.device import Gpu
from tvm_cascade.evaluate.oracle import evaluate, signature
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.cuts import by_folds, cut, nests_of, parts_of
from tvm_cascade.plan.plan import Plan
from tvm_cascade.plan.search import find_plan
from tvm_cascade.tile.launch.dependent import BY_ITSELF
from tvm_cascade.tile.select import ranked_kernels
from tvm_cascade.tile.skeleton import Kernel, Setting
from tvm_cascade.tile.skeletons.stream.config import Tiles
from tvm_cascade.transform.fuse_function import fuse_function

from ..transform.running import numpy_dtype
from .emulator.run import Array, emulate

OPTIONS = FuseOptions()


def plan_of(func: tirx.PrimFunc, gpu: Gpu = H200) -> Plan:
    return find_plan(fuse_function(func, OPTIONS, gpu), "main", Setting(gpu, OPTIONS))


def folds_of(plan: Plan) -> list[Kernel]:
    """The kernels that fold two products."""
    found = [step.chosen for step in plan.steps if isinstance(step.chosen, Kernel)]
    return [kernel for kernel in found if kernel.skeleton.name == "stream" and len(kernel.program.stream.scores) == 2]


def assert_backward_right(
    found: tvm_cascade.Gradient,
    values: dict[str, Array] | None = None,
    gpu: Gpu = H200,
    kernels: int = 2,
    config: Tiles | None = None,
) -> None:
    """All kernels of a gradient that fold products are as near to the oracle's results as tolerance.py asks.

    Parameters
    ----------
    config : of all of them; each has its own where none is given.
    """
    values, taken = values or values_of(found), 0
    dtype = next(str(param.ty.dtype) for param in found.backward.params if param.name == "d_q")
    length = values["q"].size // values["q"].shape[-1]
    for part in parts_of_backward(found.backward):
        given = [values[param.name] for param in part.params if param.name in values]
        exact, usual = evaluate(part, given), evaluate(part, given, rounding=True)
        for kernel in joint_kernels(part, gpu):
            taken += 1
            emitted = kernel.func
            if config is not None:
                emitted = kernel.skeleton.emit(kernel.program, config, "main", BY_ITSELF)
            for got, (result, expected) in zip(emulate(emitted, given), exact.items(), strict=True):
                told = check(got, expected, usual[result], length=length, dtype=dtype)
                assert told.ok, f"{result}: {told.message}"
        values |= {result: np.asarray(value, _numpy(part, result)) for result, value in usual.items()}
    assert taken == kernels


def parts_of_backward(func: tirx.PrimFunc) -> list[tirx.PrimFunc]:
    """The folds of a backward function, each with the products that it reads."""
    program = read_program(func)
    found = cut(nests_of(program), by_folds(nests_of(program)))
    assert found is not None
    return parts_of(program, found)


def joint_kernels(func: tirx.PrimFunc, gpu: Gpu) -> list[Kernel]:
    """The kernel that folds the two products of a function, if it has any."""
    kernels = ranked_kernels(fuse_function(func, OPTIONS, gpu), "main", gpu, OPTIONS)
    assert not isinstance(kernels, str), kernels
    return [kernel for kernel in kernels[:1] if kernel.skeleton.name in ("stream", "folded")]


def _numpy(func: tirx.PrimFunc, name: str) -> np.dtype:
    return numpy_dtype(next(str(param.ty.dtype) for param in func.params if param.name == name))


def values_of(
    found: tvm_cascade.Gradient, sizes: Mapping[str, float] = {}, given: Mapping[str, Array] = {}
) -> dict[str, Array]:
    """Inputs of some sizes, or as they are given, what the forward function makes of them, and an output's adjoint."""
    generator, drawn = np.random.default_rng(0), dict[str, Array]()
    for param in (*found.forward.params, *found.backward.params):
        normal = generator.standard_normal([int(extent) for extent in param.ty.shape])
        drawn[param.name] = (normal * sizes.get(param.name, 1.0)).astype(numpy_dtype(str(param.ty.dtype)))
    drawn |= given
    inputs = [param for param in found.forward.params if param.name not in (*found.saved, "out")]
    made = evaluate(found.forward, [drawn[param.name] for param in inputs], rounding=True)
    results = {param.name for param in signature(found.backward).outputs}
    values = {name: value for name, value in drawn.items() if name not in results}
    return values | {name: np.asarray(value, drawn[name].dtype) for name, value in made.items()}
