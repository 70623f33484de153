"""The expressions of a tuple reduction in SymPy, over `first` (the accumulators) and `second` (the element)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import sympy as sp
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, first, second
from tvm_cascade.analysis.expression import (
    ARITHMETIC,
    RELATIONS,
    NotExpressible,
    applied,
    function_name,
    is_wider,
    number,
    selection_of,
    widens,
)
from tvm_cascade.analysis.meaning import CONNECTIVES
from tvm_cascade.analysis.tir import dtype_of, loads_of, same

CONDITIONS: dict[type, Callable[..., sp.Basic]] = {
    **RELATIONS,
    **CONNECTIVES,
    prim.BitwiseAnd: sp.And,
    prim.BitwiseOr: sp.Or,
}
INFINITE = {LOWEST: -sp.oo, HIGHEST: sp.oo}
Named = Callable[[ir.Expr], "sp.Expr | None"]


def constant_form(constant: prim.IntImm | prim.FloatImm) -> sp.Expr:
    """A constant exactly; the dtype's own lowest and highest value by name."""
    dtype = dtype_of(constant)
    if dtype.startswith(("float", "bfloat", "int")) and dtype != "int1":
        if same(constant, tirx.min_value(dtype)):
            return LOWEST
        if same(constant, tirx.max_value(dtype)):
            return HIGHEST
    return number(constant)


