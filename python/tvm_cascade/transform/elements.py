"""Temporaries of a tile: subexpressions of the lifts that are computed once and stored.

A part is kept where recomputing it costs more than a load:

1. an atom that selects or calls functions and serves several lifts (a masked, soft-capped score);
2. an exponential or other function of the position that serves several lifts, or a lift with more axes than it has
   (the p of Σ p and of Σ p·v);
3. a load that is not contiguous along the axis, and serves several lifts (the x of points x[l, 3]),
   as a factor of another atom (m·x) too;
4. the factor of a contraction that is no plain load ((x − c) in Σ (x − c)·w);
5. an element of a tuple that is no plain load: combining reads it many times.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy as sp
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.cascade import COUNT, LENGTH
from tvm_cascade.algebra.fold import Component
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.expression import Atom
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.statements import unused
from tvm_cascade.analysis.tir import more_than_one, uses, variables_of, within, without_casts
from tvm_cascade.steps.program import Element, Scale, StepProgram
from tvm_cascade.symbolic.elementary import COSTLY
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.masks import Condition


@dataclass(frozen=True)
class ElementPlan:
    """Temporaries in order of computation, and each lift in terms of them."""

    temporaries: tuple[Element, ...]
    lifts: dict[sp.Symbol, sp.Expr]

    def that_read(self, temporary: Element) -> set[sp.Symbol]:
        """The temporary's symbol and those of all temporaries that are computed from it."""
        found = {temporary.symbol}
        for later in self.temporaries:
            if later.expression.free_symbols & found:
                found.add(later.symbol)
        return found


def plan_elements(components: Sequence[Component], atoms: Sequence[Atom], dims: Dims) -> ElementPlan:
    """Decides the temporaries of a fold's lifts."""
    apart = _strided_factors(atoms)
    lifts = {c.symbol: c.lift.xreplace(apart) for c in components}
    computed = {atom.symbol for atom in atoms if not is_load(atom.expression)}
    plan = _Plan(lifts, dims, computed)
    for atom in atoms:
        if not atom.varies or atom.indicator or plan.uses(atom.symbol) < 2:
            continue
        if selects_or_calls(atom.expression) or strided(atom.expression):
            plan.keep_atom(atom)
    for component in components:
        plan.keep_part(component, {atom.symbol: atom.expression for atom in atoms})
    for function in plan.functions():
        if plan.uses(function) > 1 or plan.widest_use(function) > len(dims.of(function)):
            plan.keep(function)
    for symbol in list(lifts):
        for factor in plan.contracted_factors(symbol):
            plan.keep(factor)
    return ElementPlan(tuple(plan.temporaries), plan.lifts)


class _Plan:
    def __init__(self, lifts: dict[sp.Symbol, sp.Expr], dims: Dims, computed: set[sp.Symbol]) -> None:
        self.lifts, self.dims, self.computed = lifts, dims, computed
        self.own_dims = {symbol: len(dims.of(lift)) for symbol, lift in lifts.items()}
        self.temporaries: list[Element] = []

    def uses(self, part: sp.Expr) -> int:
        return sum(lift.has(part) for lift in self.lifts.values())

    def widest_use(self, part: sp.Expr) -> int:
        return max((self.own_dims[s] for s, lift in self.lifts.items() if lift.has(part)), default=0)

    def functions(self) -> list[sp.Expr]:
        """Functions of the position in the lifts, innermost first."""
        found = {f for lift in self.lifts.values() for f in lift.atoms(*COSTLY) if self.dims.varies(f)}
        return sorted(found, key=lambda f: (sp.count_ops(f), str(f)))

    def contracted_factors(self, symbol: sp.Symbol) -> list[sp.Expr]:
        """Factors of a contraction that lack some of its axes and are not plain values already."""
        factors = [factor for factor in sp.Mul.make_args(self.lifts[symbol]) if self.dims.varies(factor)]
        # A condition selects what may be infinite where it does not hold: as a number beside that it would give NaN.
        conditions = [f for f in factors if f.free_symbols and all(isinstance(s, Condition) for s in f.free_symbols)]
        exponentials = [f for f in factors if self._has_exponential(f)]
        by_dims: dict[tuple[object, ...], list[sp.Expr]] = {}
        for factor in factors:
            if not (exponentials and factor in conditions):
                by_dims.setdefault(tuple(map(id, self.dims.of(factor))), []).append(factor)
        for dims, together in by_dims.items():
            if any(factor in exponentials for factor in together):
                together += [c for c in conditions if set(map(id, self.dims.of(c))) <= set(dims)]
        if len(by_dims) < 2 and all(len(self.dims.of(sp.Mul(*f))) == self.own_dims[symbol] for f in by_dims.values()):
            return []
        products = [sp.Mul(*factors) for factors in by_dims.values()]
        narrow = [p for p in products if len(self.dims.of(p)) < self.own_dims[symbol]]
        return [p for p in narrow if not p.is_Symbol or p in self.computed]

    def _has_exponential(self, part: sp.Expr) -> bool:
        inside = {t.symbol: t.expression for t in self.temporaries}
        return part.has(sp.exp) or any(self._has_exponential(inside[s]) for s in part.free_symbols & inside.keys())

    def keep_part(self, component: Component, atoms: dict[sp.Symbol, ir.Expr]) -> None:
        """Rule 5."""
        lift = self.lifts[component.symbol]
        loaded = lift in {t.symbol for t in self.temporaries} or (lift in atoms and not selects_or_calls(atoms[lift]))
        if component.parts and self.dims.varies(lift) and not loaded:
            self.keep(lift)

    def keep(self, expression: sp.Expr) -> None:
        name = "weights" if isinstance(expression, sp.exp) else "rounded" if isinstance(expression, Round) else "factor"
        self._replace(expression, name)

    def keep_atom(self, atom: Atom) -> None:
        self._replace(atom.symbol, f"{atom.symbol}_element")

    def _replace(self, expression: sp.Expr, name: str) -> None:
        symbol = sp.Symbol(unused(name, {str(t.symbol) for t in self.temporaries}), real=True)
        self.temporaries.append(Element(symbol, expression))
        self.dims.define(symbol, self.dims.of(expression), self.dims.varies(expression))
        self.lifts = {s: replaced(lift, expression, symbol) for s, lift in self.lifts.items()}


