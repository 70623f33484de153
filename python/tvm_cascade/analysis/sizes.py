"""Substitutes given sizes for symbolic extents, so that inputs can be drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi
from numpy.typing import NDArray
from tvm import ir, s_tir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import dtype_of, within
from tvm_cascade.errors import InputError

DEFAULT_SIZE = 64
"""A symbolic extent of which nothing is said."""


def at_sizes(
    func: tirx.PrimFunc, sizes: Mapping[str, int] | None = None, example: Sequence[NDArray[Any]] | None = None
) -> tirx.PrimFunc:
    """The function with a number for every symbolic extent of its buffers: (n, 10) → (64, 10).

    Parameters
    ----------
    func : any function of blocks; it is not modified.
    sizes : extents by name; the others are those of `example`, or else `DEFAULT_SIZE`.
    example : arrays for the first parameters.

    Returns
    -------
    func : the same object where no extent is symbolic.

    Raises
    ------
    InputError
        When a size is no positive integer, or of no extent.
    """
    buffers = [param for param in func.params if tirx.is_buffer_var(param)]
    named = {extent.name: extent for buffer in buffers for extent in buffer.ty.shape if isinstance(extent, ir.Var)}
    given = dict(sizes or {})
    if unknown := [name for name in given if name not in named]:
        expected = f"names among {', '.join(named)}" if named else "no sizes, as every extent is a number"
        raise InputError(expected, ", ".join(map(repr, unknown)), "sizes")
    for name, size in given.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise InputError("a positive integer", repr(size), f"sizes[{name!r}]")
    for buffer, array in zip(buffers, example or (), strict=False):
        for extent, size in zip(buffer.ty.shape, array.shape, strict=False):
            if isinstance(extent, ir.Var):
                given.setdefault(extent.name, size)
    return _with(func, {extent: given.get(name, DEFAULT_SIZE) for name, extent in named.items()}) if named else func


def _with(func: tirx.PrimFunc, sizes: Mapping[ir.Var, int]) -> tirx.PrimFunc:
    analyzer, known = sym.Analyzer(), dict[ir.Var, ir.Expr]()
    known.update({extent: prim.IntImm(dtype_of(extent), size) for extent, size in sizes.items()})

    def replaced(expression: ir.Expr) -> ir.Expr:
        if isinstance(expression, ir.Var):
            return known.get(expression, expression)
        parts = (expression.a, expression.b) if isinstance(expression, prim.BinaryOpExpr) else ()
        whole = parts and all(isinstance(part, prim.IntImm) for part in parts)
        return analyzer.simplify(expression) if whole else expression

    rule = (ir.Expr, replaced)
    own = [buffer for block in within(func.body, s_tir.SBlock) for buffer in block.alloc_buffers]
    for buffer in [*func.params, *own]:
        if tirx.is_buffer_var(buffer):
            shape = [tvm_ffi.structural_map(extent, rule) for extent in buffer.ty.shape]
            known[buffer] = tirx.decl_buffer(shape, dtype_of(buffer), name=buffer.name)
    params = [known.get(param, param) for param in func.params]
    return tirx.PrimFunc(params, tvm_ffi.structural_map(func.body, rule), attrs=func.attrs)
