"""Stores accumulator fragments as 16-bit matrices of 8×8 (stmatrix), where bulk copies with the 128-byte swizzle read.

A lane gives the address of one row of 16 bytes: chunk c of row r is at chunk c ⊕ (r mod 8) of its 128 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tvm import ir, tirx

from tvm_cascade.analysis.tir import dtype_of, uses
from tvm_cascade.tile.emit import ptx, registers, when
from tvm_cascade.tile.fragment import COLUMNS_PER_STEP, DTYPE, NEIGHBOURS
from tvm_cascade.tile.hopper.copy import BOX_BYTES, CHUNK, CHUNKS
from tvm_cascade.tile.operand import MATRIX_DTYPES, STORED_BYTES
from tvm_cascade.tile.output import Output
from tvm_cascade.tile.product.lines import runs_along
from tvm_cascade.tile.work import WARP_GROUP, Threads

MATRIX_COLUMNS = 16
"""Of an instruction, of sixteen rows."""

BOX_COLUMNS, CHUNK_COLUMNS = BOX_BYTES // STORED_BYTES, CHUNK // STORED_BYTES
"""Of a box, and of what is swizzled together, in elements of two bytes."""

Value = Callable[[int, int, int], ir.Expr]
"""(eight columns, row of the thread's two, neighbour) -> the element there."""

Place = Callable[[int, ir.Expr], ir.Expr]
"""(box, chunk) -> an address in the lane's own row."""


class MatrixStore:
    """Stores fragments of a warp."""

    def __init__(self, dtype: str, lane: ir.Expr) -> None:
        self.kind, self.lane = MATRIX_DTYPES[dtype].name, lane
        self.words = registers("stored", 4, "uint32")

    def columns(self, count: int, value: Value, place: Place, first: int = 0) -> None:
        """Stores columns [first, count) of sixteen rows, from the first box on; `first` is a multiple of 16."""
        for step in range(-(-(count - first) // MATRIX_COLUMNS)):
            for q in range(4):
                j, r = first // COLUMNS_PER_STEP + step * 2 + q // 2, q % 2
                if j * COLUMNS_PER_STEP < count:
                    pair = [_wide(value(j, r, e)) for e in reversed(NEIGHBOURS)]
                    ptx(f"cvt.rn.{self.kind}x2.f32", self.words[q], *pair)
            chunk = step % (CHUNKS // 2) * 2 + self.lane // MATRIX_COLUMNS
            target = place(step // (CHUNKS // 2), chunk ^ (self.lane % CHUNKS))
            words = [self.words[q] for q in range(4)]
            ptx("stmatrix.sync.aligned.m8n8.x4.shared.b16", target, *words)


class BulkStores:
    """Bulk stores of a warp group by way of shared memory, which all of its threads write and one has copied.

    Parameters
    ----------
    groups, index : that store, and the number of the one among them.
    """

    def __init__(self, threads: Threads, groups: int, index: ir.Expr, leads: ir.Expr) -> None:
        self.threads, self.groups, self.index, self.leads = threads, groups, index, leads

    def reuse(self, pending: int = 0) -> None:
        """Before the group writes: all copies but so many groups have read what was there."""
        with when(self.leads):
            ptx("cp.async.bulk.wait_group.read", pending)
        self._meet()

    @contextmanager
    def copies(self) -> Iterator[None]:
        ptx("fence.proxy.async.shared::cta")
        self._meet()
        with when(self.leads):
            yield
            ptx("cp.async.bulk.commit_group")

    def _meet(self) -> None:
        own = self.threads.named.take("a consumer's own", self.groups)
        own.sync(WARP_GROUP, own.first + self.index)


# Stores of neighbouring elements at once: a thread's stores of one each would write a sector piece by piece.


def are_neighbours(tensor: tirx.Var, indices: Sequence[ir.Expr], free: tirx.Var, count: int) -> bool:
    """Whether so many columns of a tensor, from a multiple of that on, are neighbours in memory, and aligned."""
    width = tensor.ty.shape[-1]
    plain = runs_along(indices[-1], free) and not any(uses(index, [free]) for index in indices[:-1])
    return plain and isinstance(width, ir.prim.IntImm) and int(width) % count == 0


def are_stored_at_once(output: Output, free: tirx.Var, count: int) -> bool:
    dtype = dtype_of(output.buffer)
    stored = dtype == DTYPE or (dtype in MATRIX_DTYPES and MATRIX_DTYPES[dtype].size == STORED_BYTES)
    return stored and are_neighbours(output.buffer, output.indices, free, count)


def store_pair(target: ir.Expr, values: Sequence[ir.Expr], dtype: str, name: str = "stored_word") -> None:
    """Stores two values of a dtype at an address, by way of a register of a name."""
    if dtype == DTYPE:
        ptx("st.global.v2.f32", target, *values)
        return
    (word,) = _words(values, dtype, name)
    ptx("st.global.b32", target, word)


def store_four(targets: Sequence[ir.Expr], values: Sequence[ir.Expr], dtype: str) -> None:
    """Stores four values of a dtype at the addresses of the first and the third."""
    if dtype != DTYPE:
        values = [tirx.reinterpret(DTYPE, word) for word in _words(values, dtype, "stored_words")]
    for k in range(0, len(values), 2):
        ptx("st.global.v2.f32", targets[k // 2], *values[k : k + 2])


def _words(values: Sequence[ir.Expr], dtype: str, name: str) -> list[ir.Expr]:
    """Values of two bytes, two to a word."""
    words = registers(name, len(values) // 2, "uint32")
    for k in range(len(values) // 2):
        pair = (_wide(value) for value in reversed(values[2 * k : 2 * k + 2]))
        ptx(f"cvt.rn.{MATRIX_DTYPES[dtype].name}x2.f32", words[k], *pair)
    return [words[k] for k in range(len(values) // 2)]


def _wide(value: ir.Expr) -> ir.Expr:
    """A value in float32: the store itself rounds it."""
    if isinstance(value, ir.prim.Cast) and dtype_of(value.value) == DTYPE:
        return value.value
    return value if dtype_of(value) == DTYPE else tirx.Cast(DTYPE, value)
