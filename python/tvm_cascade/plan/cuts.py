"""Where a function may be cut: units of reductions that become a kernel each, and the unit that each map goes with.

A unit is a set of reductions. A map goes with the last unit whose results it reads, as its epilogue; one that reads
inputs alone goes with every unit that reads it, which computes it again, unless it is an operand of a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from tvm import ir, s_tir, tirx

from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.analysis.inline import Inliner, inliner_of
from tvm_cascade.analysis.order import Buffers, access_of, among, shared
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.statements import completed, in_loops, new_block, sequence, statements_of
from tvm_cascade.analysis.tir import (
    DATA_PARALLEL,
    Extent,
    domain_of,
    dtype_of,
    in_turn,
    loads_of,
    more_than_one,
    reached,
    uses,
    within,
)
from tvm_cascade.tile.factors import find_factors
from tvm_cascade.transform.fuse_function import Outcome

Position = int
"""Of a nest among the statements of a function's root block."""

Unit = frozenset[Position]
"""Positions of nests that reduce, or of one that cannot be read."""


@dataclass(frozen=True)
class Nests:
    """The nests of a program, with what each needs of those before it."""

    program: Program

    @cached_property
    def needs(self) -> list[set[Position]]:
        """For each nest, the earlier ones that it must come after."""
        accesses = [access_of(nest) for nest in self.program.nests]
        return [{j for j in range(k) if accesses[j].before(access) is not None} for k, access in enumerate(accesses)]

    def stages(self, position: Position) -> tuple[Stage, ...]:
        """The stages of a nest; none of one that cannot be read."""
        nest = self.program.nests[position]
        return nest if isinstance(nest, tuple) else ()

    def is_map(self, position: Position) -> bool:
        """Whether a nest computes its elements independently of each other."""
        stages = self.stages(position)
        return bool(stages) and all(stage.reducer is None for stage in stages)

    def is_product(self, position: Position) -> bool:
        """Whether a nest is the product of two matrices."""
        return any(find_factors(stage) is not None for stage in self.stages(position))

    def is_operand(self, position: Position) -> bool:
        """Whether a nest is a map that matrix products alone read."""
        written = [stage.buffer for stage in self.stages(position)]
        readers = [
            k for k in (*self.folds, *self.maps) if shared(written, access_of(self.program.nests[k]).reads) is not None
        ]
        given = any(self.program.is_param(buffer) for buffer in written)
        return self.is_map(position) and not given and bool(readers) and all(map(self.is_product, readers))

    def is_folded_by(self, position: Position, unit: Unit) -> bool:
        """Whether a unit without products reads a map that is an output, at first hand or through other maps."""
        written = [stage.buffer for stage in self.stages(position)]
        if not any(map(self.program.is_param, written)) or any(map(self.is_product, unit)):
            return False
        return position in behind(self, set(unit))

    @cached_property
    def maps(self) -> list[Position]:
        """The maps whose results the caller or another nest reads, in order."""
        found: list[Position] = []
        for k in reversed(range(len(self.program.nests))):
            written = [stage.buffer for stage in self.stages(k)]
            later = [access_of(self.program.nests[j]).reads for j in (*found, *self.folds) if j > k]
            asked = any(self.program.is_param(b) or any(among(b, reads) for reads in later) for b in written)
            if asked and self.is_map(k):
                found.append(k)
        return sorted(found)

    @cached_property
    def folds(self) -> list[Position]:
        """All nests but maps, in order."""
        return [k for k in range(len(self.program.nests)) if not self.is_map(k)]

    @cached_property
    def producers(self) -> set[Position]:
        """Reductions that others read along the axis that these reduce, directly or through maps."""
        return {k for position in self.folds for stage in self.stages(position) for k, _ in self.feeding(stage)}

    def feeding(self, stage: Stage) -> list[tuple[Position, list[tirx.Var]]]:
        """Reductions whose results a stage reads along its axis, with the variables of the stage at which it does.

        Those that a slice of the stage's result fixes are no variables of it.
        """
        found, variables = [], (*stage.spatial, *stage.reduce)
        for load in loads_of(self._inline.of(stage)):
            writer = self.program.writer(load.source)
            used = [v for v in variables if any(uses(index, [v]) for index in load.indices)]
            if writer is not None and writer.reducer is not None and any(among(v, stage.reduce) for v in used):
                found.append((self.program.position(writer), used))
        return found

    @cached_property
    def recomputed(self) -> set[Position]:
        """Matrix products of inputs that other reductions fold, which each of these may compute for itself."""
        found = {k for k in self.producers if self.is_product(k)}
        return {k for k in found if not {*self.folds} & behind(self, {k}) - {k}}

    def folded_dims(self, position: Position) -> set[tuple[Position, tuple[int, ...]]]:
        """The products that may be recomputed and a reduction folds, with the dimensions that it folds them along."""
        found = set()
        for stage in self.stages(position):
            for load in loads_of(self._inline.of(stage)):
                writer = self.program.writer(load.source)
                dims = tuple(d for d, index in enumerate(load.indices) if uses(index, stage.reduce))
                if writer is not None and dims and (at := self.program.position(writer)) in self.recomputed:
                    found.add((at, dims))
        return found

    @cached_property
    def _inline(self) -> Inliner:
        return inliner_of(self.program)

    @cached_property
    def apart(self) -> set[Position]:
        """Matrix products, what feeds other reductions, and nests that cannot be read."""
        unread = {k for k in self.folds if not self.stages(k)}
        return {k for k in self.folds if self.is_product(k)} | self.producers | unread

    def loops(self, position: Position) -> object:
        """What reductions of one pass have in common: their extents, and how many of `apart` they come after."""
        stage = self.stages(position)[0]
        extents = [tuple(str(stage.extents[v]) for v in variables) for variables in (stage.spatial, stage.reduce)]
        return (self.depths[position], *extents)

    @cached_property
    def depths(self) -> list[int]:
        """For each nest, how many of `apart` come one after the other before it."""
        found: list[int] = []
        for needed in self.needs:
            found.append(max((found[j] + (j in self.apart) for j in needed), default=0))
        return found


