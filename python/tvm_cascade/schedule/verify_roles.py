"""Verifies that blocks of a fused loop have the roles and axes that their annotations state.

A function may have been printed, edited and parsed since the rewrite. Of the blocks under one tile loop:

1. each has a role, and names an axis for every iterator, all of them different;
2. its segment and its tile are the loops that all of the blocks share, and its other axes have a loop each below;
3. it reduces the tile where it carries state from tile to tile, and there alone;
4. an axis has one extent in all blocks, and so has every dimension of what they write one axis.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import s_tir, tirx

from tvm_cascade.analysis.extent import Extent, extent_of, same_extent
from tvm_cascade.analysis.tir import loads_of
from tvm_cascade.errors import InputError
from tvm_cascade.schedule.nests import LoopNest
from tvm_cascade.transform.nest import AXES, CARRYING_ROLES
from tvm_cascade.transform.tiling import LANE, SEGMENT, STRIP, TILE

OWN_AXES = frozenset({LANE, STRIP})
"""Axes that another block may have at another extent."""


def axes_of(block: s_tir.SBlock) -> dict[tirx.Var, str]:
    """The axis of each of a block's variables, by name.

    Raises
    ------
    InputError
        When the block has no such annotation, or not one axis for each iterator.
    """
    written = block.annotations.get(AXES)
    names = [str(name) for name in written] if isinstance(written, Sequence) and not isinstance(written, str) else None
    if names is None or len(names) != len(block.iter_vars) or len(set(names)) != len(names):
        variables = ", ".join(str(iv.var.name) for iv in block.iter_vars)
        raise _disagreement(block, f"an axis for each of {variables}", "none" if names is None else ", ".join(names))
    return {iv.var: name for iv, name in zip(block.iter_vars, names, strict=True)}


def shared_loops(nest: LoopNest) -> int:
    """How many loops a block of a fused loop shares with the others: the segment loop, if any, and the tile loop."""
    return sum(name in (SEGMENT, TILE) for name in axes_of(nest.block).values())


def verify_loop(nests: Sequence[LoopNest]) -> None:
    """Verifies the blocks under one tile loop.

    Raises
    ------
    InputError
        When one of them is not what it says, with the block.
    """
    shared = nests[0].loops[: shared_loops(nests[0])]
    extents: dict[str, Extent] = {}
    for nest in nests:
        _verify_loops(nest, shared)
        _verify_tile(nest)
        names = axes_of(nest.block)
        for var, loop in nest.bound(0):
            extent = extent_of(loop.extent)
            if names[var] not in OWN_AXES and not same_extent(extents.setdefault(names[var], extent), extent):
                wrong = f"{names[var]} of {extent}"
                raise _disagreement(nest.block, f"{names[var]} of {extents[names[var]]}", wrong)
    _verify_dimensions(nests)


def _verify_loops(nest: LoopNest, shared: Sequence[tirx.For]) -> None:
    names, bound = axes_of(nest.block), nest.bound(0)
    order = [names[var] for var, _ in bound]
    together = all(loop.same_as(other) for loop, other in zip(nest.loops, shared, strict=False))
    complete = len(order) == len(nest.loops) == len(names) >= len(shared)
    if not shared or not together or not complete or order[: len(shared)] != [SEGMENT, TILE][-len(shared) :]:
        expected = "the loops of its neighbours over segments and tiles, and below them one for each other axis"
        raise _disagreement(nest.block, expected, ", ".join(f"{loop.loop_var.name}: {names[v]}" for v, loop in bound))


def _verify_tile(nest: LoopNest) -> None:
    names, carries = axes_of(nest.block), nest.role in CARRYING_ROLES
    tile = next(iv for iv in nest.block.iter_vars if names[iv.var] == TILE)
    if (tile.iter_type == tirx.IterVar.CommReduce) != carries:
        kind = "a reduction axis" if carries else "a spatial axis"
        raise _disagreement(nest.block, f"{kind} over the tiles in a block of role {nest.role}", f"{tile.var.name}")


def _verify_dimensions(nests: Sequence[LoopNest]) -> None:
    written = [buffer for nest in nests for buffer in nest.written]
    known: list[tuple[tirx.Var, int, str]] = []
    for nest in nests:
        names = axes_of(nest.block)
        places = [(store.buffer, store.indices) for store in nest.stores]
        places += [(load.source, load.indices) for load in loads_of(nest.block.body)]
        for buffer, indices in places:
            for dim, index in enumerate(indices) if any(buffer.same_as(other) for other in written) else ():
                name = next((name for var, name in names.items() if var.same_as(index)), None)
                if name is None:
                    continue
                first = next((n for b, d, n in known if d == dim and b.same_as(buffer)), name)
                if first != name:
                    raise _disagreement(nest.block, f"{first} along dimension {dim} of {buffer.name}", name)
                known.append((buffer, dim, name))


def _disagreement(block: s_tir.SBlock, expected: str, found: str) -> InputError:
    where = f"block {block.name_hint}, annotation {AXES}"
    return InputError(expected, found, where, "take the function as it was fused, or fuse the original again")
