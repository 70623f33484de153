"""What one element of the result of a Relax function is: an expression in elements of its arguments.

y = add(x, reshape(arange(n), [n, 1]))  →  y[i, j] = x[i, j] + i
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, tirx

from tvm_cascade.analysis.inline import inliner_of
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.tir import Extent, extent_of, simplify_index, substitute, zero_of
from tvm_cascade.errors import ModelError
from tvm_cascade.relax.graph import CALL_TIR
from tvm_cascade.torch.site import shape_of, type_name
from tvm_cascade.transform.fuse_function import read_function

Argument = Callable[[int, Sequence[Any]], Any]
"""The element of an argument, of the function's first one for 0, at some indices."""


def element_of(
    module: tvm.IRModule,
    shapes: Sequence[Sequence[Any]],
    at: Mapping[tirx.Var, Any],
    argument: Argument,
    rewritten: Callable[[Any, Mapping[tirx.Var, int]], Any] = lambda element, places: element,
) -> Any:
    """The element of the result of `main` at indices that are variables.

    Parameters
    ----------
    module : `main` gives one tensor, and its operators are maps.
    shapes : of its arguments, in the variables that the expression is to have.
    at : the indices, with their extents.
    rewritten : gives another expression of the same value, in loads of buffers that stand for arguments.

    Raises
    ------
    ModelError
        Where an operator is no map.
    """
    legal = relax.transform.LegalizeOps()(module)
    main = legal["main"]
    values = {one.var: one.value for block in main.body.blocks for one in block.bindings}
    given = zip(main.params, shapes, strict=True)
    lengths = dict(pair for param, shape in given for pair in _lengths(shape_of(param), shape))
    buffers = {one: tirx.decl_buffer(shape, type_name(one)) for one, shape in zip(main.params, shapes, strict=True)}
    ranges = {var: extent_of(extent) for var, extent in at.items()}
    # In loads of buffers: simplifying those of tensors of te, whose hash there is none of, corrupts memory.
    found = _Reading(legal, values, buffers, lengths, ranges).of(main.body.body, [*at])
    places = {buffer: k for k, buffer in enumerate(buffers.values())}
    found = rewritten(found, places)
    return tvm_ffi.structural_map(found, (ir.TensorLoad, lambda load: argument(places[load.source], load.indices)))


@dataclass(frozen=True)
class _Reading:
    """A function that is read.

    Attributes
    ----------
    values : of its variables.
    buffers : that stand for its parameters.
    lengths : of its symbolic extents, in the variables of the expression.
    ranges : of the indices.
    """

    module: tvm.IRModule
    values: Mapping[relax.Var, relax.Expr]
    buffers: Mapping[relax.Var, tirx.Var]
    lengths: dict[tirx.Var, Any]
    ranges: dict[tirx.Var, Extent]

    def of(self, tensor: relax.Expr, indices: Sequence[Any]) -> Any:
        """An element of a tensor."""
        if tensor in self.buffers:
            return tirx.BufferLoad(self.buffers[tensor], indices)
        value = self.values.get(tensor, tensor)
        if isinstance(value, relax.Tuple):
            return self.of(value.fields[0], indices)
        if isinstance(value, relax.Var):
            return self.of(value, indices)
        if isinstance(value, ir.Constant) and not shape_of(value):
            return tirx.const(value.value.numpy().item(), type_name(value))
        program, operands, values = self._map_of(value)
        stage = program.stages[-1]
        values |= {var: zero_of(var) for var in stage.spatial}
        values |= {var: index for var, index in zip(stage.indices, indices, strict=True) if isinstance(var, ir.Var)}

        def loaded(load: ir.TensorLoad) -> Any:
            # A view of one axis as two, of which one has one position, leaves a remainder until it is read there.
            return self.of(operands[load.source], [simplify_index(index, self.ranges) for index in load.indices])

        return tvm_ffi.structural_map(substitute(inliner_of(program).of(stage), values), (ir.TensorLoad, loaded))

    def _map_of(self, call: relax.Expr) -> tuple[Program, dict[tirx.Var, relax.Expr], dict[tirx.Var, Any]]:
        """The program that a call is of, the arguments of its parameters, and its symbolic extents."""
        is_call = isinstance(call, relax.Call) and call.op == CALL_TIR and not isinstance(call.ty, relax.TupleType)
        program = read_function(self.module[call.args[0]]) if is_call else None
        if not isinstance(program, Program) or program.opaque or any(one.reducer for one in program.stages):
            hint = "compute it outside of the function, and capture its result"
            raise ModelError("operators that compute element by element", str(call), "the function", hint)
        given = [*call.args[1].fields, call, *(call.args[2].values if len(call.args) > 2 else ())]
        operands, known = dict(zip(program.params, given, strict=True)), list[tuple[tirx.Var, Any]]()
        for own, one in operands.items():
            known += _lengths(own.ty.shape, shape_of(one)) if tirx.is_buffer_var(own) else [(own, one)]
        return program, operands, {own: substitute(extent, self.lengths) for own, extent in known}


def _lengths(own: Sequence[Any] | None, given: Sequence[Any] | None) -> list[tuple[tirx.Var, Any]]:
    """The symbolic ones among extents, with what they are."""
    pairs = zip(own or (), given or (), strict=True)
    return [(extent, value) for extent, value in pairs if isinstance(extent, ir.Var)]
