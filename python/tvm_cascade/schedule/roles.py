"""Reads the fused loops of a function from block annotations: roles, and the axis of each iterator.

Iterators of one axis have one name in all blocks of a loop (`transform.nest.AXES`). Of the nests after a loop, which
may be any of the program's own, an iterator is of the axis whose dimension of the loop's buffers it indexes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import ir, s_tir, tirx

from tvm_cascade.analysis.expression import call_name
from tvm_cascade.analysis.statements import LoopNest, read_nests
from tvm_cascade.analysis.tir import Extent, extent_of, loads_of, same_extent, uses, within
from tvm_cascade.errors import InputError
from tvm_cascade.schedule.nests import BlockPlan, plan_nest
from tvm_cascade.transform.dead_tiles import LIVE, LiveTiles, live_tiles
from tvm_cascade.transform.nest import AXES, CARRYING_ROLES, GUARD, OPAQUE, TILE_ROLES
from tvm_cascade.transform.tiling import INSIDE, LANE, SEGMENT, STRIP, TILE
from tvm_cascade.tvm_faults.partition import keeps_storage, only_carried

LOOP_ROLES = TILE_ROLES | CARRYING_ROLES
"""Roles of the blocks inside a fused loop; all others stand before or after it."""

OPERAND = "operand"
"""Role of the blocks before a fused loop that copy what it reads."""

Numbers = dict[tuple[str, str], int]
"""The axes of a loop by name, and by block where that is the block's own."""


@dataclass(frozen=True)
class Masked:
    """What a block tells of dead tiles.

    Attributes
    ----------
    plan : of the block.
    slacks : none of them negative where some position of the tile is live in the block's row.
    tile, tiles : the block's variable of tiles, and their number.
    """

    plan: BlockPlan
    slacks: tuple[ir.Expr, ...]
    tile: tirx.Var
    tiles: int

    def live(self, row: int) -> LiveTiles | None:
        """The live tiles, where slacks are known by the rows of an axis and the tile; else None."""
        extent = self.plan.extents.get(row)
        if not isinstance(extent, int):
            return None
        found = live_tiles(self.slacks, self.tile, self.tiles, self.plan.variables[row], extent)
        return found if found.known else None


@dataclass(frozen=True)
class FusedLoop:
    """Blocks under one tile loop.

    Attributes
    ----------
    blocks : in order.
    outer : loops above each block's own: the segment loop, if any, and the tile loop.
    rows : axes of every block's output, in the order of the first state's: those that may run in parallel.
    guarded : some tile holds positions past the end of the axis.
    separable : TVM may take the tiles that need no guard apart from those that do.
    tile, lanes, segments : positions of a tile, partial results of its reduction, parts of the axis: 1 where not cut.
    before : blocks outside that copy operands for this loop.
    masked : what is told of dead tiles; None where nothing is.
    after : blocks outside that read only parameters and what this loop, or another of them, writes; each has all rows.
    carried : buffers that go from tile to tile, and that nothing uses later, by name.
    """

    blocks: tuple[BlockPlan, ...]
    outer: int
    rows: tuple[int, ...]
    guarded: bool
    separable: bool
    after: tuple[BlockPlan, ...]
    before: tuple[BlockPlan, ...] = ()
    tile: int = 1
    lanes: int = 1
    segments: Extent = 1
    masked: Masked | None = None
    carried: frozenset[str] = frozenset()

    def writer(self, buffer: tirx.Var) -> BlockPlan | None:
        return next((b for b in self.blocks for s in b.stores if s.buffer.same_as(buffer)), None)


