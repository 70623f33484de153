"""Random programs with products on a GPU: checked against the oracle, then timed beside eager torch.

Each is compiled at two sizes, ahead and in worker processes. The small one is compared with the float64 oracle on
several draws, and run again; the large one is compared with torch in float32, and timed. What torch runs for the time
is a composition of library calls in half precision.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import tirx

from benchmarks.check.audit import on_one_core
from benchmarks.device import Clock, GpuPlan, measure
from benchmarks.gpu.problem import as_array, as_tensor
from benchmarks.judge.check import told
from benchmarks.products.case import Extents, ProductCase
from benchmarks.products.composition import compose
from benchmarks.products.grammar import draw
from benchmarks.products.program import data, program
from benchmarks.products.tensor_cores import left_out
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.tuning.compilation import compile

SMALL, LARGE = "small", "large"
OURS, EAGER = "ours", "eager"
_DRAWS = 3
_NUDGES = 8
_RERUNS = 2
_PLAN = GpuPlan(rounds=4, turn_seconds=0.005, most_runs=10)


@dataclass(frozen=True)
class Built:
    """A case, compiled.

    Attributes
    ----------
    paths : of libraries, by size; empty where it does not compile.
    left_out : why products of half precision are not on tensor cores at the large size; empty where all are, or the
        reason is allowed.
    lowering : what it was lowered to, or what it failed with.
    """

    seed: int
    paths: Mapping[str, str]
    left_out: str
    lowering: str


@dataclass(frozen=True)
class Found:
    """What a case gave.

    Attributes
    ----------
    built : see there.
    shape_of : the production that it was drawn from.
    flops : of its products at the large size.
    error, allowed : scaled, of the worst draw at the small size.
    finding : "wrong" or "failed", with the reason; empty where nothing is.
    seconds : of ours and of eager torch at the large size.
    """

    built: Built
    shape_of: str
    flops: int
    error: float = 0.0
    allowed: float = 0.0
    finding: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Our time over torch's; None where either has none."""
        return self.seconds[OURS] / self.seconds[EAGER] if len(self.seconds) == len((OURS, EAGER)) else None


def build(seed: int, folder: Path, target: Any = "cuda") -> Built:
    """Compiles a case at both sizes; never raises."""
    try:
        case, paths = draw(seed), {}
        for size, extents in ((SMALL, case.small), (LARGE, case.large)):
            compiled = compile(program(case, extents), target)
            paths[size] = str(folder / f"{seed}_{size}.so")
            compiled.runtime_module.export_library(paths[size])
        (report,) = compiled.report.functions
        left = left_out(case, case.large, report)
        return Built(seed, paths, "" if left is None or left.allowed else left.reason, report.lowering)
    except Exception as error:  # whatever is raised is what is looked for
        return Built(seed, {}, "", told(error))


def built_ahead(seeds: Sequence[int], jobs: int, folder: Path) -> list[Built]:
    """All cases, compiled by worker processes, in order."""
    context = multiprocessing.get_context("spawn")  # neither TVM's threads nor CUDA survive a fork
    with ProcessPoolExecutor(jobs, context, initializer=on_one_core) as pool:
        return list(pool.map(build, seeds, [folder] * len(seeds)))


def tried(torch: Any, built: Built, clock: Clock, device: str = "cuda") -> Found:
    """Checks a case, and times it; never raises."""
    case = draw(built.seed)
    found = Found(built, case.shape_of, case.flops(case.large))
    if not built.paths:
        return replace(found, finding=f"failed: {built.lowering}")
    try:
        found = _checked(torch, case, found, device)
        return found if found.finding else _timed(torch, case, found, clock, device)
    except Exception as error:  # whatever is raised is what is looked for
        return replace(found, finding=f"failed: {told(error)}")


class _Program:
    """A library's program as a function of torch tensors."""

    def __init__(self, torch: Any, func: tirx.PrimFunc, inputs: int, path: str, device: str) -> None:
        self.function = tvm.runtime.load_module(path)["main"]
        self.outputs = []
        for param in list(func.params)[inputs:]:
            shape = [int(extent) for extent in param.ty.shape]
            dtype = getattr(torch, str(param.ty.dtype))
            self.outputs.append(torch.full(shape, float("nan"), dtype=dtype, device=device))

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        self.function(*inputs, *self.outputs)
        return self.outputs

    def poisoned(self, inputs: Sequence[Any]) -> list[Any]:
        """New outputs of a run that found NaN where it was to write."""
        for output in self.outputs:
            output.fill_(float("nan"))
        return [output.clone() for output in self(inputs)]


