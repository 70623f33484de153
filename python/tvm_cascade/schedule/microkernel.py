"""Contractions by register tiles: `vectors` × `rows` accumulators in registers over the whole reduction.

    for lanes_outer, rows_outer:  for k:  for r in rows (unrolled):  acc[r, lanes] += a[k, r] · b[k, lanes]

One axis of the output runs along the lanes of a vector, and an operand is contiguous along it, or is packed so that it
is; the other axis is broadcast. The shape of the tile follows from the number of registers and the width of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache

import tvm

from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.reducers import split_reduction
from tvm_cascade.analysis.tir import Extent, dtype_of, extent_of, product
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.blocked_sums import BLOCK
from tvm_cascade.schedule.nest_schedule import Loop, Nest, power_of_two_divisor
from tvm_cascade.schedule.nests import Access, BlockPlan
from tvm_cascade.schedule.packing import LINES_OF_A_SET, can_be_laid_out, lines_at_hand, panel_of
from tvm_cascade.transform.nest_cost import product_axes

MAX_UNROLLED_TILES = 48
"""Register tiles written out one after the other where their rows do not divide the extent: code must stay cached."""

CACHE_SHARE = 2
"""Part of a second-level cache that both operands of one task may take over the positions of a reduction."""

ROWS_SHARE = 4
"""Part of a second-level cache that the rows of a task may take where panels stream by (measured on 512 to 1024 rows:
two to four blocks of rows take 0.85 to 0.95 of the time of one, eight or more take as long as one)."""

WRITTEN_OUT, AT_HAND = 1.08, 64
"""Time of register tiles that are written out one after the other, over those of a loop, where they have more multiply-
adds than this (measured: attention of 512 and 777 positions takes 1.02 to 1.14 in tiles of 13 rows of what it takes in
tiles of 8 and 7, which divide them; that of 16 rows takes 0.9 in tiles of 6)."""

REPEATED = 3
"""Times that an operand is read from where copying it into panels takes less time than it saves."""

FEW_ROWS = 4
"""Rows up to which a product is folded along contiguous positions, since copying the other operand into panels takes
longer than that: 0.56 and 0.43 of the time of 2 rows (measured, 256 × 1024 and 768 × 768), 0.96 and 0.70 of 4."""

LOAD_CYCLES = 0.6
"""Of a vector load or a broadcast, of which two start a cycle at best."""

LATENCY_CYCLES = 4.5
"""Least time of one step over k: a multiply-add waits that long for the one before, and some."""

FAR_CYCLES = 1.2
"""Of a vector that comes from a second-level cache at each step, as all of a panel do that a first-level one does not
hold."""

TASKS_OF_A_CORE = 2
"""Tasks that a nest is cut into for each core, at least, where it can be."""

MOST_ROWS = 96
"""Rows of a block at most; of an unknown number, register tiles are chosen as for so many."""

UNKNOWN_ROWS = 32
"""Rows that an axis of unknown length is taken to have where another one may be cut: its last tile is not full."""

LONG = 128
"""Terms of a sum from which on its tiles start from zero and are written once, with what they read asked for ahead."""

TILE_OVERHEAD = 0.3
"""Cycles per step of k that starting and storing a register tile costs, on reductions of about 64."""


@dataclass(frozen=True)
class Contraction:
    """Which axes a contraction runs over.

    Attributes
    ----------
    lanes, broadcast : the axes of a register tile.
    packed : operands that are not contiguous along the lanes.
    """

    lanes: int
    broadcast: int
    packed: tuple[Access, ...]


def find_contraction(
    plan: BlockPlan, lanes: int | None = None, outside: frozenset[int] = frozenset()
) -> Contraction | None:
    """A block as a contraction: Σ over some axes of factors none of which has all output axes.

    Parameters
    ----------
    lanes : the axis to put in lanes; by default the one along which the output is contiguous.
    outside : axes whose loops stand outside of the nest, where no register tile reaches them.
    """
    if len(plan.stores) != 1 or not plan.reduce:
        return None
    reduction = split_reduction(plan.stores[0])
    lanes = plan.last_axis() if lanes is None else lanes
    if reduction is None or reduction[0] is not SUM or lanes is None or lanes in plan.reduce | outside:
        return None
    operands = [access for access in plan.loads if plan.axes_of(access) & plan.reduce]
    axes = product_axes([plan.axes_of(o) for o in operands], lanes, [a for a in plan.spatial if a not in outside])
    if axes is None:
        return None
    packed = tuple(operands[k] for k in axes.along if plan.step(operands[k], lanes) != 1)
    dims = [(access.buffer, packed_dim(plan, access, lanes)) for access in packed]
    if any(dim is None or any(b.same_as(buffer) and d != dim for b, d in dims) for buffer, dim in dims):
        return None
    # A buffer that is read twice is packed once.
    first = [access for k, access in enumerate(packed) if not any(access.buffer.same_as(b) for b, _ in dims[:k])]

    def length(axis: int) -> int:
        extent = plan.extents[axis]
        return extent if isinstance(extent, int) else UNKNOWN_ROWS

    return Contraction(lanes, max(axes.rows, key=length), tuple(first))


def product_alone(plan: BlockPlan, cpu: Cpu) -> Contraction | None:
    """A nest of its own as a contraction that runs in register tiles, for `whole_products` to make these full."""
    contraction = find_contraction(plan)
    if contraction is None or _is_folded(plan, contraction):
        return None
    axes, written = (contraction.lanes, contraction.broadcast), [plan.axis_at(at) for at in plan.stores[0].indices]
    if all(isinstance(plan.extents[axis], int) for axis in axes):
        return contraction
    wide = plan.extents[contraction.lanes]
    narrow = isinstance(wide, int) and wide < cpu.lanes(plan.dtype)
    return contraction if not narrow and all(axis in written for axis in axes) else None


def _is_folded(plan: BlockPlan, contraction: Contraction) -> bool:
    """Whether it is inner products of few rows along what is contiguous, or of one row, which register tiles repeat."""
    rows = plan.extents[contraction.broadcast]
    inner = all(any(plan.step(access, axis) == 1 for axis in plan.reduce) for access in contraction.packed)
    return rows == 1 or (isinstance(rows, int) and rows <= FEW_ROWS and bool(contraction.packed) and inner)


def tile_of_unknown(plan: BlockPlan, contraction: Contraction, cpu: Cpu) -> tuple[int, int, int]:
    """The register tile of a product whose lanes or rows are of unknown length, rounded up to whole ones."""
    wide, rows = plan.extents[contraction.lanes], plan.extents[contraction.broadcast]
    columns = wide if isinstance(wide, int) else panel_of(cpu, plan.dtype)
    most = _rows_at_hand(plan, contraction.broadcast)
    return register_tile(columns, rows if isinstance(rows, int) else MOST_ROWS, cpu, plan.dtype, True, most)


def register_tile(
    lanes: int,
    rows: int,
    cpu: Cpu,
    dtype: str,
    whole: bool = False,
    most_rows: int | None = None,
    terms: int = 0,
) -> tuple[int, int, int]:
    """Lanes of a vector, vectors and rows of the register tile for an output of `lanes` × `rows`.

    The cost of a step over k is that of its multiply-adds or of its loads, or the latency of a multiply-add.

    Parameters
    ----------
    whole : whether the tile's rows have to divide those of the output; else the last tile may be smaller.
    most_rows : of a tile; as many as there are registers for by default.
    terms : steps after which a tile is at the start of its panel again; 0 where a first-level cache holds that.
    """
    return _cheapest_tile(lanes, rows, cpu, dtype, whole, most_rows, terms)[1]


def tile_cycles(lanes: int, rows: int, cpu: Cpu, dtype: str, terms: int = 0) -> float:
    """Cycles of one step over k on an output of `lanes` × `rows`, in register tiles that divide the rows."""
    return _cheapest_tile(lanes, rows, cpu, dtype, True, None, terms)[0]


@cache
def _cheapest_tile(
    lanes: int, rows: int, cpu: Cpu, dtype: str, whole: bool, most_rows: int | None, terms: int
) -> tuple[float, tuple[int, int, int]]:
    width, size = power_of_two_divisor(lanes, cpu.lanes(dtype)), tvm.DataType(dtype).itemsize
    best: tuple[float, tuple[int, int, int]] | None = None
    for vectors in (v for v in range(1, cpu.vector_registers) if (lanes // width) % v == 0):
        for tall in range(1, min(rows, most_rows or rows, cpu.vector_registers) + 1):
            operand = vectors if tall > 1 else 0  # a vector used only once comes straight from memory
            if vectors * tall + operand + 1 > cpu.vector_registers:
                break
            if rows % tall and (whole or -(-rows // tall) > MAX_UNROLLED_TILES):
                continue
            columns = lanes // (width * vectors)
            steps = [tall] * (rows // tall) + ([rows % tall] if rows % tall else [])
            far = FAR_CYCLES * vectors if width * vectors * size * terms > cpu.l1_bytes else 0.0
            cycles = sum(
                max(m * vectors / 2, (m + vectors) * LOAD_CYCLES, LATENCY_CYCLES, far) + TILE_OVERHEAD for m in steps
            )
            cost = cycles * columns * (WRITTEN_OUT if rows % tall and rows * vectors > AT_HAND else 1.0)
            if best is None or cost < best[0] - 1e-9:
                best = (cost, (width, vectors, tall))
    assert best is not None
    return best


def packed_dim(plan: BlockPlan, access: Access, axis: int) -> int | None:
    """The one dimension of an access that moves with an axis, one element at a time."""
    moved = {d: by for d, index in enumerate(access.indices) if (by := plan.moves(index, axis)) != 0}
    return next(iter(moved)) if [*moved.values()] == [1] and plan.step(access, axis) is not None else None


def repacked(plan: BlockPlan, contraction: Contraction) -> tuple[tuple[Access, int], ...]:
    """Operands that are contiguous along the lanes or the rows, each with that axis, where what tiles read lies apart.

    A panel is what the tiles of one column read. Of an operand along the lanes it is copied where it is read
    repeatedly: lines that lie apart come late from where they are. Through windows, vectors would cross the ends of
    panels. Along the rows, as a matrix that is stored transposed has them, a line has several rows of one term: no near
    cache holds the lines of many terms until the next rows are read.
    """
    lanes, rows, terms = plan.extents[contraction.lanes], plan.extents[contraction.broadcast], terms_of(plan)
    if not isinstance(lanes, int) or not isinstance(rows, int):
        return ()
    operands = [access for access in plan.loads if plan.axes_of(access) & plan.reduce]
    once = [access for access in operands if sum(access.buffer.same_as(other.buffer) for other in operands) == 1]

    def far_apart(access: Access) -> bool:
        steps = [plan.step(access, axis) for axis in plan.reduce]
        size = tvm.DataType(dtype_of(access.buffer)).itemsize
        return all(steps) and terms > min(lines_at_hand(step * size) for step in steps if step)

    found = [(one, contraction.lanes) for one in once if rows >= REPEATED * row_block(rows)]
    found += [(one, contraction.broadcast) for one in once if rows > row_block(rows) and far_apart(one)]
    return tuple((one, axis) for one, axis in found if can_be_laid_out(one) and _lies_along(plan, one, axis))


def _lies_along(plan: BlockPlan, access: Access, axis: int) -> bool:
    """Whether an operand is contiguous along an axis, which is the index of a dimension."""
    dim = packed_dim(plan, access, axis) if plan.step(access, axis) == 1 else None
    return dim is not None and plan.axis_at(access.indices[dim]) == axis


def schedule_contraction(nest: Nest, contraction: Contraction, rows_in_panels: bool = False) -> None:
    """Tiles a contraction within a fused loop for registers.

    Parameters
    ----------
    rows_in_panels : the broadcast operand lies in panels of `nest.panel` rows, which register tiles do not cross.
    """
    rows, height = nest.loops[contraction.broadcast], nest.extent(contraction.broadcast)
    wide = nest.extent(contraction.lanes)
    panels: list[Loop] = []
    if rows_in_panels:
        height = nest.panel
        outer, rows = nest.sch.split(rows, [None, height])
        panels = [outer]
    if contraction.lanes == nest.row and nest.panel:
        wide = nest.panel
    tile = register_tile(wide, height, nest.cpu, nest.dtype)
    before = _others(nest, contraction)
    _tile_registers(nest, contraction, tile, _Order(before, panels, rows, _reduced(nest), height))


def tile_alone(plan: BlockPlan, contraction: Contraction, cpu: Cpu) -> tuple[int, int, int]:
    """The register tile of a contraction as a separate nest, of known lanes and rows."""
    lanes, rows = int(plan.extents[contraction.lanes]), int(plan.extents[contraction.broadcast])
    # A tile is copied out whole, also past the end of its block: rows there are another task's.
    whole, most = row_block(rows) < rows, _rows_at_hand(plan, contraction.broadcast)
    return register_tile(lanes, row_block(rows), cpu, plan.dtype, whole, most, terms_of(plan))


def terms_of(plan: BlockPlan) -> int:
    """Terms of a block of a sum (`blocked_sums`); 0 where their number is not known."""
    terms = product(plan.extents[axis] for axis in plan.reduce)
    return min(terms, BLOCK) if isinstance(terms, int) else 0


def read_again(plan: BlockPlan, contraction: Contraction, access: Access) -> list[int]:
    """Axes of the result beside those of register tiles at each of which the same of an operand is read."""
    tile, along = (contraction.lanes, contraction.broadcast), plan.axes_of(access)
    return [axis for axis in plan.spatial if axis not in tile and axis not in along]


def reads_once(plan: BlockPlan, contraction: Contraction, access: Access, cpu: Cpu) -> bool:
    """Whether one column of register tiles, a task, reads a part of an operand that no other one reads.

    Of several blocks of rows it does where a near cache holds the other operand, and columns are tasks enough.
    """
    lanes, rows = plan.extents[contraction.lanes], plan.extents[contraction.broadcast]
    again = product(plan.extents[axis] for axis in read_again(plan, contraction, access))
    terms = product(plan.extents[axis] for axis in plan.reduce)
    if not all(isinstance(extent, int) for extent in (lanes, rows, again, terms)):
        return False
    near = rows * again * min(terms, BLOCK) * tvm.DataType(plan.dtype).itemsize * CACHE_SHARE <= cpu.l2_bytes
    width, vectors, _ = tile_alone(plan, contraction, cpu)
    enough = lanes // (width * vectors) >= TASKS_OF_A_CORE * cpu.cores
    return rows * again == row_block(rows) or (near and enough)


def schedule_contraction_alone(
    nest: Nest,
    contraction: Contraction,
    per_column: Sequence[Callable[[Loop], None]] = (),
    in_columns: Collection[int] = (),
) -> None:
    """A contraction as a separate nest: parallel over row tiles, the reduction blocked for a cache.

    Parameters
    ----------
    per_column : what is to be done for each block of the sums of a column of register tiles: called with their loop.
    in_columns : axes of the result whose loops are inside of a column then, with those over blocks of rows.
    """
    sch, extent = nest.sch, nest.plan.extents[contraction.broadcast]
    if not isinstance(extent, int) or not isinstance(nest.plan.extents[contraction.lanes], int):
        _schedule_unknown_alone(nest, contraction)
        return
    height = row_block(extent)
    block, rows = sch.split(nest.loops[contraction.broadcast], [None, height])
    tile = tile_alone(nest.plan, contraction, nest.cpu)
    far, near = _for_a_cache(nest, _reduced(nest), height + tile[0] * tile[1])
    inside, others = [nest.loops[axis] for axis in in_columns], _others(nest, contraction, in_columns)
    beside = product(extent_of(sch.get(loop).extent) for loop in others)
    in_turn = not per_column and _rows_stay_near(nest, height, [*far, *near])
    panels = [*far, *inside, block] if per_column else [*far] if in_turn else []
    together = 1 if per_column else _blocks_of_a_task(nest, extent // height, height, beside, [*panels, *near])
    if together > 1:
        block, part = sch.split(block, [None, together])
        panels.append(part)
    tasks = others if per_column else [*others, block]
    before = tasks if per_column or in_turn else [*tasks, *far]
    long = nest.dtype == "float32" and terms_of(nest.plan) >= LONG
    outer = _tile_registers(nest, contraction, tile, _Order(before, panels, rows, near, height, far, long))
    number = product(extent_of(sch.get(loop).extent) for loop in tasks)
    short = isinstance(number, int) and number < TASKS_OF_A_CORE * nest.cpu.cores
    for step in per_column:
        step(far[-1] if far else outer)
    nest.go_parallel([*tasks, outer] if short and before == tasks else tasks)


def _schedule_unknown_alone(nest: Nest, contraction: Contraction) -> None:
    """A contraction of unknown lanes or rows as a separate nest: register tiles are tasks, those of a panel in turn.

    The panel stays in a cache however many rows there are, which stream.
    """
    tile = tile_of_unknown(nest.plan, contraction, nest.cpu)
    tiles, rows = nest.sch.split(nest.loops[contraction.broadcast], [None, tile[2]])
    others = _others(nest, contraction)
    far, near = _for_a_cache(nest, _reduced(nest), tile[0] * tile[1] + tile[2])
    order = _Order(others, [tiles], rows, [*far, *near], tile[2], far)
    outer = _tile_registers(nest, contraction, tile, order)
    nest.go_parallel([*others, outer, tiles])


def _rows_at_hand(plan: BlockPlan, rows: int) -> int:
    """Rows of an operand that a tile may read in turn without one pushing out another one's line of the cache."""
    steps = [(plan.step(access, rows), access.buffer) for access in plan.loads]
    return min(
        (lines_at_hand(step * tvm.DataType(str(buffer.ty.dtype)).itemsize) for step, buffer in steps if step),
        default=LINES_OF_A_SET,
    )


