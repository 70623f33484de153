"""What the PrimFunc of an operator does: reduce, compute each element, move data, or something that is not read."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import tvm
from tvm import ir, sym, tirx
from tvm.ir import transform

from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import Extent, extent_of, loads_of, variables_of, without_casts
from tvm_cascade.transform.fuse_function import read_function


class Kind(enum.Enum):
    """What a PrimFunc does."""

    REDUCTION = "reduces"
    ELEMENTWISE = "computes each element by itself"
    MOVEMENT = "moves elements, one axis of the source to one of the result"
    RESHAPE = "moves elements, and joins or splits axes"
    OPAQUE = "is not read"


_BY_ELEMENT = (Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.RESHAPE)

_PATTERN, _INJECTIVE, _UNREAD = "op_pattern", 2, 8
"""The attribute that `FuseOps` reads, and TVM's numbers for functions of which each element is computed by itself, and
for those that it cannot read."""


@transform.module_pass(opt_level=0, name="AnnotateGathers")
class AnnotateGathers:
    """Gathers as what computes each element by itself, so that `FuseOps` merges them with what is around them.

    `AnnotateTIROpPattern` cannot read a function whose indices are data.
    """

    def transform_module(self, mod: tvm.IRModule, _: transform.PassContext) -> tvm.IRModule:
        for var, func in mod.functions_items():
            pattern = func.attrs.get(_PATTERN) if isinstance(func, tirx.PrimFunc) and func.attrs else None
            if pattern == _UNREAD and _gathers(func) and operator_of(func).kind in _BY_ELEMENT:
                mod.update_func(var, func.with_attr(_PATTERN, _INJECTIVE))
        return mod


def _gathers(func: tirx.PrimFunc) -> bool:
    """Whether it reads at indices that are data."""
    return any(loads_of(index) for load in loads_of(func.body) for index in load.indices)


@dataclass(frozen=True)
class Operator:
    """The PrimFunc of a `call_tir`, as it is read.

    Attributes
    ----------
    func : itself.
    kind : what it does.
    reduced : the extents of each of its reductions, rows and the axis that is reduced.
    """

    func: tirx.PrimFunc
    kind: Kind
    reduced: tuple[tuple[Extent, ...], ...] = ()


def operator_of(func: tirx.PrimFunc) -> Operator:
    """What a PrimFunc does; never raises on one."""
    program = read_function(func)
    if not isinstance(program, Program) or program.opaque:
        return Operator(func, Kind.OPAQUE)
    if reduced := tuple(tuple(one.extents.values()) for one in program.stages if one.reducer is not None):
        return Operator(func, Kind.REDUCTION, reduced)
    if not all(isinstance(without_casts(stage.value), ir.TensorLoad) for stage in program.stages):
        return Operator(func, Kind.ELEMENTWISE)
    return Operator(func, Kind.MOVEMENT if all(map(_keeps_axes, program.stages)) else Kind.RESHAPE)


def _keeps_axes(stage: Stage) -> bool:
    """Whether each index of what is read has one variable at most: a reshape that joins axes is a view for TVM's VM."""
    analyzer = sym.Analyzer()
    for variable, extent in stage.extents.items():
        analyzer.bind(variable, ir.Range(0, extent_of(extent)))
    indices = [analyzer.simplify(index) for load in loads_of(stage.value) for index in load.indices]
    return all(len({variable.name for variable in variables_of(index)}) <= 1 for index in indices)
