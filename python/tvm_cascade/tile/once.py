"""Parts of an expression that occur several times, computed once: expressions are printed as trees.

A hash of 32 bits has its argument twice in each round, `h ^= h >> 16; h *= …`: as a tree, a few rounds are 10³ nodes
(measured, of a kernel that draws samples: 2 MB of CUDA text, 16 s of compiling; 0.4 MB and 5 s so).
"""

from __future__ import annotations

from collections import Counter

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import in_register

_KINDS = (prim.Add, prim.Sub, prim.Mul, prim.Div, prim.Max, prim.Min, tirx.Cast, ir.Call)
"""What takes an instruction."""

_PLACES = ("int32", "int64")
"""Dtypes of indices, which unrolled loops make constants; registers are indexed by those alone."""

_MANY = 100
"""Nodes of an expression from which on it is worth while: compilers find the parts of smaller ones."""


def computed_once(value: ir.Expr) -> ir.Expr:
    """The expression, with registers in place of what occurs in it several times."""
    nodes: list[ir.Expr] = []
    tvm_ffi.structural_walk(value, (_KINDS, nodes.append))
    if len(nodes) < _MANY:
        return value
    counts = Counter(tvm_ffi.structural_hash(node) for node in nodes if dtype_of(node) not in _PLACES)
    known: dict[int, ir.Expr] = {}

    def once(node: ir.Expr) -> ir.Expr:
        key = tvm_ffi.structural_hash(node)
        if counts[key] < 2:
            return node
        if key not in known:
            known[key] = in_register("part", _inside(node))
        return known[key]

    def _inside(whole: ir.Expr) -> ir.Expr:
        found: ir.Expr = tvm_ffi.structural_map(
            whole, (_KINDS, lambda node: node if node.same_as(whole) else once(node)), order="pre"
        )
        return found

    mapped: ir.Expr = tvm_ffi.structural_map(value, (_KINDS, once), order="pre")
    return mapped
