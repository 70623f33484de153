"""The configuration of a stream kernel of few rows: tiles, stages, and blocks that share the axis."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

from tvm import ir, tirx

from tvm_cascade.analysis.tir import loads_of, product, uses
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.attention.operands.widen import WIDE_STAGES
from tvm_cascade.tile.attention.pieces import MOST_SEQUENCES, most_pieces, origin_bytes
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.shape import Stream, check_one_score
from tvm_cascade.tile.attention.tile_schedule import share_of_lengths, visited_tiles
from tvm_cascade.tile.cost import Counts, seconds
from tvm_cascade.tile.machine.family import Family
from tvm_cascade.tile.machine.table import family_of
from tvm_cascade.tile.machine.wgmma import WGMMA
from tvm_cascade.tile.merge.places import SPAN, Patches
from tvm_cascade.tile.operand import STEP_BYTES, Unfit
from tvm_cascade.tile.output import member_at
from tvm_cascade.tile.skeletons.stream.config import (
    BUSY_SHARES,
    REGISTERS,
    Tiles,
    boxed,
    check_widths,
    position_flops,
    products_rate,
    tile_flops,
)
from tvm_cascade.tile.work import GROUP_ROWS, MOST_REGISTERS, Registers

_CONVERTED = {1: Registers(32, 240, 112), 2: Registers(32, 192, 88)}
"""Registers of a thread of the producer, of each consumer, and of each warp group that converts, by the number of
consumers: one that two convert for, or two that share one."""


_FEW_BLOCKS = 1 / 4
"""The share of multiprocessors below which copies of one are above what its folds take."""

_THREAD_ROWS = 8
"""Rows of which each thread has one at most."""

_CLUSTERED = 8
"""Blocks of the largest cluster: of more blocks than multiprocessors that those reach, some share one."""

_STATE_RATES = {1: "state_bytes_per_second", 2: "two_state_bytes_per_second"}
"""Names of rates by the consumers of a block."""

_STORING = 2.5
"""At the end of an item that a block has whole, times of merging its state that storing takes."""

_MOST_ROWS = 16
"""Rows of a warp, at most: of more, most threads have elements of their own."""


@dataclass(frozen=True)
class PiecesConfig(Tiles):
    """Of few rows: a block has consecutive tiles of the concatenation of all rows' axes.

    Attributes
    ----------
    cluster : blocks that share the axis of each tile of rows, and no other, where that is more than one.
    neighbours : blocks that share a multiprocessor: one folds while another waits for what its results read, or
        clusters' places would not be enough.
    """

    columns: int = 128
    consumers: int = 1
    stages: int = 2
    blocks: int = 1
    widening: int = 0
    cluster: int = 1
    neighbours: int = 1
    kept: int = 1
    family: Family = field(default=WGMMA, compare=False, repr=False)

    @property
    def may_cluster(self) -> bool:
        """Whether two blocks have their registers on one multiprocessor."""
        return self.consumers + self.widening == 1

    def shares(self, stream: Stream, finds: bool = False) -> Registers:
        """Registers of the roles; one consumer that has a multiprocessor has what it can have in any case."""
        groups = self.neighbours * (1 + self.consumers + self.widening)
        return self.family.registers(self._moved(stream), groups)

    def _moved(self, stream: Stream) -> Registers:
        if self.widening:
            return _CONVERTED[self.consumers]
        if self.consumers > 1:
            return BUSY_SHARES if stream.paged else Registers(24, REGISTERS)
        if self.neighbours > 1:  # of 128 that each thread of two warp groups has at first
            return Registers(24, 232)
        return Registers(MOST_REGISTERS, MOST_REGISTERS, moved=False)

    def registers(self, program: TileProgram) -> int:
        """Registers that a consumer thread holds: also the left operand."""
        return super().registers(program) + left_words(program.stream)

    def shared_bytes(self, program: TileProgram) -> int:
        """Bytes of shared memory for the right operands, and for what shares of blocks and fix-ups take."""
        stream, sequences = program.stream, sequences_of(program)[1]
        wide = [tile for tile in self.right_tiles(stream) if tile[0].widened is not None]
        converted = WIDE_STAGES * sum(rows * boxed(columns, operand.size) for operand, rows, columns in wide)
        tiles = self.stages * self.stage_bytes(stream) + converted
        counted = 0 if sequences is None else origin_bytes(sequences)
        return tiles + self._met_bytes(stream) + spread_bytes(stream, self.kept) + counted + 1024

    def _met_bytes(self, stream: Stream) -> int:
        """Bytes of shared memory for the states that the blocks of a cluster leave to each other."""
        if self.cluster == 1:
            return 0
        widths = [p.width for p in stream.products]
        scalars = len(stream.fold.components) - len(widths) + len(stream.fold.references) + 1
        return Patches(min(int(stream.extent(stream.row)), GROUP_ROWS), self.cluster).words(widths, scalars) * 4

    def lacks(self, program: TileProgram, gpu: Gpu) -> str:
        """Also where not every block of a cluster is known to have a tile."""
        alone = not is_ragged(program) and self.may_cluster
        tiles = (visited(program, self.columns) or 0) if alone else 0
        if self.cluster > 1 and tiles < self.cluster:
            return f"{tiles} tiles known of {self.columns} positions, which a cluster of {self.cluster} blocks shares"
        return super().lacks(program, gpu)

    def fits(self, program: TileProgram, gpu: Gpu) -> bool:
        """Also whether a multiprocessor holds as many blocks as it is to."""
        bytes_of_all = self.neighbours * (self.shared_bytes(program) + gpu.reserved_shared_bytes)
        return super().fits(program, gpu) and bytes_of_all <= gpu.shared_bytes

    def counts(self, program: TileProgram, gpu: Gpu) -> Counts:
        """Copies and folds of the busiest block, and the combination of its states."""
        stream, tiles = program.stream, visited(program, self.columns)
        items, rows = items_of(self, stream), stream.extent(stream.row)
        if tiles is None or items is None or not isinstance(rows, int):
            return Counts()
        tiles = max(int(tiles * share_of_lengths(program)), 1)
        longest = -(-items * tiles // self.blocks) if self.cluster == 1 else -(-tiles // self.cluster)
        if self.kept > 1:
            longest = self.kept * tiles
        is_alone = self.consumers * self.neighbours == 1 or self.cluster > 1
        between = {"block_seconds": 1.0} if self.consumers > 1 else {"lone_block_seconds": float(is_alone)}
        vectors = sum(p.width for p in stream.products) * 4
        merged, rate = 2.0 * min(rows, self.rows) * vectors, _STATE_RATES[self.consumers]
        if self.cluster > 1:
            crowded = is_crowded(self.blocks, gpu)
            between |= {"cluster_combine_seconds": 1.0, "crowded_seconds": float(crowded)}
            between[rate] = 1.5 * merged if crowded else merged
        elif self.kept == 1 and (items * tiles % self.blocks > 0 or longest % tiles > 0):
            pieces = pieces_of_item(self, program) or 1
            between |= {"combine_seconds": 1.0, "contention_seconds": float(pieces**2), rate: merged}
        elif is_alone:  # else another folds meanwhile
            between |= {"item_seconds": 1.0, rate: _STORING * merged}
        return self._of_tiles(stream, rows, longest, gpu)._replace(between=between)

    def _of_tiles(self, stream: Stream, rows: int, tiles: int, gpu: Gpu) -> Counts:
        read = float(self.read_bytes(stream))
        crowded = self.cluster > 1 and is_crowded(self.blocks, gpu)
        counts = Counts(bytes=tiles * read * self.blocks, steps=float(tiles), far_ahead=True, crowded=crowded)
        if self.blocks > _FEW_BLOCKS * gpu.processors:
            rate = "own_bytes_per_second" if self.stages > 2 else "two_stage_bytes_per_second"
            counts = counts._replace(copied=read, copies_rate=rate)
        if self.consumers > 1:
            return counts._replace(products=tile_flops(self, stream), products_rate=products_rate(stream))
        one, sharing = rows <= _THREAD_ROWS, self.neighbours if self.cluster == 1 else 1
        return counts._replace(
            products=sharing * self.columns * position_flops(stream),
            products_rate="tensor_one_row" if one else "tensor_two_rows",
            folds={"tile_seconds" if one else "two_row_tile_seconds": float(sharing)},
            load=min(self.blocks / gpu.processors, 1.0),
        )

    def beside(self, program: TileProgram, processors: int, gpu: Gpu) -> PiecesConfig | None:
        """Where lengths are alike, and blocks share items by the grid; see `Tiles`."""
        items = items_of(self, program.stream)
        if items is None or is_ragged(program) or self.cluster > 1:
            return None
        kept = max(-(-items // (self.neighbours * processors)), 2)
        return replace(self, blocks=-(-items // kept), kept=kept).deepest(program, gpu)

    def deepest(self, program: TileProgram, gpu: Gpu, least: int = 2) -> PiecesConfig | None:
        """With as many stages, up to its own, as fit; None where fewer than the least do."""
        cuts = (replace(self, stages=n) for n in range(self.stages, least - 1, -1))
        return next((cut for cut in cuts if cut.fits(program, gpu)), None)

    def may_wait_late(self, stream: Stream) -> bool:
        """Where threads of all blocks merge whole items too."""
        return is_spread(stream)


def is_crowded(blocks: int, gpu: Gpu) -> bool:
    return blocks > gpu.reached_by(_CLUSTERED)


def left_words(stream: Stream) -> int:
    return -(-stream.depth * stream.left.size // STEP_BYTES) * 4


def is_of_place(slack: ir.Expr, stream: Stream) -> bool:
    """Whether the positions that a slack calls live are others at every place."""
    return uses(slack, list(stream.batch)) or bool(loads_of(slack))


def visited(program: TileProgram, columns: int) -> int | None:
    rows = program.stream.extent(program.stream.row)
    found = visited_tiles(program, rows, columns) if isinstance(rows, int) else None
    return None if found is None else int(found[0])


def is_ragged(program: TileProgram) -> bool:
    return any(is_of_place(slack, program.stream) for slack in program.skip)


def sequences_of(program: TileProgram) -> tuple[list[tirx.Var], int | None]:
    """The variables by which live tiles differ, and how many places they are; none where none do, or too many."""
    if not is_ragged(program):
        return [], None
    stream = program.stream
    found = [v for v in stream.batch if any(uses(slack, [v]) for slack in program.skip)]
    count = product(stream.extent(var) for var in found)
    return (found, count) if isinstance(count, int) and count <= MOST_SEQUENCES else ([], None)


def items_of(config: Tiles, stream: Stream) -> int | None:
    places, rows = product(stream.extent(var) for var in stream.batch), stream.extent(stream.row)
    return places * -(-rows // config.rows) if isinstance(places, int) and isinstance(rows, int) else None


def pieces_of_item(config: PiecesConfig, program: TileProgram) -> int | None:
    tiles, items = visited(program, config.columns), items_of(config, program.stream)
    return None if is_ragged(program) or not tiles or not items else most_pieces(items, tiles, config.blocks)


def blocks_of_item(config: PiecesConfig, program: TileProgram) -> int | None:
    """Blocks that have an item, each an equal part of it and nothing else; None where that is not so, or unknown."""
    tiles, items = visited(program, config.columns), items_of(config, program.stream)
    if config.cluster > 1:
        return config.cluster
    if config.kept > 1 or is_ragged(program) or not tiles or not items or config.blocks % items > 0:
        return None
    blocks = config.blocks // items
    return blocks if tiles % blocks == 0 else None


def is_spread(stream: Stream) -> bool:
    """Whether results of very few rows read, for each element, more than the row's own state."""
    rows = stream.extent(stream.row)
    return isinstance(rows, int) and rows <= _MOST_ROWS and _reads_elements(stream)


