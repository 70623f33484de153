"""The family of mma.sync: each warp multiplies sixteen rows, of which it loads both operands into registers (ldmatrix).

Tiles are those that bulk copies leave: boxes of 128 bytes a row, in which chunk c of row r is at chunk c ⊕ (r mod 8).
An instruction of ldmatrix takes sixteen rows of 32 bytes, in quarters of 8 × 16 bytes, a lane giving the address of a
row of one. Eight rows of a quarter are in eight different chunks of the 128 bytes, so that no two share a bank.

    operand     sums over       order of the quarters
    left        its columns     rows first, then columns     row = lane mod 16,                chunk = lane / 16
    left        its rows        columns first, then rows     row = lane mod 8 + 8·(lane / 16), chunk = lane / 8 mod 2
    right       as the left one that sums over the other

What sums over rows is transposed as it is loaded. Products are done where they stand. The next part of the right
operand is loaded while one is multiplied, and serves all parts of sixteen rows that the warp has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.devices.device import Instructions
from tvm_cascade.tile.emit import computed_here, in_register, ptx, put, registers
from tvm_cascade.tile.hopper.copy import BOX_BYTES, CHUNK, CHUNKS
from tvm_cascade.tile.machine.family import Family, steps_of
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.operand import MATRIX_DTYPES, STEP_BYTES
from tvm_cascade.tile.work import Threads

_ROWS, _COLUMNS = 16, 8
"""Of an instruction's result."""

_WORDS = 4
"""Registers of a lane for sixteen rows, or sixteen columns of a right operand, of what an instruction sums over."""

_PER_BOX = BOX_BYTES // STEP_BYTES
"""Parts of 32 bytes that a row of a box has."""


@dataclass(frozen=True)
class SharedMatrix:
    """A tile in boxes of 128 bytes a row.

    Attributes
    ----------
    base : where the lane's own row of sixteen is, in the first of them.
    transposed : products sum over its rows.
    """

    base: ir.Expr
    rows: int
    transposed: bool

    def further(self, offset: ir.Expr) -> SharedMatrix:
        """The tile so many bytes further on; computed here, as compilers would keep its addresses for a loop."""
        place = T.cast(computed_here(T.cast(self.base + offset, "int32")), "uint32")
        return SharedMatrix(in_register("place_of_lane", place), self.rows, self.transposed)

    def load(self, target: Sequence[ir.Expr], step: int, sixteen: int) -> None:
        """Loads a part that an instruction sums over, of sixteen of the operand's own line; of eight, half of it."""
        across, along = (sixteen, step) if self.transposed else (step, sixteen)
        box, unit = divmod(across, _PER_BOX)
        at = tirx.bitwise_xor(self.base, T.uint32(unit * STEP_BYTES)) if unit else self.base
        if further := box * self.rows * BOX_BYTES + along * _ROWS * BOX_BYTES:
            at = at + T.uint32(further)
        ptx(f"ldmatrix.sync.aligned.m8n8.x{len(target)}{'.trans' if self.transposed else ''}.shared.b16", *target, at)


