"""Elements over accumulator registers: the mapped score r, and the fold's elements in terms of it.

    select(j ≤ i, s·k, −inf)            r = s, gain k; masked registers are set to −inf/k
    50·tanh(s·k)                        r = tanh(s·k), gain 50
    s·k + slope·(j − i)                 r is the whole, gain 1

The element is gain·r + offset: both are left to the lifts, where they fold into multiplications that are there anyway.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import sympy as sp
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import HIGHEST, LOWEST
from tvm_cascade.analysis.expression import RELATIONS, Atom, AtomTable, compared, selection_of, widens
from tvm_cascade.analysis.tir import dtype_of, loads_of, uses
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.masks import choice
from tvm_cascade.tile.operand import Unfit

REGISTER = sp.Symbol("r", real=True)
"""The register of a position."""

SCORE = sp.Symbol("score", real=True)
"""The product of the two operands, as the tensor cores leave it."""


@dataclass(frozen=True)
class Mask:
    """Positions whose element is a constant: where `condition` is not as `keeps` says, r = `value`."""

    condition: ir.Expr
    keeps: bool
    value: sp.Expr


@dataclass(frozen=True)
class Element:
    """The fold's elements as maps of a register.

    Attributes
    ----------
    map : r in terms of `SCORE` and the leaves; `SCORE` itself where nothing is to be done.
    values : what the elements in the fold's lifts are in terms of r.
    masks : applied to r in order.
    leaves : the TIR expressions of the other symbols of `map` and `values`, over the frame's variables.
    """

    map: sp.Expr
    values: dict[sp.Symbol, sp.Expr]
    masks: tuple[Mask, ...]
    leaves: dict[sp.Symbol, ir.Expr]

    @property
    def masked_values(self) -> list[sp.Expr]:
        """Every constant that an element takes where it is masked, in numbers and parameters of the program."""
        return [value.subs(REGISTER, m.value) for m in self.masks for value in self.values.values()]


def read_element(
    atoms: list[Atom],
    score: tirx.Var,
    axis: tuple[tirx.Var, ...],
    factor: sp.Expr,
    scales: tuple[ir.Expr, ...] = (),
) -> Element:
    """The elements that are computed from a score; Unfit where no register serves them all.

    Parameters
    ----------
    factor, scales : the number and the inputs that every score is multiplied by before anything else.
    """
    reading = [a for a in atoms if any(load.source.same_as(score) for load in loads_of(a.expression))]
    if any(atom.indicator for atom in reading):
        raise Unfit(f"a condition on {score.name}")
    taken = {str(a.symbol) for a in atoms if not any(a is other for other in reading)}
    found = _of_one_register([a for a in reading if not _base_of(a, reading)], score, axis, (factor, scales), taken)
    for atom in reading:
        if base := _base_of(atom, reading):
            value = _RoundingTable(axis).over(atom.expression, base.expression, found.values[base.symbol])
            found = dataclasses.replace(found, values={**found.values, atom.symbol: value})
    return found


def _of_one_register(
    atoms: list[Atom],
    score: tirx.Var,
    axis: tuple[tirx.Var, ...],
    factors: tuple[sp.Expr, tuple[ir.Expr, ...]],
    taken: set[str],
) -> Element:
    table = _RoundingTable(axis)
    factor = sp.Mul(factors[0], *map(table.form, factors[1]))
    forms, dropped = {}, []
    for atom in atoms:
        selections, kept = _without_masks(atom.expression, score)
        dropped += selections
        forms[atom.symbol] = _form(kept, table, score, factor)
    if dropped and len(atoms) > 1:
        raise Unfit(f"{len(atoms)} different elements are computed from a masked {score.name}; a register holds one")
    constants = [_constant(value, table, score) for *_, value in dropped]
    read = set().union(*(form.free_symbols for form in (*forms.values(), *constants))) - {SCORE}
    names = _readable({s: e for s, e in table.sources.items() if s in read}, taken)
    forms = {symbol: form.xreplace(names) for symbol, form in forms.items()}
    leaves = {names[s]: e for s, e in table.sources.items() if s in read}
    if len(forms) != 1:
        return Element(SCORE, {s: form.xreplace({SCORE: REGISTER}) for s, form in forms.items()}, (), leaves)
    ((symbol, form),) = forms.items()
    gain, offset, inner = _affine(form)
    constants = [value.xreplace(names) for value in constants]
    if any(_may_overflow((value - offset) / gain) for value in constants):
        gain, offset, inner = sp.S.One, sp.S.Zero, form
    masks = tuple(
        Mask(c, keeps, (value - offset) / gain) for (c, keeps, _), value in zip(dropped, constants, strict=True)
    )
    return Element(inner, {symbol: gain * REGISTER + offset}, masks, leaves)


def _base_of(atom: Atom, atoms: list[Atom]) -> Atom | None:
    """Another element that this one is computed from: of score·k and [score·k = −∞], the first."""
    within = [b for b in atoms if b is not atom and _occurs(b.expression, atom.expression)]
    return max(within, key=lambda base: sum(_occurs(b.expression, base.expression) for b in within), default=None)


def _occurs(part: ir.Expr, whole: ir.Expr) -> bool:
    return not tvm_ffi.structural_equal(_replaced(whole, part, tirx.const(0, dtype_of(part))), whole)


class _RoundingTable(AtomTable):
    """Forms in which rounding to a narrower float, and conditions as numbers, are functions: registers can do both."""

    def form(self, expression: ir.Expr) -> sp.Expr:
        if isinstance(expression, prim.Cast) and dtype_of(expression.value) == "bool":
            return self._truth(expression.value, sp.S.One, sp.S.Zero)
        rounds = isinstance(expression, prim.Cast) and not widens(expression)
        if rounds and all("float" in dtype_of(e) for e in (expression, expression.value)):
            return Round(self.form(expression.value), sp.Symbol(dtype_of(expression)))
        return super().form(expression)

    def over(self, expression: ir.Expr, base: ir.Expr, value: sp.Expr) -> sp.Expr:
        """An expression in terms of one of its subexpressions; Unfit where it reads more than that."""
        variable = tirx.Var("element", base.ty)
        form = self.form(_replaced(expression, base, variable))
        if not form.free_symbols - {LOWEST, HIGHEST} <= {self.leaf(variable)}:
            raise Unfit(f"{expression} is no elementary function of {base}")
        return form.xreplace({self.leaf(variable): value})

    def _truth(self, condition: ir.Expr, holds: sp.Expr, fails: sp.Expr) -> sp.Expr:
        """One value where a condition holds, another elsewhere; NaN is neither equal to a number nor beside it."""
        if isinstance(condition, prim.Not):
            return self._truth(condition.a, fails, holds)
        if isinstance(condition, prim.NE):
            return self._truth(prim.EQ(condition.a, condition.b), fails, holds)
        if type(condition) in RELATIONS and "float" in dtype_of(condition.a):
            found = compared(type(condition), self.form(condition.a), self.form(condition.b))
            if found is not None:
                return choice(found, holds, fails)
        return choice(sp.Gt(self.leaf(condition), 0), holds, fails)


def _readable(leaves: dict[sp.Symbol, ir.Expr], others: set[str]) -> dict[sp.Symbol, sp.Symbol]:
    """Leaf symbols by names of their expressions, which no other symbol has."""
    found: dict[sp.Symbol, sp.Symbol] = {}
    for symbol, expression in leaves.items():
        loads = loads_of(expression)
        base = loads[0].source.name if loads else expression.name if isinstance(expression, ir.Var) else "term"
        taken = {str(other) for other in found.values()} | {str(SCORE), str(REGISTER)} | others
        name = next(n for k in range(len(taken) + 1) if (n := base + (f"_{k}" if k else "")) not in taken)
        found[symbol] = sp.Symbol(name, **symbol.assumptions0)
    return found


def _form(expression: ir.Expr, table: AtomTable, score: tirx.Var, factor: sp.Expr) -> sp.Expr:
    """An element in terms of `SCORE` and leaves that do not read the score."""
    form = table.form(expression)
    read = {s: e for s, e in table.sources.items() if s in form.free_symbols}
    scores = [s for s, e in read.items() if isinstance(e, ir.TensorLoad) and e.source.same_as(score)]
    others = [e for s, e in read.items() if s not in scores]
    if len(scores) != 1 or any(load.source.same_as(score) for e in others for load in loads_of(e)):
        raise Unfit(f"{expression} is no elementary function of {score.name}")
    return form.xreplace({scores[0]: factor * SCORE})


def _affine(form: sp.Expr) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """(gain, offset, r) with form = gain·r + offset, so that r costs least."""
    slope = form.diff(SCORE)
    rest = sp.expand(form - slope * SCORE)
    if slope.is_number and slope.is_nonzero and rest.is_number:
        return slope, rest, SCORE
    offset, varying = form.as_independent(*form.free_symbols, as_Add=True)
    gain, inner = varying.as_coeff_Mul()
    return gain, offset, inner


def _may_overflow(value: sp.Expr) -> bool:
    """Whether a finite constant may be no finite float32, as the lowest one over a gain below 1 is none."""
    if not value.is_number:
        return True
    with np.errstate(over="ignore"):
        return bool(value.is_finite and np.isinf(np.float32(float(value))))


def _without_masks(expression: ir.Expr, score: tirx.Var) -> tuple[list[tuple[ir.Expr, bool, ir.Expr]], ir.Expr]:
    """Selections between the score and something else, taken outward: f(select(c, s, m)) is f(s) or f(m)."""
    dropped: list[tuple[ir.Expr, bool, ir.Expr]] = []
    while (found := _selection(expression, score)) is not None:
        condition, chosen, other = _parts(found)
        keeps = _reads(chosen, score)
        if keeps and _reads(other, score):
            raise Unfit(f"{found} maps the score in two ways")
        dropped.append((condition, keeps, _replaced(expression, found, other if keeps else chosen)))
        expression = _replaced(expression, found, chosen if keeps else other)
    return dropped, expression


def _selection(expression: ir.Expr, score: tirx.Var) -> ir.Expr | None:
    found: list[ir.Expr] = []

    def note(node: ir.Expr) -> None:
        parts = selection_of(node)
        if parts and any(_reads(part, score) for part in parts[1:]):
            found.append(node)

    tvm_ffi.structural_walk(expression, [(ir.Call, note), (prim.Select, note)], order="pre")
    return found[0] if found else None


def _parts(selection: ir.Expr) -> tuple[ir.Expr, ir.Expr, ir.Expr]:
    parts = selection_of(selection)
    assert parts is not None
    return parts


def _replaced(expression: ir.Expr, old: ir.Expr, new: ir.Expr) -> ir.Expr:
    kind = type(old)
    return tvm_ffi.structural_map(expression, (kind, lambda node: new if tvm_ffi.structural_equal(node, old) else node))


def _reads(expression: ir.Expr, buffer: tirx.Var) -> bool:
    return any(load.source.same_as(buffer) for load in loads_of(expression))


def _constant(expression: ir.Expr, table: AtomTable, score: tirx.Var) -> sp.Expr:
    """The constant that an expression is: a number, or over parameters of the program that are numbers."""
    form = table.form(expression)
    if form.free_symbols and form.has(sp.oo, -sp.oo):
        form = form.subs({s: 0 for s in form.free_symbols})  # an infinity plus anything finite
    read = [table.sources[s] for s in form.free_symbols if s in table.sources]
    if form is sp.nan or _reads(expression, score) or not all(map(_is_scalar, read)):
        raise Unfit(f"masked positions have the value {expression}, which is no constant")
    return form


def _is_scalar(source: ir.Expr) -> bool:
    """Whether a leaf is a parameter that is one number: a tensor without dimensions."""
    return isinstance(source, ir.TensorLoad) and not source.indices


def varies(expression: ir.Expr, position: tirx.Var) -> bool:
    return uses(expression, [position])
