"""Functions of programs that SymPy has not: roundings, powers of two, and products and ratios that stay in range."""

from __future__ import annotations

import math
from typing import Any

import sympy as sp
from sympy.printing.precedence import precedence

LN2 = sp.Rational(*math.log(2).as_integer_ratio())
"""ln 2 as a number, so that 2^y is exp(y·LN2) throughout and powers of two need no laws of their own."""


LN10 = sp.Rational(*math.log(10).as_integer_ratio())
"""The same of powers of ten."""


class Round(sp.Function):
    """Rounding to a narrower dtype: `Round(e, dtype)`, with the dtype as a symbol. 0 is a number of every dtype."""

    nargs = 2
    is_real = True

    @classmethod
    def eval(cls, value: sp.Expr, dtype: sp.Symbol) -> sp.Expr | None:
        """0 of 0; nothing else is known."""
        return sp.S.Zero if value is sp.S.Zero else None


def innermost(rounded: Round) -> tuple[int, str]:
    """A key by which roundings stand after those within them."""
    return int(sp.count_ops(rounded)), str(rounded)


class PowerOfTwo(sp.Function):
    """±2^k with 2^k ≤ |v| < 2^(k+1), of the sign of v; 0 of 0."""

    nargs = 1
    is_real = True

    @staticmethod
    def _imp_(value: Any) -> Any:
        number = float(value)  # for lambdify
        if not math.isfinite(number) or number == 0:
            return number
        return math.copysign(math.ldexp(1.0, math.frexp(number)[1] - 1), number)


class WholePower(sp.Function):
    """2^k with a whole k, as exp2(⌊log₂ v⌋): a factor that commutes with the rounding of any float."""

    nargs = 1
    is_positive = True

    @staticmethod
    def _imp_(exponent: Any) -> Any:
        return 2.0**exponent  # for lambdify


class InRange(sp.Function):
    """A function with a formula for the algebra, and a numerically safer evaluation for programs."""

    is_real = True

    @property
    def written_out(self) -> sp.Expr:
        """The formula that is printed for it."""
        raise NotImplementedError

    @property
    def precedence(self) -> int:
        """SymPy's printers put the formula in brackets where one would."""
        return int(precedence(self.written_out))

    def _sympystr(self, printer: Any) -> str:
        return str(printer.doprint(self.written_out))

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        text = str(printer.doprint(self.written_out))
        bracketed = rf"\left({text}\right)" if exp is not None or isinstance(self.written_out, sp.Add) else text
        return bracketed if exp is None else f"{bracketed}^{{{exp}}}"


class LogRatio(InRange):
    """`LogRatio(a, b)`: log |a/b|, to the digits of a − b where a and b are near each other."""

    nargs = 2

    @property
    def written_out(self) -> sp.Expr:
        """log |a/b| as SymPy writes it."""
        above, below = self.args
        return sp.log(sp.Abs(above) / sp.Abs(below))

    @staticmethod
    def _imp_(above: Any, below: Any) -> Any:
        return math.log(abs(above) / abs(below)) if above else -math.inf  # for lambdify


class GuardedProduct(InRange):
    """`GuardedProduct(T, factor, d…)`: T·factor, guarded so that infinities come out as in the unfused elements.

    A factor exp(c − u) may be infinite, or 0, only because u ran out of range. So T stays what it is where it is 0 or
    infinite. Where a result d is infinite, so is an element that u stands beside, and their difference is NaN.
    """

    @staticmethod
    def _imp_(component: Any, factor: Any, *_results: Any) -> Any:
        return component * factor  # for lambdify: the value among finite numbers

    @property
    def written_out(self) -> sp.Expr:
        """T·factor."""
        return self.args[0] * self.args[1]
