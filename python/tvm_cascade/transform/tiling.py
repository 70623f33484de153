"""Tiling of the cascade axis: segments of tiles, lanes within a tile, and positions in those terms.

    segment  S segments, each of `tiles` tiles          (spatial, outermost)
    tile     one step of the fused loop                 (the loop-carried axis)
    inside   the position within the tile               (B of them)

With several axis loops, only the last is cut; a tile index runs over the others too, in row-major order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import ir, tirx

from tvm_cascade.analysis.frame import Frame
from tvm_cascade.analysis.tir import Extent, ceil_div, dtype_of, more_than_one, product, same_extent
from tvm_cascade.devices.device import Cpu, Device
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.dead_tiles import LiveTiles
from tvm_cascade.transform.nest import MARKERS, Values

SEGMENT, TILE, INSIDE, LANE, STRIP = MARKERS

DEFAULT_TILE = 512
"""Positions per tile where a tile feeds a contraction. Measured on a core with 512 KiB of second-level cache: longer
tiles move references less often, and 64 rows of two float32 temporaries (256 KiB) still fit beside the operands."""

CONTRACTED_PART = 4
"""A tile's share of the widest operand of a contraction: at most a quarter of the second-level cache, of which a
register tile sweeps one panel after the other."""

GPU_TILE = 64
"""The same on a GPU, where 64 rows of two float32 temporaries (32 KiB) stay in a block's shared memory."""

SYMBOLIC_TILE = 32
"""The same where the length is not known: what the last tile is short of is computed all the same."""

MASKED_TILES = (32, 64, 128, 256, 512)
"""Positions per tile, about, that are tried where a mask takes whole tiles out: half of one a row is wasted."""

RAGGED_MASKED = 1.2
"""Time of masked tiles that do not divide the axis, and so have a guard beside the mask (measured: 1.13 to 1.4)."""

SMALLEST_ROW_TILE = 128
"""Positions per tile of a row fold, however many elements a position has."""

ROW_TILE_PART, GPU_ROW_TILE_BYTES = 2, 16 * 1024
"""Element data per row and tile where rows are only folded: half of the first-level cache of a CPU."""

PAGE_BYTES = 4096
"""Element data per tile of one input that no cache holds: what a processor fetches ahead while it computes, as it stops
at the end of a page (measured: a log-sum-exp of 64 × 131072 takes 0.6 of the time in tiles of 4 KiB as of 16)."""

REGISTERS_PART = 2
"""The same, of all inputs, where passes call no functions: the vectors that half of the registers hold. LLVM writes
longer tiles out, and spills (measured: a variance of 64 × 131072 takes 0.6 of the time in tiles of 256 as of 1024)."""

RAGGED_ROW_TILE = 512
"""Positions per tile of a row fold whose length no tile divides, at most: each that the last tile lacks takes time, 0.7
ns for two components (measured: 5003 positions take 1.5 times as long in tiles of 2048 as of 512)."""

FEWEST_LANES = 8
"""Lanes of a row that is one tile, where there are not more: half of the longest vectors."""

SHORT_ROW_LANES = 16
"""Lanes that a short row is rounded up to whole ones of, where fewer than four lanes divide it."""

DEFAULT_LANES = 64
"""Lanes of a tile's scalar reduction on a CPU: four 16-wide vectors, enough to hide the latency of an addition."""

GATHERED_LANES = 8
"""Lanes that are combined one after the other; vectors of them are combined before."""

LANES_FROM_MEMORY = 32
"""The same where rows come from memory: of more, LLVM loads far ahead of what it adds (measured: variances, entropies,
softmax statistics and inertias of 32 MiB take 0.8 to 0.96 of the time in 32 lanes, a log-sum-exp 0.97 and 1.02)."""