def _for_a_cache(nest: Nest, reduced: list[Loop], beside: int) -> tuple[list[Loop], list[Loop]]:
    """The loops of a reduction outside and inside of register tiles: inside, what a cache holds of both operands.

    Those inside are a block of a sum at most (`blocked_sums`): what was summed before waits in memory meanwhile.

    Parameters
    ----------
    beside : elements of both operands that a task reads at each position.
    """
    sch, near = nest.sch, list[Loop]()
    most = min(BLOCK, nest.cpu.l2_bytes // (CACHE_SHARE * beside * tvm.DataType(nest.dtype).itemsize))
    for place in reversed(range(len(reduced))):
        extent = extent_of(sch.get(reduced[place]).extent)
        if not isinstance(extent, int):
            return [], [*reduced[: place + 1], *near]
        if extent <= most:
            near, most = [reduced[place], *near], most // extent
            continue
        depth = max((size for size in range(1, most + 1) if extent % size == 0), default=1)
        if depth < most // 4 or depth == 1:  # nothing near that size divides it
            if extent <= 2 * most:
                return reduced[:place], [reduced[place], *near]
            depth = most  # the last block is shorter
        outer, inner = sch.split(reduced[place], [None, depth])
        return [*reduced[:place], outer], [inner, *near]
    return [], near


def _rows_stay_near(nest: Nest, rows: int, reduced: list[Loop]) -> bool:
    """Whether a near cache holds so many rows over the whole sum: then a column's tiles are summed one after the other.

    Else all columns take in a block of terms at a time, and wait in memory meanwhile.
    """
    terms = product(extent_of(nest.sch.get(loop).extent) for loop in reduced)
    size = tvm.DataType(nest.dtype).itemsize * ROWS_SHARE
    return isinstance(terms, int) and rows * terms * size <= nest.cpu.l2_bytes


def _blocks_of_a_task(nest: Nest, blocks: int, height: int, beside: Extent, near: list[Loop]) -> int:
    """Blocks of rows that read a panel one after the other, so that it comes once for all of them from far away.

    Parameters
    ----------
    beside : tasks of one block of rows.
    """
    terms = product(extent_of(nest.sch.get(loop).extent) for loop in near)
    if not isinstance(terms, int) or not isinstance(beside, int):
        return 1
    size, cpu = height * terms * tvm.DataType(nest.dtype).itemsize * ROWS_SHARE, nest.cpu
    fitting = (
        count
        for count in range(1, blocks + 1)
        if blocks % count == 0
        and count * size <= cpu.l2_bytes
        and beside * blocks >= count * TASKS_OF_A_CORE * cpu.cores
    )
    return max(fitting, default=1)


def row_block(rows: int) -> int:
    """Rows that one task takes: a divisor, about 64."""
    return max(block for block in range(1, min(rows, 96) + 1) if rows % block == 0)


@dataclass(frozen=True)
class _Order:
    """Loops around a register tile: `before` and `panels` outside, `rows` of `height` to be cut, `reduced` inside.

    Of the reduction, `far` loops run outside; a sum that is long goes on where its result is (`in_memory`).
    """

    before: list[Loop]
    panels: list[Loop]
    rows: Loop
    reduced: list[Loop]
    height: int
    far: Sequence[Loop] = ()
    in_memory: bool = False


def _others(nest: Nest, contraction: Contraction, inside: Collection[int] = ()) -> list[Loop]:
    tile = (contraction.lanes, contraction.broadcast, *inside)
    return [nest.loops[a] for a in nest.plan.spatial if a in nest.loops and a not in tile]


def _reduced(nest: Nest) -> list[Loop]:
    return [nest.loops[a] for a in nest.plan.own if a in nest.plan.reduce]


def _tile_registers(nest: Nest, contraction: Contraction, tile: tuple[int, int, int], order: _Order) -> Loop:
    """The loops of register tiles: lanes, panels, rows; then the reduction; then one tile, written out.

    A tile stays in a local buffer over the whole reduction, which registers then take; where a part of the reduction
    (`far`) runs outside, or the sum is long (`in_memory`), `blocked_sums` has it in registers.

    Returns
    -------
    The loop over lanes.
    """
    sch, deferred = nest.sch, nest.deferred
    width, vectors, tall = tile
    lanes_outer, vector, lane = sch.split(nest.loops[contraction.lanes], [None, vectors, width])
    rows_outer, row = sch.split(order.rows, [None, tall])
    sch.reorder(*order.before, lanes_outer, *order.panels, rows_outer, *order.reduced, row, vector, lane)
    if not order.far and not order.in_memory:
        copy = sch.cache_write(nest.block, 0, "local")
        sch.reverse_compute_at(copy, rows_outer, preserve_unit_loops=True)
        copied_row, copied = sch.get_loops(copy)[-2:]
        copied_vector, copied_lane = sch.split(copied, [None, width])
        deferred.vector += [copied_lane] if width > 1 else []
        deferred.unrolled += [copied_vector, copied_row]
    deferred.vector += [lane] if width > 1 else []
    deferred.unrolled += [vector, row, *([rows_outer] if order.height % tall else [])]
    deferred.decomposed.append((nest.block, [*order.far, *order.reduced][0]))
    return lanes_outer