@lru_cache(64)
def nests_of(program: Program) -> Nests:
    """The nests of a program, which is cut in several ways."""
    return Nests(program)


def by_loops(nests: Nests, outcome: Outcome) -> list[Unit]:
    """A unit for each cascade that has a fold, with other reductions over the same loops that need not come later."""
    cascades = by_cascades(nests, outcome)
    together: dict[object, set[Position]] = {}
    for unit in cascades:
        own = [k for k in unit if k not in nests.apart]
        together.setdefault(nests.loops(max(own)) if own else unit, set()).update(unit)
    return [Unit(one) for one in together.values()]


def by_cascades(nests: Nests, outcome: Outcome) -> list[Unit]:
    """A unit for each cascade that has a fold, with the reductions that feed its elements; others as in `_beside`."""
    taken = set[Position]()
    units: list[Unit] = []
    for unit in cascades_of(nests, outcome):
        units.append(Unit(unit - taken))
        taken |= unit
    return [*units, *_beside(nests, [k for k in nests.folds if k not in taken])]


def _beside(nests: Nests, positions: Sequence[Position]) -> list[Unit]:
    """Products over the same loops with an operand in common, which one map reads, together; other nests apart."""
    found: list[set[Position]] = []
    for k in positions:
        for unit in found:
            if all(_are_beside(nests, j, k) for j in unit):
                unit.add(k)
                break
        else:
            found.append({k})
    return [Unit(one) for one in found]


def _are_beside(nests: Nests, one: Position, other: Position) -> bool:
    read = [access_of(nests.program.nests[k]).reads for k in (one, other)]
    return (
        nests.is_product(one)
        and nests.is_product(other)
        and nests.loops(one) == nests.loops(other)
        and shared(*read) is not None
        and any({one, other} <= nests.needs[k] for k in nests.maps)
    )


def cascades_of(nests: Nests, outcome: Outcome) -> list[Unit]:
    """The reductions of each cascade that has a fold, and those that feed its elements.

    What feeds them has an element for every row and position: what has one for several rows, as the values of
    attention, is computed once, before.
    """
    found = []
    for decision in outcome.found:
        group = decision.candidate.group
        if group is None or decision.reason.verdict is not Verdict.FUSED:
            continue
        own = [group.frame.variables[k] for k in range(len(group.members))]
        common = [v for v in own[0].values() if all(any(v.same_as(o) for o in of.values()) for of in own)]
        rows = [v for v in common if more_than_one(group.frame.extents[v])]
        unit = {nests.program.position(member.stage) for member in group.members}
        for member, variables in zip(group.members, own, strict=True):
            for position, used in nests.feeding(member.stage):
                at = [variables[v] for v in used]
                if all(among(row, at) for row in rows):
                    unit.add(position)
        found.append(Unit(unit))
    return found


def by_products(nests: Nests, outcome: Outcome) -> list[Unit]:
    """Matrix products and what feeds others as in `_beside`; of the rest, reductions over the same loops together."""
    together: dict[object, set[Position]] = {}
    for unit in _beside(nests, [k for k in nests.folds if k in nests.apart]):
        together[unit] = set(unit)
    for k in nests.folds:
        if k not in nests.apart:
            together.setdefault(nests.loops(k), set()).add(k)
    return [Unit(one) for one in together.values()]


