"""TMA copies between tensors and shared memory: boxes of 128 bytes a row, swizzled for WGMMA."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from math import gcd
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import branches, named, ptx
from tvm_cascade.tile.operand import COPY_ALIGNMENT, Operand

BOX_BYTES = 128
"""Bytes of a row of a box: the widest swizzle."""

CHUNK = 16
CHUNKS = BOX_BYTES // CHUNK
"""Bytes of a row of a box that are swizzled together, and how many of those it has."""

LEAST_BOX_ROWS = 8
"""Rows of a page from which on bulk copies bring them: of fewer, a box costs what a larger one does, and threads copy
the rows (measured: decode over pages of 1, 8 and 16 rows 259, 257 and 259 µs by threads, 1080, 260 and 254 in bulk;
prefill over pages of 1 and 8 rows 555 and 628 by threads, 2138 and 445 in bulk)."""

ROW_WARPS = 2
"""Warps that copy the rows of a feed, where two feeds share the producer's warp group."""

SWIZZLE_128B = 3
_PROMOTE_TO_L2_128B = 2


COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"


class RowParts:
    """Copies of parts of a row of a tensor: of so many columns each, or up to the row's end.

    Parameters
    ----------
    buffer : the tensor in the kernel's own parameters.
    """

    by_threads = False

    def __init__(self, operand: Operand, buffer: Any, columns: int) -> None:
        self.operand, self.buffer, self.columns = operand, buffer, columns

    def prefetch(self) -> None:
        """There is no descriptor."""

    def bytes_from(self, first: ir.Expr, boxes: range | None = None) -> ir.Expr | int:
        """Bytes of the part that starts at a column."""
        width, size = self.operand.width, self.operand.stored_size
        return tirx.min(width - first, self.columns) * size if width % self.columns else self.columns * size

    def load(
        self, target: Any, first: ir.Expr, fixed: dict[int, ir.Expr], barrier: ir.Expr, boxes: range | None = None
    ) -> None:
        places = [fixed[dimension] for dimension in range(len(self.operand.shape) - 1)]
        size = T.cast(self.bytes_from(first), "uint32")
        ptx(COPY, target(0), self.buffer.ptr_to([*places, first]), size, barrier)


