"""Masked tiles: conditions on a tile and a row under which no position takes part, so that it is skipped.

A comparison of indices in the elements' masks (j ≤ i, |i − j| < w, j < n, i // b == j // b, j < lengths[b]) makes a
position *dead* where it fails, if every state then absorbs the element under conditions that the algebra gives. Tiles
without a live position need not be visited once the states absorb what is dead. Conditions on data that are the same
for blocks of positions (kept[i // 128, j // 128]) tell kernels as much, tile by tile; comparisons with integers of
positions (doc[i] == doc[j], starts[i] <= j) tell those that look for the first and the last live position of rows.

An update block says so by annotations, in its own variables, since it outlives whatever a schedule does to the loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import sympy as sp
import tvm_ffi
from numpy.typing import NDArray
from tvm import ir, sym, tirx
from tvm.ir import prim

from tvm_cascade.algebra.cascade import COUNT
from tvm_cascade.algebra.fold import Component, Fold
from tvm_cascade.algebra.reducer import MAX, MIN, SUM
from tvm_cascade.analysis.expression import Atom, Forms, call_name, selection_of, with_decided
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.frame import Frame
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.tir import (
    COMPARISONS,
    CONJUNCTIONS,
    DISJUNCTIONS,
    dtype_of,
    loads_of,
    same,
    uses,
    variables_of,
    within,
)
from tvm_cascade.symbolic.functions import Round

LIVE = "tvm_cascade.live"
"""Block annotation: integers, none of them negative where some position of the tile is live in the block's row."""

UNSETTLED = "tvm_cascade.unsettled"
"""Block annotation: whether the row's state would still change if a dead position were folded in."""


_NARROW = ("int8", "int16", "int32", "uint8", "uint16")
"""Integers of which kernels look for the greatest and the least."""


@dataclass(frozen=True)
class DeadPositions:
    """The conditions under which a position of a group is dead, over the frame's variables.

    Attributes
    ----------
    slacks : integers, all of them at least 0 at every live position.
    absorbed : the conditions under which a state absorbs dead positions.
    """

    slacks: tuple[ir.Expr, ...]
    absorbed: tuple[Absorbing, ...]

    def symbols(self) -> set[sp.Symbol]:
        """Of the state, in the conditions."""
        return {s for condition in self.absorbed for s in condition.left.free_symbols | condition.right.free_symbols}

    def variables(self) -> list[tirx.Var]:
        """Of the frame, in the slacks."""
        return [var for slack in self.slacks for var in variables_of(slack)]


def dead_positions(group: Group, by_data: bool = False) -> DeadPositions | None:
    """The dead positions of a group by its masks; None where there are none, or states do not absorb them.

    Parameters
    ----------
    by_data : comparisons with what is loaded by the position, and those of rows alone, say so too.
    """
    atoms = list(group.atoms.atoms.values())
    slacks: list[ir.Expr] = []
    absorbed: list[Absorbing] = []
    for comparison in _comparisons(atoms, group.frame.axis, by_data):
        conditions = absorbed_where_it_fails(group, comparison)
        if conditions is not None:
            slacks += slacks_of(comparison)
            absorbed += [condition for condition in conditions if condition not in absorbed]
    return DeadPositions(tuple(slacks), tuple(absorbed)) if slacks else None


def absorbed_where_it_fails(group: Group, condition: ir.Expr) -> tuple[Absorbing, ...] | None:
    """The conditions under which states absorb positions where another one fails; None where they never do."""
    atoms = group.atoms.atoms.values()
    values = {atom.symbol: value for atom in atoms if (value := _where_it_fails(atom, condition)) is not None}
    return None if any(value is sp.nan for value in values.values()) else absorbing(group.fold, values)


def unsettled(conditions: tuple[Absorbing, ...], write: Callable[[sp.Expr], ir.Expr], vanishing: float) -> ir.Expr:
    """The condition that a state does not absorb dead elements; true for a NaN state.

    Parameters
    ----------
    write : gives the TIR of an expression in the state.
    vanishing : exp of minus this is zero beside any number.
    """
    found: ir.Expr = tirx.const(False, "bool")
    for condition in conditions:
        left = write(condition.left)
        if condition.relation is Relation.VANISHES:
            holds = prim.LE(left, tirx.const(-vanishing, dtype_of(left)))
        else:
            compare = prim.GE if condition.relation is Relation.AT_LEAST else prim.LE
            holds = compare(left, write(condition.right))
        found = tirx.Or(found, tirx.Not(holds))
    return found


