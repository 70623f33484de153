"""What the group that lifts a tile shares with the other: packed weights, and row values, in shared memory.

Groups lift in turn, and each has read what the other has shared before it shares itself: one copy is enough, and a
barrier in shared memory for each group. Named barriers cost as much, and compute-sanitizer's racecheck does not follow
those that groups come to from different places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy as sp
from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.operands.packing import Packing
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.rows import RowFold, values_read
from tvm_cascade.tile.attention.steps import Accumulate, Hoisted
from tvm_cascade.tile.emit import bind, computed_here, named, ptx, put, registers, when
from tvm_cascade.tile.fragment import QUAD, ROWS
from tvm_cascade.tile.hopper.barrier import BARRIER_BYTES, Barriers
from tvm_cascade.tile.hopper.copy import BOX_BYTES
from tvm_cascade.tile.hopper.stores import BOX_COLUMNS, CHUNK_COLUMNS, MATRIX_COLUMNS
from tvm_cascade.tile.machine.family import Family
from tvm_cascade.tile.skeletons.stream.halves.columns import GROUPS
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP, Threads

READ = GROUPS
"""The number of the barrier at which the second group has read; those before it are of what groups have stored."""


def shared_bytes(program: TileProgram, columns: int) -> int:
    tiles = {(a.weight, a.dtype) for a in program.accumulations}
    rows = sum(_holders(program, symbol) for symbol in _shifting(program) | _state(program))
    return (
        GROUP_ROWS * (len(tiles) * -(-columns // BOX_COLUMNS) * BOX_BYTES + rows * 4)
        + 16
        + BARRIER_BYTES * (GROUPS + 1)
    )


def _shifting(program: TileProgram) -> set[sp.Symbol]:
    """What moving the products' references reads of a row."""
    read = [values_read(program, a.shift) for a in program.accumulations]
    return set[sp.Symbol]().union(*read) - program.row_inputs.keys()


def _state(program: TileProgram) -> set[sp.Symbol]:
    """What the fold of the next tile, or results, may read of a row's state."""
    hoisted = {step.symbol for step in program.body.steps if isinstance(step, Hoisted)}
    return {c.symbol for c in program.stream.row_components} | {m.moved for m in program.body.moves} | hoisted


def _holders(program: TileProgram, symbol: sp.Symbol) -> int:
    """The lanes of a row that have a value each, until results are computed."""
    rows = {c.symbol for c in program.stream.row_components}
    return QUAD if symbol in rows and symbol not in program.across_lanes else 1


class Shared:
    """The memory, and what both groups do with it."""

    def __init__(self, pool: Any, program: TileProgram, columns: int) -> None:
        self.program, self.columns = program, columns
        boxes = -(-columns // BOX_COLUMNS)
        self.weights = {
            key: named(f"shared_{key[0]}", pool.alloc((boxes, GROUP_ROWS, BOX_COLUMNS), key[1], align=1024))
            for key in dict.fromkeys((a.weight, a.dtype) for a in program.accumulations)
        }
        self.shifting, self.state = (sorted(s, key=str) for s in (_shifting(program), _state(program)))
        self.holders = {symbol: _holders(program, symbol) for symbol in (*self.shifting, *self.state)}
        self.values = {
            symbol: named(f"shared_{symbol}", pool.alloc((GROUP_ROWS * holders,), "float32", align=16))
            for symbol, holders in self.holders.items()
        }
        self.moved = named("shared_moved", pool.alloc((4,), "uint32", align=16))
        self.barriers = Barriers(pool, GROUPS + 1, WARP_GROUP)

    def matrix(self, accumulation: Accumulate, family: Family, threads: Threads) -> Any:
        tile = self.weights[accumulation.weight, accumulation.dtype]
        return family.matrix(tile.ptr_to([0, 0, 0]), GROUP_ROWS, False, threads, left=True)

    def leave_weights(self, packing: Packing, threads: Threads) -> None:
        lane = bind("storing_lane", computed_here(threads.lane))
        row = bind("weight_row", threads.warp * 16 + lane % 16)
        for key, packed in packing.packed.items():
            for step in range(self.columns // MATRIX_COLUMNS):
                chunk = (step * 2 + lane // 16) % (BOX_COLUMNS // CHUNK_COLUMNS) ^ (lane % 8)
                box = step * MATRIX_COLUMNS // BOX_COLUMNS
                target = self.weights[key].ptr_to([box, row, chunk * CHUNK_COLUMNS])
                words = [packed[step * 4 + k] for k in range(4)]
                ptx("stmatrix.sync.aligned.m8n8.x4.shared.b16", target, *words)
        ptx("fence.proxy.async.shared::cta")

    def leave_rows(self, rows: RowFold, symbols: Sequence[sp.Symbol], threads: Threads) -> None:
        """The lifting group stores row values: each lane its own, or one of those that have the same."""
        alone = [symbol for symbol in symbols if self.holders[symbol] > 1]
        self._leave(rows, alone, threads)
        with when(threads.lane % QUAD == 0):
            self._leave(rows, [symbol for symbol in symbols if symbol not in alone], threads)

    def _leave(self, rows: RowFold, symbols: Sequence[sp.Symbol], threads: Threads) -> None:
        for symbol in symbols:
            for r in ROWS:
                put(self.values[symbol], self._place(symbol, threads, r), rows.values[symbol][r])

    def take_rows(self, rows: RowFold, symbols: Sequence[sp.Symbol], threads: Threads) -> None:
        for symbol in symbols:
            for r in ROWS:
                rows.set(symbol, r, self.values[symbol][self._place(symbol, threads, r)])

    def begin(self) -> None:
        """Starts to count phases, in registers of a consumer: of what the other group stores, and of what is read."""
        self._phases = registers("shared_phases", 2, "int32")
        for k in range(2):
            put(self._phases, k, T.int32(0))

    def arrive(self, barrier: int) -> None:
        """At the barrier of what a group has stored, by its number, or at that of what the second has read.

        Each thread for what it has stored or loaded: racecheck does not follow one that arrives for its warp.
        """
        self.barriers.arrive(barrier)

    def wait(self, barrier: int) -> None:
        phase = int(barrier == READ)
        self.barriers.wait(barrier, self._phases[phase])
        put(self._phases, phase, self._phases[phase] ^ 1)

    def meet(self, group: int, threads: Threads) -> None:
        barrier = threads.named.take("sharing", GROUPS)
        barrier.sync(WARP_GROUP, T.uint32(barrier.first + group))

    def _place(self, symbol: sp.Symbol, threads: Threads, row: int) -> ir.Expr:
        place = threads.warp * 16 + threads.lane // QUAD + 8 * row
        return place if self.holders[symbol] == 1 else place * QUAD + threads.lane % QUAD
