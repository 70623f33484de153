"""Opaque nests, such as external calls: what they read and write, so that others fuse around them.

A group fuses beside an opaque nest that need not come after one part of it and before another (`analysis.order`).
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm_ffi
from tvm import ir, tirx

from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.memory import Memory

OPAQUE_CODES = frozenset({"binding", "carried", "extern", "opaque_block", "overwritten", "predicate", "reducer"})
"""Reasons that concern one nest alone; all others mean that the function as a whole is not as it was written."""


@dataclass(frozen=True)
class Opaque:
    """A nest that is left as it is.

    Attributes
    ----------
    nest : the statement.
    reason : why it cannot be read.
    reads, writes : buffers that it loads from and stores to, and those whose memory they are.
    touched : buffers whose address it takes: it may read and write them.
    position : of the nest among all nests.
    """

    nest: tirx.Stmt
    reason: Reason
    reads: tuple[tirx.Var, ...]
    writes: tuple[tirx.Var, ...]
    touched: tuple[tirx.Var, ...]
    position: int


def read_opaque(nest: tirx.Stmt, reason: Reason, position: int, memory: Memory) -> Opaque:
    """The buffers that a nest of a function reads and writes; a declaration writes the name that it declares."""
    if isinstance(nest, tirx.DeclBuffer):
        return Opaque(nest, reason, (), (nest.buffer,), (), position)
    loads: list[ir.TensorLoad] = []
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(nest, [(ir.TensorLoad, loads.append), (tirx.BufferStore, stores.append)])
    reads = memory.behind(load.source for load in loads)
    writes = memory.behind(store.buffer for store in stores)
    named = [*memory.addressed(nest), *(name for name in memory.named(nest) if name not in {*reads, *writes})]
    touched = filter(tirx.is_buffer_var, memory.behind(named))
    return Opaque(nest, reason, tuple(reads), tuple(writes), tuple(touched), position)
