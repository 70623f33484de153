"""How many pieces a chunk is folded in: where many rows share its inputs, its tiles are too few for a device.

    2048 rows of 64 sequences and 32 heads, of 8192 keys that 8 heads have     16 tiles of 128 rows, 8 pieces of each

Every piece leaves a state, which whoever reads the chunk's state merges: no piece waits for another.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tvm import ir, sym, tirx

from tvm_cascade.analysis.program import Stage
from tvm_cascade.analysis.tir import loads_of, uses
from tvm_cascade.chunks.cut import Chunk, Cut
from tvm_cascade.chunks.sources import MOST_PIECES

_TILE_ROWS = 128
"""Rows of a tile of a product."""

_FEW_ROWS = 64
"""Rows that are one instruction of the tensor cores: their tiles are bound by memory, and blocks that share them merge
little."""

_PIECE = 512
"""Positions of a piece, at least: of shorter ones, states are as many bytes as the rows' inputs."""

_UNIT = 128
"""Positions that pieces are multiples of, so that tiles are whole."""


def in_pieces(part: Cut, processors: int) -> Chunk:
    """The chunk in as many pieces as give each of some processors a tile of its product, at most.

    Parameters
    ----------
    part : the chunk as one piece.
    """
    length, tiles = part.chunk.length, _tiles(part)
    if not isinstance(length, int) or tiles is None:
        return part.chunk
    most = min(MOST_PIECES, processors // tiles, length // _PIECE)
    fitting = [n for n in range(2, most + 1) if length % (n * _UNIT) == 0]
    return replace(part.chunk, pieces=max(fitting, default=1))


def _tiles(part: Cut) -> int | None:
    """Tiles of the rows of the chunk's widest product; None where rows that share inputs are few, or unknown."""
    found = []
    for reader in part.readers:
        if reader.stage is None or reader.axis is None:
            continue
        rows = [v for v in reader.stage.spatial if not v.same_as(reader.axis)]
        extents = [reader.stage.extents[v] for v in rows]
        expression = part.rewritten(reader.expression, reader.axis)
        read = [load for load in loads_of(expression) if _runs(load, reader.axis)]
        if not read or not all(isinstance(extent, int) for extent in extents):
            return None
        places = max(_places(load, rows, reader.stage) for load in read)
        shared = math.prod(map(int, extents)) // places
        if shared <= _FEW_ROWS:
            return None
        found.append(places * -(-shared // _TILE_ROWS))
    return max(found, default=None)


def _runs(load: ir.TensorLoad, axis: tirx.Var) -> bool:
    return any(uses(index, [axis]) for index in load.indices)


def _places(load: ir.TensorLoad, rows: list[tirx.Var], stage: Stage) -> int:
    """How many values the indices of a load have as rows vary."""
    analyzer = sym.Analyzer()
    for var, extent in stage.extents.items():
        if isinstance(extent, int):
            analyzer.bind(var, ir.Range(0, extent))
    bounds = [analyzer.const_int_bound(index) for index in load.indices if uses(index, rows)]
    return math.prod(bound.max_value - bound.min_value + 1 for bound in bounds)
