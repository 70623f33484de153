"""Quotients of indices with an offset, in a form that TVM's flattening of buffers leaves alone.

The fault: where an index is f // 6 and another (f % 6 + 1) // 2, IterMapSimplify takes both for parts of (f + 1) // 2
and is off by a constant: data beside the buffer are read. It reads floor divisions alone, so that quotients of what is
known not to be negative are written as truncating ones.
"""

from __future__ import annotations

import tvm_ffi
from tvm import ir, s_tir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import uses, within


def divisions_apart(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with (i + c) // d as a truncating division where i is a remainder; not scheduled any more."""
    analyzer = sym.Analyzer()
    for loop in within(func.body, tirx.For):
        analyzer.bind(loop.loop_var, ir.Range.from_min_extent(loop.min, loop.extent))
    remainders: list[tirx.Var] = []
    for place in within(func.body, s_tir.SBlockRealize):
        for axis, value in zip(place.block.iter_vars, place.iter_values, strict=True):
            analyzer.bind(axis.var, axis.dom)
            remainders += [axis.var] if within(value, prim.FloorMod) else []

    def division(x: prim.FloorDiv) -> ir.Expr:
        divisor = int(x.b.value) if isinstance(x.b, prim.IntImm) else 0
        if divisor <= 0 or _offset(x.a) % divisor == 0 or not (uses(x.a, remainders) or within(x.a, prim.FloorMod)):
            return x
        least = analyzer.const_int_bound(x.a).min_value
        if least == sym.ConstIntBound.NEG_INF:
            return x
        turns = tirx.const(max(-(least // divisor), 0), x.a.ty.dtype)  # so many divisors more make it positive
        return tirx.truncdiv(x.a + turns * x.b, x.b) - turns

    return func.with_body(tvm_ffi.structural_map(func.body, (prim.FloorDiv, division)))


def _offset(x: ir.Expr) -> int:
    """The constant that a sum has."""
    if isinstance(x, prim.IntImm):
        return int(x.value)
    if isinstance(x, prim.Add):
        return _offset(x.a) + _offset(x.b)
    return _offset(x.a) - _offset(x.b) if isinstance(x, prim.Sub) else 0
