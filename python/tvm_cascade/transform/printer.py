"""Prints SymPy expressions as TIR, with each symbol bound to a TIR expression."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import ml_dtypes
import numpy as np
import sympy as sp
import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.algebra.facts.weight import Offsets, by_offset
from tvm_cascade.analysis.expression import MOST_FACTORS, RELATIONS, call_name
from tvm_cascade.analysis.reducers import extreme
from tvm_cascade.analysis.tir import dtype_of, is_float, loads_of
from tvm_cascade.errors import RewriteError
from tvm_cascade.symbolic.elementary import NAMED
from tvm_cascade.symbolic.functions import (
    LN2,
    GuardedProduct,
    LogRatio,
    PowerOfTwo,
    Round,
    WholePower,
)

_FUNCTIONS: dict[type, Callable[..., ir.Expr]] = {
    **{function: getattr(tirx, name) for name, function in NAMED.items()},
    sp.floor: tirx.floor,
    sp.ceiling: tirx.ceil,
}


_WHOLE = {"float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "float64": 2**53}
"""Up to where integers are numbers of a dtype. p·x/q is nearer to its fraction of x than one factor is, unless p or q
is rounded, or overflows, itself; where q is a power of two, the factor p/q is exact."""

_RELATIONS = {relation: kind for kind, relation in RELATIONS.items()}


ARTANH_TERMS = 6
NEAR_ONE = sp.Rational(1, 16)
"""Up to here so many terms give artanh to the digits of float64."""

_EXPONENTS = {
    "float16": ("int16", -(1 << 10)),
    "bfloat16": ("int16", -(1 << 7)),
    "float32": ("int32", -(1 << 23)),
    "float64": ("int64", -(1 << 52)),
}
"""The integers of a float's width, and the mask of its sign and exponent."""


def cast(expression: ir.Expr, dtype: str) -> ir.Expr:
    return expression if dtype_of(expression) == dtype else expression.astype(dtype)


