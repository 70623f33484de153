"""Fused functions written by hand in the form that the rewrite leaves; their names say nothing of roles or axes."""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm.script import tirx as T

# softmax(q·kᵀ)·v, one step per tile of keys; the last tile is guarded where it is not whole.
_ATTENTION = """
@T.prim_func(s_tir=True)
def main(
    q: T.Buffer((heads, queries, dim), "float32"),
    k: T.Buffer((heads, keys, dim), "float32"),
    v: T.Buffer((heads, keys, dim), "float32"),
    o: T.Buffer((heads, queries, dim), "float32"),
):
    T.func_attr({"tirx.noalias": True, "global_symbol": "main"})
    a = T.sblock_alloc_buffer((tiles, heads, queries, tile))
    b = T.sblock_alloc_buffer((tiles, heads, queries))
    c = T.sblock_alloc_buffer((heads, queries))
    d = T.sblock_alloc_buffer((heads, queries))
    e = T.sblock_alloc_buffer((heads, queries))
    f = T.sblock_alloc_buffer((tiles, heads, queries, tile))
    g = T.sblock_alloc_buffer((tiles, heads, queries))
    r = T.sblock_alloc_buffer((heads, queries))
    s = T.sblock_alloc_buffer((tiles, heads, queries, dim))
    w = T.sblock_alloc_buffer((heads, queries, dim))
    for t in range(tiles):
        for h, i, j, x in T.grid(heads, queries, tile, dim):
            with T.sblock("b0"):
                T.sblock_attr({"tvm_cascade.role": "producer", "tvm_cascade.axes": ["h", "i", "tile", "inside", "x"]})
                vh, vi, vt, vj, vx = T.axis.remap("SSSSR", [h, i, t, j, x])
                with T.init():
                    a[vt, vh, vi, vj] = T.float32(0)
                a[vt, vh, vi, vj] = a[vt, vh, vi, vj] + T.if_then_else(
                    vt * tile + vj < keys, q[vh, vi, vx] * k[vh, vt * tile + vj, vx], T.float32(0)
                )
        for h, i, j in T.grid(heads, queries, tile):
            with T.sblock("b1"):
                T.sblock_attr({"tvm_cascade.role": "partial", "tvm_cascade.axes": ["h", "i", "tile", "inside"]})
                vh, vi, vt, vj = T.axis.remap("SSSR", [h, i, t, j])
                with T.init():
                    b[vt, vh, vi] = T.min_value("float32")
                b[vt, vh, vi] = T.max(
                    b[vt, vh, vi],
                    T.if_then_else(vt * tile + vj < keys, a[vt, vh, vi, vj], T.min_value("float32")),
                )
        for h, i in T.grid(heads, queries):
            with T.sblock("b2"):
                T.sblock_attr({"tvm_cascade.role": "update", "tvm_cascade.axes": ["h", "i", "tile"]})
                vh, vi, vt = T.axis.remap("SSR", [h, i, t])
                with T.init():
                    c[vh, vi] = T.min_value("float32")
                c[vh, vi] = T.max(c[vh, vi], b[vt, vh, vi])
        for h, i in T.grid(heads, queries):
            with T.sblock("b3"):
                T.sblock_attr({"tvm_cascade.role": "reference", "tvm_cascade.axes": ["h", "i", "tile"]})
                vh, vi, vt = T.axis.remap("SSR", [h, i, t])
                with T.init():
                    d[vh, vi] = T.float32(0)
                new: T.let[T.float32] = c[vh, vi]
                old: T.let[T.float32] = T.Select(vt == 0, new, d[vh, vi])
                e[vh, vi] = T.exp(old - new)
                d[vh, vi] = new
        for h, i, j in T.grid(heads, queries, tile):
            with T.sblock("b4"):
                T.sblock_attr({"tvm_cascade.role": "element", "tvm_cascade.axes": ["h", "i", "tile", "inside"]})
                vh, vi, vt, vj = T.axis.remap("SSSS", [h, i, t, j])
                f[vt, vh, vi, vj] = T.if_then_else(
                    vt * tile + vj < keys, T.exp(a[vt, vh, vi, vj] - d[vh, vi]), T.float32(0)
                )
        for h, i, j in T.grid(heads, queries, tile):
            with T.sblock("b5"):
                T.sblock_attr({"tvm_cascade.role": "partial", "tvm_cascade.axes": ["h", "i", "tile", "inside"]})
                vh, vi, vt, vj = T.axis.remap("SSSR", [h, i, t, j])
                with T.init():
                    g[vt, vh, vi] = T.float32(0)
                g[vt, vh, vi] = g[vt, vh, vi] + f[vt, vh, vi, vj]
        for h, i, x, j in T.grid(heads, queries, dim, tile):
            with T.sblock("b6"):
                T.sblock_attr({"tvm_cascade.role": "partial", "tvm_cascade.axes": ["h", "i", "x", "tile", "inside"]})
                vh, vi, vx, vt, vj = T.axis.remap("SSSSR", [h, i, x, t, j])
                with T.init():
                    s[vt, vh, vi, vx] = T.float32(0)
                s[vt, vh, vi, vx] = s[vt, vh, vi, vx] + T.if_then_else(
                    vt * tile + vj < keys, f[vt, vh, vi, vj] * v[vh, vt * tile + vj, vx], T.float32(0)
                )
        for h, i in T.grid(heads, queries):
            with T.sblock("b7"):
                T.sblock_attr({"tvm_cascade.role": "update", "tvm_cascade.axes": ["h", "i", "tile"]})
                vh, vi, vt = T.axis.remap("SSR", [h, i, t])
                with T.init():
                    r[vh, vi] = T.float32(0)
                r[vh, vi] = r[vh, vi] * e[vh, vi] + g[vt, vh, vi]
        for h, i, x in T.grid(heads, queries, dim):
            with T.sblock("b8"):
                T.sblock_attr({"tvm_cascade.role": "update", "tvm_cascade.axes": ["h", "i", "x", "tile"]})
                vh, vi, vx, vt = T.axis.remap("SSSR", [h, i, x, t])
                with T.init():
                    w[vh, vi, vx] = T.float32(0)
                w[vh, vi, vx] = w[vh, vi, vx] * e[vh, vi] + s[vt, vh, vi, vx]
    for h, i, x in T.grid(heads, queries, dim):
        with T.sblock("b9"):
            T.sblock_attr({"tvm_cascade.role": "finish", "tvm_cascade.axes": ["h", "i", "x"]})
            vh, vi, vx = T.axis.remap("SSS", [h, i, x])
            o[vh, vi, vx] = w[vh, vi, vx] / r[vh, vi]
"""

