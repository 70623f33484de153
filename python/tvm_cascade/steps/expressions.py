"""SymPy expressions as text that parses back to the same expression, without evaluation.

    Add(Mul(-1, c), x)             <->   -c + x
    Mul(Rational(1, 3), exp(x))    <->   1/3*exp(x)
    Mul(x, Pow(y, -1))             <->   x*y**-1

The text is Python's own syntax for a part of it, so that Python parses it and prints nothing that it does not show:
arguments keep their order, and what operators cannot tell apart, such as a sum within a sum, is written as a call.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp

from tvm_cascade.errors import InputError
from tvm_cascade.symbolic.elementary import ELEMENTARY
from tvm_cascade.symbolic.functions import (
    ExpTail,
    Grouped,
    GuardedProduct,
    LogRatio,
    Rescaled,
    Round,
    SignedSize,
    StickyInfinity,
)

FUNCTIONS: dict[str, type[sp.Basic]] = {
    function.__name__: function
    for function in (
        *(sp.Add, sp.Mul, sp.Pow, sp.Max, sp.Min, sp.floor, sp.ceiling),
        *(sp.factorial, sp.binomial),
        *(sp.Piecewise, sp.ITE, sp.And, sp.Or, sp.Not),
        *ELEMENTARY,
        *(Round, LogRatio, ExpTail, Grouped),
        *(GuardedProduct, StickyInfinity, Rescaled, SignedSize),
    )
}
"""What a call may name."""

CONSTANTS: dict[str, sp.Basic] = {"oo": sp.oo, "zoo": sp.zoo, "nan": sp.nan, "pi": sp.pi, "E": sp.E}
"""Numbers that have a name."""

RELATIONS: dict[str, tuple[type[sp.Basic], type[ast.cmpop]]] = {
    ">": (sp.StrictGreaterThan, ast.Gt),
    ">=": (sp.GreaterThan, ast.GtE),
    "<": (sp.StrictLessThan, ast.Lt),
    "<=": (sp.LessThan, ast.LtE),
    "==": (sp.Equality, ast.Eq),
    "!=": (sp.Unequality, ast.NotEq),
}
"""Comparisons by their sign."""

RESERVED = frozenset({*FUNCTIONS, *CONSTANTS, "True", "False", "None"})
"""What no symbol may be called in a text."""

_RELATION, _SUM, _PRODUCT, _POWER, _ATOM = range(5)  # how tightly a text binds


def text_of(expression: sp.Basic, names: Mapping[sp.Symbol, str]) -> str:
    """An expression as text.

    Parameters
    ----------
    names : what symbols are called, each by an identifier of its own that is not `RESERVED`.

    Raises
    ------
    InputError
        When the expression holds a function or a number that the text has no word for.
    """
    return _text(expression, names)[0]


def _text(e: sp.Basic, names: Mapping[sp.Symbol, str]) -> tuple[str, int]:
    """The text, and how tightly it binds."""
    if isinstance(e, sp.Symbol):
        return names[e], _ATOM
    if isinstance(e, sp.Rational):
        return str(e), _ATOM if e.is_Integer and e >= 0 else _PRODUCT
    if e in (sp.true, sp.false):
        return str(bool(e)), _ATOM
    if e is sp.S.NegativeInfinity:
        return "-oo", _PRODUCT
    if (constant := next((name for name, value in CONSTANTS.items() if value is e), None)) is not None:
        return constant, _ATOM
    if isinstance(e, sp.Add) and _plain_sum(e):
        return _sum(e.args, names), _SUM
    if isinstance(e, sp.Mul) and _plain_product(e):
        return _product(e.args, names), _PRODUCT
    if isinstance(e, sp.Pow):
        exponent = str(e.exp) if isinstance(e.exp, sp.Integer) else _within(e.exp, names, _ATOM)
        return f"{_within(e.base, names, _ATOM)}**{exponent}", _POWER
    relation = next((sign for sign, (kind, _) in RELATIONS.items() if type(e) is kind), None)
    if relation is not None:
        return f"{_within(e.args[0], names, _SUM)} {relation} {_within(e.args[1], names, _SUM)}", _RELATION
    if isinstance(e, sp.functions.elementary.piecewise.ExprCondPair):
        return f"({_text(e.args[0], names)[0]}, {_text(e.args[1], names)[0]})", _ATOM
    if FUNCTIONS.get(type(e).__name__) is type(e):
        return f"{type(e).__name__}({', '.join(_text(argument, names)[0] for argument in e.args)})", _ATOM
    raise InputError("an expression of known functions", f"{type(e).__name__}: {e}", "the text of an expression")


def _within(e: sp.Basic, names: Mapping[sp.Symbol, str], least: int) -> str:
    text, binds = _text(e, names)
    return text if binds >= least else f"({text})"


def _plain_sum(e: sp.Add) -> bool:
    """Whether signs between terms say all: no term is a sum itself."""
    return len(e.args) > 1 and not any(isinstance(term, sp.Add) for term in e.args)


def _plain_product(e: sp.Mul) -> bool:
    """Whether signs between factors say all: no factor is a product itself, or a number unless it is the first."""
    first, *rest = e.args if e.args else (sp.S.One,)
    return bool(rest) and not isinstance(first, sp.Mul) and not any(isinstance(f, (sp.Mul, sp.Number)) for f in rest)


def _sum(terms: tuple[sp.Basic, ...], names: Mapping[sp.Symbol, str]) -> str:
    text = _within(terms[0], names, _PRODUCT)
    for term in terms[1:]:
        said = _within(term, names, _PRODUCT)
        text += f" - {said[1:]}" if said.startswith("-") else f" + {said}"
    return text


def _product(factors: tuple[sp.Basic, ...], names: Mapping[sp.Symbol, str]) -> str:
    first, *rest = factors
    texts = [_within(factor, names, _POWER) for factor in rest]
    if first is sp.S.NegativeOne:
        return "-" + "*".join(texts)
    number = isinstance(first, (sp.Rational, sp.core.numbers.NegativeInfinity))
    return "*".join([_text(first, names)[0] if number else _within(first, names, _POWER), *texts])


def parsed(text: str, symbols: Callable[[str], sp.Symbol]) -> sp.Basic:
    """The expression of a text.

    Parameters
    ----------
    symbols : the symbol of a name; may raise InputError.

    Raises
    ------
    InputError
        When the text is no expression, or holds what has no meaning here. Nothing in it is executed.
    """
    try:
        return _Reader(symbols).read(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("an expression", repr(text[:200]), "the text of an expression") from error


class _Reader:
    """Python's tree of a text as an expression; operators take their arguments as they stand."""

    def __init__(self, symbols: Callable[[str], sp.Symbol]) -> None:
        self.symbols = symbols

    def read(self, node: ast.expr) -> sp.Basic:
        """One part of the tree."""
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int)):
            return sp.sympify(node.value)
        if isinstance(node, ast.Name):
            return CONSTANTS[node.id] if node.id in CONSTANTS else self.symbols(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return _negative([self.read(node.operand)])
        if isinstance(node, ast.BinOp):
            return self._operator(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = self.read(node.left), self.read(node.comparators[0])
            for kind, sign in RELATIONS.values():
                if isinstance(node.ops[0], sign):
                    return kind(*sides, evaluate=False)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._call(node.func.id, node.args)
        raise InputError("an expression of known functions", ast.unparse(node)[:200], "the text of an expression")

    def _call(self, name: str, arguments: list[ast.expr]) -> sp.Basic:
        if name not in FUNCTIONS:
            raise InputError(f"a function among {', '.join(FUNCTIONS)}", repr(name), "the text of an expression")
        if name == "Piecewise":
            pairs = [tuple(map(self.read, a.elts)) if isinstance(a, ast.Tuple) else () for a in arguments]
            if not all(len(pair) == 2 for pair in pairs):
                raise InputError("pairs of a value and a condition", ast.unparse(arguments[0])[:200], "Piecewise(…)")
            return sp.Piecewise(*pairs, evaluate=False)
        return FUNCTIONS[name](*map(self.read, arguments), evaluate=False)

    def _operator(self, node: ast.BinOp) -> sp.Basic:
        if isinstance(node.op, (ast.Add, ast.Sub)):
            return sp.Add(*self._terms(node), evaluate=False)
        if isinstance(node.op, ast.Mult):
            return sp.Mul(*self._factors(node), evaluate=False)
        left, right = self.read(node.left), self.read(node.right)
        whole = isinstance(left, sp.Integer) and isinstance(right, sp.Integer) and right != 0
        if isinstance(node.op, ast.Div) and whole:
            return sp.Rational(left, right)
        if isinstance(node.op, ast.Pow):
            return sp.Pow(left, right, evaluate=False)
        raise InputError("sums, products, powers and fractions", ast.unparse(node)[:200], "the text of an expression")

    def _terms(self, node: ast.expr) -> list[sp.Basic]:
        """The terms of a chain of + and −."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            last = self._factors(node.right)
            return [*self._terms(node.left), _negative(last) if isinstance(node.op, ast.Sub) else _product_of(last)]
        return [self.read(node)]

    def _factors(self, node: ast.expr) -> list[sp.Basic]:
        """The factors of a chain of multiplications; −a·b is −1, a, b."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return [*self._factors(node.left), self.read(node.right)]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            operand = self.read(node.operand)
            return [-operand] if _is_literal(operand) else [sp.S.NegativeOne, operand]
        return [self.read(node)]


def _is_literal(e: sp.Basic) -> bool:
    return isinstance(e, sp.Rational) or e is sp.oo


def _negative(factors: list[sp.Basic]) -> sp.Basic:
    """−(a·b·…): of a number in front, that number's."""
    if _is_literal(factors[0]):
        return _product_of([-factors[0], *factors[1:]])
    return _product_of([sp.S.NegativeOne, *factors])


def _product_of(factors: list[Any]) -> sp.Basic:
    return factors[0] if len(factors) == 1 else sp.Mul(*factors, evaluate=False)
