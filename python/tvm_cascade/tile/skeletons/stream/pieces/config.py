"""The configuration of a stream kernel of few rows: tiles, stages, and blocks that share the axis."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.operand import STEP_BYTES, Unfit
from tvm_cascade.tile.program import TileProgram
from tvm_cascade.tile.shape import Stream
from tvm_cascade.tile.skeletons.stream.config import StreamConfig, boxed, check_widths
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP

_STAGED_BYTES = 192 * 1024
"""Of right operands in flight or waiting, where there are as many: more than what one multiprocessor's share of the
memory's bandwidth needs, so that copies go on while a block is at other things than tiles."""


WIDE_STAGES = 2
"""Tiles of each operand that are converted on the way: one that products read, and one that is being written."""

CONVERTER_REGISTERS = 120
"""Registers of a thread of a warp group that converts: what a producer, a consumer and two of them leave each."""


@dataclass(frozen=True)
class PiecesConfig(StreamConfig):
    """As of the stream kernel; a block has consecutive tiles of the concatenation of all rows' axes.

    Attributes
    ----------
    widening : warp groups that convert tiles on the way to the tensor cores, one for each feed.
    """

    widening: int = 0

    @property
    def converters(self) -> int:
        """Warp groups that convert tiles on the way to the tensor cores."""
        return self.widening

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return super().threads + WARP_GROUP * self.converters

    def block_registers(self, stream: Stream) -> int:
        """Of all threads of a block."""
        return super().block_registers(stream) + WARP_GROUP * self.converters * CONVERTER_REGISTERS

    @property
    def has_register_shares(self) -> bool:
        """Whether registers move from the producer to the consumers; one consumer has what it can have in any case."""
        return self.consumers + self.converters > 1

    @property
    def consumer_registers(self) -> int:
        """Registers of a consumer thread."""
        return super().consumer_registers if self.has_register_shares else 255

    @property
    def producer_registers(self) -> int:
        """Registers of a thread of the producer's warp group."""
        return super().producer_registers if self.has_register_shares else 255

    def registers(self, stream: Stream) -> int:
        """Registers that a consumer thread holds: also the left operand."""
        return super().registers(stream) + left_words(stream)

    def shared_bytes(self, stream: Stream) -> int:
        """Bytes of shared memory for the right operands."""
        return self.stages * self.stage_bytes(stream) + self.wide_bytes(stream) + 1024

    def wide_bytes(self, stream: Stream) -> int:
        """Bytes of shared memory for tiles that were converted."""
        tiles = [tile for tile in self.right_tiles(stream) if tile[0].widened is not None]
        return WIDE_STAGES * sum(rows * boxed(columns, operand.size) for operand, rows, columns in tiles)


def left_words(stream: Stream) -> int:
    """Registers of a thread for its part of the left operand."""
    return -(-stream.depth * stream.left.size // STEP_BYTES) * 4


def _widened_feeds(stream: Stream) -> int:
    """How many of the two feeds, of scores and of products, are converted on the way."""
    values = any(product.value.widened is not None for product in stream.products)
    return int(stream.right.widened is not None) + int(values)


def choose_pieces(program: TileProgram, gpu: Gpu, rows: int) -> PiecesConfig:
    """The configuration for few rows.

    Raises
    ------
    Unfit
        Where none fits.
    """
    stream = program.stream
    check_widths(stream)
    consumers, widening = 1 if rows <= GROUP_ROWS else 2, _widened_feeds(stream)
    for columns in (64, 128, 32):
        one = PiecesConfig(columns, consumers, 1, 0, False, gpu.processors, False, False, widening=widening)
        room = min(_STAGED_BYTES, gpu.block_shared_bytes - 2048) - one.wide_bytes(stream)
        config = replace(one, stages=room // one.stage_bytes(stream))
        if config.stages >= 2 and config.fits(stream, gpu):
            return config
    raise Unfit("no tile of 32 positions or more fits into registers and shared memory")
