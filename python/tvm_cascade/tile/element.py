"""Elements over accumulator registers: the mapped score r, and the fold's elements in terms of it.

    select(j ≤ i, s·k, −inf)            r = s, gain k; masked registers are set to −inf/k
    50·tanh(s·k)                        r = tanh(s·k), gain 50
    s·k + slope·(j − i)                 r is the whole, gain 1

The element is gain·r + offset: both are left to the lifts, where they fold into multiplications that are there anyway.

Of two products, s and s′, there are two registers, and each is an element as a whole:

    exp(s·k − m), exp(s·k − m)·(s′ − δ)          r = exp(s·k − m), r′ = exp(s·k − m)·(s′ − δ)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sympy as sp
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import HIGHEST, LOWEST
from tvm_cascade.analysis.expression import RELATIONS, Atom, Forms, compared, selection_of, widens, with_decided
from tvm_cascade.analysis.tir import dtype_of, loads_of, same
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.masks import choice
from tvm_cascade.tile.fragment import in_base_two
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.product.fold import Sum

REGISTERS = REGISTER, _ = sp.symbols("r r_1", real=True)
"""The registers of a position: one, or two of two products."""

SCORES = SCORE, _ = sp.symbols("score score_1", real=True)
"""The products of two operands, as the tensor cores leave them in these registers."""


@dataclass(frozen=True)
class Mask:
    """Positions whose elements are constants: where `condition` is not as `keeps` says, registers are `values`.

    None in these stands for a register that stays as it is.
    """

    condition: ir.Expr
    keeps: bool
    values: tuple[sp.Expr | None, ...]

    def __str__(self) -> str:
        set_to = ", ".join(f"{r} = {v}" for r, v in zip(REGISTERS, self.values, strict=False) if v is not None)
        return f"mask      {set_to} unless {'' if self.keeps else 'not '}{self.condition}"


@dataclass(frozen=True)
class Element:
    """The fold's elements as maps of registers.

    Attributes
    ----------
    maps : each register in terms of `SCORES` and the leaves; `SCORES` themselves where nothing is to be done.
    values : what the elements in the fold's lifts are in terms of the registers.
    masks : applied to the registers in order.
    leaves : the TIR expressions of the other symbols of `maps` and `values`, over the frame's variables.
    """

    maps: tuple[sp.Expr, ...]
    values: dict[sp.Symbol, sp.Expr]
    masks: tuple[Mask, ...]
    leaves: dict[sp.Symbol, ir.Expr]

    @property
    def masked_values(self) -> list[sp.Expr]:
        """Every constant that an element takes where it is masked, in numbers and parameters of the program."""
        at = [dict(zip(REGISTERS, mask.values, strict=False)) for mask in self.masks]
        masked = [{r: value for r, value in values.items() if value is not None} for values in at]
        return [value.subs(known) for known in masked for value in self.values.values()]


def read_element(atoms: list[Atom], products: Sequence[Sum]) -> Element:
    """The elements that are computed from products; Unfit where their registers do not serve them all."""
    score = products[0].tensor
    reading = [a for a in atoms if any(_reads(a.expression, one.tensor) for one in products)]
    if any(atom.indicator for atom in reading):
        raise Unfit(f"a condition on {score.name}")
    taken = {str(a.symbol) for a in atoms if not any(a is other for other in reading)}
    if len(products) > 1:
        return _of_several_registers(reading, products, taken)
    found = _of_one_register([a for a in reading if not _base_of(a, reading)], products, taken)
    for atom in reading:
        if base := _base_of(atom, reading):
            value = _Rounded().over(atom.expression, base.expression, found.values[base.symbol])
            found = dataclasses.replace(found, values={**found.values, atom.symbol: value})
    return found


def _of_one_register(atoms: list[Atom], products: Sequence[Sum], taken: set[str]) -> Element:
    forms, masked, leaves = _read(atoms, products, taken)
    if len(forms) != 1:
        values = zip(atoms, forms, strict=True)
        return Element((SCORE,), {a.symbol: form.xreplace({SCORE: REGISTER}) for a, form in values}, (), leaves)
    gain, offset, inner = _affine(forms[0])
    if any(_may_overflow((at[0] - offset) / gain) for *_, at in masked):
        gain, offset, inner = sp.S.One, sp.S.Zero, forms[0]
    masks = tuple(Mask(c, keeps, ((at[0] - offset) / gain,)) for c, keeps, at in masked)
    return Element((inner,), {atoms[0].symbol: gain * REGISTER + offset}, masks, leaves)


def _of_several_registers(atoms: list[Atom], products: Sequence[Sum], taken: set[str]) -> Element:
    """Each element as a register by itself, with what it is where it is masked."""
    if len(atoms) > len(products):
        raise Unfit(f"{len(atoms)} elements are computed from {len(products)} products; a register holds one")
    forms, masked, leaves = _read(atoms, products, taken)
    parts = [_scaled(form, [at[k] for *_, at in masked if k in at]) for k, form in enumerate(forms)]
    values = {atom.symbol: gain * r for atom, (gain, _), r in zip(atoms, parts, REGISTERS, strict=False)}
    masks = tuple(
        Mask(c, keeps, tuple(at[k] / gain if k in at else None for k, (gain, _) in enumerate(parts)))
        for c, keeps, at in masked
    )
    maps = tuple(in_base_two(inner, lambda e: True, _whole) for _, inner in parts)
    return Element(maps, values, masks, leaves)


def _read(
    atoms: list[Atom], products: Sequence[Sum], taken: set[str]
) -> tuple[list[sp.Expr], list[tuple[ir.Expr, bool, dict[int, sp.Expr]]], dict[sp.Symbol, ir.Expr]]:
    """Elements in terms of `SCORES` and leaves, the masks of each with the constants that they set elements to; leaves.

    Constants are by the numbers of the elements.
    """
    tensors = [one.tensor for one in products]
    table = _Rounded(scores=tensors)
    scores = {
        one.tensor: sp.Mul(one.number, *map(table.form, one.scales), score)
        for one, score in zip(products, SCORES, strict=False)
    }
    forms, masked = list[sp.Expr](), list[tuple[ir.Expr, bool, dict[int, ir.Expr]]]()
    for k, atom in enumerate(atoms):
        dropped, kept = _without_masks(atom.expression, tensors)
        forms.append(_form(kept, table, scores))
        for condition, keeps, value in dropped:
            known = next((one for one in masked if same(one[0], condition) and one[1] == keeps), None)
            if known is None:
                masked.append(known := (condition, keeps, {}))
            known[2][k] = value
    if masked and len(atoms) > len(products):
        told = f"{len(atoms)} different elements are computed from a masked {tensors[0].name}"
        raise Unfit(f"{told}; a register holds one")
    constants = [(c, keeps, {k: _constant(value, table) for k, value in at.items()}) for c, keeps, at in masked]
    used = set().union(*(form.free_symbols for form in (*forms, *(v for *_, at in constants for v in at.values()))))
    names = _readable({s: e for s, e in table.sources.items() if s in used}, taken)
    named = [(c, keeps, {k: value.xreplace(names) for k, value in at.items()}) for c, keeps, at in constants]
    return [form.xreplace(names) for form in forms], named, {names[s]: table.sources[s] for s in names}


def _base_of(atom: Atom, atoms: list[Atom]) -> Atom | None:
    """Another element that this one is computed from: of score·k and [score·k = −∞], the first."""
    within = [b for b in atoms if b is not atom and _occurs(b.expression, atom.expression)]
    return max(within, key=lambda base: sum(_occurs(b.expression, base.expression) for b in within), default=None)


def _occurs(part: ir.Expr, whole: ir.Expr) -> bool:
    return not tvm_ffi.structural_equal(_replaced(whole, part, tirx.const(0, dtype_of(part))), whole)


@dataclass(kw_only=True)
class _Rounded(Forms):
    """Forms in which rounding to a narrower float, and conditions as numbers, are functions: registers can do both.

    So are selections between two maps of products, `scores`; others are leaves.
    """

    scores: Sequence[tirx.Var] = ()

    def form(self, expression: ir.Expr) -> sp.Expr:
        if isinstance(expression, prim.Cast) and dtype_of(expression.value) == "bool":
            return self._truth(expression.value, sp.S.One, sp.S.Zero)
        rounds = isinstance(expression, prim.Cast) and not widens(expression)
        if rounds and all("float" in dtype_of(e) for e in (expression, expression.value)):
            return Round(self.form(expression.value), sp.Symbol(dtype_of(expression)))
        return super().form(expression)

    def other(self, expression: ir.Expr) -> sp.Expr:
        parts = selection_of(expression)
        if parts and all(_reads(part, *self.scores) for part in parts[1:]):
            return self._truth(parts[0], *map(self.form, parts[1:]))
        return super().other(expression)

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


def _form(expression: ir.Expr, table: Forms, products: Mapping[tirx.Var, sp.Expr]) -> sp.Expr:
    """An element in terms of products, as these are given, and leaves that do not read them."""
    form = table.form(expression)
    read = {s: e for s, e in table.sources.items() if s in form.free_symbols}
    scores = {s: e.source for s, e in read.items() if isinstance(e, ir.TensorLoad) and e.source in products}
    others = [load for s, e in read.items() if s not in scores for load in loads_of(e)]
    if not scores or len({*scores.values()}) < len(scores) or any(load.source in products for load in others):
        raise Unfit(f"{expression} is no elementary function of {', '.join(tensor.name for tensor in products)}")
    return form.xreplace({s: products[tensor] for s, tensor in scores.items()})


def _affine(form: sp.Expr) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """(gain, offset, r) with form = gain·r + offset, so that r costs least."""
    slope = form.diff(SCORE)
    rest = sp.expand(form - slope * SCORE)
    if slope.is_number and slope.is_nonzero and rest.is_number:
        return slope, rest, SCORE
    offset, varying = form.as_independent(*form.free_symbols, as_Add=True)
    gain, inner = varying.as_coeff_Mul()
    return gain, offset, inner


def _scaled(form: sp.Expr, masked: Sequence[sp.Expr]) -> tuple[sp.Expr, sp.Expr]:
    """(gain, r) with form = gain·r, where the constants of masked positions stay numbers over the gain."""
    gain, inner = form.as_coeff_Mul()
    return (sp.S.One, form) if any(_may_overflow(value / gain) for value in masked) else (gain, inner)


def _may_overflow(value: sp.Expr) -> bool:
    """Whether a finite constant may be no finite float32, as the lowest one over a gain below 1 is none."""
    if not value.is_number:
        return True
    with np.errstate(over="ignore"):
        return bool(value.is_finite and np.isinf(np.float32(float(value))))


def _without_masks(
    expression: ir.Expr, scores: Sequence[tirx.Var]
) -> tuple[list[tuple[ir.Expr, bool, ir.Expr]], ir.Expr]:
    """Selections between a score and something else, taken outward: f(select(c, s, m)) is f(s) or f(m)."""
    dropped: list[tuple[ir.Expr, bool, ir.Expr]] = []
    while (found := _selection(expression, scores)) is not None:
        condition, chosen, _ = found
        keeps = _reads(chosen, *scores)
        dropped.append((condition, keeps, _decided(expression, condition, not keeps)))
        expression = _decided(expression, condition, keeps)
    return dropped, expression


def _decided(expression: ir.Expr, condition: ir.Expr, holds: bool) -> ir.Expr:
    """The expression where a condition holds, or does not, in all selections by it."""
    return with_decided(expression, lambda other: holds if same(other, condition) else None)


def _selection(expression: ir.Expr, scores: Sequence[tirx.Var]) -> tuple[ir.Expr, ir.Expr, ir.Expr] | None:
    """The outermost selection between a score and something else, by its parts; None where there is none."""
    found: list[tuple[ir.Expr, ir.Expr, ir.Expr]] = []

    def note(node: ir.Expr) -> None:
        parts = selection_of(node)
        if parts and sum(_reads(part, *scores) for part in parts[1:]) == 1:
            found.append(parts)

    tvm_ffi.structural_walk(expression, [(ir.Call, note), (prim.Select, note)], order="pre")
    return found[0] if found else None


def _replaced(expression: ir.Expr, old: ir.Expr, new: ir.Expr) -> ir.Expr:
    kind = type(old)
    return tvm_ffi.structural_map(expression, (kind, lambda node: new if tvm_ffi.structural_equal(node, old) else node))


def _reads(expression: ir.Expr, *buffers: tirx.Var) -> bool:
    return any(load.source in buffers for load in loads_of(expression))


def _whole(term: sp.Expr) -> sp.Symbol:
    raise AssertionError(f"{term} is no part of a register's map that is the same all along a row")


def _constant(expression: ir.Expr, table: Forms) -> sp.Expr:
    """The constant that an expression is: a number, or over parameters of the program, which have no dimensions."""
    form = table.form(expression)
    if form.free_symbols and form.has(sp.oo, -sp.oo):
        form = form.subs({s: 0 for s in form.free_symbols})  # an infinity plus anything finite
    read = [table.sources[s] for s in form.free_symbols if s in table.sources]
    if form is sp.nan or not all(isinstance(source, ir.TensorLoad) and not source.indices for source in read):
        raise Unfit(f"masked positions have the value {expression}, which is no constant")
    return form
