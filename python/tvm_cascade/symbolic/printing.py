"""Expressions as formulas, in text and in LaTeX."""

from __future__ import annotations

from collections.abc import Mapping

import sympy as sp
from sympy.printing.latex import LatexPrinter, translate
from sympy.printing.printer import Printer
from sympy.printing.str import StrPrinter


class AddedFirst(Printer):
    """Added terms before subtracted ones: x - c, not -c + x."""

    def _as_ordered_terms(self, expr: sp.Expr, order: str | None = None) -> list[sp.Expr]:
        terms = super()._as_ordered_terms(expr, order=order)
        return sorted(terms, key=lambda term: bool(term.could_extract_minus_sign()))


class _FormulaPrinter(AddedFirst, StrPrinter):
    """As text."""


class _LatexPrinter(AddedFirst, LatexPrinter):
    r"""As LaTeX, with c_{m}' for a moved reference and \Delta c_{m} for its step."""

    def _print_Symbol(self, expr: sp.Symbol, style: str = "plain") -> str:
        if expr in self._settings["symbol_names"]:
            return str(self._settings["symbol_names"][expr])
        name = expr.name.removeprefix("Δ")
        base, *below = name.replace("'", "").split("_")
        subscript = f"_{{{', '.join(map(translate, below))}}}" if below else ""
        return (r"\Delta " if name != expr.name else "") + translate(base) + subscript + "'" * name.count("'")


def formula(expression: sp.Expr) -> str:
    """An expression as text."""
    return str(_FormulaPrinter().doprint(expression))


def latex_formula(expression: sp.Expr | str, names: Mapping[sp.Symbol, str] | None = None) -> str:
    """An expression as LaTeX; some symbols by other names."""
    return str(_LatexPrinter({"symbol_names": dict(names or {})}).doprint(expression))
