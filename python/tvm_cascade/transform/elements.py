"""Temporaries of a tile: subexpressions of the lifts that are computed once and stored.

A part is kept where recomputing it costs more than a load:

1. an atom that selects or calls functions and serves several lifts (a masked, soft-capped score);
2. an exponential or other function of the position that serves several lifts, or a lift with more axes than it has
   (the p of Σ p and of Σ p·v);
3. a load whose neighbours along the axis lie apart in memory, that serves several lifts (the x of points x[l, 3]),
   as a factor of another atom (m·x) too;
4. the factor of a contraction that is no plain load ((x − c) in Σ (x − c)·w);
5. an element of a tuple that is no plain load: combining reads it many times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp
import tvm_ffi
from tvm import ir
from tvm.ir import prim

from tvm_cascade.algebra.fold import Component
from tvm_cascade.analysis.expression import Atom
from tvm_cascade.steps.program import Element
from tvm_cascade.symbolic.elementary import COSTLY
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.masks import Condition
from tvm_cascade.transform.dims import Dims


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
        symbol = sp.Symbol(self._unused(name), real=True)
        self._replace(expression, symbol)

    def keep_atom(self, atom: Atom) -> None:
        symbol = sp.Symbol(self._unused(f"{atom.symbol}_element"), real=True)
        self._replace(atom.symbol, symbol)

    def _replace(self, expression: sp.Expr, symbol: sp.Symbol) -> None:
        self.temporaries.append(Element(symbol, expression))
        self.dims.define(symbol, self.dims.of(expression), self.dims.varies(expression))
        self.lifts = {s: replaced(lift, expression, symbol) for s, lift in self.lifts.items()}

    def _unused(self, name: str) -> str:
        taken = {str(t.symbol) for t in self.temporaries}
        return next(n for k in range(len(taken) + 1) if (n := name + (f"_{k}" if k else "")) not in taken)


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
    while isinstance(expression, prim.Cast):
        expression = expression.value
    return isinstance(expression, ir.TensorLoad)


def strided(expression: ir.Expr) -> bool:
    """Whether the expression is a load at a constant last index: neither positions nor rows are adjacent in memory."""
    if isinstance(expression, prim.Cast):
        return strided(expression.value)
    return (
        isinstance(expression, ir.TensorLoad)
        and bool(expression.indices)
        and isinstance(expression.indices[-1], prim.IntImm)
    )


def selects_or_calls(expression: ir.Expr) -> bool:
    """Whether evaluating the expression twice costs more than storing it once."""
    costly = False

    def note(_node: object) -> None:
        nonlocal costly
        costly = True

    tvm_ffi.structural_walk(expression, [(ir.Call, note), (prim.Select, note)])
    return costly
