"""Live tiles: the tiles of the cascade axis that a tile of rows visits, and those that need no mask.

An integer that must not be negative at a live position (`slack`), c·l + g(row), gives by its sign and the extremes of
g over the rows a first or a last tile:

    j ≤ i                 slack i − j        tiles up to the last row's; whole up to the first row's
    i − j < window        slack j − i + w−1  tiles from the first row's; whole from the last row's
    j < ends[i]           slack ends[i]−j−1  tiles up to the greatest end of the rows, which a warp finds
    doc[i] == doc[j]      slacks of either sign, h(j) + g(row): from the first position to the last at which none is
                          negative with the greatest g of the rows, which a warp looks for
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.ir import prim
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.expression import selection_of
from tvm_cascade.analysis.index_sets import greatest
from tvm_cascade.analysis.tir import (
    COMPARISONS,
    DISJUNCTIONS,
    conjuncts,
    dtype_of,
    loads_by,
    same,
    substitute,
    uses,
    variables_of,
)
from tvm_cascade.tile.element import Mask
from tvm_cascade.tile.emit import bind, computed_here, put, variable
from tvm_cascade.tile.merge.lanes import ALL_LANES, WARP
from tvm_cascade.transform.dead_tiles import slacks_of
from tvm_cascade.transform.printer import cast


@dataclass(frozen=True)
class TileRange:
    """Tiles [first, end)."""

    first: ir.Expr
    end: ir.Expr

    def within(self, other: TileRange) -> TileRange:
        return TileRange(tirx.max(self.first, other.first), tirx.min(self.end, other.end))


@dataclass(frozen=True)
class Rows:
    """Consecutive rows.

    Attributes
    ----------
    variable : that slacks use for them.
    first, count : the first of them, and their number.
    over : writes the greatest value, over the rows, of an integer that loads by the row; None where nothing does.
    search : of the positions of some tiles, writes the first and the last (−1 where there is none) at which no sum of
        h, at the position, and a number g is negative; None where nothing looks for them.
    """

    variable: tirx.Var
    first: ir.Expr
    count: int
    over: Callable[[ir.Expr, Rows], ir.Expr] | None = None
    search: Callable[[Sequence[tuple[ir.Expr, ir.Expr]], TileRange], tuple[ir.Expr, ir.Expr]] | None = None


def mask_slacks(mask: Mask) -> tuple[ir.Expr, ...] | None:
    """The slacks of a mask: integers that are all non-negative where it keeps a position; None for other conditions."""
    if not mask.keeps:
        return None
    found: list[ir.Expr] = []
    for condition in conjuncts(mask.condition):
        if not (isinstance(condition, COMPARISONS) and str(condition.a.ty.dtype).startswith("int")):
            return None
        found += slacks_of(condition)
    return tuple(found)


@dataclass(frozen=True)
class Sure:
    """What suffices for a mask to keep a position: integers that are non-negative, and conditions of its tile."""

    slacks: tuple[ir.Expr, ...]
    conditions: tuple[ir.Expr, ...]


def sure(mask: Mask, holding: Sequence[ir.Expr] = (), of_tiles: Sequence[ir.Expr] = ()) -> Sure | None:
    """What suffices for a mask to keep a position; None where that is not known.

    Of a condition that holds where one of several does (a key of the context, or one that a tree of draft tokens
    keeps), one that is known suffices.

    Parameters
    ----------
    holding : conditions that hold in any case.
    of_tiles : conditions that are the same all over a tile.
    """
    if not mask.keeps:
        return None
    slacks, conditions = list[ir.Expr](), list[ir.Expr]()
    for condition in conjuncts(mask.condition):
        alternatives = _alternatives(condition)
        if any(same(condition, one) for one in holding):
            continue
        if at_once := [own for one in alternatives for own in of_tiles if same(one, own)]:
            conditions += at_once[:1]
            continue
        known = [s for one in alternatives if (s := mask_slacks(replace(mask, condition=one))) is not None]
        if not known:
            return None
        slacks += known[0]
    return Sure(tuple(slacks), tuple(conditions))


def _alternatives(condition: ir.Expr) -> list[ir.Expr]:
    if isinstance(condition, DISJUNCTIONS):
        return [*_alternatives(condition.a), *_alternatives(condition.b)]
    parts = selection_of(condition)
    if parts is not None and isinstance(parts[1], prim.IntImm) and int(parts[1]) == 1:
        return [*_alternatives(parts[0]), *_alternatives(parts[2])]
    return [condition]


def live_tiles(slacks: tuple[ir.Expr, ...], position: tirx.Var, rows: Rows, tile: int, tiles: ir.Expr) -> TileRange:
    """The tiles that hold a live position of any of the rows; more than those where a slack cannot be solved."""
    start = tirx.const(0, "int32")
    found, sought = TileRange(start, tiles), list[tuple[ir.Expr, ir.Expr]]()
    for slack in slacks:
        sign, g = solved_for(slack, position) or (0, None)
        if not uses(slack, [position]) and (most := _greatest(slack, rows)) is not None:
            found = found.within(TileRange(start, tirx.Select(most >= 0, tiles, start)))
            continue
        if g is None and rows.search is not None:
            terms = _terms(slack)
            of_position = _sum([one for one in terms if uses(one[1], [position])], "int64")
            others = [one for one in terms if not uses(one[1], [position])]
            most = None if uses(of_position, [rows.variable]) else _greatest_sum(others, rows)
            sought += [] if most is None else [(of_position, most)]
            continue
        most = None if g is None else _greatest(as_bound(g, rows.variable), rows)
        if most is not None:
            first, end = tirx.floordiv(-most, tile), tirx.floordiv(most, tile) + 1
            found = found.within(TileRange(first, tiles) if sign > 0 else TileRange(start, end))
    if sought and rows.search is not None:
        least, last = rows.search(sought, found)
        return found.within(TileRange(tirx.floordiv(least, tile), tirx.floordiv(last, tile) + 1))
    return found


def _terms(slack: ir.Expr, sign: int = 1) -> list[tuple[int, ir.Expr]]:
    """What is added, and what is subtracted."""
    if isinstance(slack, (prim.Add, prim.Sub)):
        return [*_terms(slack.a, sign), *_terms(slack.b, sign if isinstance(slack, prim.Add) else -sign)]
    return [(sign, slack)]


def _sum(terms: Sequence[tuple[int, ir.Expr]], dtype: str) -> ir.Expr:
    total = tirx.const(0, dtype)
    for sign, term in terms:
        total = total + cast(term, dtype) if sign > 0 else total - cast(term, dtype)
    return total


def _greatest_sum(terms: Sequence[tuple[int, ir.Expr]], rows: Rows) -> ir.Expr | None:
    """The greatest sum of the rows in 64 bits, in which no negative is missing; beyond `_MOST` all that is no less."""
    if not any(loads_by(term, rows.variable) for _, term in terms):
        found = _greatest(_sum(terms, "int32"), rows)
        return None if found is None else cast(found, "int64")
    least, most = (tirx.const(end, "int64") for end in (-_MOST, _MOST))
    found = _greatest(cast(tirx.max(tirx.min(_sum(terms, "int64"), most), least), "int32"), rows)
    if found is None:
        return None
    return tirx.Select(found.equal(tirx.const(_MOST, "int32")), 2 * most, cast(found, "int64"))


def whole_tiles(
    slacks: tuple[ir.Expr, ...], position: tirx.Var, rows: Rows, tile: int, tiles: ir.Expr
) -> TileRange | None:
    """The tiles all of whose positions are live in all the rows; None where that is not known."""
    start = tirx.const(0, "int32")
    found = TileRange(start, tiles)
    for slack in slacks:
        sign, g = solved_for(slack, position) or (0, None)
        least = None if g is None else _greatest(-as_bound(g, rows.variable), rows)
        if least is None:
            return None
        first, end = tirx.floordiv(least + (tile - 1), tile), tirx.floordiv(1 - least, tile)
        found = found.within(TileRange(first, tiles) if sign > 0 else TileRange(start, end))
    return found


def solved_for(slack: ir.Expr, position: tirx.Var) -> tuple[int, ir.Expr] | None:
    """(±1, g) with ±l + g not negative exactly where the slack is not; None where it cannot be solved for l.

    A quotient of the position is solved too: ⌊a/c⌋ + g ≥ 0 where a + c·g ≥ 0, and g − ⌊a/c⌋ ≥ 0 where
    c·g + c − 1 − a ≥ 0.
    """
    plain = _as_line(slack, position)
    if plain is not None:
        return plain
    quotients: list[ir.Expr] = []

    def note(node: ir.Expr) -> None:
        if uses(node, [position]) and isinstance(node.b, prim.IntImm) and int(node.b) > 0:
            quotients.append(node)

    tvm_ffi.structural_walk(slack, (prim.FloorDiv, note))
    if not quotients:
        return None
    quotient, whole = quotients[0], tirx.Var("quotient", dtype_of(quotients[0]))
    replaced = tvm_ffi.structural_map(slack, (prim.FloorDiv, lambda node: whole if same(node, quotient) else node))
    outer, inner = _as_line(replaced, whole), _as_line(quotient.a, position)
    if outer is None or inner is None or uses(outer[1], [position]):
        return None
    (sign, g), (direction, rest), divisor = outer, inner, quotient.b
    if sign > 0:
        return direction, rest + g * divisor
    return -direction, g * divisor + divisor - 1 - rest


def _as_line(expression: ir.Expr, variable: tirx.Var) -> tuple[int, ir.Expr] | None:
    """(±1, g) with the expression = ±v + g; None for any other."""
    analyzer = sym.Analyzer()
    zero = tirx.const(0, str(variable.ty.dtype))
    rest = analyzer.simplify(substitute(expression, {variable: zero}))
    for sign in (1, -1):
        difference = analyzer.simplify(expression - rest - variable * sign)
        if isinstance(difference, prim.IntImm) and int(difference) == 0 and not uses(rest, [variable]):
            return sign, rest
    return None


def of_whole_tiles(
    conditions: Sequence[ir.Expr], row: tirx.Var, rows: int, position: tirx.Var, columns: int
) -> tuple[ir.Expr, ...]:
    """Those conditions that are the same all over each tile of so many rows and positions."""
    tiles, within = (tirx.Var(name, "int64") for name in ("row_tile", "tile")), (row, position)
    analyzer, at = sym.Analyzer(), dict[tirx.Var, ir.Expr]()
    for var, tile, extent in zip(within, tiles, (rows, columns), strict=True):
        inner = tirx.Var(f"in_{tile.name}", "int64")
        for known, end in ((tile, _MOST_TILES), (inner, extent)):
            analyzer.bind(known, ir.Range(tirx.const(0, "int64"), tirx.const(end, "int64")))
        at[var] = cast(tile * extent + inner, dtype_of(var))

    def is_same(condition: ir.Expr) -> bool:
        used = {v.name for v in variables_of(analyzer.simplify(substitute(condition, at)))}
        return used.isdisjoint({"in_row_tile", "in_tile"})

    return tuple(condition for condition in conditions if is_same(condition))


class Passing:
    """The tiles of a range that pass what is asked of each, from the last on: the lanes of a warp ask for 32 at a time.

    Parameters
    ----------
    passes : whether a tile does.

    Attributes
    ----------
    any : whether one does; else the last is visited alone.
    tile : the one that is visited; one before the first once there is none.
    """

    def __init__(self, within: TileRange, lane: ir.Expr, passes: Callable[[ir.Expr], ir.Expr]) -> None:
        self.first, self.lane, self.passes = within.first, lane, passes
        # Of constants nvcc makes loops whose registers spill.
        self.place = variable("passing_tile", computed_here(within.end))
        self.advance()
        self.any = bind("passing", self.tile >= self.first)
        put(self.place, 0, tirx.Select(self.any, self.tile, within.end - 1))

    @property
    def tile(self) -> ir.Expr:
        return self.place[0]

    def advance(self) -> None:
        """Goes to the next one before, by all lanes."""
        word = variable("passing_lanes", T.uint32(0))
        with T.While(tirx.And(word[0] == T.uint32(0), self.tile > self.first)):
            tile = bind("asked_tile", self.tile - 1 - self.lane)
            holds = tirx.And(tile >= self.first, self.passes(tirx.max(tile, self.first)))
            put(word, 0, T.cuda.ballot_sync(T.uint32(ALL_LANES), T.cast(holds, "int32")))
            put(self.place, 0, self.tile - tirx.Select(word[0] == T.uint32(0), WARP, T.cuda.ffs_u32(word[0])))
        put(self.place, 0, tirx.Select(word[0] == T.uint32(0), self.first - 1, self.tile))


_MOST = 2**31 - 1
"""Of 32 bits, in which lanes find what is greatest."""

_FARTHEST = 2**29
"""Beyond any position that a GPU has the memory for."""

_MOST_TILES = 1 << 24
"""More than any axis has."""


def as_bound(value: ir.Expr, row: tirx.Var) -> ir.Expr:
    """A bound on positions, of which what rows load is no farther off than any position: no sum of these overflows."""
    if not loads_by(value, row):
        return value

    def near(load: ir.TensorLoad) -> ir.Expr:
        if dtype_of(load) not in ("int32", "int64"):
            return load
        least, most = (tirx.const(end, dtype_of(load)) for end in (-_FARTHEST, _FARTHEST))
        return tirx.max(tirx.min(load, most), least)

    return tvm_ffi.structural_map(value, (ir.TensorLoad, near))


def _greatest(value: ir.Expr, rows: Rows) -> ir.Expr | None:
    if loads_by(value, rows.variable):
        found = None if rows.over is None else rows.over(value, rows)
    elif uses(value, [rows.variable]):
        first = cast(rows.first, dtype_of(rows.variable))
        found = greatest(value, {rows.variable: (first, first + (rows.count - 1))})
    else:
        found = value
    return None if found is None else cast(found, "int32")
