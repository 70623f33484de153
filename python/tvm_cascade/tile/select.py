"""Which functions get a kernel of a skeleton, and why the others do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.analysis.extract import Group, joint_reductions, lone_reductions
from tvm_cascade.analysis.program import Program
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.build import Kernel, build_kernel, build_row_kernel
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.transform.fuse_function import Outcome

ARCHITECTURES = ("sm_90a", "sm_90")
"""CUDA architectures of tensor-core kernels; a device reports sm_90, and code for it is generated as sm_90a."""


def for_gpu(options: FuseOptions) -> FuseOptions:
    """The options of the pass for a GPU: its cost model is of CPUs, and declines nothing here.

    Segments and lanes are the schedule's own there: threads split what a CPU's vectors do.
    """
    return dataclasses.replace(options, force=True, segments=1, lanes=1)


def select_kernel(outcome: Outcome, name: str, arch: str, options: FuseOptions) -> Kernel | str:
    """The kernel of a function, or a sentence that says why it has none.

    Parameters
    ----------
    outcome : what the pass made of the function.
    name : the function's own name.
    arch : the CUDA architecture.
    options : see `FuseOptions`.
    """
    if outcome.program is None or outcome.program.opaque:
        return "the function could not be read whole"
    groups = _groups(outcome, outcome.program, options)
    if not groups:
        return "it holds no reduction"
    build_stream = partial(build_kernel, narrow_sums=options.narrow_sums)
    stream = _first_fit(build_stream, outcome.program, groups, name, _no_stream(arch, options))
    if isinstance(stream, Kernel):
        return stream
    build_row = partial(build_row_kernel, clusters=arch in ARCHITECTURES)
    row = _first_fit(build_row, outcome.program, groups, name, _no_row(options))
    if not isinstance(row, Kernel) and options.row_kernels and (joint := _joint(outcome, outcome.program, options)):
        row = _first_fit(build_row, outcome.program, [joint], name, "")
    return row if isinstance(row, Kernel) else f"no `stream`: {stream}; no `row`: {row}"


def _no_stream(arch: str, options: FuseOptions) -> str:
    """Why no kernel for tensor cores may be generated, whatever the function; empty where one may."""
    if arch not in ARCHITECTURES:
        return f"tensor-core kernels are generated for {ARCHITECTURES[0]}, not for {arch}"
    return "" if options.tensor_cores else "the option tensor_cores is off"


def _no_row(options: FuseOptions) -> str:
    return "" if options.row_kernels else "the option row_kernels is off"


def _first_fit(
    build: Callable[[Program, Group, str], Kernel], program: Program, groups: list[Group], name: str, refusal: str
) -> Kernel | str:
    """The kernel of the first group that has the shape, or why that is none."""
    reasons = [refusal] if refusal else []
    for group in groups if not refusal else []:
        try:
            return build(program, group, name)
        except Unfit as unfit:
            reasons.append(str(unfit))
    return reasons[0]


def _joint(outcome: Outcome, program: Program, options: FuseOptions) -> Group | None:
    """All reductions of the function as one, where there is none that has no fold."""
    if any(d.reason.verdict not in (Verdict.FUSED, Verdict.NOTHING) for d in outcome.decisions):
        return None
    return joint_reductions(program, options.rescalable_casts, options.reference)


def _groups(outcome: Outcome, program: Program, options: FuseOptions) -> list[Group]:
    """What a kernel may be generated from: the one cascade of the function, or else one of its lone reductions."""
    fused = [d.candidate.group for d in outcome.decisions if d.reason.verdict is Verdict.FUSED]
    found = [group for group in fused if group is not None]
    if found:
        return found
    return list(reversed(lone_reductions(program, options.rescalable_casts, options.reference)))