# Σ(x − mean)², with the mean of each tile as its reference; a tile's sums are kept in lanes.
_VARIANCE = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((rows, length), "float32"), o: T.Buffer((rows,), "float32")):
    T.func_attr({"tirx.noalias": True, "global_symbol": "main"})
    a = T.sblock_alloc_buffer((tiles, rows, lanes))
    b = T.sblock_alloc_buffer((tiles, rows))
    c = T.sblock_alloc_buffer((rows,))
    d = T.sblock_alloc_buffer((tiles, rows, lanes))
    e = T.sblock_alloc_buffer((tiles, rows))
    f = T.sblock_alloc_buffer((rows,))
    g = T.sblock_alloc_buffer((rows,))
    for t in range(tiles):
        for i, n, m in T.grid(rows, lanes, strips):
            with T.sblock("b0"):
                T.sblock_attr({"tvm_cascade.role": "lanes", "tvm_cascade.axes": ["i", "tile", "lane", "strip"]})
                vi, vt, vn, vm = T.axis.remap("SSSR", [i, t, n, m])
                with T.init():
                    a[vt, vi, vn] = T.float32(0)
                a[vt, vi, vn] = a[vt, vi, vn] + x[vi, vt * tile + vm * lanes + vn]
        for i, n in T.grid(rows, lanes):
            with T.sblock("b1"):
                T.sblock_attr({"tvm_cascade.role": "partial", "tvm_cascade.axes": ["i", "tile", "lane"]})
                vi, vt, vn = T.axis.remap("SSR", [i, t, n])
                with T.init():
                    b[vt, vi] = T.float32(0)
                b[vt, vi] = b[vt, vi] + a[vt, vi, vn]
        for i, n, m in T.grid(rows, lanes, strips):
            with T.sblock("b2"):
                T.sblock_attr({"tvm_cascade.role": "lanes", "tvm_cascade.axes": ["i", "tile", "lane", "strip"]})
                vi, vt, vn, vm = T.axis.remap("SSSR", [i, t, n, m])
                with T.init():
                    d[vt, vi, vn] = T.float32(0)
                d[vt, vi, vn] = d[vt, vi, vn] + (
                    x[vi, vt * tile + vm * lanes + vn] - b[vt, vi] / T.float32(tile)
                ) * (x[vi, vt * tile + vm * lanes + vn] - b[vt, vi] / T.float32(tile))
        for i, n in T.grid(rows, lanes):
            with T.sblock("b3"):
                T.sblock_attr({"tvm_cascade.role": "partial", "tvm_cascade.axes": ["i", "tile", "lane"]})
                vi, vt, vn = T.axis.remap("SSR", [i, t, n])
                with T.init():
                    e[vt, vi] = T.float32(0)
                e[vt, vi] = e[vt, vi] + d[vt, vi, vn]
        for i in T.grid(rows):
            with T.sblock("b5"):
                T.sblock_attr({"tvm_cascade.role": "update", "tvm_cascade.axes": ["i", "tile"]})
                vi, vt = T.axis.remap("SR", [i, t])
                with T.init():
                    c[vi] = T.float32(0)
                g[vi] = c[vi]
                c[vi] = c[vi] + b[vt, vi]
        for i in T.grid(rows):
            with T.sblock("b4"):
                T.sblock_attr({"tvm_cascade.role": "update", "tvm_cascade.axes": ["i", "tile"]})
                vi, vt = T.axis.remap("SR", [i, t])
                with T.init():
                    f[vi] = T.float32(0)
                f[vi] = f[vi] + (
                    e[vt, vi]
                    + T.Select(
                        vt > 0,
                        (b[vt, vi] / T.float32(tile) - g[vi] / T.Cast("float32", T.max(vt, 1) * tile))
                        * (b[vt, vi] / T.float32(tile) - g[vi] / T.Cast("float32", T.max(vt, 1) * tile))
                        * (T.Cast("float32", vt * tile) / T.Cast("float32", vt + 1)),
                        T.float32(0),
                    )
                )
    for i in T.grid(rows):
        with T.sblock("b6"):
            T.sblock_attr({"tvm_cascade.role": "finish", "tvm_cascade.axes": ["i"]})
            vi = T.axis.spatial(rows, i)
            o[vi] = f[vi] / T.float32(length)
