"""Definitions of atoms in terms of each other, of loads and of variables, for sound counterexamples.

Two conditions on one index, l < 4 and l >= 8, never hold together; tanh(x) is below 1 and moves with x. The algebra
needs neither to derive a fold, but a law is broken only by values that the atoms of a program have together.
"""

from __future__ import annotations

from functools import partial

import sympy as sp
from tvm import ir
from tvm.ir import prim

from tvm_cascade.algebra.cascade import unlike
from tvm_cascade.analysis.expression import RELATIONS, AtomTable, joined, selection_of
from tvm_cascade.analysis.tir import dtype_of, uses
from tvm_cascade.symbolic.functions import Round

FLOATS = ("float", "bfloat")

DEPTH = 8
"""Selections in selections that are written out."""

PLAIN = 1e6
"""Constants above this, as in select(c, x, -1e30), mask elements out: what is selected is one symbol then."""


def meaning_of(atoms: AtomTable) -> dict[sp.Symbol, sp.Expr]:
    """Definitions of atoms in terms of other atoms and of loads, which are symbols where they vary along the axis."""
    forms = {}
    for form, atom in atoms.atoms.items():
        if atom.indicator:
            forms[atom.symbol] = _as_number(atoms, atom.expression)
        elif atom.symbol != form:
            forms[atom.symbol] = _written_out(atoms, form)
    known = {form: symbol for symbol, form in forms.items() if form.is_Symbol}
    names = {str(atom.symbol) for atom in atoms.atoms.values()} | set(atoms.reserved)
    varying = {}
    for leaf in sorted(set().union(*(form.free_symbols for form in forms.values())) - known.keys(), key=str):
        if leaf in atoms.sources:
            name = unlike(atoms.name_of(atoms.sources[leaf]), names)
            names.add(name)
            known[leaf] = sp.Symbol(name, **leaf.assumptions0)
            if uses(atoms.sources[leaf], atoms.axis):
                varying[known[leaf]] = known[leaf]
    return {s: form.xreplace(known) for s, form in forms.items() if not form.is_Symbol} | varying


def _as_number(atoms: AtomTable, condition: ir.Expr) -> sp.Expr:
    holds = _condition(atoms, condition)
    return holds.lhs if isinstance(holds, sp.Eq) and holds.rhs == 1 else sp.Piecewise((1, holds), (0, True))


def _condition(atoms: AtomTable, condition: ir.Expr) -> sp.Basic:
    kind = type(condition)
    if (found := joined(condition, partial(_condition, atoms))) is not None:
        return found
    if kind in RELATIONS and dtype_of(condition.a).startswith(("int", "uint")):
        return RELATIONS[kind](atoms.form(condition.a), atoms.form(condition.b))
    return sp.Eq(atoms.leaf(condition), 1, evaluate=False)


def _written_out(atoms: AtomTable, form: sp.Expr) -> sp.Expr:
    """The form with what is selected in place of selections, and what is rounded in place of casts."""
    for _ in range(DEPTH):
        selected = {}
        for leaf in form.free_symbols & atoms.sources.keys():
            source = atoms.sources[leaf]
            if isinstance(source, prim.Cast) and all(dtype_of(e).startswith(FLOATS) for e in (source, source.value)):
                selected[leaf] = Round(atoms.form(source.value), sp.Symbol(dtype_of(source)))
            elif parts := selection_of(source):
                chosen, other = (atoms.form(branch) for branch in parts[1:])
                if not any(v.is_number and not abs(v) < PLAIN for v in (chosen, other)):
                    selected[leaf] = sp.Piecewise((chosen, _condition(atoms, parts[0])), (other, True))
        if not selected:
            return form
        form = form.xreplace(selected)
    return form
