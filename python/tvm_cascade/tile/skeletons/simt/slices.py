"""Merges the sums of a block's slices of k through shared memory, in their order."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import put, registers
from tvm_cascade.tile.skeletons.simt.config import CoreConfig


def merged_slices(memory: Any, sums: Any, config: CoreConfig, thread: ir.Expr, own: ir.Expr) -> Any:
    """Registers with the whole sums of a part of the thread's rows; every slice has another part.

    Parameters
    ----------
    memory : the block's shared memory, which no copy writes any more.
    sums : the thread's registers, of its slice.
    own : the number of its slice.
    """
    count, threads = config.rows.own * config.columns.own, config.slice_threads
    inside = thread % threads
    T.evaluate(T.cuda.cta_sync())
    with T.unroll(count) as k:
        put(memory, (own * count + k) * threads + inside, sums[k])
    T.evaluate(T.cuda.cta_sync())
    part = count // config.slices
    whole = registers("whole", part, str(memory.dtype))
    with T.unroll(part) as k:
        put(whole, k, tirx.const(0, str(memory.dtype)))
        with T.unroll(config.slices) as other:
            put(whole, k, whole[k] + memory[(other * count + own * part + k) * threads + inside])
    return whole
