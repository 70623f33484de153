"""What a backward function has of the forward one: what is passed to it, and what it computes again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.inline import inliner_of
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import dtype_of, loads_of, same, uses
from tvm_cascade.reverse.terms import is_float


@dataclass(frozen=True)
class Forward:
    """The values of a forward function that a backward one reads.

    Attributes
    ----------
    saved : buffers that are passed, in the order in which they are written.
    again : stages that are computed again, in order.
    homes : by result, the output that holds it and is read instead.
    """

    saved: tuple[tirx.Var, ...]
    again: tuple[Stage, ...]
    homes: dict[tirx.Var, tirx.Var]


def forward_values(
    program: Program, read: Iterable[tirx.Var], keeps: Callable[[tirx.Var], bool], anew: Collection[tirx.Var]
) -> Forward:
    """What is saved of some buffers that are read, and of those that they are computed from.

    Parameters
    ----------
    keeps : whether a buffer is saved where it is read.
    anew : buffers that are computed again in any case.
    """
    holders, saved, again = _outputs_that_hold(program), set[tirx.Var](), set[tirx.Var]()
    homes, pending, seen = dict[tirx.Var, tirx.Var](), [(buffer, True) for buffer in read], set[tuple[tirx.Var, bool]]()
    while pending:
        buffer, by_new_stages = one = pending.pop()
        stage = program.writer(buffer)
        if one in seen or stage is None:
            continue
        seen.add(one)
        output = holders.get(buffer) if by_new_stages else None  # the nests of the program read what they did
        if buffer not in anew and output is not None and keeps(output):
            homes[buffer] = output
            saved.add(output)
        elif buffer not in anew and keeps(buffer):
            saved.add(buffer)
        else:
            again.add(buffer)
            pending += [(b, False) for part in program.together(stage) for b in part.reads]
    stages = [stage for stage in program.stages if any(part.buffer in again for part in program.together(stage))]
    order = {stage.buffer: k for k, stage in enumerate(program.stages)}
    return Forward(tuple(sorted(saved, key=order.__getitem__)), tuple(stages), homes)


def _outputs_that_hold(program: Program) -> dict[tirx.Var, tirx.Var]:
    """By result, an output that holds it, each at the same place, in whatever float but float8."""
    found: dict[tirx.Var, tirx.Var] = {}
    for stage in program.stages:
        value = stage.value
        while isinstance(value, prim.Cast) and is_float(dtype_of(value)) and not dtype_of(value).startswith("float8"):
            value = value.value
        copies = stage.reducer is None and program.is_param(stage.buffer) and isinstance(value, ir.TensorLoad)
        if copies and is_float(dtype_of(value)) and same(list(value.indices), list(stage.indices)):
            found[value.source] = stage.buffer
    return found


def is_worth_saving(program: Program, buffer: tirx.Var) -> bool:
    """Whether a buffer is an output, or a result that no reduction reduces in turn."""
    stage = program.writer(buffer)
    inline = inliner_of(program).of
    reduced = any(
        load.source.same_as(buffer) and uses(load, other.reduce)
        for other in program.stages
        for load in loads_of(inline(other))
    )
    return program.is_param(buffer) or (stage is not None and stage.reducer is not None and not reduced)