def by_folds(nests: Nests) -> list[Unit]:
    """Reductions that fold products of inputs, alike ones together; every unit computes the products that it reads.

    None where each product is folded by one unit; where all are alike, one is cut by reductions.
    """
    again = nests.recomputed
    found: list[list[Position]] = []
    for k in (k for k in nests.folds if k not in again):
        unit = next((unit for unit in found if _fold_alike(nests, unit[0], k)), None)
        if unit is None:
            found.append([k])
        else:
            unit.append(k)
    units = [Unit(unit) for unit in found] if len(found) > 1 else [Unit({k}) for unit in found for k in unit]
    return units if any(sum(k in behind(nests, {*unit}) for unit in units) > 1 for k in again) else []


def _fold_alike(nests: Nests, one: Position, other: Position) -> bool:
    """Whether reductions over the same loops fold a product in common along the same of its dimensions."""
    folded = [nests.folded_dims(k) for k in (one, other)]
    return bool(folded[0] & folded[1]) and nests.loops(one) == nests.loops(other)


def one_by_one(nests: Nests, outcome: Outcome) -> list[Unit]:
    """Every reduction apart."""
    return [Unit({k}) for k in nests.folds]


Rule = Callable[[Nests, Outcome], list[Unit]]

RULES: tuple[Rule, ...] = (by_loops, by_cascades, by_products, one_by_one)
"""How a function's reductions are cut into units, the coarsest first."""

KEEP_CASCADES: tuple[Rule, ...] = (by_loops, by_cascades)
"""The rules that leave the products of a cascade in it."""


def cut(
    nests: Nests,
    units: Sequence[Unit],
    maps_apart: bool = False,
    lifted: Collection[Position] = (),
    stored: bool = False,
) -> list[list[Position]] | None:
    """Positions of nests of each kernel, in an order in which they may run; None where there is none.

    Reductions of no unit are computed again wherever they are read, and so are maps of them, which are no outputs.

    Parameters
    ----------
    maps_apart : every map is a kernel of its own.
    lifted : maps that whatever reads them computes.
    stored : a map of inputs that is an output goes with the first unit that folds it, which stores it as well; None
        where there is no such map.
    """
    owner: dict[Position, int] = {k: u for u, unit in enumerate(units) for k in unit}
    members: list[set[Position]] = [set(unit) for unit in units]
    order = _order(nests, members)
    if order is None or (stored and not any(nests.is_folded_by(k, unit) for k in nests.maps for unit in units)):
        return None
    rank = {u: place for place, u in enumerate(order)}
    again = {k for k in nests.folds if k not in owner}
    for k in nests.maps:
        if nests.needs[k] & again:
            again.add(k)
        if k in again or k in lifted:
            continue
        read = [owner[j] for j in nests.needs[k] if j in owner]
        if stored and not read:
            read = [u for u in order if nests.is_folded_by(k, units[u])][:1]
        if maps_apart or (not read and _stands_alone(nests, k)):
            owner[k] = len(members)
            members.append({k})
            rank[owner[k]] = max((rank[u] for u in read), default=-1)
        elif read:
            owner[k] = max(read, key=lambda u: rank[u])
            members[owner[k]].add(k)
    if any(nests.program.is_param(stage.buffer) for k in again for stage in nests.stages(k)):
        return None
    for k in sorted({*nests.maps, *again} - {*owner}, reverse=True):
        for one in members:  # what reads inputs alone, or is lifted, is computed wherever it is read
            if any(k in nests.needs[j] for j in one):
                one.add(k)
    found = _order(nests, members)
    return None if found is None else [sorted(members[u]) for u in found]


def _stands_alone(nests: Nests, position: Position) -> bool:
    """Whether a map of inputs is asked for by itself: an output, or a computed operand of a matrix product."""
    written = [stage.buffer for stage in nests.stages(position)]
    if any(nests.program.is_param(buffer) for buffer in written):
        return True
    if all(map(_turns, nests.stages(position))):
        return False
    return any(
        nests.is_product(k) and shared(written, access_of(nests.program.nests[k]).reads) is not None
        for k in nests.folds
    )


def _turns(stage: Stage) -> bool:
    """Whether a map has the rows of a tensor with its other axes in another order: kernels read either alike."""
    value, own = stage.value, [*stage.indices]
    if not isinstance(value, ir.TensorLoad) or dtype_of(value) != dtype_of(stage.buffer) or not own:
        return False
    return len(value.indices) == len(own) and {*value.indices} == {*own} and value.indices[-1].same_as(own[-1])