@dataclass(frozen=True)
class Streams:
    """What a row fold reads along its axis.

    Attributes
    ----------
    position_bytes : element data that one position of one row brings in.
    widest_bytes : the most of it that one input has.
    total_bytes : of all inputs.
    functions : its passes call functions.
    """

    position_bytes: int
    widest_bytes: int = 0
    total_bytes: int = 0
    functions: bool = False

    def room(self, device: Device) -> int:
        """Positions of a tile that stay at hand for all passes."""
        bytes_at_hand = device.l1_bytes // ROW_TILE_PART if isinstance(device, Cpu) else GPU_ROW_TILE_BYTES
        return bytes_at_hand // max(self.position_bytes, 1)

    def from_memory(self, device: Device) -> bool:
        """Whether no cache of a CPU holds the inputs."""
        return isinstance(device, Cpu) and self.total_bytes > device.cached_bytes

    def lanes(self, device: Device) -> int:
        """Partial results of a tile's scalar reduction."""
        if not isinstance(device, Cpu):
            return 1
        return LANES_FROM_MEMORY if self.from_memory(device) else DEFAULT_LANES

    def ahead(self, device: Device) -> int:
        """Positions that are fetched while those before them are computed, where the inputs come from memory."""
        if not isinstance(device, Cpu) or not self.from_memory(device):
            return self.room(device)
        if self.functions:
            return min(self.room(device), PAGE_BYTES // self.widest_bytes)
        return device.vector_bytes * device.vector_registers // REGISTERS_PART // self.position_bytes


@dataclass(frozen=True)
class Tiling:
    """The tiling of one cascade axis.

    Attributes
    ----------
    outer : extents of the axis loops that are not cut.
    extent : of the loop that is cut, in tiles of `tile` positions.
    segments, tiles : number of segments, and of tiles in each.
    lanes : partial results that a tile's scalar reduction keeps apart; 1 for none.
    """

    outer: tuple[Extent, ...]
    extent: Extent
    tile: int
    segments: Extent
    tiles: Extent
    lanes: int

    @property
    def segmented(self) -> bool:
        """Whether there may be more than one segment."""
        return more_than_one(self.segments)

    @property
    def per_row(self) -> Extent:
        """Tiles in one run of the tiled loop."""
        return ceil_div(self.extent, self.tile)

    @property
    def total(self) -> Extent:
        """Tiles on the whole axis."""
        return product([self.per_row, *self.outer])

    @property
    def length(self) -> Extent:
        """Positions on the whole axis."""
        return product([self.extent, *self.outer])

    @property
    def none(self) -> ir.Expr | None:
        """The condition that the axis has no positions; None where it has some."""
        return no_positions(self.length)

    @property
    def ragged(self) -> bool:
        """Whether some tile holds positions past the end."""
        return not divides(self.tile, self.extent) or not divides(self.tiles, self.total)

    def tile_index(self, at: Values) -> ir.Expr:
        """The tile's index on the whole axis."""
        if not self.segmented:
            return at[TILE]
        return at[SEGMENT] * self.tiles + at[TILE]

    def position(self, at: Values) -> list[ir.Expr]:
        """The value of each axis loop at a position of a tile."""
        index = self.tile_index(at)
        coordinates: list[ir.Expr] = []
        inner = index if not self.outer else tirx.floormod(index, self.per_row)
        last = inner * self.tile + at[INSIDE] if more_than_one(self.per_row) else at[INSIDE]
        rest = tirx.floordiv(index, self.per_row) if self.outer else index
        for extent in reversed(self.outer):
            coordinates.insert(0, tirx.floormod(rest, extent))
            rest = tirx.floordiv(rest, extent)
        return [*coordinates, last]

    def in_range(self, at: Values) -> ir.Expr | None:
        """The condition that the position exists; None where every position does."""
        conditions = []
        if not divides(self.tile, self.extent):
            conditions.append(self.position(at)[-1] < self.extent)
        if not divides(self.tiles, self.total):
            conditions.append(self.tile_index(at) < self.total)
        if not conditions:
            return None
        return conditions[0] if len(conditions) == 1 else tirx.And(*conditions)

    def tile_in_range(self, at: Values) -> ir.Expr | None:
        """The condition that the tile holds any position; None where every tile does."""
        return None if divides(self.tiles, self.total) else self.tile_index(at) < self.total

    def folded_before(self, tile: ir.Expr) -> ir.Expr:
        """Positions in the tiles before one, on the whole axis."""
        tile = tile if divides(self.tiles, self.total) else tirx.min(tile, self.total)
        if not self.outer and divides(self.tile, self.extent):
            return tile * self.tile
        whole = tirx.floordiv(tile, self.per_row) * self.extent
        return whole + tirx.min(tirx.floormod(tile, self.per_row) * self.tile, self.extent)

    def count(self, at: Values, after: bool) -> ir.Expr:
        """Positions of this segment folded before the tile, or with it."""
        index = self.tile_index(at)
        total = self.folded_before(index + 1 if after else index)
        return total if not self.segmented else total - self.folded_before(at[SEGMENT] * self.tiles)

    def segment_count(self, at: Values) -> ir.Expr:
        """Positions of a whole segment."""
        return self.folded_before((at[SEGMENT] + 1) * self.tiles) - self.folded_before(at[SEGMENT] * self.tiles)

    def segment_is_empty(self, at: Values) -> ir.Expr | bool:
        """Whether a segment has no position; there is none such, unless the axis is empty."""
        return False

    @property
    def folded(self) -> Extent:
        """Positions of all segments together."""
        return self.length

    @property
    def unrolls_segments(self) -> bool:
        """Whether a merge is written out, segment by segment, rather than a loop over them."""
        return False


def no_positions(length: Extent) -> ir.Expr | None:
    """The condition that an axis of a length has no positions; None where it has some."""
    return None if isinstance(length, int) else tirx.EQ(length, tirx.const(0, dtype_of(length)))


def choose_tiling(
    frame: Frame,
    options: FuseOptions,
    device: Device,
    contracts: bool,
    streams: Streams,
    contracted_bytes: int = 0,
    live: LiveTiles | None = None,
) -> Tiling:
    """The tiling of a frame's axis under the options.

    Parameters
    ----------
    device : whose caches, or shared memory, tiles stay in.
    contracts : tiles feed a contraction (a GEMM-like update), so they are kept small.
    streams : what is read along the axis.
    contracted_bytes : data that one position of the widest operand of a contraction brings in, for all free axes.
    live : the tiles that masks leave, where there are masks.
    """
    extents = [frame.extents[var] for var in frame.axis]
    *outer, extent = extents
    wide = options.lanes or streams.lanes(device)
    if contracts:
        preferred = _contracted_tile(extent, device, contracted_bytes, live)
    else:
        preferred = _row_tile(extent, streams, device, wide)
    tile = options.tile or preferred
    if isinstance(extent, int):
        tile = min(tile, max(extent, 1) if options.tile else whole_lanes(extent))
    total = product([ceil_div(extent, tile), *outer])
    tiles = ceil_div(total, min(options.segments, total) if isinstance(total, int) else options.segments)
    segments = _parts(total, tiles) if options.segments > 1 else 1
    return Tiling(tuple(outer), extent, tile, segments, tiles, math.gcd(wide, tile))


def _contracted_tile(extent: Extent, device: Device, contracted_bytes: int, live: LiveTiles | None) -> int:
    """Positions of a tile that feeds a contraction; see `choose_tiling`."""
    if not isinstance(device, Cpu):
        return balanced_tile(extent, GPU_TILE)
    most = min(DEFAULT_TILE, device.l2_bytes // CONTRACTED_PART // max(contracted_bytes, 1))
    most = max(most, SMALLEST_ROW_TILE)
    if not isinstance(extent, int):
        return min(most, SYMBOLIC_TILE)
    if live is None:
        return even_tile(extent, most)

    def cost(tile: int) -> float:
        return live.time(tile) * (RAGGED_MASKED if extent % tile else 1.0)

    return min(sorted(even_tile(extent, tile) for tile in MASKED_TILES if tile <= most), key=cost)


def _row_tile(extent: Extent, streams: Streams, device: Device, lanes: int) -> int:
    """Positions of a tile of rows that are only folded: few where they come from memory, if whole tiles of them do."""
    few, many = (max(SMALLEST_ROW_TILE, most) for most in (streams.ahead(device), streams.room(device)))
    tile = balanced_tile(extent, few, lanes)
    whole = isinstance(extent, int) and extent % tile == 0 and tile % lanes == 0
    return tile if whole else row_tile(extent, many, lanes)


def row_width(extent: Extent, lanes: int, most: int) -> int:
    """Elements of a row that are folded at once in a nest of its own, of `most` at most.

    A divisor of whole vectors; else as many as the row has twice, with a rest; of a short row half a vector may do.

    Parameters
    ----------
    lanes : of a vector.
    """
    if not isinstance(extent, int):
        return most
    divisor = math.gcd(extent, most)
    if divisor >= lanes or (2 * divisor == lanes and extent < 2 * most):
        return divisor
    return next((width for width in (most, most // 2, lanes) if lanes <= width <= extent // 2), divisor)


def divides(part: Extent, whole: Extent) -> bool:
    """Whether parts fill the whole exactly, whatever the shape variables are."""
    if isinstance(part, int) and isinstance(whole, int):
        return whole % part == 0
    return part == 1 if isinstance(part, int) else same_extent(part, whole)


def _parts(total: Extent, each: Extent) -> Extent:
    """How many parts cover a total; none of an empty one, where a part may be empty too."""
    if isinstance(each, int):
        return ceil_div(total, each)
    size = tirx.max(each, 1)
    return tirx.floordiv(total + size - 1, size)


def balanced_tile(extent: Extent, preferred: int, multiple: int = 16) -> int:
    """A tile near the preferred size that divides the extent, if there is one of at least half that size."""
    if not isinstance(extent, int):
        return preferred
    if extent <= preferred:
        return extent
    for tile in range(preferred - preferred % multiple, preferred // 2 - 1, -multiple):
        if extent % tile == 0:
            return tile
    return preferred


def even_tile(extent: Extent, preferred: int) -> int:
    """A tile of at most the preferred size: one that divides the extent, else the smallest of as few tiles.

    Of those that divide it and have half that size, one of whole vectors; else the longest (measured: attention over
    777 and 1100 positions takes 4 and 8 % less in tiles of 259 and 275 than of 389 and 367).
    """
    for multiple in (16, 1):
        tile = balanced_tile(extent, preferred, multiple)
        if not isinstance(extent, int) or extent % tile == 0:
            return tile
    return ceil_div(extent, ceil_div(extent, preferred))


def whole_lanes(extent: int) -> int:
    """Positions of one tile that holds a whole row: more than the row where fewer than four lanes divide it.

    Such a row would be folded in order, slower and with larger rounding errors (measured: a log-sum-exp of 77 and of
    123 positions takes 0.45 and 0.36 of that time in tiles of 80 and 128).
    """
    is_ragged = math.gcd(extent, FEWEST_LANES) * 2 < FEWEST_LANES and extent >= 2 * FEWEST_LANES
    return ceil_div(extent, SHORT_ROW_LANES) * SHORT_ROW_LANES if is_ragged else max(extent, 1)


def row_tile(extent: Extent, preferred: int, lanes: int) -> int:
    """A tile of whole vectors of lanes: one that divides the extent, the whole row, or one of as few as are small.

    A row of a multiple of few lanes is one tile of those: what is ragged costs more (measured: a log-sum-exp of 600,
    1000 and 2000 positions takes 0.5, 0.6 and 0.7 of its time in ragged tiles of 64 lanes). Ragged tiles are as long as
    each other, so that the last one lacks little (777 positions in 448 and 329 take 0.8 of 384, 384 and 9).
    """
    tile = balanced_tile(extent, preferred, lanes)
    if not isinstance(extent, int):
        return max(min(preferred, RAGGED_ROW_TILE) // lanes, 1) * lanes
    if extent < 2 * lanes:
        return whole_lanes(extent)
    if extent % tile == 0 and tile % lanes == 0:
        return tile
    if extent <= preferred and extent % FEWEST_LANES == 0:
        return extent
    count = max(2, ceil_div(extent, min(preferred, RAGGED_ROW_TILE)))
    whole = max(lanes, DEFAULT_LANES)
    return ceil_div(ceil_div(extent, count), whole) * whole
