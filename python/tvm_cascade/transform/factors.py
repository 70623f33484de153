"""Splits atoms that are products over different axes, so that contractions see their factors.

An element that reads no result is one atom, whatever it is a product of. Σ x[i, l]·gain[l]·weight[l, f] is a
contraction of x·gain with weight; as one atom it would look like data with all axes, along which nothing is reused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import sympy as sp
from tvm import ir
from tvm.ir import prim

from tvm_cascade.algebra.fold import Component
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.expression import Atom
from tvm_cascade.analysis.extent import more_than_one
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.tir import variables_of

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
    variables = variables_of(expression)
    return frozenset(
        k
        for k, (var, extent) in enumerate(frame.extents.items())
        if more_than_one(extent)
        and any(var.same_as(v) for v in variables)
        and not any(var.same_as(a) for a in frame.axis)
    )