def read_fused_loops(func: tirx.PrimFunc) -> list[FusedLoop]:
    """The fused loops of a function, in order; none in a function that the rewrite did not make.

    Raises
    ------
    InputError
        When what a block says of itself is not so.
    """
    nests = read_nests(func)
    groups: list[list[LoopNest]] = []
    for nest in nests:
        if nest.role not in LOOP_ROLES or not nest.loops:
            continue
        if groups and groups[-1][0].loops[0].same_as(nest.loops[0]):
            groups[-1].append(nest)
        else:
            groups.append([nest])
    loops: list[FusedLoop] = []
    for group in groups:
        verify_loop(group)
        taken = {plan.name for loop in loops for plan in loop.after}
        later = [n for n in nests[nests.index(group[-1]) + 1 :] if n.role not in LOOP_ROLES]
        loops.append(_read_loop(func, nests, group, [n for n in later if n.block.name_hint not in taken]))
    return loops


def _read_loop(
    func: tirx.PrimFunc, all_nests: list[LoopNest], nests: list[LoopNest], later: list[LoopNest]
) -> FusedLoop:
    outer = shared_loops(nests[0])
    numbers: Numbers = {}
    blocks = tuple(plan_nest(nest, outer, _axes(nest, outer, numbers)) for nest in nests)
    state = next((b for b in blocks if b.role == "update"), blocks[0])
    rows = tuple(a for a in state.spatial if all(a in b.spatial for b in blocks))
    after: list[BlockPlan] = []
    others = [buffer for nest in all_nests if nest not in nests for buffer in nest.written]
    inside = [buffer for nest in nests for buffer in nest.written]
    known = [*inside, *(p for p in func.params if p not in {*others})]
    opaque = any(nest.role == OPAQUE for nest in all_nests)
    for nest in later if outer == 1 else ():  # states of segments are merged before
        if opaque and nest.role != "finish":
            continue  # what a nest that cannot be read does to a buffer is not known
        plan = plan_nest(nest, 0, _axes_after(nest, blocks, numbers))
        local = {access.buffer for access in plan.loads} <= {*known}
        if local and (plan.independent or plan.role == GUARD) and set(rows) <= set(plan.spatial) and not plan.reduce:
            after.append(plan)
            known += nest.written
    guarded = any(_is_guarded(nest, outer) for nest in nests)
    bound = [(nest.block, _bound_to(nest, nest.loops[outer - 1 : outer])) for nest in nests]
    every, params = [nest.block for nest in all_nests], list(func.params)
    separable, carried = keeps_storage(every, bound, params), frozenset(only_carried(every, bound, params))
    before, masked = _operands(all_nests, blocks), _masked(nests, blocks, outer)
    whole = separable and not opaque
    return FusedLoop(blocks, outer, rows, guarded, whole, tuple(after), before, *_cut(nests), masked, carried)


def _cut(nests: list[LoopNest]) -> tuple[int, int, Extent]:
    """(tile, lanes, segments) of a loop, by the extents of the axes that the cascade axis is cut into."""
    cuts = [{axes_of(nest.block)[var]: extent_of(loop.extent) for var, loop in nest.bound(0)} for nest in nests]
    lanes = max(_known(cut, LANE) for cut in cuts)
    tile = max(_known(cut, INSIDE) * _known(cut, LANE) * _known(cut, STRIP) for cut in cuts)
    return tile, lanes, cuts[0].get(SEGMENT, 1)


def _known(cut: dict[str, Extent], axis: str) -> int:
    extent = cut.get(axis, 1)
    return extent if isinstance(extent, int) else 1


def _masked(nests: list[LoopNest], blocks: tuple[BlockPlan, ...], outer: int) -> Masked | None:
    """What a block of a loop tells of dead tiles, if one does."""
    for nest, plan in zip(nests, blocks, strict=True):
        tiles = extent_of(nest.loops[outer - 1].extent)
        bound = _bound_to(nest, nest.loops[outer - 1 : outer])
        if (slacks := nest.block.annotations.get(LIVE)) and bound and isinstance(tiles, int):
            return Masked(plan, tuple(slacks), bound[0], tiles)
    return None


def _axes(nest: LoopNest, outer: int, numbers: Numbers) -> tuple[int, ...]:
    """The axes of a loop's nest, numbered by their names."""
    names = axes_of(nest.block)
    own = [names[var] for var, _ in nest.bound(outer)]
    keys = [(name, nest.block.name_hint if name in OWN_AXES else "") for name in own]
    return tuple(numbers.setdefault(key, len(numbers)) for key in keys)