def _order(nests: Nests, members: Sequence[Iterable[Position]]) -> list[int] | None:
    """The sets of nests in an order that keeps what each needs before it; None where they need each other."""
    own = [set(one) for one in members]
    before = [behind(nests, one) - one for one in own]
    placed = sorted(range(len(own)), key=lambda u: min(own[u]))
    found, stuck = in_turn({u: [v for v in placed if v != u and before[u] & own[v]] for u in placed})
    return None if stuck else found


def behind(nests: Nests, positions: set[Position]) -> set[Position]:
    """All nests that some need, transitively."""
    return {*reached([j for k in positions for j in nests.needs[k]], nests.needs.__getitem__)}


# Cuts a function into functions: each holds some of its nests, and buffers that pass between them are parameters.
#
#     main(A, C):  B = f(A);  C = g(B)      →      main_0(A, B): B = f(A)      main_1(B, C): C = g(B)
#
# The parts share the buffers of the whole, so that their order and the buffers' names tell what passes where.


def parts_of(program: Program, cuts: Sequence[Sequence[Position]]) -> list[tirx.PrimFunc]:
    """The functions of several sets of a program's nests, each in its order.

    A map may be in several sets: each computes it for itself. The parameters of a part are what it reads, those of the
    program before what other parts compute for it, and then what it writes.
    """
    accesses = [_access(program, cut) for cut in cuts]
    return [_part(program, sorted(set(cut)), k, accesses) for k, cut in enumerate(cuts)]


def _part(
    program: Program, inside: Sequence[Position], place: int, accesses: Sequence[tuple[Buffers, Buffers]]
) -> tirx.PrimFunc:
    read, written = accesses[place]
    touched = distinct([*read, *written])
    foreign = [
        buffer
        for k, (reads, writes) in enumerate(accesses)
        for buffer in reads
        if k != place and not among(buffer, writes)
    ]
    body = [statements_of(program.root)[k] for k in inside]
    read_there = {var for nest in body for var in within(nest, ir.Var)}
    numbers = [param for param in program.params if not tirx.is_buffer_var(param) and param in read_there]
    passed = [param for param in program.params if among(param, touched)]
    passed += [
        buffer
        for buffer in touched
        if not program.is_param(buffer) and (not among(buffer, written) or among(buffer, foreign))
    ]
    own = [buffer for buffer in touched if not among(buffer, passed)]
    given = [buffer for buffer in passed if not among(buffer, written)]
    results = [buffer for buffer in passed if among(buffer, written)]
    return with_nests(program.func, [*given, *numbers, *results], body, own)


def _access(program: Program, positions: Iterable[Position]) -> tuple[Buffers, Buffers]:
    """(what nests read, what they write)."""
    found = [access_of(program.nests[k]) for k in sorted(set(positions))]
    reads = distinct(buffer for access in found for buffer in access.reads)
    writes = distinct(buffer for access in found for buffer in access.writes)
    return tuple(reads), tuple(writes)


def with_nests(
    func: tirx.PrimFunc, params: Sequence[tirx.Var], nests: Sequence[tirx.Stmt], buffers: Sequence[tirx.Var]
) -> tirx.PrimFunc:
    """A function of some nests, with the attributes of another.

    Parameters
    ----------
    params : of the function.
    buffers : its temporaries.
    """
    root = s_tir.SBlock([], [], [], "root", sequence(nests), None, list(buffers))
    return completed(tirx.PrimFunc(list(params), s_tir.SBlockRealize([], True, root), func.ret_type, func.attrs))


def map_nest(
    name: str,
    buffer: tirx.Var,
    extents: Sequence[Extent],
    value: Callable[[Sequence[tirx.Var]], ir.Expr],
    places: Callable[[Sequence[tirx.Var]], Sequence[ir.Expr]] = lambda at: at,
) -> tirx.Stmt:
    """A nest that stores a value at every point of a buffer, or of a part of it.

    Parameters
    ----------
    name : of its block.
    extents : of the buffer's dimensions, or of the part's.
    value : of a point, from its variables.
    places : of the point in the buffer.
    """
    dtypes = [dtype_of(extent) for extent in buffer.ty.shape]
    variables, loops = ([tirx.Var(f"{letter}{d}", dtype) for d, dtype in enumerate(dtypes)] for letter in "vi")
    pairs = zip(variables, extents, strict=True)
    iters = [tirx.IterVar(domain_of(var, extent), var, DATA_PARALLEL) for var, extent in pairs]
    block = new_block(name, tirx.BufferStore(buffer, value(variables), list(places(variables))), iters)
    return in_loops(dict(zip(loops, extents, strict=True)), s_tir.SBlockRealize(loops, True, block))


def distinct(buffers: Iterable[tirx.Var]) -> list[tirx.Var]:
    """Each buffer once, in order."""
    return list(dict.fromkeys(buffers))