class TensorMap:
    """The descriptor of a tensor for copies of boxes [rows, 128 bytes]. Dimensions are counted from the innermost.

    Parameters
    ----------
    buffer : the tensor in the kernel's own parameters.
    rows : of a tile; of a box too, except where rows are in pages: then as many as those have in common with tiles.
    columns : of a tile, where tiles follow one another along the rows of the tensor; None where each has whole rows.
    there : rows of a box where the launch alone knows how many there are.
    rows_by_threads : whether threads may copy rows of small pages, as of the feeds of `attention.operands.feed`.
    row_warps : that do so.
    others : parameters of the kernel, of which one has elements where this has none.

    Attributes
    ----------
    by_threads : whether threads copy its rows, instead of bulk copies (`attention.operands.paged`).
    """

    def __init__(
        self, operand: Operand, buffer: Any, rows: int, columns: int | None = None, there: ir.Expr | None = None,
        rows_by_threads: bool = False, row_warps: int = ROW_WARPS, others: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        self.operand, self.buffer, self.rows, self.size = operand, buffer, rows, operand.stored_size
        self.along_rows, self.columns = columns is not None, columns or operand.width
        self.row_warps, self.rank = row_warps, len(operand.shape)
        self.box_rows = rows if operand.pages is None else gcd(rows, operand.pages.size)
        self.by_threads = rows_by_threads and operand.pages is not None and self.box_rows < LEAST_BOX_ROWS
        known = (one for one in others if all(isinstance(extent, ir.prim.IntImm) for extent in one.ty.shape))
        self.instead = next(known, others[-1] if others else buffer)
        if not self.by_threads:
            self.map = self._encoded(there)

    def _encoded(self, there: ir.Expr | None) -> Any:
        operand, rank, shape = self.operand, self.rank, list(reversed(self.operand.shape))
        strides = [tirx.const(self.size, "int64")]
        for extent in shape[:-1]:
            strides.append(strides[-1] * T.cast(extent, "int64"))
        box: list[int | ir.Expr] = [self.per_box] + [1] * (rank - 1)
        steps = [1] * rank
        for dimension, count in self._rows_in_box(there).items():
            box[rank - 1 - dimension] = count
        for along in operand.box:  # it spans what it steps over
            place = rank - 1 - along.dimension
            box[place], steps[place] = along.count * along.step, along.step
        found = named(f"{operand.buffer.name}_map", T.Bind(T.tvm_stack_alloca("tensormap", 1), T.TensorMap().ty))

        def encode(tensor: Any, shape: Sequence[Any], strides: Sequence[Any]) -> None:
            T.evaluate(
                T.tensormap_encode_tiled(
                    found, tensor.data, *shape, *strides, *box, *steps,
                    descriptor_dtype=self.element, rank=rank, swizzle=SWIZZLE_128B, l2_promotion=_PROMOTE_TO_L2_128B,
                )
            )  # fmt: skip

        none = self._is_empty()
        if none is None:
            encode(self.buffer, shape, strides[1:])
            return found
        with branches(none) as (empty, full):
            with empty:  # a box is filled from one element of another tensor, and masks drop it
                encode(self.instead, [1] * rank, [tirx.const(COPY_ALIGNMENT, "int64")] * (rank - 1))
            with full:
                encode(self.buffer, shape, strides[1:])
        return found

    def _is_empty(self) -> ir.Expr | None:
        """Whether a call gives a tensor without elements, of which there is no descriptor; None where none does."""
        unknown = (extent for extent in self.operand.shape if not isinstance(extent, int))
        none = [tirx.EQ(extent, tirx.const(0, dtype_of(extent))) for extent in unknown]
        return reduce(tirx.Or, none) if none else None

    def _rows_in_box(self, there: ir.Expr | None) -> dict[int, int | ir.Expr]:
        """By the dimensions that rows run along as one line, how many places of each a box has."""
        operand = self.operand
        if operand.box:
            return {}
        if operand.digits:
            return {digit.dimension: digit.count(self.box_rows) for digit in operand.digits}
        assert operand.row is not None
        return {operand.row: self.box_rows if there is None else there}

    @property
    def element(self) -> str:
        """The element dtype of copies and shared memory; 8-bit floats are bytes."""
        return self.operand.dtype if self.size > 1 else "uint8"

    def in_pages_of(self, other: TensorMap) -> bool:
        """Whether its tiles have the form of another operand's, with rows in the same pages."""
        own, pages = self.operand.pages, other.operand.pages
        alike = own is not None and pages is not None and pages.same_numbers(own)
        return alike and (self.rows, self.boxes) == (other.rows, other.boxes)

    @property
    def boxes(self) -> int:
        return -(-self.columns * self.size // BOX_BYTES)

    @property
    def per_box(self) -> int:
        return BOX_BYTES // self.size

    @property
    def box_bytes(self) -> int:
        """Bytes of one box in shared memory; out-of-bounds elements are zeros, and count."""
        return self.rows * BOX_BYTES

    @property
    def tile_bytes(self) -> int:
        return self.boxes * self.box_bytes

    def bytes_from(self, first: ir.Expr, boxes: range | None = None) -> ir.Expr | int:
        """Bytes of boxes, all by default, of any tile."""
        return self.box_bytes * (self.boxes if boxes is None else len(boxes))

    def prefetch(self) -> None:
        if not self.by_threads:
            T.evaluate(T.ptx.prefetch.tensormap(T.address_of(self.map)))

    def load(
        self, target: Any, first: ir.Expr, fixed: dict[int, ir.Expr], barrier: ir.Expr,
        boxes: Iterable[int | ir.Expr] | None = None,
    ) -> None:  # fmt: skip
        """Copy boxes of the tile, all by default, from row `first` on, or from that column, to `target(box)`.

        The barrier counts the bytes.
        """
        zero = tirx.const(0, "int32")
        row, column = (zero, first) if self.along_rows else (first, zero)
        self.load_at(target, row, column, fixed, barrier, boxes)

    def load_at(
        self, target: Any, row: ir.Expr, column: ir.Expr, fixed: dict[int, ir.Expr], barrier: ir.Expr,
        boxes: Iterable[int | ir.Expr] | None = None, blocks: int | None = None,
    ) -> None:  # fmt: skip
        """As `load`, of the tile that starts at a row and a column.

        Parameters
        ----------
        blocks : of the cluster that get the same at the same place of their shared memory, as bits; its own by default.
        """
        instruction = f"cp.async.bulk.tensor.{self.rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
        masks = [] if blocks is None else [T.uint16(blocks)]
        for box in range(self.boxes) if boxes is None else boxes:
            places = self._places(row, column + box * self.per_box, fixed)
            ptx(f"{instruction}{'.multicast::cluster' if masks else ''}", target(box), T.address_of(self.map), *places,
                barrier, *masks)  # fmt: skip

    def fetch(self, row: ir.Expr, fixed: dict[int, ir.Expr]) -> None:
        """Bring the tile of whole rows that starts at a row into the cache, for a copy that comes later."""
        for box in range(self.boxes):
            places = self._places(row, tirx.const(box * self.per_box, "int32"), fixed)
            ptx(f"cp.async.bulk.prefetch.tensor.{self.rank}d.L2.global.tile", T.address_of(self.map), *places)

    def store(self, source: ir.Expr, row: ir.Expr, column: ir.Expr, fixed: dict[int, ir.Expr]) -> None:
        """Copy a box from an address to a row and a column; what is outside of the tensor is left out."""
        instruction = f"cp.async.bulk.tensor.{self.rank}d.global.shared::cta.tile.bulk_group"
        ptx(instruction, T.address_of(self.map), *self._places(row, column, fixed), source)

    def _places(self, row: ir.Expr, column: ir.Expr, fixed: dict[int, ir.Expr]) -> list[ir.Expr]:
        places = [column]
        digits = {digit.dimension: digit.at(row) for digit in self.operand.digits}
        for dimension in reversed(range(self.rank - 1)):
            places.append(fixed.get(dimension, digits.get(dimension, row)))
        return [T.cast(place, "int32") for place in places]