def _axes_after(nest: LoopNest, blocks: tuple[BlockPlan, ...], numbers: Numbers) -> tuple[int, ...]:
    """The axes of a nest after a loop: of whole dimensions of the loop's buffers that it indexes, or else its own."""
    loads = loads_of(nest.block.body)
    places = [(block, store, load) for block in blocks for store in block.stores for load in loads]
    indexed = [
        (index, axis, block.extents[axis])
        for block, store, load in places
        if store.buffer.same_as(load.source)
        for index, place in zip(load.indices, store.indices, strict=True)
        if (axis := block.axis_at(place)) is not None
    ]
    found = [
        {axis for index, axis, whole in indexed if index.same_as(var) and same_extent(extent_of(loop.extent), whole)}
        for var, loop in nest.bound(0)
    ]
    known = [axes.pop() if len(axes) == 1 else None for axes in found]
    own = [numbers.setdefault((str(k), nest.block.name_hint), len(numbers)) for k in range(len(known))]
    return tuple(o if axis is None or known.count(axis) > 1 else axis for o, axis in zip(own, known, strict=True))


def operand_copy(func: tirx.PrimFunc, buffer: tirx.Var) -> str | None:
    """The name of the block that copies an operand into a buffer, if one does."""
    copies = (nest for nest in read_nests(func) if nest.role == OPERAND)
    return next((nest.block.name_hint for nest in copies if buffer in {*nest.written}), None)


def _operands(nests: list[LoopNest], blocks: tuple[BlockPlan, ...]) -> tuple[BlockPlan, ...]:
    """Copies of operands that some of the blocks read."""
    read = [access.buffer for block in blocks for access in block.loads]
    copies = [nest for nest in nests if nest.role == OPERAND]
    return tuple(plan_nest(n) for n in copies if not {*n.written}.isdisjoint(read))


def _bound_to(nest: LoopNest, loops: tuple[tirx.For, ...]) -> tuple[tirx.Var, ...]:
    """The block's variables that are plain loop variables of these loops."""
    return tuple(var for var, loop in nest.bound(0) if any(loop.same_as(other) for other in loops))


def _is_guarded(nest: LoopNest, outer: int) -> bool:
    """Whether a value of the block depends on a condition on the tile."""
    tile = _bound_to(nest, nest.loops[:outer])
    calls = within(nest.block.body, ir.Call)
    return any(call_name(call) == "if_then_else" and uses(call.args[0], tile) for call in calls)


# Verifies that blocks of a fused loop have the roles and axes that their annotations state.
#
# A function may have been printed, edited and parsed since the rewrite. Of the blocks under one tile loop:
#
# 1. each has a role, and names an axis for every iterator, all of them different;
# 2. its segment and its tile are the loops that all of the blocks share, and its other axes have a loop each below;
# 3. it reduces the tile where it carries state from tile to tile, and there alone;
# 4. an axis has one extent in all blocks, and so has every dimension of what they write one axis.


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
    known: dict[tuple[tirx.Var, int], str] = {}
    for nest in nests:
        names = axes_of(nest.block)
        places = [(store.buffer, store.indices) for store in nest.stores]
        places += [(load.source, load.indices) for load in loads_of(nest.block.body)]
        for buffer, indices in places:
            for dim, index in enumerate(indices) if buffer in {*written} else ():
                if (name := names.get(index)) is None:
                    continue
                if (first := known.setdefault((buffer, dim), name)) != name:
                    raise _disagreement(nest.block, f"{first} along dimension {dim} of {buffer.name}", name)


def _disagreement(block: s_tir.SBlock, expected: str, found: str) -> InputError:
    where = f"block {block.name_hint}, annotation {AXES}"
    return InputError(expected, found, where, "take the function as it was fused, or fuse the original again")