def _comparisons(atoms: list[Atom], axis: tuple[tirx.Var, ...], by_data: bool) -> list[ir.Expr]:
    """Comparisons of integers in conditions of atoms; unless `by_data`, along the axis and free of data along it."""
    found: list[ir.Expr] = []
    for comparison in (one for atom in atoms for one in within(atom.expression, *COMPARISONS)):
        integers = dtype_of(comparison.a).startswith("int")
        loaded = any(uses(index, axis) for load in loads_of(comparison) for index in load.indices)
        narrow = all(dtype_of(load) in _NARROW for load in loads_of(comparison))
        told = narrow or not loaded if by_data else uses(comparison, axis) and not loaded
        if integers and told and not any(same(comparison, one) for one in found):
            found.append(comparison)
    return found


def block_conditions(group: Group) -> list[ir.Expr]:
    """Conditions on data that are the same for blocks of positions, such as kept[i // 128, j // 128]."""
    atoms, axis, found = group.atoms.atoms.values(), group.frame.axis, list[ir.Expr]()
    for one in (one for atom in atoms for one in within(atom.expression, ir.TensorLoad, prim.NE, *COMPARISONS)):
        by_data = any(uses(index, axis) for load in loads_of(one) for index in load.indices)
        if dtype_of(one) == "bool" and by_data and not any(same(one, other) for other in found):
            of_blocks = tvm_ffi.structural_map(one, (prim.FloorDiv, lambda node: tirx.const(0, dtype_of(node))))
            found += [] if uses(of_blocks, axis) else [one]
    return found


def _where_it_fails(atom: Atom, comparison: ir.Expr) -> sp.Expr | None:
    """The atom's constant value where the comparison fails; None where it is what it was, NaN where that is unknown."""
    if atom.indicator:
        decided = _decide(atom.expression, comparison)
        if decided is None:
            return None if not _mentions(atom.expression, comparison) else sp.nan
        return sp.Integer(int(decided))
    if not _mentions(atom.expression, comparison):
        return None
    form = Forms().form(with_decided(atom.expression, lambda condition: _decide(condition, comparison)))
    return form if form.is_number else sp.nan


def _mentions(expression: ir.Expr, comparison: ir.Expr) -> bool:
    return any(same(other, comparison) for other in within(expression, type(comparison)))


def _decide(condition: ir.Expr, fails: ir.Expr) -> bool | None:
    """A condition's truth where a comparison fails; None where that does not decide it."""
    if same(condition, fails):
        return False
    if isinstance(condition, prim.Not):
        inner = _decide(condition.a, fails)
        return None if inner is None else not inner
    for kinds, strong in ((CONJUNCTIONS, False), (DISJUNCTIONS, True)):
        if isinstance(condition, kinds):
            decided = {_decide(part, fails) for part in (condition.a, condition.b)}
            return strong if strong in decided else not strong if decided == {not strong} else None
    return None


def slacks_of(comparison: ir.Expr) -> list[ir.Expr]:
    """Slacks of a comparison: integers that are all at least 0 exactly where it holds."""
    less, more = comparison.a, comparison.b
    if isinstance(comparison, prim.EQ):
        return [more - less, less - more]
    if isinstance(comparison, (prim.GT, prim.GE)):
        less, more = more, less
    more = more - 1 if isinstance(comparison, (prim.LT, prim.GT)) else more
    inner = inside_magnitude(less)
    return [more - less] if inner is None else [more - inner, more + inner]