class Mma(Family):
    """Products of a warp, which all cards have since 2020; of 16 bits, added in float32."""

    instructions = Instructions.MMA
    dtypes = tuple(name for name, kind in MATRIX_DTYPES.items() if kind.size == 2)
    threads = WARP
    deferred = moves_registers = False
    through_registers = True

    def matrix(
        self, pointer: ir.Expr, rows: int, transposed: bool, threads: Threads, left: bool = False
    ) -> SharedMatrix:
        """An address of the lane's own; of a left operand, in the rows of the thread's warp."""
        lane, base = threads.lane, registers("tile_address", 1, "uint32")
        first, second = lane % _ROWS, lane // _ROWS
        if left == transposed:
            first, second = lane % CHUNKS + lane // _ROWS * CHUNKS, lane // CHUNKS % 2
        row = first + threads.warp * _ROWS if left and not transposed else first
        chunk = second + threads.warp * 2 if left and transposed else second
        place = row * BOX_BYTES + tirx.bitwise_xor(chunk, lane % CHUNKS) * CHUNK
        put(base, 0, T.cuda.cvta_generic_to_shared(pointer) + T.cast(place, "uint32"))
        return SharedMatrix(base[0], rows, transposed)

    def offset(self, stage: ir.Expr, size: int, further: int = 0) -> ir.Expr:
        return T.cast(stage, "uint32") * T.uint32(size) + T.uint32(further)

    def fence(self) -> None:
        """Nothing: products read registers in order."""

    def commit(self) -> None:
        """Nothing."""

    def wait(self, pending: int) -> None:
        """Nothing: products are done."""

    def multiply_shared(
        self, sums: Sequence[Sequence[Any]], columns: int, left: SharedMatrix, rights: Sequence[SharedMatrix],
        depth: int, dtypes: tuple[str, str], left_offsets: Sequence[ir.Expr], right_offsets: Sequence[ir.Expr],
        steps: range | None = None, add: bool = False,
    ) -> None:  # fmt: skip
        """Loads of the left operand serve all right ones."""
        words = registers("left_words", 2 * _WORDS * len(left_offsets), "uint32")
        parts = [left.further(offset) for offset in left_offsets]

        def lefts(step: int) -> list[list[ir.Expr]]:
            first = step % 2 * _WORDS * len(left_offsets)
            return [[words[first + _WORDS * part + k] for k in range(_WORDS)] for part in range(len(left_offsets))]

        def load(step: int) -> None:
            for target, part in zip(lefts(step), parts, strict=True):
                part.load(target, step, 0)

        steps = steps or range(steps_of(depth, dtypes[0]))
        _multiply(sums, columns, rights, right_offsets, dtypes, steps, load, lefts, add)

    def multiply_registers(
        self, accumulator: Any, columns: int, left: Any, right: SharedMatrix, depth: int, dtypes: tuple[str, str],
        offset: ir.Expr, add: bool = True,
    ) -> None:  # fmt: skip
        """Of the left operand nothing is loaded."""
        steps = range(steps_of(depth, dtypes[0]))
        _multiply(
            [[accumulator]], columns, [right], [offset], dtypes, steps, lambda _: None,
            lambda step: [[left[step * _WORDS + k] for k in range(_WORDS)]], add,
        )  # fmt: skip


def _multiply(
    sums: Sequence[Sequence[Any]], columns: int, rights: Sequence[SharedMatrix], offsets: Sequence[ir.Expr],
    dtypes: tuple[str, str], steps: range, load: Callable[[int], None], lefts: Callable[[int], list[list[ir.Expr]]],
    add: bool,
) -> None:  # fmt: skip
    """Steps of sums, sixteen columns after sixteen; what is multiplied next is loaded before."""
    tiles = [right.further(offset) for right, offset in zip(rights, offsets, strict=True)]
    two = registers("right_words", 2 * _WORDS, "uint32")
    places = list(product(steps, range(len(rights)), range(0, columns, _ROWS)))

    def words(number: int, first: int) -> list[ir.Expr]:
        return [two[number % 2 * _WORDS + k] for k in range(_WORDS if columns - first >= _ROWS else 2)]

    def fetch(number: int) -> None:
        step, which, first = places[number]
        if number == 0 or places[number - 1][0] != step:
            load(step)
        tiles[which].load(words(number, first), step, first // _ROWS)

    kinds = ".".join(MATRIX_DTYPES[dtype].name for dtype in dtypes)
    fetch(0)
    for number, (step, which, first) in enumerate(places):
        if number + 1 < len(places):
            fetch(number + 1)
        right = words(number, first)
        for half in range(len(right) // 2):
            for accumulators, left in zip(sums, lefts(step), strict=True):
                index = (first + half * _COLUMNS) // 2
                own = [accumulators[which][index + k] for k in range(4)]
                before = own if add or step != steps.start else [T.float32(0)] * 4
                ptx(
                    f"mma.sync.aligned.m16n8k16.row.col.f32.{kinds}.f32", *own, *left, *right[2 * half : 2 * half + 2],
                    *before,
                )  # fmt: skip


MMA = Mma()