def replaced(lift: sp.Expr, part: sp.Expr, symbol: sp.Symbol) -> sp.Expr:
    """The lift with a part, or a product of some of its factors, replaced by a symbol."""
    if isinstance(part, sp.Mul) and isinstance(lift, sp.Mul) and set(part.args) <= set(lift.args):
        return sp.Mul(symbol, *(a for a in lift.args if a not in part.args))
    return lift.xreplace({part: symbol})


def _strided_factors(atoms: Sequence[Atom]) -> dict[sp.Symbol, sp.Expr]:
    """The atoms that are products of two others of which one is a strided load, as those products."""
    known = [atom for atom in atoms if atom.varies and not atom.indicator]
    found: dict[sp.Symbol, sp.Expr] = {}
    for atom in known:
        if isinstance(atom.expression, prim.Mul) and (strided(atom.expression.a) or strided(atom.expression.b)):
            left, right = (
                [o.symbol for o in known if tvm_ffi.structural_equal(o.expression, operand)]
                for operand in (atom.expression.a, atom.expression.b)
            )
            if left and right:
                found[atom.symbol] = left[0] * right[0]
    return found


def is_load(expression: ir.Expr) -> bool:
    """Whether the expression is a load, be it in another dtype."""
    return isinstance(without_casts(expression), ir.TensorLoad)


def strided(expression: ir.Expr) -> bool:
    """Whether the expression is a load at a constant last index: neither positions nor rows are adjacent in memory."""
    load = without_casts(expression)
    return isinstance(load, ir.TensorLoad) and bool(load.indices) and isinstance(load.indices[-1], prim.IntImm)


def selects_or_calls(expression: ir.Expr) -> bool:
    """Whether evaluating the expression twice costs more than storing it once."""
    return bool(within(expression, ir.Call, prim.Select))


# The rows and free axes that each symbol of a fold depends on.