class Printer:
    """Writes SymPy expressions in one dtype.

    Parameters
    ----------
    bindings : the TIR expression of each symbol.
    dtype : the dtype in which to compute.
    indicators : symbols that are conditions; a product with one is a selection, so that 0·inf does not arise.
    offsets : of results and references, by which the terms of a sum are put in order.
    """

    def __init__(
        self,
        bindings: Mapping[sp.Symbol, ir.Expr],
        dtype: str,
        indicators: Mapping[sp.Symbol, ir.Expr],
        offsets: Offsets | None = None,
    ) -> None:
        self.bindings, self.dtype, self.indicators, self.offsets = bindings, dtype, indicators, offsets
        self.references = frozenset() if offsets is None else offsets.references

    def __call__(self, expression: sp.Expr) -> ir.Expr:
        """The TIR expression.

        Raises
        ------
        RewriteError
            Where a symbol is not bound or a function cannot be written: a defect of this package.
        """
        if expression in self.indicators:
            return tirx.Select(self.indicators[expression], self._constant(1), self._constant(0))
        if expression in self.bindings:
            return cast(self.bindings[expression], self.dtype)
        if (bound := extreme(expression, self.dtype)) is not None:
            return bound
        if expression.is_number:
            return self._constant(expression)
        if isinstance(expression, sp.Add):
            return self._sum(expression)
        if isinstance(expression, sp.Mul) and isinstance(logarithm := sp.expand(expression * LN2), sp.log):
            return tirx.log2(self(logarithm.args[0]))
        if self.dtype == "float32" and any(map(_is_power_of_the_length, sp.Mul.make_args(expression))):
            return cast(type(self)(self.bindings, "float64", self.indicators, self.offsets)(expression), self.dtype)
        if isinstance(expression, sp.Mul):
            return self._product(expression)
        if isinstance(expression, sp.Pow) and expression.base == 2:
            return tirx.exp2(self(expression.exp))
        if isinstance(expression, sp.Pow):
            return self._power(self(expression.base), expression.exp)
        if isinstance(expression, sp.exp) and (binary := _in_powers_of_two(expression.args[0])) is not None:
            return tirx.exp2(self(binary))
        if type(expression) in _FUNCTIONS:
            return _FUNCTIONS[type(expression)](*map(self, expression.args))
        if type(expression) in _WRITTEN:
            return _WRITTEN[type(expression)](self, *expression.args)
        raise RewriteError("an expression with a TIR form", str(expression), "transform/printer.py")

    def _choice(self, *pairs: sp.Tuple) -> ir.Expr:
        *branches, (last, _) = pairs
        value = self(last)
        for chosen, condition in reversed(branches):
            value = tirx.Select(self.condition(condition), self(chosen), value)
        return value

    def condition(self, condition: sp.Basic) -> ir.Expr:
        """A condition; what it compares is written in the dtype of the widest that it reads."""
        if isinstance(condition, (sp.And, sp.Or)):  # in bits: TVM takes long to reason about what And and Or imply
            joined = tirx.bitwise_and if isinstance(condition, sp.And) else tirx.bitwise_or
            return reduce(joined, map(self.condition, sorted(condition.args, key=str)))
        if isinstance(condition, sp.Not):
            return tirx.Not(self.condition(condition.args[0]))
        if isinstance(condition, sp.ITE):
            holds, chosen, other = (self.condition(part) for part in condition.args)
            return tirx.Or(tirx.And(holds, chosen), tirx.And(tirx.Not(holds), other))
        if condition in (sp.true, sp.false):
            return tirx.const(bool(condition), "bool")
        if isinstance(condition, (sp.Gt, sp.Le)) and condition.lhs in self.indicators and condition.rhs == 0:
            holds = self.indicators[condition.lhs]
            return holds if isinstance(condition, sp.Gt) else tirx.Not(holds)
        if type(condition) not in _RELATIONS:
            raise RewriteError("a condition with a TIR form", str(condition), "transform/printer.py")
        read = [dtype_of(self.bindings[s]) for s in condition.free_symbols if s in self.bindings]
        floats = [dtype for dtype in read if is_float(dtype)]
        numbers = floats or [dtype for dtype in read if dtype != "bool"]  # LLVM compares no truth values
        dtype = max(numbers or [self.dtype], key=lambda d: tvm.DataType(d).bits)
        inner = Printer(self.bindings, dtype, self.indicators, self.offsets)
        return _RELATIONS[type(condition)](inner(condition.lhs), inner(condition.rhs))

    def _constant(self, value: sp.Expr | int) -> ir.Expr:
        if not is_float(self.dtype):
            return tirx.const(int(value), self.dtype)
        number = float(value)
        with np.errstate(over="ignore"):
            rounded = float(np.dtype(self.dtype).type(number))
        if not math.isfinite(rounded) and not math.isnan(number):
            return tirx.const(math.copysign(math.inf, number), self.dtype)
        # The shortest decimal of float32's lowest number is below that.
        return tirx.const(rounded if self.dtype == "float32" else number, self.dtype)

    def _extremum(self, combine: Callable[[ir.Expr, ir.Expr], ir.Expr], *terms: sp.Expr) -> ir.Expr:
        return reduce(combine, map(self, sorted(terms, key=str)))

    def _guarded_product(self, component: sp.Expr, factor: sp.Expr, *results: sp.Expr) -> ir.Expr:
        value, largest = self(component), tirx.max_value(self.dtype)
        at_the_end = tirx.Or(tirx.EQ(value, self._constant(0)), tirx.GT(tirx.abs(value), largest))
        guarded = select(at_the_end, value, prim.Mul(value, self(factor)))
        for result in results:
            finite = tirx.LE(tirx.abs(self(result)), largest)
            guarded = select(finite, guarded, tirx.const(float("nan"), self.dtype))
        return guarded

    def _log_ratio(self, *quotient: sp.Expr) -> ir.Expr:
        """log |a/b| as 2·artanh s, s = (a − b)/(a + b), where that is small: a/b is rounded to the digits of 1."""
        above, below = map(self, quotient)
        s = prim.Div(prim.Sub(above, below), prim.Add(above, below))
        square = prim.Mul(s, s)
        series = self._constant(0)
        for power in reversed(range(ARTANH_TERMS)):
            series = prim.Add(prim.Mul(series, square), self._constant(sp.Rational(2, 2 * power + 1)))
        far = tirx.log(prim.Div(tirx.abs(above), tirx.abs(below)))
        return tirx.Select(tirx.LT(tirx.abs(s), self._constant(NEAR_ONE)), prim.Mul(s, series), far)

    def _sum(self, expression: sp.Add) -> ir.Expr:
        """Plain symbols and added terms first; a common factor last (c·x − c·m cancels), and numbers after it.

        A mean of numbers is in range where they are, their sum need not be: a/2 + b/2 stays as it is, for no digits.
        What moves with the same data comes together: (a − c) + (b − e) + log t; and d − |d|, of which nothing may be
        left, before all else.
        """
        number, varying = expression.as_coeff_Add()
        factor = _common_factor(varying, self.dtype)
        if factor != 1 and not _scales_a_mean(factor, varying):
            total = prim.Mul(self(varying / factor), self._constant(factor))
            return total if number == 0 else prim.Add(total, self._constant(number))
        terms = sorted(expression.args, key=self._order)
        if (pair := _value_and_its_extremum(terms)) and len(terms) > len(pair):
            return self._added(self(sp.Add(*pair)), [sp.Add(*(term for term in terms if term not in pair))])
        if self.offsets is None:
            return self._in_order(terms)
        moving, still = by_offset(terms, self.offsets)
        groups = sorted([group for group in [*moving, still] if group], key=_falls)
        total = self._in_order(groups[0])
        for group in groups[1:]:
            if group is still or len(group) == 1:
                total = self._added(total, group)
            elif _falls(group):
                total = prim.Sub(total, self._in_order([-term for term in group]))
            else:
                total = prim.Add(total, self._in_order(group))
        return total

    def _in_order(self, terms: list[sp.Expr]) -> ir.Expr:
        """Term by term, an added one first."""
        terms.insert(0, terms.pop(next((k for k, t in enumerate(terms) if not t.could_extract_minus_sign()), 0)))
        return self._added(self(terms[0]), terms[1:])

    def _added(self, total: ir.Expr, terms: list[sp.Expr]) -> ir.Expr:
        for term in terms:
            # prim.Sub, not the operator: the simplifying constructors fold x − x, which is NaN at infinity.
            total = prim.Sub(total, self(-term)) if term.could_extract_minus_sign() else prim.Add(total, self(term))
        return total

    def _order(self, term: sp.Expr) -> tuple[bool, int, bool, bool, str]:
        """x − y − c as (x − y) − c, m − c + log t as (m − c) + log t: a reference comes after all it stands for."""
        minus = term.could_extract_minus_sign()
        bare = -term if minus else term
        return term.is_number, sp.count_ops(bare), bare in self.references, minus, str(term)

    def _product(self, expression: sp.Mul) -> ir.Expr:
        conditions = [a for a in expression.args if a in self.indicators]
        if conditions:
            rest = self(sp.Mul(*(a for a in expression.args if a not in conditions)))
            holds = self.indicators[conditions[0]]
            for condition in conditions[1:]:
                holds = tirx.And(holds, self.indicators[condition])
            return select(holds, rest, self._constant(0))
        coefficient, factors = expression.as_coeff_mul()
        above = [f for f in factors if not _is_reciprocal(f)]
        below = [1 / f for f in factors if _is_reciprocal(f)]
        numerator, denominator = sp.Rational(coefficient).as_numer_denom()
        if denominator & (denominator - 1) == 0 or max(abs(numerator), denominator) > _WHOLE.get(self.dtype, math.inf):
            numerator, denominator = coefficient, sp.Integer(1)
        product = self._factors(numerator, above)
        divisor = self._factors(denominator, below)
        return product if divisor is None else prim.Div(self._constant(1) if product is None else product, divisor)

    def _factors(self, coefficient: sp.Expr, factors: list[sp.Expr]) -> ir.Expr | None:
        written = [self(f) for f in sorted(factors, key=str)]
        if coefficient == -1 and written:
            written[0] = prim.Sub(self._constant(0), written[0])
        elif coefficient != 1 or (not written and coefficient != 1):
            written.append(self._constant(coefficient))
        return reduce(prim.Mul, written) if written else None

    def _power(self, base: ir.Expr, exponent: sp.Expr) -> ir.Expr:
        if exponent.is_negative:
            return prim.Div(self._constant(1), self._power(base, -exponent))
        if exponent == sp.Rational(1, 2):
            return tirx.sqrt(base)
        if exponent.is_Integer and exponent <= MOST_FACTORS:
            total = base
            for _ in range(int(exponent) - 1):
                total = prim.Mul(total, base)
            return total
        if exponent.is_Rational and exponent.q == 2 and exponent.p <= 8:
            return prim.Mul(self._power(base, sp.Integer(exponent.p // 2)), tirx.sqrt(base))
        return tirx.call_intrin(self.dtype, "tirx.pow", base, self(exponent))


_WRITTEN: dict[type, Callable[..., ir.Expr]] = {
    sp.Piecewise: Printer._choice,
    sp.Max: lambda write, *terms: write._extremum(tirx.max, *terms),
    sp.Min: lambda write, *terms: write._extremum(tirx.min, *terms),
    sp.conjugate: Printer.__call__,  # every symbol is real, though SymPy need not see it of a quotient
    Round: lambda write, value, dtype: cast(cast(write(value), str(dtype)), write.dtype),
    WholePower: lambda write, exponent: tirx.exp2(write(exponent)),
    PowerOfTwo: lambda write, value: power_of_two(write(value), write.dtype),
    GuardedProduct: Printer._guarded_product,
    LogRatio: Printer._log_ratio,
}
"""What writes an expression of a kind, from a printer and its arguments."""


def _is_power_of_the_length(factor: sp.Expr) -> bool:
    """Whether a factor is u^N of more than a two.

    It has N times the rounding of u, of which the program's N factors leave the root, and may leave the range of
    float32 where its product with the state, which is as far on the other side, does not.
    """
    return isinstance(factor, sp.Pow) and factor.exp.has(LENGTH) and factor.base != 2


def _value_and_its_extremum(terms: Sequence[sp.Expr]) -> list[sp.Expr]:
    """Two of the terms that are a value d and −|d|, −max(d, …) or −min(d, …), or multiples of them; none otherwise."""
    for term in terms:
        scale, extremum = term.as_coeff_Mul()
        if isinstance(extremum, (sp.Abs, sp.Max, sp.Min)):
            for other in terms:
                if any(other in (scale * argument, -scale * argument) for argument in extremum.args):
                    return [other, term]
    return []


def _falls(terms: Sequence[sp.Expr]) -> bool:
    """Whether every term is subtracted."""
    return all(term.could_extract_minus_sign() for term in terms)


def _scales_a_mean(factor: sp.Expr, total: sp.Expr) -> bool:
    """Whether a common factor is a power of two below 1, which rounds nothing, of terms that are all added."""
    fraction = factor.is_Rational and factor.p == 1 and factor.q & (factor.q - 1) == 0
    return bool(fraction) and not any(term.could_extract_minus_sign() for term in sp.Add.make_args(total))


def _common_factor(total: sp.Expr, dtype: str) -> sp.Expr:
    """A number that all terms have as a factor; 1 where some term is no multiple of a number but itself: y + x/3.

    1 too where the dtype has no such number, or not what would be left: of 1/p and 1/q the factor is 1/(p·q).
    """
    coefficients = {abs(term.as_coeff_Mul()[0]) for term in sp.Add.make_args(total)}
    if not total.is_Add or 1.0 in map(float, coefficients):
        return sp.S.One
    factor = coefficients.pop() if len(coefficients) == 1 else total.primitive()[0]
    written = (factor, *(coefficient / factor for coefficient in coefficients))
    return factor if all(_in_range(number, dtype) for number in written) else sp.S.One


def _in_range(number: sp.Expr, dtype: str) -> bool:
    """Whether a positive number is neither infinite nor lost in a dtype."""
    if not is_float(dtype):
        return True
    limits = ml_dtypes.finfo(dtype)
    return bool(float(limits.tiny) <= float(number) <= float(limits.max))


def _in_powers_of_two(exponent: sp.Expr) -> sp.Expr | None:
    """y where the exponent is y·ln 2 term by term, as it is when the program said exp2(y)."""
    parts = [term.as_coeff_Mul() for term in sp.Add.make_args(exponent)]
    plain = all(not number.is_Rational or (number / LN2).q < 2**30 for number, _ in parts)
    return sp.Add(*(number / LN2 * rest for number, rest in parts)) if plain else None


def _is_reciprocal(factor: sp.Expr) -> bool:
    return isinstance(factor, sp.Pow) and bool(factor.exp.is_negative)


def power_of_two(value: ir.Expr, dtype: str) -> ir.Expr:
    """±2^k with 2^k ≤ |value| < 2^(k+1), from the sign and the exponent bits; 0 and infinity stay what they are."""
    bits, mask = _EXPONENTS[dtype]
    return tirx.reinterpret(dtype, tirx.bitwise_and(tirx.reinterpret(bits, value), tirx.const(mask, bits)))


def select(condition: ir.Expr, chosen: ir.Expr, other: ir.Expr, lazy: bool = False) -> ir.Expr:
    """A selection that vectorises; `lazy` where the branch not taken may read out of range."""
    return tirx.if_then_else(condition, chosen, other) if lazy else tirx.Select(condition, chosen, other)


def eager_selects(expression: ir.Expr, in_bounds: Callable[[ir.TensorLoad], bool]) -> ir.Expr:
    """if_then_else -> Select, which vectorises, wherever both branches are in bounds."""

    def rewrite(call: ir.Call) -> ir.Expr:
        lazy = call_name(call) == "if_then_else"
        safe = lazy and all(in_bounds(load) for branch in call.args[1:] for load in loads_of(branch))
        return tirx.Select(*call.args) if safe else call

    return tvm_ffi.structural_map(expression, (ir.Call, rewrite))
