"""How two stream kernels share a device: one folds tiles of many rows, the other waits for its states at the end.

Each has multiprocessors of its own. A block of each on every multiprocessor, with half the registers and stages, took
47.7 µs where this takes 38.2 (measured, a prefix of 8192 keys and 64 sequences of 256).
"""

from __future__ import annotations

from dataclasses import replace

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.skeletons.stream.config import StreamConfig, even_items
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig, is_ragged, items_of


def leaving_room(config: StreamConfig, program: TileProgram) -> list[StreamConfig]:
    """With fewer blocks, which have as many tiles of rows each."""
    items = even_items(config, program)
    return [replace(config, blocks=n) for n in range(1, config.blocks) if items is not None and items % n == 0]


def beside(config: PiecesConfig, program: TileProgram, processors: int, gpu: Gpu) -> PiecesConfig | None:
    """The configuration on some multiprocessors alone, whose blocks keep the states of whole items; None if unfit."""
    items = items_of(config, program.stream)
    if items is None or is_ragged(program) or config.cluster > 1:
        return None
    kept = max(-(-items // (config.neighbours * processors)), 2)
    cuts = [replace(config, blocks=-(-items // kept), kept=kept, stages=n) for n in range(config.stages, 1, -1)]
    return next((cut for cut in cuts if cut.fits(program.stream, gpu)), None)