class Dims:
    """Frame variables by symbol, in one common order: that in which the members' results are indexed."""

    def __init__(self, group: Group) -> None:
        plain = (index for member in group.members for index in member.dims if isinstance(index, ir.Var))
        self.order: list[tirx.Var] = list(dict.fromkeys(plain))
        self._known: dict[sp.Symbol, tuple[tirx.Var, ...]] = {COUNT: (), LENGTH: ()}
        self._varying: set[sp.Symbol] = set()
        for atom in group.atoms.atoms.values():
            read = [v for v in variables_of(atom.expression) if v in group.frame.extents]
            self.order += [v for v in read if v not in {*self.order, *group.frame.axis}]
            self._known[atom.symbol] = tuple(v for v in self.order if v in {*read})
            if uses(atom.expression, group.frame.axis):
                self._varying.add(atom.symbol)
        for member in group.members:
            self._known[member.result] = tuple(v for v in self.order if v in {*member.dims})
        self._state(group)

    def _state(self, group: Group) -> None:
        for step in group.fold.steps:
            if isinstance(step, Component):
                others = [s for s in step.shift.free_symbols if s != step.symbol and s in self._known]
                tuple_ = [c.lift for c in group.fold.components if step.parts and c.parts == step.parts]
                self._known[step.symbol] = self._sorted([step.lift, *others, *tuple_])
            else:
                for symbol in (step.symbol, step.moved, step.step):
                    self._known[symbol] = self._sorted([step.value])

    def _sorted(self, expressions: list[sp.Expr]) -> tuple[tirx.Var, ...]:
        found = {v for e in expressions for s in e.free_symbols for v in self._known.get(s, ())}
        return tuple(v for v in self.order if v in found)

    def define_scales(self, program: StepProgram) -> None:
        """Records the dims of factors of shifts."""
        for step in program.steps:
            if isinstance(step, Scale):
                self.define(step.symbol, self.of(step.expression), varies=False)

    def define(self, symbol: sp.Symbol, dims: tuple[tirx.Var, ...], varies: bool) -> None:
        self._known[symbol] = dims
        if varies:
            self._varying.add(symbol)

    def of(self, expression: sp.Expr) -> tuple[tirx.Var, ...]:
        """The rows and free axes that the expression depends on."""
        return self._sorted([expression])

    def varies(self, expression: sp.Expr) -> bool:
        """Whether the expression depends on the position on the cascade axis."""
        return bool(expression.free_symbols & self._varying)


# Splits atoms that are products over different axes, so that contractions see their factors.
#
# An element that reads no result is one atom, whatever it is a product of. Σ x[i, l]·gain[l]·weight[l, f] is a
# contraction of x·gain with weight; as one atom it would look like data with all axes, along which nothing is reused.


Split = Callable[[Atom], Sequence[ir.Expr]]
"""The factors that an atom is to be taken apart into; fewer than two leave it whole."""


def with_factors_apart(group: Group, split: Split) -> Group:
    """The group with atoms split into factors: Σ a with a = u·v as Σ u·v."""
    table = group.atoms.copy()
    apart: dict[sp.Symbol, sp.Expr] = {}
    for atom in group.atoms.atoms.values():
        factors = split(atom)
        if len(factors) > 1:
            apart[atom.symbol] = sp.Mul(*map(table.of, factors))
    if not apart:
        return group
    steps = tuple(
        dataclasses.replace(s, lift=s.lift.xreplace(apart)) if isinstance(s, Component) else s for s in group.fold.steps
    )
    kept = {form: atom for form, atom in table.atoms.items() if atom.symbol not in apart}
    own = dataclasses.replace(table, atoms=kept)
    return dataclasses.replace(group, atoms=own, fold=dataclasses.replace(group.fold, steps=steps))


def contractions_apart(group: Group) -> Group:
    """The group with every sum of a product over different axes as a contraction, one factor for each set of axes.

    A product of which one factor has all axes is none: nothing in it is read more than once.
    """

    def split(atom: Atom) -> list[ir.Expr]:
        readers = [c for c in group.fold.components if c.lift.has(atom.symbol)]
        summed = all(c.reducer is SUM and not c.parts for c in readers)
        return _by_axes(atom.expression, group) if readers and summed else []

    return with_factors_apart(group, split)


def _by_axes(expression: ir.Expr, group: Group) -> list[ir.Expr]:
    """The factors of a product, those with the axes of another multiplied with it."""
    factors = _factors(expression)
    axes = [_axes(factor, group) for factor in factors]
    widest = [own for k, own in enumerate(axes) if not any(own < other for other in axes) and own not in axes[:k]]
    parts: list[ir.Expr | None] = [None] * len(widest)
    for factor, own in zip(factors, axes, strict=True):
        home = next(k for k, whole in enumerate(widest) if own <= whole)
        part = parts[home]
        parts[home] = factor if part is None else prim.Mul(part, factor)
    return [part for part in parts if part is not None]


def _factors(expression: ir.Expr) -> list[ir.Expr]:
    if isinstance(expression, prim.Mul):
        return _factors(expression.a) + _factors(expression.b)
    return [expression]


def _axes(expression: ir.Expr, group: Group) -> frozenset[int]:
    """Rows and free axes of more than one step that an expression depends on, by their number in the frame."""
    frame = group.frame
    variables = {*variables_of(expression)}
    return frozenset(
        k
        for k, (var, extent) in enumerate(frame.extents.items())
        if more_than_one(extent) and var in variables and var not in {*frame.axis}
    )
