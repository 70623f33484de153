"""Masked tiles: conditions on a tile and a row under which no position takes part, so that it is skipped.

A comparison of indices in the elements' masks (j ≤ i, |i − j| < w, j < n, i // b == j // b, j < lengths[b]) makes a
position *dead* where it fails, if every state then absorbs the element under conditions that the algebra gives. Tiles
without a live position need not be visited once the states absorb what is dead. Conditions on other data tell nothing.

An update block says so by annotations, in its own variables, since it outlives whatever a schedule does to the loops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sympy as sp
import tvm_ffi
from tvm import ir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import Atom, AtomTable, selection_of
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.tir import dtype_of, loads_of, same, uses, variables_of
from tvm_cascade.transform.absorption import Absorbing, Relation, absorbing

LIVE = "tvm_cascade.live"
"""Block annotation: integers, none of them negative where some position of the tile is live in the block's row."""

UNSETTLED = "tvm_cascade.unsettled"
"""Block annotation: whether the row's state would still change if a dead position were folded in."""

_COMPARISONS = (prim.LT, prim.LE, prim.GT, prim.GE, prim.EQ)


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


def dead_positions(group: Group) -> DeadPositions | None:
    """The dead positions of a group by its masks; None where there are none, or states do not absorb them."""
    atoms = list(group.atoms.atoms.values())
    slacks: list[ir.Expr] = []
    absorbed: list[Absorbing] = []
    for comparison in _comparisons(atoms, group.frame.axis):
        values = {atom.symbol: value for atom in atoms if (value := _where_it_fails(atom, comparison)) is not None}
        if any(value is sp.nan for value in values.values()):
            continue
        conditions = absorbing(group.fold, values)
        if conditions is not None:
            slacks += slacks_of(comparison)
            absorbed += [condition for condition in conditions if condition not in absorbed]
    return DeadPositions(tuple(slacks), tuple(absorbed)) if slacks else None


def greatest(value: ir.Expr, ranges: dict[tirx.Var, tuple[ir.Expr, ir.Expr]]) -> ir.Expr | None:
    """The greatest value of an integer expression while variables run from a first to a last value; None if unknown."""
    domain = {var: sym.IntervalSet(first, last) for var, (first, last) in ranges.items()}
    analyzer = sym.Analyzer()
    interval = analyzer.int_set(analyzer.simplify(value), domain)
    if not isinstance(interval, sym.IntervalSet):
        return None
    most = analyzer.simplify(interval.max_value)
    return most if dtype_of(most).startswith("int") and not uses(most, list(ranges)) else None


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


def _comparisons(atoms: list[Atom], axis: tuple[tirx.Var, ...]) -> list[ir.Expr]:
    """Comparisons of integers along the axis, free of other data along it, in the conditions of the atoms."""
    found: list[ir.Expr] = []

    def note(comparison: ir.Expr) -> None:
        integers = dtype_of(comparison.a).startswith("int")
        plain = uses(comparison, axis) and not any(
            uses(index, axis) for load in loads_of(comparison) for index in load.indices
        )
        if integers and plain and not any(same(comparison, other) for other in found):
            found.append(comparison)

    for atom in atoms:
        tvm_ffi.structural_walk(atom.expression, [(kind, note) for kind in _COMPARISONS])
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

    def choose(node: ir.Expr) -> ir.Expr:
        parts = selection_of(node)
        decided = _decide(parts[0], comparison) if parts else None
        return node if parts is None or decided is None else parts[1 if decided else 2]

    chosen = tvm_ffi.structural_map(atom.expression, [(ir.Call, choose), (prim.Select, choose)])
    form = AtomTable(()).form(chosen)
    return form if form.is_number else sp.nan


def _mentions(expression: ir.Expr, comparison: ir.Expr) -> bool:
    found = False

    def note(other: ir.Expr) -> None:
        nonlocal found
        found = found or same(other, comparison)

    tvm_ffi.structural_walk(expression, (type(comparison), note))
    return found


def _decide(condition: ir.Expr, fails: ir.Expr) -> bool | None:
    """A condition's truth where a comparison fails; None where that does not decide it."""
    if same(condition, fails):
        return False
    if isinstance(condition, prim.Not):
        inner = _decide(condition.a, fails)
        return None if inner is None else not inner
    is_call = isinstance(condition, ir.Call) and isinstance(condition.op, ir.Op)
    name = condition.op.name.split(".")[-1] if is_call else ""
    if isinstance(condition, prim.And) or name == "bitwise_and":
        parts = list(condition.args) if name else [condition.a, condition.b]
        decided = [_decide(part, fails) for part in parts]
        return False if False in decided else True if all(decided) else None
    if isinstance(condition, prim.Or) or name == "bitwise_or":
        parts = list(condition.args) if name else [condition.a, condition.b]
        decided = [_decide(part, fails) for part in parts]
        return True if True in decided else False if decided == [False, False] else None
    return None


def slacks_of(comparison: ir.Expr) -> list[ir.Expr]:
    """Slacks of a comparison: integers that are all at least 0 exactly where it holds."""
    less, more = comparison.a, comparison.b
    if isinstance(comparison, prim.EQ):
        return [more - less, less - more]
    if isinstance(comparison, (prim.GT, prim.GE)):
        less, more = more, less
    more = more - 1 if isinstance(comparison, (prim.LT, prim.GT)) else more
    inner = _absolute(less)
    return [more - less] if inner is None else [more - inner, more + inner]


def _absolute(expression: ir.Expr) -> ir.Expr | None:
    """x of |x|; None for any other expression."""
    if isinstance(expression, ir.Call) and isinstance(expression.op, ir.Op) and expression.op.name.endswith("abs"):
        return expression.args[0]
    parts = selection_of(expression)
    if parts is None:
        return None
    condition, value, _ = parts
    zero = tirx.const(0, dtype_of(value))
    return value if any(same(condition, sign) for sign in (prim.GE(value, zero), prim.LE(zero, value))) else None
