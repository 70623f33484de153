"""Expressions with one meaning in SymPy and in TE: one tree, one table of operations, two printers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import sympy as sp
from tvm import te, tirx

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.masks import choice

HALF = sp.Symbol("float16")


@dataclass(frozen=True)
class Operation:
    """One operation, as it is written in the algebra and in a program, and as text."""

    text: str
    algebra: Callable[..., sp.Expr]
    program: Callable[..., Any]


def _power(exponent: int) -> Operation:
    def repeated(base: Any) -> Any:
        total = base
        for _ in range(exponent - 1):
            total = total * base
        return total

    return Operation(f"{{}}**{exponent}", lambda a: a**exponent, repeated)


OPERATIONS: dict[str, Operation] = {
    "add": Operation("({} + {})", lambda a, b: a + b, lambda a, b: a + b),
    "subtract": Operation("({} - {})", lambda a, b: a - b, lambda a, b: a - b),
    "multiply": Operation("{}·{}", lambda a, b: a * b, lambda a, b: a * b),
    "divide": Operation("{}/{}", lambda a, b: a / b, lambda a, b: a / b),
    "square": _power(2),
    "cube": _power(3),
    "fourth": _power(4),
    "exp": Operation("exp({})", sp.exp, te.exp),
    "log": Operation("log({})", sp.log, te.log),
    "sqrt": Operation("sqrt({})", sp.sqrt, te.sqrt),
    "rsqrt": Operation("rsqrt({})", lambda a: 1 / sp.sqrt(a), tirx.rsqrt),
    "absolute": Operation("|{}|", sp.Abs, te.abs),
    "larger": Operation("max({}, {})", sp.Max, te.max),
    "smaller": Operation("min({}, {})", sp.Min, te.min),
    "sine": Operation("sin({})", sp.sin, te.sin),
    "cosine": Operation("cos({})", sp.cos, te.cos),
    "tanh": Operation("tanh({})", sp.tanh, te.tanh),
    "sigmoid": Operation("sigmoid({})", lambda a: 1 / (1 + sp.exp(-a)), te.sigmoid),
    "rounded": Operation(
        "float16({})", lambda a: Round(a, HALF), lambda a: a.astype("float16").astype(str(a.ty.dtype))
    ),
    # A truth value is the number 1 or 0 in the algebra.
    "not": Operation("¬{}", lambda a: 1 - a, tirx.Not),
    "select": Operation("({} ? {} : {})", lambda c, a, b: c * a + (1 - c) * b, lambda c, a, b: tirx.Select(c, a, b)),
    "guarded": Operation(
        "({} ? {} : 0)", lambda c, a: c * a, lambda c, a: tirx.if_then_else(c, a, tirx.const(0, str(a.ty.dtype)))
    ),
    "at_least": Operation(
        "({} ≥ {} ? {} : {})",
        lambda a, b, c, d: choice(sp.Ge(a, b), c, d),
        lambda a, b, c, d: tirx.Select(a >= b, c, d),
    ),
    "at_most": Operation(
        "({} ≤ {} ? {} : {})",
        lambda a, b, c, d: choice(sp.Le(a, b), c, d),
        lambda a, b, c, d: tirx.Select(a <= b, c, d),
    ),
    "above": Operation("({} > {})", lambda a, b: choice(sp.Gt(a, b), sp.S.One, sp.S.Zero), lambda a, b: a > b),
}

COMPARED: dict[str, int] = {"at_least": 2, "at_most": 2, "above": 2}
"""Operations that compare their first operands, so many, and jump where these are equal."""


@dataclass(frozen=True)
class Term:
    """An expression.

    Attributes
    ----------
    op : a key of `OPERATIONS`, or one of the leaves "input", "result", "number" and "length" (as a number).
    args : its operands.
    leaf : the input's name, the result's position or the number's value.
    """

    op: str
    args: tuple[Term, ...] = ()
    leaf: str | int | float = ""

    def __add__(self, other: Term | float) -> Term:
        return Term("add", (self, as_term(other)))

    def __radd__(self, other: float) -> Term:
        return Term("add", (as_term(other), self))

    def __sub__(self, other: Term | float) -> Term:
        return Term("subtract", (self, as_term(other)))

    def __rsub__(self, other: float) -> Term:
        return Term("subtract", (as_term(other), self))

    def __mul__(self, other: Term | float) -> Term:
        return Term("multiply", (self, as_term(other)))

    def __rmul__(self, other: float) -> Term:
        return Term("multiply", (as_term(other), self))

    def __truediv__(self, other: Term | float) -> Term:
        return Term("divide", (self, as_term(other)))

    def __rtruediv__(self, other: float) -> Term:
        return Term("divide", (as_term(other), self))

    def __str__(self) -> str:
        if not self.args:
            return f"d{self.leaf}" if self.op == "result" else "N" if self.op == "length" else str(self.leaf)
        return OPERATIONS[self.op].text.format(*self.args)

    def leaves(self, op: str) -> Iterator[str | int | float]:
        """Every leaf of a kind, with repetition."""
        if self.op == op:
            yield self.leaf
        for arg in self.args:
            yield from arg.leaves(op)

    def parts(self) -> Iterator[Term]:
        """The term itself and all that it is built from."""
        yield self
        for arg in self.args:
            yield from arg.parts()


def as_term(value: Term | float) -> Term:
    """A number as a term; a term as it is."""
    return value if isinstance(value, Term) else Term("number", leaf=value)


def apply(op: str, *args: Term | float) -> Term:
    """The operation on these operands."""
    return Term(op, tuple(as_term(a) for a in args))


LENGTH_TERM = Term("length")


def to_algebra(term: Term, leaf: Callable[[Term], sp.Expr]) -> sp.Expr:
    """The term in SymPy; `leaf` gives inputs and results."""
    if term.op == "number":
        return sp.Rational(str(term.leaf))
    if term.op == "length":
        return LENGTH
    if not term.args:
        return leaf(term)
    return OPERATIONS[term.op].algebra(*(to_algebra(a, leaf) for a in term.args))


def to_program(
    term: Term, leaf: Callable[[Term], Any], dtype: str, length: int, inside: Callable[[Term], Any] | None = None
) -> Any:
    """The term in TE, computed in `dtype`; `leaf` gives inputs and results, `inside` writes operands."""
    if term.op in ("number", "length"):
        return tirx.const(float(length if term.op == "length" else term.leaf), dtype)
    if not term.args:
        return leaf(term)
    write = inside or (lambda part: to_program(part, leaf, dtype, length))
    return OPERATIONS[term.op].program(*(write(a) for a in term.args))
