"""A cascade as data: reductions over one axis, in dependency order, later ones reading earlier results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import sympy as sp
from sympy.printing.precedence import precedence

from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, REDUCERS, Reducer
from tvm_cascade.errors import InputError

LENGTH = sp.Symbol("N", positive=True, integer=True)
"""N, the number of positions on the cascade axis."""

COUNT = sp.Symbol("n", positive=True, integer=True)
"""n, the number of positions that a state has folded so far."""

POSITION = sp.Symbol("position", integer=True, nonnegative=True)
"""The position of an element on the cascade axis, as an element itself: the index that an argmax gives."""

OWN_NAMES = frozenset(map(str, (LENGTH, COUNT, POSITION, LOWEST, HIGHEST)))
"""Names of the symbols above, and of the extremes of dtypes; all others that are not a cascade's start with `_`."""


def unlike(name: str, taken: Collection[str]) -> str:
    """A unique name for a symbol of a cascade: the given one, with a number appended where it is taken."""
    base = name.lstrip("_") or "t"
    tried = (base + (f"_{k}" if k else "") for k in itertools.count())
    return next(text for text in tried if text not in taken and text not in OWN_NAMES)


TRUTH = {"integer": True, "nonnegative": True, "prime": False, "composite": False}
"""What SymPy is told of a truth value, the number 1 or 0: a natural number that is neither prime nor composite."""

LN2 = sp.Rational(*math.log(2).as_integer_ratio())
"""ln 2 as a number, so that 2^y is exp(y·LN2) throughout and powers of two need no laws of their own."""

LN10 = sp.Rational(*math.log(10).as_integer_ratio())
"""The same of powers of ten."""


class Round(sp.Function):
    """Rounding to a narrower dtype: `Round(e, dtype)`, with the dtype as a symbol. 0 is a number of every dtype."""

    nargs = 2

    @classmethod
    def eval(cls, value: sp.Expr, dtype: sp.Symbol) -> sp.Expr | None:
        """0 of 0; nothing else is known."""
        return sp.S.Zero if value is sp.S.Zero else None

    @property
    def is_real(self) -> bool:
        """Rounding a real number gives a real number."""
        return True


class PowerOfTwo(sp.Function):
    """±2^k with 2^k ≤ |v| < 2^(k+1), of the sign of v; 0 of 0."""

    nargs = 1

    @property
    def is_real(self) -> bool:
        """A power of two, or zero."""
        return True

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
    def is_real(self) -> bool:
        """A logarithm of a positive number."""
        return True

    @property
    def written_out(self) -> sp.Expr:
        """log |a/b| as SymPy writes it."""
        above, below = self.args
        return sp.log(sp.Abs(above) / sp.Abs(below))

    @staticmethod
    def _imp_(above: Any, below: Any) -> Any:
        return mpmath.log(abs(above) / abs(below))  # for lambdify


class GuardedProduct(InRange):
    """`GuardedProduct(T, factor, d…)`: T·factor, guarded so that infinities come out as in the unfused elements.

    A factor exp(c − u) may be infinite, or 0, only because u ran out of range. So T stays what it is where it is 0 or
    infinite. Where a result d is infinite, so is an element that u stands beside, and their difference is NaN.
    """

    @property
    def is_real(self) -> bool:
        """It is a product of real numbers, as far as algebra goes."""
        return True

    @staticmethod
    def _imp_(component: Any, factor: Any, *_results: Any) -> Any:
        return component * factor  # for lambdify: the value among finite numbers

    @property
    def written_out(self) -> sp.Expr:
        """T·factor."""
        return self.args[0] * self.args[1]


class StickyInfinity(InRange):
    """`StickyInfinity(T, moved, Δ…)`: T where it is infinite and every Δ finite, else the rescaled T.

    Σ (x − c)² with an infinite x is infinite at every finite c, while the moved T − 2·Δ·Σ (x − c) + n·Δ² is ∞ − ∞.
    """

    @property
    def is_real(self) -> bool:
        """It is the moved one, as far as algebra goes."""
        return True

    @staticmethod
    def _imp_(_component: Any, moved: Any, *_steps: Any) -> Any:
        return moved  # for lambdify: the value among finite numbers

    @property
    def written_out(self) -> sp.Expr:
        """T as moved."""
        return self.args[1]