def spread_bytes(stream: Stream, kept: int) -> int:
    if not is_spread(stream):
        return 0
    scalars = len(stream.fold.components) + len(stream.fold.references) + 1
    vectors = sum(-(-p.width // SPAN) * SPAN for p in stream.products)
    return kept * (vectors + scalars) * int(stream.extent(stream.row)) * 4


def _reads_elements(stream: Stream) -> bool:
    for output in stream.outputs:
        product = stream.product_along(output)
        read = [load for load in loads_of(output.value) if member_at(stream.group, load) is None]
        if product is not None and any(uses(index, [product.free]) for load in read for index in load.indices):
            return True
    return False


# The choice: every width of tiles, over the grid or clusters, by its estimate.


_STAGED_BYTES = 128 * 1024
"""Of right operands in flight or waiting: with 192 KB a kernel takes 1.04 of the time, since the memory serves some
multiprocessors before others then, and with 64 KB 1.02 (measured, of 32 rows of 32768 positions)."""

_GROUPS = {True: 3, False: 2}
"""Warp groups that consume or convert, by whether registers move to those that consume: with the producer's, a
multiprocessor has 128 registers for each thread of four groups, and 168 of three."""

_NEIGHBOURS = 2
"""Blocks of a multiprocessor, of which one folds while another waits for what its results read."""

_LONG = 4
"""Tiles of a block from which on the widest ones take least: copies are larger (measured: 0.98 of the time of tiles of
half as many positions, of 32 rows of 32768 positions)."""


def ranked_pieces(program: TileProgram, gpu: Gpu, rows: int) -> list[PiecesConfig]:
    """The configurations for few rows, from the most to the least preferred; Unfit where none fits."""
    stream = program.stream
    check_one_score(stream)
    check_widths(stream)
    family = family_of(gpu)
    found = []
    for consumers, columns in itertools.product((1,) if rows <= GROUP_ROWS else (2, 1), (128, 64, 32)):
        widening = min(_widened_feeds(stream), _GROUPS[family.moves_registers] - consumers)
        one = PiecesConfig(columns, consumers, 0, gpu.processors, widening=widening, family=family)
        room = min(_STAGED_BYTES, gpu.block_shared_bytes - 1024 - one.shared_bytes(program))
        config = replace(one, stages=room // one.stage_bytes(stream))
        if config.stages >= 2 and config.fits(program, gpu):
            found.append(config)
    if not found:
        raise Unfit("no tile of 32 positions or more fits into registers and shared memory")
    if is_spread(stream) and (shared := _neighbours(found, program, gpu)) is not None:
        return [shared, *found]
    tiles, items = visited(program, found[0].columns), items_of(found[0], stream)
    if tiles is None or items is None or is_ragged(program):
        few = tiles is not None and items is not None and tiles * items / found[0].blocks < _LONG
        usual = found[1] if few and len(found) > 1 else found[0]  # the widest tiles, where blocks have several
        return [usual, *(config for config in found if config != usual)]
    cuts = [cut for config in found for cut in (*_grids(config, program, gpu), *_clusters(config, program, gpu))]
    return sorted(cuts, key=lambda cut: (seconds(cut.counts(program, gpu), gpu), cut.blocks))


def _grids(config: PiecesConfig, program: TileProgram, gpu: Gpu) -> list[PiecesConfig]:
    """The configuration with blocks on all multiprocessors, or on so many that have equal shares."""
    tiles, items = visited(program, config.columns) or 1, items_of(config, program.stream) or 1
    even = [n for n in range(1, gpu.processors) if items * tiles % n == 0]
    return [replace(config, blocks=n) for n in (*even, gpu.processors)]


def _neighbours(found: list[PiecesConfig], program: TileProgram, gpu: Gpu) -> PiecesConfig | None:
    """Two blocks on each multiprocessor where all have whole items: of the widest tiles of which two fit thrice.

    One waits for what results read while the other folds (measured: 46.4 instead of 50.8 µs with the kernel before it,
    of 512 items of four rows and 256 positions that merge nine states each).
    """
    for config in found if all(one.may_cluster for one in found) else ():
        items = items_of(config, program.stream)
        if items is None or items < _NEIGHBOURS * gpu.processors or is_ragged(program):
            continue
        blocks = max(n for n in range(1, _NEIGHBOURS * gpu.processors + 1) if items % n == 0)
        cut = replace(config, neighbours=_NEIGHBOURS, blocks=blocks).deepest(program, gpu, 3)
        if cut is not None and blocks > gpu.processors:
            return cut
    return None


def _widened_feeds(stream: Stream) -> int:
    """How many of the two feeds, of scores and of products, are converted on the way."""
    values = any(product.value.widened is not None for product in stream.products)
    return int(stream.right.widened is not None) + int(values)


def _clusters(config: PiecesConfig, program: TileProgram, gpu: Gpu) -> list[PiecesConfig]:
    """The configuration with clusters of blocks in place of blocks, and as many stages as then fit."""
    tiles, items = visited(program, config.columns) or 0, items_of(config, program.stream) or gpu.processors
    sizes = [n for n in (2, 4, 8) if n <= min(tiles, gpu.largest_cluster) and items * n <= gpu.processors]
    found = []
    for cluster in sizes if config.may_cluster else ():
        sharing = _NEIGHBOURS if is_crowded(items * cluster, gpu) else 1
        found.append(replace(config, blocks=items * cluster, cluster=cluster, neighbours=sharing).deepest(program, gpu))
    return [cut for cut in found if cut is not None]
