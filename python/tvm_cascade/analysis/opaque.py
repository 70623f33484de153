"""Opaque nests, such as external calls: what they read and write, so that others fuse around them.

A group fuses beside an opaque nest that need not come after one part of it and before another (`analysis.order`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.tir import within

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
    reads = memory.behind(load.source for load in within(nest, ir.TensorLoad))
    writes = memory.behind(store.buffer for store in within(nest, tirx.BufferStore))
    named = [*memory.addressed(nest), *(name for name in memory.named(nest) if name not in {*reads, *writes})]
    touched = filter(tirx.is_buffer_var, memory.behind(named))
    return Opaque(nest, reason, tuple(reads), tuple(writes), tuple(touched), position)


# Whose memory a name stands for: buffers over another's data, pointers, and what calls are given the address of.
#
# y = decl_buffer(…, data=x.data);  y = match_buffer(x[…]);  p = address_of(x[…])        y and p are memory of x
#
# Who is given an address reads and writes any of the memory behind it. All else of the analysis compares buffers: plain
# stages use memory that is written by its owner's name alone, and all others' accesses are those of the owners too.


class Memory:
    """The names of a piece of code that stand for memory of other buffers.

    Attributes
    ----------
    owners : of each such name, the buffers whose memory it is, and the names in between.
    """

    def __init__(self, code: tirx.Stmt) -> None:
        self.owners: dict[tirx.Var, list[tirx.Var]] = {}

        def matched(block: s_tir.SBlock) -> None:
            for view in block.match_buffers:
                self.owners[view.buffer] = self.behind([view.source.source])

        def declared(one: tirx.DeclBuffer | tirx.Bind) -> None:
            name, source = (one.buffer, one.data) if isinstance(one, tirx.DeclBuffer) else (one.var, one.value)
            if given := self.behind(self.addressed(source)):
                self.owners[name] = given

        kinds = [(s_tir.SBlock, matched), (tirx.DeclBuffer, declared), (tirx.Bind, declared)]
        tvm_ffi.structural_walk(code, kinds, order="pre")

    def behind(self, names: Iterable[tirx.Var]) -> list[tirx.Var]:
        """Names, each with the buffers whose memory it is; all of them once."""
        return list(dict.fromkeys(owner for name in names for owner in (name, *self.owners.get(name, ()))))

    def named(self, code: tirx.Stmt | ir.Expr) -> list[tirx.Var]:
        """The buffers that code names, and the pointers to some."""
        return [name for name in within(code, ir.Var) if tirx.is_buffer_var(name) or name in self.owners]

    def addressed(self, code: tirx.Stmt | ir.Expr) -> list[tirx.Var]:
        """Buffers whose address code takes, and pointers that it uses."""
        return [*taken(code), *(name for name in self.named(code) if not tirx.is_buffer_var(name))]


def taken(code: tirx.Stmt | ir.Expr) -> list[tirx.Var]:
    """Buffers whose address code takes: as the argument of a call, or by an element of theirs."""
    found: list[ir.Expr] = []
    for call in within(code, ir.Call):
        by_element = isinstance(call.op, ir.Op) and call.op.name.endswith(".address_of")
        found.extend(a.source if by_element and isinstance(a, ir.TensorLoad) else a for a in call.args)
    return [name for name in found if tirx.is_buffer_var(name)]