class Rescaled(InRange):
    """`Rescaled(T, p, q, k)`: T·(p/q)^k by k multiplications with p/q, in range where p^k and q^k are not."""

    nargs = 4

    @classmethod
    def eval(cls, value: sp.Expr, _above: sp.Expr, _below: sp.Expr, power: sp.Integer) -> sp.Expr | None:
        """The value itself where the power is 0, and 0 of 0; nothing else is known."""
        return value if power == 0 or value == 0 else None

    @property
    def is_real(self) -> bool:
        """It is a product of real numbers."""
        return True

    @property
    def written_out(self) -> sp.Expr:
        """T·(p/q)^k as SymPy writes it."""
        value, above, below, power = self.args
        return value * (above / below) ** power

    @staticmethod
    def _imp_(value: Any, above: Any, below: Any, power: Any) -> Any:
        for _ in range(int(power)):  # for lambdify
            value = value * (above / below)
        return value


@dataclass(frozen=True)
class Reduction:
    """d = ⊕ over l of F(x[l], earlier results).

    Attributes
    ----------
    result : the symbol d of the value.
    reducer : the monoid ⊕.
    element : F, in element symbols, earlier results and parameters (any other symbol).

    Raises
    ------
    InputError
        When one of them is something else.
    """

    result: sp.Symbol
    reducer: Reducer
    element: sp.Expr

    def __post_init__(self) -> None:
        if not isinstance(self.result, sp.Symbol):
            raise InputError("a symbol of SymPy", repr(self.result), "Reduction(result, …)", 'make one by result("m")')
        if not isinstance(self.reducer, Reducer):
            hint = f"pass one of tvm_cascade.{', '.join(name.upper() for name in REDUCERS)}"
            raise InputError("a reducer", repr(self.reducer), f"Reduction({self.result}, reducer, …)", hint)
        if not isinstance(self.element, sp.Basic):
            hint = 'write it with symbols made by element("x"), and numbers as sympy.Integer(1)'
            raise InputError(
                "an expression of SymPy", repr(self.element), f"Reduction({self.result}, …, element)", hint
            )


@dataclass(frozen=True)
class Cascade:
    """Reductions over one axis, in dependency order.

    Attributes
    ----------
    reductions : each may read the results of those before it.
    elements : the symbols that vary along the axis.

    Raises
    ------
    InputError
        When there is no reduction, or something else than reductions and symbols; when a reduction reads a result
        that is not computed before it, a result is computed twice, or the parts of a tuple are not all there as
        neighbours.
    """

    reductions: tuple[Reduction, ...]
    elements: tuple[sp.Symbol, ...]

    def __init__(self, reductions: Sequence[Reduction], elements: Sequence[sp.Symbol]) -> None:
        object.__setattr__(self, "reductions", tuple(reductions))
        object.__setattr__(self, "elements", tuple(elements))
        if not self.reductions or not all(isinstance(reduction, Reduction) for reduction in self.reductions):
            found = ", ".join(type(part).__name__ for part in self.reductions) or "none"
            raise InputError("reductions, one or more", found, "Cascade(reductions, …)")
        if foreign := [part for part in self.elements if not isinstance(part, sp.Symbol)]:
            hint = 'make one by element("x")'
            raise InputError("symbols of SymPy", repr(foreign[0]), "Cascade(…, elements)", hint)
        every = {reduction.result for reduction in self.reductions}
        if len(every) != len(self.reductions):
            raise InputError("each result to be computed once", "a result that is computed twice", "Cascade")
        seen: set[sp.Symbol] = set()
        for reduction in self.reductions:
            if late := (reduction.element.free_symbols & every) - seen:
                names = ", ".join(sorted(map(str, late)))
                raise InputError(
                    "reductions in dependency order", f"{names} read before computed", str(reduction.result)
                )
            seen.add(reduction.result)
        for block in self.blocks:
            whole, parts = block[0].reducer.whole, sorted(reduction.reducer.part for reduction in block)
            if any(r.reducer.whole != whole for r in block) or (whole and parts != list(range(whole.width))):
                raise InputError("every part of a tuple, side by side", f"parts {parts}", str(block[0].result))

    @property
    def blocks(self) -> list[tuple[Reduction, ...]]:
        """The reductions in groups of one tuple each; those of a tuple are adjacent."""
        found: list[tuple[Reduction, ...]] = []
        pending = list(self.reductions)
        while pending:
            whole = pending[0].reducer.whole
            width = 1 if whole is None else whole.width
            found.append(tuple(pending[:width]))
            pending = pending[width:]
        return found

    @property
    def results(self) -> tuple[sp.Symbol, ...]:
        """The symbols of the results, in order."""
        return tuple(reduction.result for reduction in self.reductions)

    def __str__(self) -> str:
        return "\n".join(f"{r.result} = {r.reducer.sign} {r.element}" for r in self.reductions)