def _checked(torch: Any, case: ProductCase, found: Found, device: str) -> Found:
    """With the worst error at the small size, and what is wrong there."""
    func = program(case, case.small)
    for seed in range(_DRAWS):
        given = replace(case, inputs="normal") if seed else case
        arrays = data(given, case.small, seed)
        inputs = [as_tensor(torch, array, device) for array in arrays]
        run = _Program(torch, func, len(inputs), found.built.paths[SMALL], device)
        outputs = run.poisoned(inputs)
        error, allowed, message = judged(case, func, arrays, [as_array(x) for x in outputs])
        if error / allowed >= found.error / (found.allowed or 1.0):
            found = replace(found, error=error, allowed=allowed)
        if message:
            return replace(found, finding=f"wrong: {given.inputs}: {message}")
        for _ in range(_RERUNS):
            if not all(_same_bits(torch, x, y) for x, y in zip(run.poisoned(inputs), outputs, strict=True)):
                return replace(found, finding="wrong: a further run gave other bits")
    return found


def judged(
    case: ProductCase, func: tirx.PrimFunc, arrays: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]
) -> tuple[float, float, str]:
    """(error, allowed, what is wrong) of the worst output, by the rule of `evaluate.tolerance`.

    Where that does not pass at first, what is allowed is found over inputs that half precision cannot tell apart: of
    one draw, the unfused program's own error is luck.
    """
    exact = list(oracle.evaluate(func, arrays).values())
    rounded = list(oracle.evaluate(func, arrays, rounding=True).values())
    length = max(case.small.values())
    worst = (0.0, 1.0, "")
    for k, output in enumerate(outputs):
        comparison = tolerance.check(output, exact[k], rounded[k], length=length, dtype=case.dtype)
        allowed = comparison.allowed
        if not comparison.ok:
            largest = max(_errors(case, func, arrays, k, exact[k]), default=comparison.baseline_error)
            allowed += 2.0 * max(0.0, largest - comparison.baseline_error)
        wrong = comparison.message if comparison.max_error > allowed else ""
        if wrong or comparison.max_error / allowed > worst[0] / worst[1]:
            worst = (comparison.max_error, allowed, wrong)
        if wrong:
            break
    return worst


def _errors(
    case: ProductCase, func: tirx.PrimFunc, arrays: Sequence[NDArray[Any]], output: int, exact: NDArray[Any]
) -> Iterator[float]:
    """Errors of the unfused program on inputs off by half a unit in the last place of half precision."""
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[case.dtype]
    for seed in range(_NUDGES):
        rng = np.random.default_rng(seed)
        nudged = [a.astype(np.float64) * (1.0 + 0.5 * unit * rng.choice((-1.0, 1.0), a.shape)) for a in arrays]
        near = list(oracle.evaluate(func, nudged, rounding=True).values())[output]
        compared = tolerance.check(near, exact, near, length=max(case.small.values()), dtype=case.dtype)
        yield compared.baseline_error


def _same_bits(torch: Any, one: Any, other: Any) -> bool:
    bits = {2: torch.int16, 4: torch.int32}[one.element_size()]
    return bool((one.view(bits) == other.view(bits)).all())


def _timed(torch: Any, case: ProductCase, found: Found, clock: Clock, device: str) -> Found:
    """With the times at the large size, where ours is near torch in float32."""
    inputs = list(_drawn(torch, case, case.large, device))
    run = _Program(torch, program(case, case.large), len(inputs), found.built.paths[LARGE], device)
    outputs = run.poisoned(inputs)
    exact, usual = compose(torch, case, [x.float() for x in inputs]), compose(torch, case, inputs)
    for output, value, other in zip(outputs, exact, usual, strict=True):
        arrays = [as_array(x) for x in (output, value, other)]
        comparison = tolerance.check(*arrays, length=max(case.large.values()), dtype=case.dtype)
        if not comparison.ok:
            return replace(found, finding=f"wrong: at the large size: {comparison.message}")
    programs = {OURS: lambda: run(inputs), EAGER: lambda: compose(torch, case, inputs)}
    timings = measure(programs, _PLAN, clock)
    for timing in timings.values():
        if isinstance(timing, Exception):
            raise timing
    seconds = {name: timing.median_s for name, timing in timings.items() if not isinstance(timing, Exception)}
    return replace(found, seconds=seconds)


def _drawn(torch: Any, case: ProductCase, extents: Extents, device: str) -> Iterator[Any]:
    generator = torch.Generator(device=device).manual_seed(case.seed)
    for statement in case.statements:
        if statement.op == "input":
            shape = [extents[axis] for axis in statement.axes]
            values = statement.scale(extents) * torch.randn(shape, generator=generator, device=device)
            yield values.to(getattr(torch, case.dtype)) if statement.half else values