def inside_magnitude(expression: ir.Expr) -> ir.Expr | None:
    """x of |x|, also where that chooses between integers x and −x; None for any other expression."""
    if call_name(expression) in ("abs", "fabs"):
        return expression.args[0]
    parts = selection_of(expression)
    if parts is None or not isinstance(parts[0], (prim.LT, prim.LE, prim.GT, prim.GE)):
        return None
    condition, value, other = parts
    if not dtype_of(value).startswith("int"):
        return None
    sign, analyzer = 1 if isinstance(condition, (prim.GT, prim.GE)) else -1, sym.Analyzer()
    is_positive = analyzer.can_prove_equal((condition.a - condition.b) * sign, value)
    return value if is_positive and analyzer.can_prove_equal(value + other, 0) else None


# Absorbing states: when merging another element leaves a state unchanged.
#
# An element is dead where a mask put constants for some of its symbols. Whether the state absorbs it can depend on the
# state: max absorbs a value that is no greater than itself, a sum absorbs a term whose exponential is zero beside every
# number. So the answer is a list of conditions on the state, all of which must hold; empty where every state absorbs
# it.
#
#     max x, Σ exp(x − c)·v  at x = L   ->   max ≥ L;  exp(L − c) is zero


class Relation(Enum):
    """The relation of `left` and `right` under which an element is absorbed."""

    AT_LEAST = "left ≥ right"
    AT_MOST = "left ≤ right"
    VANISHES = "exp(left) is zero next to any number; there is no right"


@dataclass(frozen=True)
class Absorbing:
    """A condition on a state, in components, references and parameters."""

    relation: Relation
    left: sp.Expr
    right: sp.Expr = sp.S.Zero


def absorbing(fold: Fold, dead: Mapping[sp.Symbol, sp.Expr]) -> tuple[Absorbing, ...] | None:
    """The conditions under which folding dead elements leaves the state unchanged; None where it never does.

    Parameters
    ----------
    fold : what is computed.
    dead : the constants that stand for some of the element symbols; the other symbols may be anything finite.
    """
    if any(component.shift.has(COUNT) for component in fold.components):
        return None  # positions are counted as they come, so none may be left for later
    found: list[Absorbing] = []
    for component in fold.components:
        conditions = _of_component(component, dead, set(fold.cascade.elements) - set(dead))
        if conditions is None:
            return None
        found += [c for c in conditions if c not in found]
    return tuple(found)


def _of_component(
    component: Component, dead: Mapping[sp.Symbol, sp.Expr], alive: set[sp.Symbol]
) -> list[Absorbing] | None:
    lift = component.lift.subs(dead, simultaneous=True)
    if lift in (component.reducer.identity, component.reducer.neutral):
        return []
    if lift.has(sp.nan, sp.zoo, sp.oo, -sp.oo):
        return None
    if component.reducer.plain in (MAX, MIN) and not lift.free_symbols & alive:
        relation = Relation.AT_LEAST if component.reducer.plain is MAX else Relation.AT_MOST
        return [Absorbing(relation, component.symbol, lift)]
    if component.reducer is SUM:
        exponents = [_vanishing_exponent(term, dead, alive) for term in sp.Add.make_args(sp.expand_mul(component.lift))]
        if all(exponent is not None for exponent in exponents):
            return [Absorbing(Relation.VANISHES, exponent) for exponent in exponents if exponent is not None]
    return None


def _vanishing_exponent(term: sp.Expr, dead: Mapping[sp.Symbol, sp.Expr], alive: set[sp.Symbol]) -> sp.Expr | None:
    """The exponent of the one factor of a term that holds the dead symbols, where it is known at dead elements."""
    zeroed = [factor for factor in sp.Mul.make_args(term) if factor.has(*dead)]
    if len(zeroed) != 1:
        return None
    factor = zeroed[0].args[0] if isinstance(zeroed[0], Round) else zeroed[0]  # zero, rounded, is zero
    if not isinstance(factor, sp.exp):
        return None
    exponent = factor.args[0].subs(dead, simultaneous=True)
    return None if exponent.free_symbols & alive else exponent


# How much of a masked loop is computed: the tiles that hold a live position of some row of a block, of all tiles.
#
#     j ≤ i of 512 rows and positions, in blocks of 32 rows:   tiles of 64 → 72 of 128;   tiles of 256 → 24 of 32
#
# Slacks that are affine in one row variable and the position are greatest at a corner of a block of rows and a tile.