def element(names: str, **assumptions: bool) -> tuple[sp.Symbol, ...] | sp.Symbol:
    """Symbols that vary along the axis; real unless said otherwise."""
    return sp.symbols(names, **{"real": True, **assumptions})


class Condition(sp.Symbol):
    """A mask symbol: a product with it is 0 where it is 0, whatever the other factors are.

    A truth value of any other kind is a number that multiplies: 0·∞ is NaN there, as it is unfused.
    """


def truth(names: str) -> tuple[Condition, ...] | Condition:
    """Symbols of conditions on the position: 1 where they hold, 0 elsewhere."""
    return sp.symbols(names, cls=Condition, **TRUTH)


def choice(condition: sp.Basic, chosen: sp.Expr, other: sp.Expr) -> sp.Expr:
    """One value where the condition holds, another elsewhere.

    SymPy may turn a comparison of two sums that hold logarithms round for ever; their difference it leaves alone.
    """
    try:
        return sp.Piecewise((chosen, condition), (other, True))
    except RecursionError:
        apart = condition.replace(lambda part: part.is_Relational, lambda part: part.func(part.lhs - part.rhs, 0))
        return sp.Piecewise((chosen, apart), (other, True))


def is_truth(symbol: sp.Expr) -> bool:
    """Whether a symbol is 0 or 1 and nothing else."""
    return (
        bool(symbol.is_Symbol and symbol.is_nonnegative) and symbol.is_prime is False and symbol.is_composite is False
    )


def masks_in(expression: sp.Expr, elements: Sequence[sp.Symbol]) -> list[sp.Symbol]:
    """The conditions on the position that an expression reads, by name."""
    return sorted((s for s in expression.free_symbols if s in elements and is_truth(s)), key=str)


def masks_that_keep(expression: sp.Expr, elements: Sequence[sp.Symbol]) -> dict[sp.Symbol, int]:
    """The masks that are factors of the expression, with the values at which they keep a position."""
    masks = masks_in(expression, elements)
    return {mask: 1 - zero for mask in masks for zero in (0, 1) if expression.subs(mask, zero) == 0}


def conditions_that_keep(expression: sp.Expr, elements: Sequence[sp.Symbol]) -> dict[sp.Symbol, int]:
    """The masks that exclude positions: excluded values take no part in the sum and may be out of range."""
    kept = masks_that_keep(expression, elements)
    return {mask: holds for mask, holds in kept.items() if isinstance(mask, Condition)}


def indicator(kept: Mapping[sp.Symbol, int]) -> sp.Expr:
    """1 where every mask has its value, 0 elsewhere."""
    return sp.Mul(*(mask if holds else 1 - mask for mask, holds in kept.items()))


def under_its_masks(term: sp.Expr, elements: Sequence[sp.Symbol]) -> sp.Expr:
    """The term with masks simplified by idempotence: keep·(keep·x + (1 − keep)·w) is keep·x, as keep² = keep."""
    kept = masks_that_keep(term, elements)
    return indicator(kept) * term.subs(kept) if kept else term


def without_idle_masks(expression: sp.Expr, elements: Sequence[sp.Symbol]) -> sp.Expr:
    """The expression without selections between equal branches: keep·x + (1 − keep)·x is x."""

    def chosen(total: sp.Expr) -> sp.Expr:
        for mask in masks_in(total, elements):
            side = total.subs(mask, 1)
            total = side if side == total.subs(mask, 0) else total
        return total

    return expression.replace(lambda part: isinstance(part, sp.Add), chosen)


def result(names: str) -> tuple[sp.Symbol, ...] | sp.Symbol:
    """Symbols of reduction results."""
    return sp.symbols(names, real=True)
