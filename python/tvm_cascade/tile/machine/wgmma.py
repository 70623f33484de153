"""The family of WGMMA: accumulators of 64 rows in registers, right operands in swizzled shared memory.

A thread of lane q in warp w holds, of a 64×N accumulator, rows 16·w + q/4 and 8 below it, and in every eight columns
the two from 2·(q mod 4) on: register 4·(column/8) + 2·(lower row) + (second column).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.devices.device import Instructions
from tvm_cascade.tile.emit import computed_here, ptx, put, registers
from tvm_cascade.tile.hopper.copy import BOX_BYTES, SWIZZLE_128B
from tvm_cascade.tile.machine.family import Family, steps_of
from tvm_cascade.tile.operand import MATRIX_DTYPES, STEP_BYTES, TRANSPOSED_BYTES
from tvm_cascade.tile.work import WARP_GROUP, Threads

_UNIT = 16
"""Bytes that descriptors count in."""

_ATOM_ROWS = 8
_STRIDE = _ATOM_ROWS * BOX_BYTES // _UNIT
_UPPER = 1 << 62 | _STRIDE << 32
"""The upper half of every descriptor: swizzled by 128 bytes, and the stride of atoms."""


class SharedMatrix:
    """A tile [rows, columns] in boxes of 128 bytes a row.

    Parameters
    ----------
    transposed : products sum over its rows, of 16 bits then; over its columns otherwise.
    """

    def __init__(self, pointer: ir.Expr, rows: int, transposed: bool) -> None:
        self.rows, self.transposed = rows, transposed
        self.descriptor = T.alloc_local((1,), "uint64")
        leading = rows * BOX_BYTES // _UNIT if transposed else 1
        T.evaluate(
            T.cuda.wgmma.encode_matrix_descriptor(
                T.address_of(self.descriptor[0]), pointer, leading, _STRIDE, SWIZZLE_128B
            )
        )

    def anew(self, offset: ir.Expr) -> SharedMatrix:
        """The tile `offset` units further on, with descriptors that are computed here and in no register before.

        ptxas would keep those of every step of a deep product in registers for a whole loop; and of descriptors whose
        upper halves it does not know it makes every one in registers of a thread, which takes longer than a product
        of 64 columns.
        """
        found = copy.copy(self)
        found.descriptor = registers("tile_descriptor", 1, "uint64")
        lower = T.cast(computed_here(T.cast(self.descriptor[0] + offset, "int32")), "uint32")
        put(found.descriptor, 0, T.cast(lower, "uint64") + T.uint64(_UPPER))
        return found

    def at(self, step: int, offset: ir.Expr) -> ir.Expr:
        """The descriptor of the part that one instruction sums over, in the tile `offset` units further on."""
        if self.transposed:
            units = step * (STEP_BYTES // TRANSPOSED_BYTES * BOX_BYTES // _UNIT)
        else:
            per_box = BOX_BYTES // STEP_BYTES
            units = (step // per_box) * (self.rows * BOX_BYTES // _UNIT) + (step % per_box) * (STEP_BYTES // _UNIT)
        return self.descriptor[0] + T.uint64(units) + offset


class Wgmma(Family):
    """Hopper's products by warp groups, from descriptors of tiles."""

    instructions = Instructions.WGMMA
    dtypes = tuple(MATRIX_DTYPES)
    threads = WARP_GROUP
    deferred = moves_registers = True
    through_registers = False

    def matrix(
        self, pointer: ir.Expr, rows: int, transposed: bool, threads: Threads, left: bool = False
    ) -> SharedMatrix:
        """A descriptor; the same for all threads of the group."""
        return SharedMatrix(pointer, rows, transposed)

    def offset(self, stage: ir.Expr, size: int, further: int = 0) -> ir.Expr:
        own = T.cast(stage, "uint64") * T.uint64(size // _UNIT)
        return own if further == 0 else own + tirx.const(further // _UNIT, "uint64")

    def fence(self) -> None:
        ptx("wgmma.fence.sync.aligned")

    def commit(self) -> None:
        ptx("wgmma.commit_group.sync.aligned")

    def wait(self, pending: int) -> None:
        ptx("wgmma.wait_group.sync.aligned", pending)

    def multiply_shared(
        self, sums: Sequence[Sequence[Any]], columns: int, left: SharedMatrix, rights: Sequence[SharedMatrix],
        depth: int, dtypes: tuple[str, str], left_offsets: Sequence[ir.Expr], right_offsets: Sequence[ir.Expr],
        steps: range | None = None, add: bool = False,
    ) -> None:  # fmt: skip
        steps = steps or range(steps_of(depth, dtypes[0]))
        for accumulators, left_offset in zip(sums, left_offsets, strict=True):
            for accumulator, right, offset in zip(accumulators, rights, right_offsets, strict=True):
                for step in steps:
                    ptx(
                        _instruction(columns, dtypes), *[accumulator[k] for k in range(columns // 2)],
                        left.at(step, left_offset), right.at(step, offset), add or step != steps.start, 1, 1,
                        *_orders(dtypes[0], left, right),
                    )  # fmt: skip

    def multiply_registers(
        self, accumulator: Any, columns: int, left: Any, right: SharedMatrix, depth: int, dtypes: tuple[str, str],
        offset: ir.Expr, add: bool = True,
    ) -> None:  # fmt: skip
        for step in range(steps_of(depth, dtypes[0])):
            ptx(
                _instruction(columns, dtypes), *[accumulator[k] for k in range(columns // 2)],
                *[left[step * 4 + k] for k in range(4)], right.at(step, offset), add or step > 0, 1, 1,
                *_orders(dtypes[0], right),
            )  # fmt: skip


def _instruction(columns: int, dtypes: tuple[str, str]) -> str:
    kinds = ".".join(MATRIX_DTYPES[dtype].name for dtype in dtypes)
    return f"wgmma.mma_async.sync.aligned.m64n{columns}k{MATRIX_DTYPES[dtypes[0]].step}.f32.{kinds}"


def _orders(dtype: str, *matrices: SharedMatrix) -> list[int]:
    """Of operands of 16 bits instructions say whether they are transposed; others never are."""
    return [int(matrix.transposed) for matrix in matrices] if MATRIX_DTYPES[dtype].size == TRANSPOSED_BYTES else []


WGMMA = Wgmma()
