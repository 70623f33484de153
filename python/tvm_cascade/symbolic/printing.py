"""Expressions as formulas: in text, in LaTeX, and in MathML, which browsers typeset without a script or a font."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape, unescape
from typing import Any, TypeAlias, cast

import sympy as sp
from sympy.printing.latex import LatexPrinter, translate
from sympy.printing.mathml import MathMLPresentationPrinter
from sympy.printing.printer import Printer
from sympy.printing.str import StrPrinter

Row: TypeAlias = tuple[str, sp.Expr | str, sp.Expr]
"""Section, left side and right side of a formula."""

_LONG_NUMBER = 10**5  # a rational with longer parts, such as a float32 literal's exact value, is shown as a decimal


class _AddedFirst(Printer):
    """Added terms before subtracted ones: x - c, not -c + x."""

    def _as_ordered_terms(self, expr: sp.Expr, order: str | None = None) -> list[sp.Expr]:
        terms = super()._as_ordered_terms(expr, order=order)
        return sorted(terms, key=lambda term: bool(term.could_extract_minus_sign()))


class _FormulaPrinter(_AddedFirst, StrPrinter):
    """As text."""


class _LatexPrinter(_AddedFirst, LatexPrinter):
    r"""As LaTeX, with c_{m}' for a moved reference and \Delta c_{m} for its step."""

    def _print_Symbol(self, expr: sp.Symbol, style: str = "plain") -> str:
        if expr in self._settings["symbol_names"]:
            return str(self._settings["symbol_names"][expr])
        name = expr.name.removeprefix("Δ")
        base, *below = name.replace("'", "").split("_")
        subscript = f"_{{{', '.join(map(translate, below))}}}" if below else ""
        return (r"\Delta " if name != expr.name else "") + translate(base) + subscript + "'" * name.count("'")


def formula(expression: sp.Expr) -> str:
    return str(_FormulaPrinter().doprint(expression))


def latex_formula(expression: sp.Expr | str, names: Mapping[sp.Symbol, str] | None = None) -> str:
    """An expression as LaTeX; some symbols by other names."""
    return str(_LatexPrinter({"symbol_names": dict(names or {})}).doprint(expression))


def aligned(rows: Sequence[Row], verbatim: bool = False) -> str:
    """Formulas as one LaTeX `aligned` block; with `verbatim`, names as they are, not with subscripts."""
    symbols = set().union(*(side.free_symbols for _, *sides in rows for side in sides if isinstance(side, sp.Expr)))
    names = {symbol: rf"\mathit{{{_escaped(symbol.name)}}}" for symbol in symbols} if verbatim else {}
    lines = [
        rf"\text{{{section}}}\quad {latex_formula(left, names)} &= {latex_formula(right, names)}"
        for section, left, right in rows
    ]
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"


def _escaped(name: str) -> str:
    return re.sub(r"([_%$#&{}])", r"\\\1", name).replace("Δ", r"\Delta ")


def shortened(expression: sp.Expr) -> sp.Expr:
    """The expression with long exact numbers as decimals of nine digits, which tell float32 values apart.

    Symbols, that is, named so: SymPy takes exp(x + 831.776617) for 1.7e+361·exp(x).
    """
    numbers = [r for r in expression.atoms(sp.Rational) if r.q > 1 and max(abs(r.p), r.q) > _LONG_NUMBER]
    decimals = {r: sp.Symbol(str(sp.Float(abs(r), 9)), positive=True) for r in numbers}
    return expression.xreplace({r: decimal if r > 0 else -decimal for r, decimal in decimals.items()})


def equation(left: sp.Expr | str, right: sp.Expr) -> str:
    """`left = right` as one `math` element; what is behind a name is a subscript, and the text is well-formed XML."""
    printer = _MathMLPrinter()
    sides = [printer.named(left) if isinstance(left, str) else printer.element(left), printer.element(right)]
    first, second = map(_text, sides)
    return f"<math><mrow>{first}<mo>=</mo>{second}</mrow></math>"


class _PowerOfE(sp.Function):
    """exp, which SymPy's printers would write as a divisor where its exponent is negative."""


_NAME = re.compile(r"(Δ?)(c_)?(.*?)((?:_\d+)*)('?)", re.DOTALL)
"""A step of a reference; what it is of; parts and sides, by number; a reference that has moved."""


class _MathMLPrinter(_AddedFirst, MathMLPresentationPrinter):
    """SymPy's elements, with subscripts, cases beside a brace, and powers of e."""

    def element(self, expression: sp.Expr) -> Any:
        return self._print(expression.replace(sp.exp, _PowerOfE))

    def named(self, name: str) -> Any:
        step, reference, base, numbers, moved = cast("re.Match[str]", _NAME.fullmatch(name)).groups()
        below = [base] * bool(reference) + numbers.split("_")[1:]
        shown = self._element("mi", f"{step}{'c' if reference else base}{moved}")
        return self._element("msub", shown, self._element("mi", ", ".join(below))) if below else shown

    def _element(self, tag: str, *content: Any) -> Any:
        made = self.dom.createElement(tag)
        for one in content:
            made.appendChild(self.dom.createTextNode(one) if isinstance(one, str) else one)
        return made

    def _print_Symbol(self, expr: sp.Symbol, style: str = "plain") -> Any:
        return self.named(expr.name)

    def _print__PowerOfE(self, expr: sp.Expr) -> Any:
        return self._element("msup", self.named("e"), self._element("mrow", self._print(expr.args[0])))

    def _print_Piecewise(self, expr: sp.Piecewise) -> Any:
        cases = [
            self._element(
                "mtr",
                self._element("mtd", self._print(value)),
                self._element("mtd", self._element("mtext", " otherwise"))
                if condition == sp.true
                else self._element("mtd", self._element("mtext", " if "), self._print(condition)),
            )
            for value, condition in expr.args
        ]
        return self._element("mrow", self._element("mo", "{"), self._element("mtable", *cases))


def _text(node: Any) -> str:
    """A DOM node as text; SymPy leaves comparisons bare and entities for HTML alone, so both are written anew."""
    if node.nodeType == node.TEXT_NODE:
        return escape(unescape(node.data), quote=False)
    inner = "".join(map(_text, node.childNodes))
    return f"<{node.tagName}>{inner}</{node.tagName}>"