"""

# Σ over tiles of (the sum before the tile)·(the tile's sum): the sum is read by one block and then overwritten.
_OVERWRITING = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((rows, length), "float32"), o: T.Buffer((rows,), "float32")):
    T.func_attr({"tirx.noalias": True, "global_symbol": "main"})
    a = T.sblock_alloc_buffer((length, rows))
    b = T.sblock_alloc_buffer((rows,))
    for t in range(length):
        for i in T.grid(rows):
            with T.sblock("b0"):
                T.sblock_attr({"tvm_cascade.role": "element", "tvm_cascade.axes": ["i", "tile"]})
                vi, vt = T.axis.remap("SS", [i, t])
                a[vt, vi] = x[vi, vt]
        for i in T.grid(rows):
            with T.sblock("b1"):
                T.sblock_attr({"tvm_cascade.role": "update", "tvm_cascade.axes": ["i", "tile"]})
                vi, vt = T.axis.remap("SR", [i, t])
                with T.init():
                    o[vi] = T.float32(0)
                o[vi] = o[vi] + T.Select(vt > 0, b[vi], T.float32(0)) * a[vt, vi]
        for i in T.grid(rows):
            with T.sblock("b2"):
                T.sblock_attr({"tvm_cascade.role": "update", "tvm_cascade.axes": ["i", "tile"]})
                vi, vt = T.axis.remap("SR", [i, t])
                with T.init():
                    b[vi] = T.float32(0)
                b[vi] = b[vi] + a[vt, vi]
"""

# The same with a mask between the scores and their use: position j is hidden from row i where j > i.
_MASK = """
        for h, i, j in T.grid(heads, queries, tile):
            with T.sblock("m0"):
                T.sblock_attr({"tvm_cascade.role": "element", "tvm_cascade.axes": ["h", "i", "tile", "inside"]})
                vh, vi, vt, vj = T.axis.remap("SSSS", [h, i, t, j])
                n[vt, vh, vi, vj] = T.Select(vt * tile + vj <= vi, a[vt, vh, vi, vj], T.float32(hidden))
"""


def attention(heads: int, queries: int, keys: int, dim: int, tile: int) -> tirx.PrimFunc:
    """(q, k, v) -> softmax over the keys times v, all of heads × positions × dim."""
    extents = {"heads": heads, "queries": queries, "keys": keys, "dim": dim, "tile": tile}
    return _program(_ATTENTION, tiles=-(-keys // tile), **extents)


def causal_attention(heads: int, queries: int, keys: int, dim: int, tile: int, hidden: float) -> tirx.PrimFunc:
    """(q, k, v) -> attention with every score of a position after its row replaced by `hidden`."""
    begin = _ATTENTION.index('        for h, i, j in T.grid(heads, queries, tile):\n            with T.sblock("b1")')
    rest = _ATTENTION[begin:].replace("a[vt, vh, vi, vj]", "n[vt, vh, vi, vj]")
    allocated = "    for t in range(tiles):"
    head = _ATTENTION[:begin].replace(
        allocated, f"    n = T.sblock_alloc_buffer((tiles, heads, queries, tile))\n{allocated}"
    )
    extents = {"heads": heads, "queries": queries, "keys": keys, "dim": dim, "tile": tile}
    return _program(head + _MASK.lstrip("\n") + rest, tiles=-(-keys // tile), hidden=hidden, **extents)


def variance(rows: int, length: int, tile: int, lanes: int) -> tirx.PrimFunc:
    """x of rows × length -> the variance of each row."""
    extents = {"rows": rows, "length": length, "tile": tile, "lanes": lanes}
    return _program(_VARIANCE, tiles=length // tile, strips=tile // lanes, **extents)


def overwriting(rows: int, length: int) -> tirx.PrimFunc:
    """x of rows × length -> Σ_t x_t·(Σ of x before t), in a form that TVM's primitives refuse."""
    return _program(_OVERWRITING, rows=rows, length=length)


def _program(text: str, **extents: float) -> tirx.PrimFunc:
    return tvm.script.from_source(text, extra_vars={"T": T, "range": range, **extents}, s_tir=True)
