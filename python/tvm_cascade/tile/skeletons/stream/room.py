"""How two stream kernels share a device: one folds tiles of many rows, the other waits for its states at the end.

    apart       each has multiprocessors of its own: the first has fewer blocks
    together    each has a block on every multiprocessor: the first has fewer registers and less shared memory

Together they balance by themselves, as one computes where the other waits for its copies. That way is checked in the
emulator and compiles without spills, but has not been measured: it is taken by the option `side_by_side` alone.
"""

from __future__ import annotations

from dataclasses import replace

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.program import TileProgram
from tvm_cascade.tile.skeleton import Room
from tvm_cascade.tile.skeletons.stream.config import REGISTER_UNIT, StreamConfig, even_items
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig, is_ragged, items_of

_LAUNCHED = 104
"""Registers at the launch of a thread of three warp groups beside a block of two: 144 of a consumer's, which hold
scores and weights of 64 positions beside 128 sums; the block beside it has 96, and 168 of a consumer's."""

_CONSUMERS = 2
"""Of a block that leaves room."""

_TILE, _STAGES = 64, (3, 2)
"""Positions of its tiles, and how many are in flight."""

_TILES_BESIDE = (64, 32)
"""Positions of the other's tiles, the best first."""


def _apart(config: StreamConfig, program: TileProgram, gpu: Gpu) -> list[tuple[StreamConfig, Room]]:
    """Fewer blocks, which have as many tiles of rows each."""
    items = even_items(config, program)
    even = [n for n in range(1, config.blocks) if items is not None and items % n == 0]
    return [(replace(config, blocks=n), Room(gpu.processors - n, gpu.registers, gpu.shared_bytes)) for n in even]


def _together(config: StreamConfig, program: TileProgram, gpu: Gpu) -> list[tuple[StreamConfig, Room]]:
    """Smaller blocks, of one tile of rows each: of few registers and with few stages."""
    stream, items, found = program.stream, even_items(config, program), []
    if items is None or items > gpu.processors or config.consumers != _CONSUMERS or stream.paged:
        return []
    for stages in _STAGES:
        small = replace(config, columns=_TILE, stages=stages, left_stages=1, own_staging=False, launched=_LAUNCHED)
        registers = gpu.registers - small.threads * small.launched
        left = gpu.shared_bytes - small.shared_bytes(stream) - gpu.reserved_shared_bytes
        if small.fits(stream, gpu):
            found.append((small, Room(gpu.processors, registers, left)))
    return found


WAYS = {"apart": _apart, "together": _together}
"""By the option `side_by_side`: configurations that leave room, and what is left beside each."""


def beside(config: PiecesConfig, program: TileProgram, room: Room, gpu: Gpu) -> PiecesConfig | None:
    """The configuration in some room, whose blocks keep the states of whole items; None if unfit."""
    stream, items = program.stream, items_of(config, program.stream)
    if items is None or is_ragged(program) or config.cluster > 1:
        return None
    cuts = [config]
    if room.registers < gpu.registers:
        launched = room.registers // config.threads // REGISTER_UNIT * REGISTER_UNIT
        widths = () if config.converts else _TILES_BESIDE
        cuts = [replace(config, columns=n, neighbours=1, launched=launched) for n in widths]
    for cut in cuts:
        kept = max(-(-items // (cut.neighbours * room.processors)), 2)
        kept_whole = replace(cut, blocks=-(-items // kept), kept=kept)
        most = room.shared_bytes // cut.stage_bytes(stream) if cut.launched else cut.stages
        for stages in range(most, 1, -1):
            found = replace(kept_whole, stages=stages)
            taken = found.neighbours * (found.shared_bytes(stream) + gpu.reserved_shared_bytes)
            if found.fits(stream, gpu) and taken <= room.shared_bytes:
                return found
    return None
