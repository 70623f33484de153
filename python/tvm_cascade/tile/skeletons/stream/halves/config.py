"""The configuration of a stream kernel whose groups share rows: positions of a tile and pipeline stages."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.attention.pieces import counted_bytes, most_pieces
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.shape import Product, Stream
from tvm_cascade.tile.cost import Counts, seconds
from tvm_cascade.tile.hopper.copy import BOX_BYTES
from tvm_cascade.tile.machine.family import WIDEST
from tvm_cascade.tile.merge.places import BYTES
from tvm_cascade.tile.operand import STORED_BYTES, Unfit
from tvm_cascade.tile.skeletons.stream.config import BUSY_SHARES, Tiles, boxed
from tvm_cascade.tile.skeletons.stream.halves.columns import GROUPS, are_alike, half_of, may_spread, sent_registers
from tvm_cascade.tile.skeletons.stream.halves.sharing import shared_bytes
from tvm_cascade.tile.skeletons.stream.pieces.config import is_ragged, items_of, sequences_of
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP, Registers

_BARRIERS = 320
"""Bytes of barriers and of alignment."""

_SPREADS, _CLUSTERS = (1, 2, 4), (2, 4, 8)
"""Blocks that the columns of the products are spread over, and those of a cluster."""

_FILLED = 3.0
"""Copies that nothing hides: of the left operand, of the first tile, and of the results."""

_LEAST_BLOCKS = 2
"""Of an item where pieces follow lengths: with fewer, the longest would have one block each."""


@dataclass(frozen=True)
class HalvesConfig(Tiles):
    """Both groups have the same rows, and lift tiles in turn.

    Attributes
    ----------
    cluster : blocks that share the axis of each tile of rows, and no other, where that is more than one.
    most_pieces : of the axis of a tile of rows.
    by_length : blocks have a piece of one item each, more of longer ones.
    """

    columns: int = 64
    stages: int = 2
    blocks: int = 1
    optimistic: bool = True
    cluster: int = 1
    most_pieces: int = 1
    spread: int = 1
    by_length: bool = False

    # Both groups have the same rows.
    consumers, row_groups = GROUPS, 1

    def shares(self, stream: Stream, finds: bool = False) -> Registers:
        """Registers of the roles: the producer has many copies to issue."""
        return BUSY_SHARES

    def registers(self, program: TileProgram) -> int:
        whole = super().registers(program)
        return whole - sum(p.width // 2 - self._widest_half(p) // 2 for p in program.stream.products)

    def _widest_half(self, product: Product) -> int:
        return max(len(half_of(product, group, self.spread)) for group in range(GROUPS))

    def stage_bytes(self, stream: Stream) -> int:
        return self.columns * boxed(stream.depth, stream.right.stored_size)

    def shared_bytes(self, program: TileProgram) -> int:
        stream, sequences = program.stream, sequences_of(program)[1] if self.by_length else None
        left, right = (boxed(stream.depth, operand.size) for operand in (stream.left, stream.right))
        operands = self.left_stages * self.rows * left + self.stages * self.columns * right
        counted = 0 if sequences is None else counted_bytes(sequences)
        return operands + shared_bytes(program, self.columns) + _BARRIERS + counted

    def _has_shares(self, stream: Stream) -> bool:
        """Whether each block of a cluster gets whole boxes of each half, and what is sent has room where tiles were.

        Results wait for their stores where the left operand was, which so has as many boxes.
        """
        per_share = self.cluster * BOX_BYTES // STORED_BYTES
        whole = all(len(half_of(product, 0)) % per_share == 0 for product in stream.products)
        if self.spread > 1 or not are_alike(stream) or not whole or stream.left.size != STORED_BYTES:
            return False
        sent = GROUPS * sent_registers(stream, self.cluster) * WARP_GROUP * BYTES
        return (self.cluster - 1) * sent <= self.stages * self.stage_bytes(stream)

    def fits(self, program: TileProgram, gpu: Gpu) -> bool:
        """Also whether instructions have a half's columns, and blocks whole boxes of them."""
        products = program.stream.products
        if any(self._widest_half(p) > WIDEST or not may_spread(p, self.spread) for p in products):
            return False
        return (self.cluster == 1 or self._has_shares(program.stream)) and super().fits(program, gpu)

    def counts(self, program: TileProgram, gpu: Gpu) -> Counts:
        """Tiles of the busiest block, a combination of states, and what fills the pipeline and is stored behind it."""
        stream, (row_tiles, tiles) = program.stream, _sizes(self, program)
        longest = -(-row_tiles * self.spread * tiles // self.blocks)
        if self.by_length:
            longest = -(-tiles // (self.blocks // row_tiles))
        state = self.rows * sum(p.width for p in stream.products) / self.spread
        filled = self.rows * stream.depth * stream.left.size + self.stage_bytes(stream) + state * STORED_BYTES
        between = {"block_seconds": 1.0, "copy_seconds": _FILLED, "own_bytes_per_second": filled}
        if self.cluster > 1:
            longest = -(-tiles // self.cluster)
            between |= {"cluster_combine_seconds": 1.0, "state_bytes_per_second": state * BYTES / 2}
        elif self.most_pieces > 1:
            between["own_bytes_per_second"] += 2 * state * BYTES
            between |= {"combine_seconds": 1.0, "contention_seconds": float(self.most_pieces**2)}
        width = stream.depth + sum(p.width for p in stream.products) / self.spread
        return Counts(
            steps=float(longest),
            products=2.0 * self.rows * self.columns * width,
            products_rate="tensor_two_rows",
            far_ahead=True,
            folds={"tile_seconds": self.columns / GROUP_ROWS},
            copied=float(self.stage_bytes(stream)),
            copies_rate="own_bytes_per_second",
            between=between,
        )


def ranked_halves(program: TileProgram, gpu: Gpu) -> list[HalvesConfig]:
    """The largest tile that fits, with the most stages, cut from the least estimated time on; Unfit where none does."""
    for columns in (64, 48, 32):
        for stages in (4, 3, 2):
            config = HalvesConfig(columns=columns, stages=stages, blocks=gpu.processors)
            if config.fits(program, gpu):
                return cut_axes(config, program, gpu)
    raise Unfit("no tile of 32 positions or more fits into registers and shared memory")


def cut_axes(config: HalvesConfig, program: TileProgram, gpu: Gpu) -> list[HalvesConfig]:
    """The configuration with pieces and chunks of columns, or clusters, from the least estimated time on.

    Where lengths differ, with as many pieces as each asks for: 60 instead of 78 µs for 32 requests of 100 to 4096
    positions, 25 instead of 85 where all have 256, 79 instead of 72 where all have 4096 (measured).

    Unfit where extents are symbolic.
    """
    row_tiles, tiles = _sizes(config, program)
    if is_ragged(program) and _LEAST_BLOCKS * row_tiles <= config.blocks:
        cut = dataclasses.replace(config, by_length=True, most_pieces=min(-(-config.blocks // row_tiles), tiles))
        if cut.fits(program, gpu):
            return [cut]
    spreads = [n for n in _SPREADS if all(may_spread(p, n) for p in program.stream.products)]
    cuts = [
        dataclasses.replace(config, blocks=n, most_pieces=most_pieces(row_tiles * spread, tiles, n), spread=spread)
        for spread in spreads
        for n in range(1, config.blocks + 1)
    ]
    cuts += _clusters(config, program, gpu)
    return sorted(cuts, key=lambda cut: (seconds(cut.counts(program, gpu), gpu), cut.blocks))


def _clusters(config: HalvesConfig, program: TileProgram, gpu: Gpu) -> Iterator[HalvesConfig]:
    """The configurations with a cluster of blocks for each tile of rows that all run at once."""
    row_tiles, tiles = _sizes(config, program)
    for cluster in _CLUSTERS:
        blocks = row_tiles * cluster
        cut = dataclasses.replace(config, cluster=cluster, blocks=blocks, most_pieces=cluster)
        fits = cluster <= min(tiles, gpu.largest_cluster) and blocks <= min(config.blocks, gpu.reached_by(cluster))
        if fits and cut.fits(program, gpu):
            yield cut


def _sizes(config: HalvesConfig, program: TileProgram) -> tuple[int, int]:
    length, items = program.stream.extent(program.stream.position), items_of(config, program.stream)
    if not isinstance(length, int) or items is None:
        raise Unfit("the extents are symbolic")
    return items, -(-length // config.columns)
