"""Loops, indices and symbolic extents in 64 bits: a length rounded up to whole tiles may exceed 2³¹ where it does not.

TVM bounds every index by the range of its dtype, and refuses a program where such a bound overflows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import dtype_of, rebuilt, within


def counted_in_64_bits(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with loops, indices and extents of int64, where a tensor has a symbolic extent of int32.

    Data keep their types, and so do lengths that are parameters.

    Parameters
    ----------
    func : a function of blocks; it is not modified.

    Returns
    -------
    func : the same object where no symbolic extent is of int32; where a tensor is not contiguous; and where the program
        itself casts int64 to int32, since what it cuts off stays cut off.
    """
    blocks = within(func.body, s_tir.SBlock)
    tensors = [param for param in func.params if tirx.is_buffer_var(param)]
    extents = {extent for tensor in tensors for extent in tensor.ty.shape if isinstance(extent, ir.Var)}
    counters = {loop.loop_var for loop in within(func.body, tirx.For)} | (extents - set(func.params))
    counters |= {one.var for block in blocks for one in block.iter_vars}
    wide = {one: tirx.Var(one.name, "int64") for one in counters if dtype_of(one) == "int32"}
    contiguous = all(not tensor.ty.strides and _is_zero(tensor.ty.elem_offset) for tensor in tensors)
    if not extents & set(wide) or not contiguous or any(map(_is_narrowed, within(func.body, prim.Cast))):
        return func
    buffers: dict[ir.Var, ir.Var] = {}

    def mapped(whole: Any) -> Any:
        return tvm_ffi.structural_map(whole, _RULES, with_def_region_kind=(ir.Var, variable))

    def variable(var: ir.Var, defined: Any) -> ir.Expr:
        if tirx.is_buffer_var(var):
            return buffers[var] if var in buffers else buffers.setdefault(var, _declared(var, var.ty.shape))
        if var not in wide:
            return var
        return wide[var] if defined else prim.Cast("int32", wide[var])

    buffers |= {tensor: _declared(tensor, map(mapped, tensor.ty.shape)) for tensor in tensors}
    return tirx.PrimFunc([buffers.get(param, param) for param in func.params], mapped(func.body), attrs=func.attrs)


def _declared(buffer: ir.Var, shape: Iterable[ir.Expr]) -> ir.Var:
    return tirx.decl_buffer([_wide(extent) for extent in shape], dtype_of(buffer), name=buffer.name)


def _is_zero(offset: ir.Expr | None) -> bool:
    return offset is None or (isinstance(offset, prim.IntImm) and offset.value == 0)


def _is_narrowed(value: ir.Expr) -> bool:
    """Whether a value of int64 is cast to int32: how a counter stands in what is not widened yet."""
    return isinstance(value, prim.Cast) and dtype_of(value) == "int32" and dtype_of(value.value) == "int64"


def _wide(index: ir.Expr) -> ir.Expr:
    if _is_narrowed(index):
        return index.value
    if dtype_of(index) != "int32":
        return index
    return prim.IntImm("int64", index.value) if isinstance(index, prim.IntImm) else prim.Cast("int64", index)


def _operation(expression: prim.BinaryOpExpr | prim.CmpExpr) -> ir.Expr:
    """Arithmetic of counters and constants is done in 64 bits, and its result cast; comparisons have no more casts."""
    operands = [expression.a, expression.b]
    if not any(map(_is_narrowed, operands)):
        return expression
    if not all(isinstance(one, prim.IntImm) or _is_narrowed(one) for one in operands):
        return expression
    made = type(expression)(*map(_wide, operands))
    return made if isinstance(made, prim.CmpExpr) else prim.Cast("int32", made)


def _load(load: ir.TensorLoad) -> ir.Expr:
    return tirx.BufferLoad(load.source, [_wide(index) for index in load.indices])


def _store(store: tirx.BufferStore) -> tirx.Stmt:
    return tirx.BufferStore(store.buffer, store.value, [_wide(index) for index in store.indices])


def _range(found: ir.Range) -> ir.Range:
    return ir.Range.from_min_extent(_wide(found.min), _wide(found.extent))


def _loop(loop: tirx.For) -> tirx.Stmt:
    return rebuilt(loop, min=_wide(loop.min), extent=_wide(loop.extent))


def _realize(realize: s_tir.SBlockRealize) -> tirx.Stmt:
    return s_tir.SBlockRealize([_wide(value) for value in realize.iter_values], realize.predicate, realize.block)


_RULES = [
    ((*prim.BinaryOpExpr.__subclasses__(), *prim.CmpExpr.__subclasses__()), _operation),
    (ir.TensorLoad, _load),
    (tirx.BufferStore, _store),
    (ir.Range, _range),
    (tirx.For, _loop),
    (s_tir.SBlockRealize, _realize),
]
"""How each node takes its indices in 64 bits."""
