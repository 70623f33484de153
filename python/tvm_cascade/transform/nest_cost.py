"""The cost of one nest on a CPU core: contractions, reductions and maps, packing, and loop overhead.

A product runs in register tiles, fast where each operand is read for several rows; an operand that is not contiguous
along the lanes is packed first. Everything else runs in vectors along contiguous data, element by element where there
is none. The prices were fitted on an Intel Emerald Rapids core with AVX-512; only their ratios matter.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Generic, TypeVar

import tvm
from tvm import ir, tirx

from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.expression import ARITHMETIC, function_name, whole_exponent
from tvm_cascade.analysis.program import Stage
from tvm_cascade.analysis.tir import dtype_of, loads_of, uses, variables_of, within
from tvm_cascade.devices.device import Cpu
from tvm_cascade.transform.tiling import row_width

OVERLAP = 0.5
"""Part of the shorter of arithmetic and traffic that the longer does not hide."""

OPERATIONS_PER_NS = 84.0
"""Of vectors, elements counted."""

GATHER_NS = 0.15
"""One element that is gathered, since its neighbours lie apart."""

PRODUCT_OPERATIONS_PER_NS = 110.0

PACKED_BYTES = 4
"""Of an element in a panel."""

SERIAL_NS, NARROW = 0.45, 8
"""One element of a fold across fewer outputs than these, which are no vector."""

ROWS_AT_FULL_SPEED = 3
"""Rows for which a register tile reads an operand, from which on it is arithmetic that limits it."""

PACKING_NS, PACKING_ROWS_NS = 0.5, 0.2
"""One element of an operand copied into panels, and of the rows that a block of a loop works on (measured: attention
of 4 and 8 queries over 2048 keys takes 0.83 and 0.92 ms unfused, 0.78 and 0.87 fused; its products 0.15 and 0.3)."""

ODD_LANES = 2.0
"""Time of a map along an extent that no vectors divide, over that of as many elements in whole ones (measured: of
exponentials of rows of 49 and 197 elements 1.95)."""

WIDENED = {"float16": 2.8}
"""Elements of float32 that are copied in the time of one that is widened on the way; a bfloat16 is by a mere shift."""

FORK_NS = 1900.0
"""Starting the threads of a nest and waiting for them (measured on two cores)."""

FUNCTION_OPERATIONS = {True: 13, False: 180}
"""A function of an element as a polynomial in vectors, and as a call of the C library for each (measured: exp 0.28 and
2.1 ns, log 0.49 and 2.2, tanh 0.33 and 5.0)."""

ACCESS_OPERATIONS = 0.5

LANES, VECTOR, LANES_NS, REST_NS = 64, 16, 3.0, 12.0
"""Lanes of a row that is reduced in a nest of its own, at most, and of a vector; the time to add them up at its end,
and that of a rest of as many (measured: sums of 64, 256, 768 and 777 positions take 5, 10, 26 and 38 ns a row)."""

CHAIN_NS = 0.9
"""One element of a sum that waits for the one before it in its lane."""

TUPLE_PART_NS = 1.6
"""One component of one element of a tuple that is combined in memory."""


def traffic_ns(sizes: Sequence[int], cpu: Cpu) -> float:
    """Time to move buffers once: together they stay in the first level of memory that holds them all."""
    return sum(sizes) / cpu.bytes_per_ns(sum(sizes))


def overlapped_ns(arithmetic: float, traffic: float) -> float:
    return max(arithmetic, traffic) + OVERLAP * min(arithmetic, traffic)


def vector_ns(points: int, operations: float) -> float:
    """Time of so many operations at each point, in vectors."""
    return points * operations / OPERATIONS_PER_NS


def product_ns(points: int, rows: int, packed: int, packing: float = PACKING_NS) -> float:
    """Time of a product in register tiles.

    Parameters
    ----------
    points : multiplications.
    rows : for which an element of the operand in lanes is read once.
    packed : elements that are copied into panels first.
    packing : time to copy one.
    """
    speed = PRODUCT_OPERATIONS_PER_NS * min(1.0, rows / ROWS_AT_FULL_SPEED)
    return 2.0 * points / speed + packed * packing


@dataclass(frozen=True)
class Product:
    """Which axes a product runs over.

    Attributes
    ----------
    lanes, rows : the axes of its register tiles.
    beside : loads that run along the lanes.
    """

    lanes: tirx.Var
    rows: tirx.Var
    beside: tuple[ir.TensorLoad, ...]

    def packed(self, extents: dict[tirx.Var, int], once: bool = False) -> int:
        """Elements of operands that are strided along the lanes, in elements of float32.

        Parameters
        ----------
        once : what several outputs share, such as the keys of grouped queries, is copied for all of them.
        """
        apart = [load for load in self.beside if not is_contiguous(load, self.lanes)]
        points = [math.prod(e for v, e in extents.items() if uses(load, [v])) for load in apart]
        most = [math.prod(int(e) for e in load.source.ty.shape) if once else math.inf for load in apart]
        return int(sum(min(n, m) * copied(load) for n, m, load in zip(points, most, apart, strict=True)))


def copied(load: ir.TensorLoad) -> float:
    """What copying an element takes, in elements of float32."""
    return WIDENED.get(dtype_of(load.source), 1.0)


def threads_of(outputs: int, cpu: Cpu) -> int:
    """Cores that a nest is spread over."""
    return max(1, min(cpu.cores, outputs))


def find_product(stage: Stage, value: ir.Expr, lanes: tirx.Var) -> Product | None:
    """A reduction as a contraction with a vectorised axis: Σ of factors none of which has all axes."""
    if stage.reducer is not SUM:
        return None
    loads = [load for load in loads_of(value) if uses(load, stage.reduce)]
    outputs = [v for v in stage.spatial if int(stage.extents[v]) > 1]
    axes = product_axes([set(variables_of(load)) for load in loads], lanes, outputs)
    if axes is None:
        return None
    rows = max(axes.rows, key=lambda v: int(stage.extents[v]))
    return Product(lanes, rows, tuple(loads[k] for k in axes.along))


def stage_ns(parts: Sequence[Stage], values: Sequence[ir.Expr], cpu: Cpu, vector_math: bool) -> float:
    """Time of a stage in a separate nest, which the components of a tuple share; `vector_math` as the option."""
    stage, extents = parts[0], {v: int(e) for v, e in parts[0].extents.items()}
    points, last = math.prod(extents.values()), stage.indices[-1] if stage.indices else None
    lanes = last if isinstance(last, ir.Var) else None
    product = None if lanes is None else find_product(stage, values[0], lanes)
    loads = distinct([load for value in values for load in loads_of(value)])
    wide = VECTOR if lanes is None else extents[lanes]
    padded = -(-wide // VECTOR) * VECTOR / wide if wide > VECTOR else 1.0
    if product is not None:
        packed = product.packed(extents, once=True)
        traffic = traffic_ns([*(size_of(load.source) for load in loads), *[packed * PACKED_BYTES] * 2], cpu)
        return overlapped_ns(padded * product_ns(points, extents[product.rows], packed), traffic)
    written = [] if stage.reducer is not None else [size_of(stage.buffer)]
    traffic = traffic_ns([size_of(load.source) for load in loads] + written, cpu)
    if len(parts) > 1:
        return overlapped_ns(points * len(parts) * TUPLE_PART_NS, traffic)
    work = (
        operations_of(values[0], vector_math)
        + ACCESS_OPERATIONS * (len(loads) + len(written))
        + (stage.reducer is not None)
    )
    if stage.reducer is None or (lanes is not None and _vertical(loads, stage, lanes)):
        apart = gathered(loads, lanes)
        narrow = stage.reducer is not None and lanes is not None and extents[lanes] < NARROW
        in_vectors = vector_ns(points, work) * (ODD_LANES if padded > 1 else 1.0) + points * len(apart) * GATHER_NS
        return overlapped_ns(points * SERIAL_NS if narrow else in_vectors, traffic)
    axis = stage.reduce[-1]
    apart, rows = gathered(loads, axis), points // extents[axis]
    lanes = 1 if apart else row_width(extents[axis], VECTOR, LANES)
    ends = rows * (LANES_NS + (REST_NS * lanes / LANES if extents[axis] % lanes else 0.0)) if lanes > 1 else 0.0
    arithmetic = max(vector_ns(points, work), points * CHAIN_NS / lanes)
    return overlapped_ns(arithmetic + points * len(apart) * GATHER_NS, traffic) + ends


def gathered(loads: Iterable[ir.TensorLoad], lanes: tirx.Var | None) -> list[ir.TensorLoad]:
    """The loads that are strided along the lanes."""
    return [load for load in loads if lanes is not None and uses(load, [lanes]) and not is_contiguous(load, lanes)]


def _vertical(loads: Sequence[ir.TensorLoad], stage: Stage, lanes: tirx.Var) -> bool:
    """Whether lanes run along the output: what the reduction reads is contiguous there, not along its axis."""
    return not gathered(loads, lanes) and any(gathered([load], axis) for load in loads for axis in stage.reduce)


def is_contiguous(load: ir.TensorLoad, var: tirx.Var) -> bool:
    """Whether a buffer is contiguous along a variable."""
    return bool(load.indices) and uses(load.indices[-1], [var]) and not any(uses(i, [var]) for i in load.indices[:-1])


def size_of(buffer: tirx.Var) -> int:
    return math.prod(int(extent) for extent in buffer.ty.shape) * tvm.DataType(dtype_of(buffer)).itemsize


def distinct(loads: Iterable[ir.TensorLoad]) -> list[ir.TensorLoad]:
    """One load of each buffer."""
    return list({load.source: load for load in reversed(list(loads))}.values())[::-1]


def operations_of(value: ir.Expr, vector_math: bool) -> int:
    """Arithmetic of one point, functions weighted."""

    def operations(node: ir.Expr) -> int:
        if exponent := whole_exponent(node):
            return abs(exponent).bit_length()
        return FUNCTION_OPERATIONS[vector_math] if function_name(node) else 1

    return sum(map(operations, within(value, *ARITHMETIC, ir.Call)))


# Which axes the register tiles of a product of operands run over.
#
# A reduction Σ over some axes of factors of which none has all output axes is a product. One output axis runs along the
# lanes of a vector, in which some operands lie; along a second one those operands are read again, and others broadcast.


Axis = TypeVar("Axis", bound=Hashable)


@dataclass(frozen=True)
class ProductAxes(Generic[Axis]):
    """The axes of a product for one choice of lanes.

    Attributes
    ----------
    along : places of the operands that run along the lanes.
    rows : output axes that some of these operands lack and another operand has, in order.
    """

    along: tuple[int, ...]
    rows: tuple[Axis, ...]


def product_axes(operands: Sequence[Set[Axis]], lanes: Axis, outputs: Sequence[Axis]) -> ProductAxes[Axis] | None:
    """The axes of register tiles; None where the operands leave none for rows.

    Parameters
    ----------
    operands : the axes of each factor that varies along a reduced axis.
    lanes : the output axis along the lanes.
    outputs : output axes that rows of a tile may run over.
    """
    along = [k for k, axes in enumerate(operands) if lanes in axes]
    if not along:
        return None
    shared = frozenset(operands[along[0]]).intersection(*(operands[k] for k in along))
    across = [axes for axes in operands if lanes not in axes]
    rows = tuple(axis for axis in outputs if axis not in shared and any(axis in axes for axes in across))
    return ProductAxes(tuple(along), rows) if rows else None
