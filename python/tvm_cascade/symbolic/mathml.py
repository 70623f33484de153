"""Equations as presentation MathML, which browsers typeset without a script or a font from the network."""

from __future__ import annotations

from html import escape, unescape
from typing import Any

import sympy as sp
from sympy.printing.mathml import MathMLPresentationPrinter

from tvm_cascade.symbolic.printing import AddedFirst


def equation(left: sp.Expr | str, right: sp.Expr) -> str:
    """`left = right` as one `math` element; names stand there as they are, and the text is well-formed XML."""
    printer = _MathMLPrinter()
    sides = [printer.named(left) if isinstance(left, str) else printer.element(left), printer.element(right)]
    first, second = map(_text, sides)
    return f"<math><mrow>{first}<mo>=</mo>{second}</mrow></math>"


class _MathMLPrinter(AddedFirst, MathMLPresentationPrinter):
    """SymPy's elements, with names verbatim, cases beside a brace, and powers of e."""

    def element(self, expression: sp.Expr) -> Any:
        return self._print(expression)

    def named(self, name: str) -> Any:
        return self._element("mi", escape(name))

    def _element(self, tag: str, *content: Any) -> Any:
        made = self.dom.createElement(tag)
        for one in content:
            made.appendChild(self.dom.createTextNode(one) if isinstance(one, str) else one)
        return made

    def _print_Symbol(self, expr: sp.Symbol, style: str = "plain") -> Any:
        return self.named(expr.name)

    def _print_exp(self, expr: sp.Expr) -> Any:
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