BLOCK_ROWS = (16, 32, 64)
"""Rows of a block, which visit the same tiles, about: a schedule takes divisors of the rows."""

BLOCK_OVERHEAD = 0.7
"""Rows whose time a block takes beyond that of its own (measured: attention of 1000 and 2048 positions takes 2 and 3 to
7 % more in blocks of 32 and 16 rows than of 64)."""

TILE_POSITIONS = 5
"""What a tile takes beyond its positions, in positions, where it feeds a contraction: references and sums are moved
(measured: causal attention of 512 and 1000 positions takes 6 % more for each in tiles of 64 and 50 than of 256)."""


@dataclass(frozen=True)
class _Affine:
    """start + row·(row's step) + position·(position's step)."""

    start: int
    row: int
    position: int

    def greatest(self, rows: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The greatest value in each block of rows and each tile, of which the first and the last are given."""
        return self.start + (self.row * rows).max(0)[:, None] + (self.position * positions).max(0)[None, :]


@dataclass(frozen=True)
class LiveTiles:
    """What is known of a loop's live tiles.

    Attributes
    ----------
    length : of the axis.
    rows : of the variable that slacks depend on.
    slacks : those that are known.
    known : whether all are.
    """

    length: int
    rows: int
    slacks: tuple[_Affine, ...]
    known: bool

    def share(self, tile: int, block: int) -> float:
        """The share of the tiles of a length that blocks of so many rows visit."""
        first_rows, first = np.arange(0, self.rows, block), np.arange(0, self.length, tile)
        rows = np.stack([first_rows, np.minimum(first_rows + block, self.rows) - 1])
        positions = np.stack([first, np.minimum(first + tile, self.length) - 1])
        live = np.ones((first_rows.size, first.size), bool)
        for slack in self.slacks:
            live &= slack.greatest(rows, positions) >= 0
        return float(live.mean()) if live.size else 1.0

    def block(self, tile: int, blocks: Sequence[int] = BLOCK_ROWS) -> int:
        """The rows of a block, of those, that take the least time; of equal ones the most."""
        return min(sorted(blocks, reverse=True), key=lambda block: self._time(tile, block))

    def time(self, tile: int) -> float:
        """The time of tiles of a length, in blocks of the best number of rows, over that of all positions."""
        return self._time(tile, self.block(tile)) * (1.0 + TILE_POSITIONS / tile)

    def _time(self, tile: int, block: int) -> float:
        return self.share(tile, block) * (1.0 + BLOCK_OVERHEAD / block)


def live_tiles_of(dead: DeadPositions | None, frame: Frame) -> LiveTiles | None:
    """The live tiles of a loop by its masks; None where it has none, or an extent is symbolic."""
    axis = frame.axis[-1]
    length = frame.extents[axis]
    if dead is None or not isinstance(length, int):
        return None
    used = [var for slack in dead.slacks for var in variables_of(slack) if not tirx.is_buffer_var(var)]
    others = [var for var in used if not among(var, frame.axis)]
    row = others[0] if others else None
    extent = 1 if row is None or row not in frame.extents else frame.extents[row]
    if not isinstance(extent, int):
        return None
    return live_tiles(dead.slacks, axis, length, row, extent)


def live_tiles(
    slacks: Sequence[ir.Expr], position: tirx.Var, length: int, row: tirx.Var | None, rows: int
) -> LiveTiles:
    """The live tiles of slacks in a position and a row; those in any other variable are not known."""
    found = [_affine(slack, row, position) for slack in slacks]
    return LiveTiles(length, rows, tuple(one for one in found if one is not None), all(found))


def _affine(slack: ir.Expr, row: tirx.Var | None, axis: tirx.Var) -> _Affine | None:
    """A slack in the row and the position alone; None of one that is not affine in them, or reads data."""
    own = [axis] if row is None else [axis, row]
    if loads_of(slack) or not all(among(var, own) for var in variables_of(slack)):
        return None
    found = [int(one) for one in sym.detect_linear_equation(slack, own) if isinstance(one, prim.IntImm)]
    if len(found) <= len(own):
        return None
    by_position, *by_row, start = found
    return _Affine(start, sum(by_row), by_position)