class TupleForm:
    """SymPy forms of what a block stores; every expression that reads none of its own buffers is a leaf."""

    def __init__(self, buffers: Sequence[tirx.Var]) -> None:
        self.buffers = list(buffers)
        self._leaves: dict[object, sp.Symbol] = {}

    def is_free(self, expression: ir.Expr) -> bool:
        """Whether the expression reads none of the block's own buffers."""
        return not any(load.source.same_as(buffer) for load in loads_of(expression) for buffer in self.buffers)

    def constant(self, expression: ir.Expr) -> sp.Expr | None:
        """The form of a constant; None for any other expression."""
        return constant_form(expression) if isinstance(expression, (prim.IntImm, prim.FloatImm)) else None

    def element(self, stored: ir.Expr, start: Mapping[sp.Symbol, sp.Expr], dtype: str) -> ir.Expr:
        """The element of a part: what is stored where the buffers hold the identity.

        Raises
        ------
        NotExpressible
            Where no part of what is stored has that value.
        """
        # Largest parts first: -oo > exp(x) / t is decided where the quotient is one number, not where t may be zero.
        at_start = {**{symbol: value.xreplace(INFINITE) for symbol, value in start.items()}, **INFINITE}
        for named in (self._as_leaf, _unnamed):
            value = sp.sympify(self.form(stored, named).xreplace(at_start))
            value = value if value.is_Symbol or value.is_number else sp.simplify(value)
            for part in _parts(stored):
                if self.is_free(part) and dtype_of(part) == dtype and self._is(part, value, named):
                    return part
            if value.is_number and value.is_finite:
                return tirx.const(float(value) if dtype.startswith(("float", "bfloat")) else int(value), dtype)
        # The identity leaves no element where it is none: the largest part will do to show that by a counterexample.
        for part in _parts(stored):
            if self.is_free(part) and dtype_of(part) == dtype and self.constant(part) is None:
                return part
        raise NotExpressible("reducer", f"no element is found in {stored}")

    def _as_leaf(self, expression: ir.Expr) -> sp.Expr | None:
        """A leaf for everything free of the block's buffers, constants apart."""
        return self._leaf(expression) if self.is_free(expression) and self.constant(expression) is None else None

    def _is(self, part: ir.Expr, value: sp.Expr, named: Named) -> bool:
        try:
            return bool(sp.sympify(self.form(part, named).xreplace(INFINITE)) == value)
        except NotExpressible:
            return False

    def with_elements(self, stores: Sequence[tirx.BufferStore], elements: Mapping[int, ir.Expr]) -> list[sp.Expr]:
        """What is stored, over `first` and, for the elements given, `second`."""

        def named(expression: ir.Expr) -> sp.Expr | None:
            return next((second(k) for k, e in elements.items() if _alike(e, expression)), None)

        return [self.form(store.value, named) for store in stores]

    def generalised(
        self, stores: Sequence[tirx.BufferStore], elements: Sequence[ir.Expr]
    ) -> Iterator[tuple[sp.Expr, ...]]:
        """Operations that may have been applied to the elements, likeliest first.

        A part's element may stand for itself, for an equal one of another part, or be a constant of the operation.
        """
        sides = {side(k) for side in (first, second) for k in range(len(stores))}
        everything = list(enumerate(elements))
        varying = [(k, e) for k, e in everything if self.constant(e) is None]
        for known, own_first in ((everything, True), (everything, False), (varying, True)):
            found: list[sp.Expr] = []
            for part, store in enumerate(stores):
                order = sorted(known, key=lambda item: item[0] != part) if own_first else known

                def named(expression: ir.Expr, order: list[tuple[int, ir.Expr]] = order) -> sp.Expr | None:
                    return next((second(k) for k, e in order if _alike(e, expression)), None)

                found.append(self.form(store.value, named))
            symbols = set().union(*(expression.free_symbols for expression in found))
            if symbols <= {*sides, LOWEST, HIGHEST}:
                yield tuple(found)

    def form(self, expression: ir.Expr, named: Named | None = None) -> sp.Expr:
        """The SymPy form; `named` gives expressions a form of their own.

        Raises
        ------
        NotExpressible
            Where the block's own buffers are an argument of something that has no algebra here.
        """
        named = named or _unnamed
        if (own := named(expression)) is not None:
            return own
        if isinstance(expression, ir.TensorLoad):
            return next(
                (first(k) for k, b in enumerate(self.buffers) if b.same_as(expression.source)), self._leaf(expression)
            )
        if isinstance(expression, (prim.IntImm, prim.FloatImm)):
            return constant_form(expression)
        kind = type(expression)
        if kind in ARITHMETIC:
            return ARITHMETIC[kind](self.form(expression.a, named), self.form(expression.b, named))
        if kind in CONDITIONS and dtype_of(expression) == "bool":
            return CONDITIONS[kind](self.form(expression.a, named), self.form(expression.b, named))
        if isinstance(expression, prim.Not):
            return sp.Not(self.form(expression.a, named))
        if isinstance(expression, prim.Cast) and (widens(expression) or _widens_integer(expression)):
            return self.form(expression.value, named)
        if parts := selection_of(expression):
            condition, chosen, other = (self.form(part, named) for part in parts)
            return sp.Piecewise((chosen, condition), (other, True))
        if name := function_name(expression):
            return applied(name, expression.args, lambda a: self.form(a, named))
        if self.is_free(expression):
            return self._leaf(expression)
        raise NotExpressible("reducer", str(expression))

    def _leaf(self, expression: ir.Expr) -> sp.Symbol:
        key = tvm_ffi.StructuralKey(index_of(expression))  # type: ignore[call-arg]
        if key not in self._leaves:
            self._leaves[key] = sp.Symbol(f"_leaf{len(self._leaves)}", real=True)
        return self._leaves[key]


def index_of(expression: ir.Expr) -> ir.Expr:
    """The variable of a loop of which an expression is the value, in an integer dtype of whatever width; else itself.

    Where extents are of 64 bits, as Relax has them, TVM writes (int64)a ≤ l for an a ≤ (int32)l.
    """
    inner = expression
    while isinstance(inner, prim.Cast) and dtype_of(inner).startswith("int"):
        inner = inner.value
    return inner if isinstance(inner, ir.Var) else expression


def _alike(one: ir.Expr, other: ir.Expr) -> bool:
    return same(index_of(one), index_of(other))


def _widens_integer(cast: prim.Cast) -> bool:
    return is_wider(dtype_of(cast), dtype_of(cast.value))


def _unnamed(_expression: ir.Expr) -> None:
    return None


def _parts(expression: ir.Expr) -> list[ir.Expr]:
    """Every part of an expression that is a value, largest first."""
    found: list[ir.Expr] = []
    kinds = [*ARITHMETIC, prim.Cast, prim.Select, prim.IntImm, prim.FloatImm, ir.Call, ir.TensorLoad, ir.Var]
    tvm_ffi.structural_walk(expression, [(kind, found.append) for kind in kinds], order="pre")
    return [part for part in found if not (isinstance(part, ir.Var) and tirx.is_buffer_var(part))]
