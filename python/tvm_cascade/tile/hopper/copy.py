"""Bulk tensor copies (TMA) between tensors and shared memory: boxes of 128 bytes a row, swizzled for products."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.hopper.script import named, ptx
from tvm_cascade.tile.operand import Operand

BOX_BYTES = 128
"""Bytes of a row of a box: the widest swizzle."""

_SWIZZLE_128B = 3
_PROMOTE_TO_L2_256B = 2


class TensorMap:
    """The descriptor of a tensor for copies of boxes [rows, 128 bytes]. Dimensions are counted from the innermost.

    Parameters
    ----------
    buffer : the tensor in the kernel's own parameters.
    """

    def __init__(self, operand: Operand, buffer: Any, rows: int) -> None:
        self.operand, self.rows = operand, rows
        self.size = 2
        shape = list(reversed(operand.buffer.ty.shape))
        rank = len(shape)
        strides = [tirx.const(self.size, "int64")]
        for extent in shape[:-1]:
            strides.append(strides[-1] * T.cast(extent, "int64"))
        box = [BOX_BYTES // self.size] + [1] * (rank - 1)
        box[rank - 1 - operand.row] = rows
        self.map = named(f"{operand.buffer.name}_map", T.Bind(T.tvm_stack_alloca("tensormap", 1), T.TensorMap().ty))
        T.evaluate(
            T.tensormap_encode_tiled(
                self.map, buffer.data, *shape, *strides[1:], *box, *[1] * rank,
                descriptor_dtype=operand.dtype, rank=rank, swizzle=_SWIZZLE_128B, l2_promotion=_PROMOTE_TO_L2_256B,
            )
        )  # fmt: skip
        self.rank = rank

    @property
    def boxes(self) -> int:
        """Boxes that cover a row."""
        return -(-self.operand.width * self.size // BOX_BYTES)

    @property
    def box_bytes(self) -> int:
        """Bytes of one box in shared memory; rows outside of the tensor are filled with zeros, and count."""
        return self.rows * BOX_BYTES

    def prefetch(self) -> None:
        """Fetch the descriptor itself."""
        T.evaluate(T.ptx.prefetch.tensormap(T.address_of(self.map)))

    def load(self, target: Any, row: ir.Expr, fixed: dict[int, ir.Expr], barrier: ir.Expr) -> None:
        """Copy every box of rows [row, row + rows) to `target(box)`; the barrier counts the bytes."""
        instruction = f"cp.async.bulk.tensor.{self.rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
        for box in range(self.boxes):
            ptx(instruction, target(box), T.address_of(self.map), *self._coordinates(box, row, fixed), barrier)

    def store(self, source: Any, row: ir.Expr, fixed: dict[int, ir.Expr]) -> None:
        """Copy every box from `source(box)` to rows [row, row + rows); rows outside of the tensor are left out."""
        instruction = f"cp.async.bulk.tensor.{self.rank}d.global.shared::cta.tile.bulk_group"
        for box in range(self.boxes):
            ptx(instruction, T.address_of(self.map), *self._coordinates(box, row, fixed), source(box))

    def _coordinates(self, box: int, row: ir.Expr, fixed: dict[int, ir.Expr]) -> list[ir.Expr]:
        places: list[ir.Expr] = [tirx.const(box * BOX_BYTES // self.size, "int32")]
        for dimension in reversed(range(self.rank - 1)):
            places.append(row if dimension == self.operand.row else fixed[dimension])
        return [T.cast(place, "int32") for place in places]
