"""Axes whose elements come from several tensors, one part each: states of the parts, and their merge.

    k[j < prefix ? shared[h, j] : own[b, h, j − prefix]]     →     the shared part is read once for all b, the own apart

As one loop such an axis is no matrix product, and what is shared looks as if every row had its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import MIRRORED, selection_of
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Stage
from tvm_cascade.analysis.tir import analyzer_of, loads_of, uses, within
from tvm_cascade.chunks.assemble import cut_into, joined_function
from tvm_cascade.chunks.cut import Chunk, Cut, axis_that_is_cut
from tvm_cascade.chunks.sources import MOST_PIECES
from tvm_cascade.chunks.state import single_fold, state_of
from tvm_cascade.errors import SplitError
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.assemble import index_dtype

_BOUNDARIES = {prim.LT: 0, prim.GE: 0, prim.LE: 1, prim.GT: 1}
"""What is added to c in axis < c, axis >= c, axis <= c and axis > c for the first position of the later part."""


def apart_at_conditions(func: tirx.PrimFunc, options: FuseOptions, processors: int = 1) -> tirx.PrimFunc | None:
    """The function with an axis of several tensors as one part for each; None where it has no such axis.

    rewrite: o = Σ_j p(j < c ? a[j] : b[j − c])
          →  o₀ = Σ_{j < c} p(a[j]);  o₁ = Σ_j p(b[j]);  o = merge(o₀, o₁)

    Inputs and results are the same.

    Parameters
    ----------
    processors : that share the work of a part; see `in_pieces`.
    """
    if not any(isinstance(condition, tuple(_BOUNDARIES)) for condition, *_ in _selections(func.body)):
        return None
    try:
        fold = single_fold(func, options)
    except SplitError:
        return None
    state = state_of(fold.group, [param.name for param in fold.program.params])
    length, dtype = fold.group.frame.extents[axis_that_is_cut(fold.group)], index_dtype(fold.program)
    (whole,) = cut_into(fold, state, [Chunk(length, tirx.const(0, dtype))], cuts_inputs=False)
    bounds = sorted(set(_boundaries(whole)))
    if not isinstance(length, int) or not (inside := [b for b in bounds if 0 < b < length]):
        return None
    starts, ends = [0, *inside], [*inside, length]
    chunks = [Chunk(end - start, tirx.const(start, dtype)) for start, end in zip(starts, ends, strict=True)]
    chunks = [in_pieces(part, processors) for part in cut_into(fold, state, chunks, cuts_inputs=False)]
    parts = cut_into(fold, state, chunks, numbered=True, cuts_inputs=False)
    joined = joined_function(fold, state, parts, params=fold.program.params)
    return joined.with_attrs(dict(func.attrs)) if func.attrs is not None else joined


def _boundaries(whole: Cut) -> Iterator[int]:
    """Positions at which elements begin to come from another tensor."""
    for reader in whole.readers:
        if reader.axis is None:
            continue
        for condition, one, other in _selections(reader.expression):
            bound = _boundary(condition, reader.axis)
            if bound is not None and not _alike(one, other, reader.axis):
                yield bound


def _selections(expression: ir.Expr | tirx.Stmt) -> list[tuple[ir.Expr, ir.Expr, ir.Expr]]:
    return [parts for node in within(expression, prim.Select, ir.Call) if (parts := selection_of(node)) is not None]


def _boundary(condition: ir.Expr, axis: tirx.Var) -> int | None:
    """Where a comparison of the axis with a number changes; None for any other condition."""
    kind = type(condition)
    if kind not in _BOUNDARIES:
        return None
    left, right = condition.a, condition.b
    if isinstance(left, prim.IntImm):
        left, right, kind = right, left, MIRRORED[kind]
    plain = isinstance(left, ir.Var) and left.same_as(axis) and isinstance(right, prim.IntImm)
    return int(right) + _BOUNDARIES[kind] if plain else None


def _alike(one: ir.Expr, other: ir.Expr, axis: tirx.Var) -> bool:
    """Whether two values read the same tensors along the axis: a mask is no boundary."""
    read = [[load.source for load in loads_of(value) if uses(load, [axis])] for value in (one, other)]
    return not read[0] or not read[1] or all(among(buffer, read[1]) for buffer in read[0])


# How many pieces a chunk is folded in: where many rows share its inputs, its tiles are too few for a device.
#
#     2048 rows of 64 sequences and 32 heads, of 8192 keys that 8 heads have     16 tiles of 128 rows, 8 pieces of each
#
# Every piece leaves a state, which whoever reads the chunk's state merges: no piece waits for another.


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
    number = max((n for n in range(2, most + 1) if length % (n * _UNIT) == 0), default=1)
    if number == 1:
        return part.chunk
    piece = tirx.Var("piece", part.index_dtype)
    offset = piece * (length // number) + part.chunk.offset
    return replace(part.chunk, length=length // number, offset=offset, pieces={piece: number})


def _tiles(part: Cut) -> int | None:
    """Tiles of the rows of the chunk's widest product; None where rows that share inputs are few, or unknown."""
    found = []
    for reader in part.readers:
        if reader.stage is None or reader.axis is None:
            continue
        rows = [v for v in reader.stage.spatial if not v.same_as(reader.axis)]
        extents = [reader.stage.extents[v] for v in rows]
        expression = part.rewritten(reader.expression, reader.axis)
        read = [load for load in loads_of(expression) if uses(load, [reader.axis])]
        if not read or not all(isinstance(extent, int) for extent in extents):
            return None
        places = max(_places(load, rows, reader.stage) for load in read)
        shared = math.prod(map(int, extents)) // places
        if shared <= _FEW_ROWS:
            return None
        found.append(places * -(-shared // _TILE_ROWS))
    return max(found, default=None)


def _places(load: ir.TensorLoad, rows: list[tirx.Var], stage: Stage) -> int:
    """How many values the indices of a load have as rows vary."""
    analyzer = analyzer_of({var: extent for var, extent in stage.extents.items() if isinstance(extent, int)})
    bounds = [analyzer.const_int_bound(index) for index in load.indices if uses(index, rows)]
    return math.prod(bound.max_value - bound.min_value + 1 for bound in bounds)
