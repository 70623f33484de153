"""Functions that hold a nest that nobody can read."""

from __future__ import annotations

from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def product_beside_scan(
    x: T.Buffer((64, 128), "float16"),
    w: T.Buffer((128, 96), "float16"),
    counts: T.Buffer((64,), "float32"),
    out: T.Buffer((64, 96), "float16"),
    summed: T.Buffer((64,), "float32"),
):
    """x·w, and the running sum of counts, whose iterations depend on each other."""
    y = T.alloc_buffer((64, 96), "float32")
    for i, j, k in T.grid(64, 96, 128):
        with T.sblock("y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + T.Cast("float32", x[vi, vk]) * T.Cast("float32", w[vk, vj])
    for i, j in T.grid(64, 96):
        with T.sblock("out"):
            vi, vj = T.axis.remap("SS", [i, j])
            out[vi, vj] = T.Cast("float16", y[vi, vj])
    for i in range(64):
        with T.sblock("scan"):
            vi = T.axis.opaque(64, i)
            summed[vi] = T.if_then_else(vi > 0, summed[T.max(vi - 1, 0)], T.float32(0)) + counts[vi]
