"""Reads a sum of products as the product of two matrices: which factors make up which operand.

    Σ_k x[i, k]·s[i]·g[k]·w[k, j]   →   (x·s·g)[i, k] and w[k, j]

Two operands, each of which runs along a variable that the other lacks and along what is summed over. Nothing goes by
name or by place: the factors are sorted by the variables that they run along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.expression import widens
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Stage
from tvm_cascade.analysis.statements import RECENT
from tvm_cascade.analysis.tir import dtype_of, is_float, loads_of, more_than_one, uses, variables_of


@dataclass(frozen=True)
class Factors:
    """The factors of a matrix product.

    Attributes
    ----------
    left, right : factors of either operand.
    rest : numbers, and what runs along no variable of its own.
    """

    left: tuple[ir.Expr, ...]
    right: tuple[ir.Expr, ...]
    rest: tuple[ir.Expr, ...] = ()


@lru_cache(RECENT)
def find_factors(stage: Stage, vectors: bool = False) -> Factors | None:
    """The factors of a stage that is the product of two matrices; None where it is not.

    Parameters
    ----------
    vectors : a matrix may have one row, as where a model has one token.
    """
    if stage.reducer is not SUM or stage.is_part:
        return None
    factors = _factors(stage.value)
    spatial = [v for v in stage.spatial if vectors or more_than_one(stage.extents[v])]
    deep = [f for f in factors if uses(f, stage.reduce)]
    own = [[v for v in spatial if uses(f, [v])] for f in deep]
    shared = [v for v in spatial if own and all(among(v, variables) for variables in own if variables)]
    clusters: list[tuple[list[tirx.Var], list[ir.Expr]]] = []
    loose: list[ir.Expr] = []
    for factor, variables in zip(deep, own, strict=True):
        alone = [v for v in variables if not among(v, shared)]
        if not alone:
            loose.append(factor)
            continue
        touching = [c for c in clusters if any(among(v, c[0]) for v in alone)]
        merged = [*alone, *(v for c in touching for v in c[0])], [*(f for c in touching for f in c[1]), factor]
        clusters = [*(c for c in clusters if not any(c is t for t in touching)), merged]
    if len(clusters) != 2:
        return None
    flat = [factor for factor in factors if not uses(factor, stage.reduce)]
    rest = [factor for factor in flat if not loads_of(factor)]
    sides = _with_loose(clusters, [*loose, *(f for f in flat if loads_of(f))])
    return None if sides is None else Factors(*sides, tuple(rest))


def _with_loose(
    clusters: Sequence[tuple[list[tirx.Var], list[ir.Expr]]], loose: Sequence[ir.Expr]
) -> tuple[tuple[ir.Expr, ...], tuple[ir.Expr, ...]] | None:
    """Both operands with the factors that could go with either: they join one that is computed anyway."""
    sides = [list(c[1]) for c in clusters]
    for factor in loose:
        variables = variables_of(factor)
        fits = [k for k in (0, 1) if not any(among(v, clusters[1 - k][0]) for v in variables)]
        if not fits:
            return None
        sides[max(fits, key=lambda k: len(sides[k]))].append(factor)
    return tuple(sides[0]), tuple(sides[1])


def _factors(value: ir.Expr) -> list[ir.Expr]:
    inner = value
    while isinstance(inner, prim.Cast) and widens(inner):
        inner = inner.value
    if isinstance(inner, prim.Mul):
        return [*_factors(inner.a), *_factors(inner.b)]
    if isinstance(inner, prim.Div) and is_float(dtype_of(inner)):
        return [*_factors(inner.a), tirx.const(1.0, dtype_of(inner)) / inner.b]
    return [value]
