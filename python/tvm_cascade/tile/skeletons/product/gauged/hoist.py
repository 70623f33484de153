"""Parts of a formula that have one value a row, taken out of it: computed once for a tile, not once an element.

c/√(t/n + ε)         →    c·h₀           h₀ = 1/√(t/n + ε)
(x − s/n)·r·g        →    (x − h₀)·h₁·g    h₀ = s/n, h₁ = r
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import sympy as sp


@dataclass(frozen=True)
class Hoisted:
    """A formula, and what its new symbols stand for.

    Attributes
    ----------
    value : over elements and the symbols of parts.
    parts : each symbol with its formula over values of rows.
    """

    value: sp.Expr
    parts: dict[sp.Symbol, sp.Expr]


def hoist(expression: sp.Expr, rows: Collection[sp.Symbol], name: str) -> Hoisted:
    """Takes out what a formula computes of values of rows alone.

    Parameters
    ----------
    rows : the symbols that have one value a row.
    name : of the new symbols, which are numbered.
    """
    parts: dict[sp.Symbol, sp.Expr] = {}

    def taken(part: sp.Expr) -> sp.Symbol:
        known = next((symbol for symbol, other in parts.items() if other == part), None)
        symbol = sp.Symbol(f"{name}_{len(parts)}", real=True) if known is None else known
        parts[symbol] = part
        return symbol

    def walk(part: sp.Expr) -> sp.Expr:
        own = part.free_symbols
        if own and own <= set(rows):
            return taken(part)
        if not own & set(rows):
            return part
        if isinstance(part, (sp.Add, sp.Mul)):
            of_rows = [a for a in part.args if a.free_symbols <= set(rows)]
            others = [walk(a) for a in part.args if not a.free_symbols <= set(rows)]
            whole = [taken(part.func(*of_rows))] if any(a.free_symbols for a in of_rows) else of_rows
            return part.func(*whole, *others)
        return part.func(*map(walk, part.args))

    return Hoisted(walk(expression), parts)
