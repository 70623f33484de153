"""Reducers: the commutative monoids ⊕ of reductions, one record each, on numbers and on tuples."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import sympy as sp


@dataclass(frozen=True)
class Reducer:
    """A commutative monoid on the extended reals: all that any part of the compiler knows of it.

    NumPy and TensorIR are not known here, so what ⊕ is called there is a name.

    Attributes
    ----------
    name : stable name, used in reports and attributes.
    sign, latex : how a reduction with it is written.
    combine : the operation ⊕ on two expressions.
    identity : its neutral element, exactly; a program uses the dtype's own lowest or highest value for ∓∞.
    on_numbers : ⊕ on two numbers of any one arithmetic, such as Python's.
    repeated : (a, n) ↦ a ⊕ … ⊕ a of n times a.
    numpy : ⊕ on arrays, a ufunc of NumPy; it may give truth values as bool.
    tir : ⊕ in TensorIR, a node of `tvm.ir.prim` or an operator; the first is what is emitted, all are recognised.
    inverse : the node of TensorIR that takes its second argument out again: a ⊕ b ⊖ b = a.
    law : by which it takes in elements that read earlier results, a key of `derive.LAWS`.
    ordered : ⊕ selects one of its arguments by order (max, min).
    logical : on truth values, the numbers 0 and 1; `tir` is it on bool alone.
    keeps_sign : positive elements give a positive result (of at least one element).
    across_threads : TVM reduces with it across the threads of a block.
    whole, part : the reducer of tuples that this is one part of, and which; None for a reducer of numbers.
    infinite : a program starts it at an infinite identity itself, ∓∞, not at the dtype's own lowest or highest value.
    """

    name: str
    sign: str
    latex: str
    combine: Callable[[sp.Expr, sp.Expr], sp.Expr]
    identity: sp.Expr
    on_numbers: Callable[[Any, Any], Any]
    repeated: Callable[[Any, Any], Any]
    numpy: str = ""
    tir: tuple[str, ...] = ()
    inverse: str | None = None
    law: str = "none"
    ordered: bool = False
    logical: bool = False
    keeps_sign: bool = False
    across_threads: bool = False
    whole: TupleReducer | None = None
    part: int = 0
    infinite: bool = False

    @property
    def neutral(self) -> sp.Expr:
        """The identity as a program has it: the dtype's own lowest or highest value for most infinite ones."""
        exact = self.infinite or self.whole is not None
        return self.identity if exact else {-sp.oo: LOWEST, sp.oo: HIGHEST}.get(self.identity, self.identity)

    @property
    def plain(self) -> Reducer:
        """The same monoid with the customary init value."""
        return REDUCERS[self.name] if self.infinite else self

    @property
    def from_infinity(self) -> Reducer:
        """The same monoid with init value ∓∞."""
        return replace(self, infinite=True)

    def over(self, values: Iterable[sp.Expr]) -> sp.Expr:
        """The reduction of all values by ⊕; its identity if there are none."""
        return reduce(self.combine, values, self.identity)

    def __repr__(self) -> str:
        return self.name


LOWEST, HIGHEST = sp.Symbol("lowest", negative=True), sp.Symbol("highest", positive=True)
"""The dtype's own lowest and highest value; in exact arithmetic ∓∞."""

EXTREMES: dict[sp.Symbol, sp.Expr] = {LOWEST: -sp.oo, HIGHEST: sp.oo}


def first(part: int) -> sp.Symbol:
    """A part of ∘'s first argument."""
    return sp.Symbol(f"a_{part}", real=True)


def second(part: int) -> sp.Symbol:
    """A part of ∘'s second argument."""
    return sp.Symbol(f"b_{part}", real=True)


@dataclass(frozen=True)
class Selection:
    """What a reducer of tuples selects: the `count` best elements by key, best first.

    A tuple holds, rank by rank, the key, the index and the payloads of an element.

    Attributes
    ----------
    largest : larger keys are better; smaller ones otherwise.
    lower : of equal keys the one with the lower index is better; the one with the higher index otherwise.
    payloads : values that each rank carries beside key and index.
    absent : by part, what a program gives where there is no element of that rank.
    """

    count: int
    largest: bool
    lower: bool
    payloads: int
    absent: tuple[sp.Expr, ...]

    @property
    def per_rank(self) -> int:
        """Parts of one rank."""
        return 2 + self.payloads


@dataclass(frozen=True)
class TupleReducer:
    """A commutative monoid ∘ on tuples.

    Attributes
    ----------
    name : of the operation, used in reports.
    combined : each part of a ∘ b, in `first` and `second`.
    identity : the neutral tuple.
    selection : what ∘ selects, where that is all it does.
    """

    name: str
    combined: tuple[sp.Expr, ...]
    identity: tuple[sp.Expr, ...]
    selection: Selection | None = None

    @property
    def width(self) -> int:
        """Parts of a tuple."""
        return len(self.combined)

    def of(self, part: int) -> Reducer:
        """The reducer of one part, which cannot be combined by itself."""
        name = f"{self.name}[{part}]"
        apart = (_inseparable, self.identity[part], _inseparable, _inseparable)
        return Reducer(name, name, name, *apart, whole=self, part=part)

    def combine(self, left: Sequence[sp.Expr], right: Sequence[sp.Expr]) -> tuple[sp.Expr, ...]:
        values = {first(k): value for k, value in enumerate(left)} | {second(k): v for k, v in enumerate(right)}
        return tuple(expression.xreplace(values) for expression in self.combined)

    def reads(self, part: int) -> frozenset[int]:
        """The parts that a part of a ∘ b depends on."""
        symbols = self.combined[part].free_symbols
        return frozenset(k for k in range(self.width) if symbols & {first(k), second(k)})


def _inseparable(_left: Any, _right: Any) -> Any:
    raise TypeError("a part of a tuple is combined with the others: use Reducer.whole")


def _idempotent(value: Any, _count: Any) -> Any:
    return value


SUM = Reducer(
    "sum",
    "Σ",
    r"\sum",
    combine=operator.add,
    identity=sp.Integer(0),
    on_numbers=operator.add,
    repeated=operator.mul,
    numpy="add",
    tir=("Add",),
    inverse="Sub",
    law="sum",
    keeps_sign=True,
    across_threads=True,
)
PROD = Reducer(
    "prod",
    "Π",
    r"\prod",
    combine=operator.mul,
    identity=sp.Integer(1),
    on_numbers=operator.mul,
    repeated=operator.pow,
    numpy="multiply",
    tir=("Mul",),
    inverse="Div",
    law="product",
    keeps_sign=True,
    across_threads=True,
)
MAX = Reducer(
    "max",
    "max",
    r"\max",
    combine=sp.Max,
    identity=-sp.oo,
    on_numbers=max,
    repeated=_idempotent,
    numpy="maximum",
    tir=("Max",),
    law="order",
    ordered=True,
    keeps_sign=True,
    across_threads=True,
)
MIN = Reducer(
    "min",
    "min",
    r"\min",
    combine=sp.Min,
    identity=sp.oo,
    on_numbers=min,
    repeated=_idempotent,
    numpy="minimum",
    tir=("Min",),
    law="order",
    ordered=True,
    keeps_sign=True,
    across_threads=True,
)
# Truth values are the numbers 0 and 1, on which conjunction is min and disjunction is max.
AND = Reducer(
    "and",
    "∧",
    r"\bigwedge",
    combine=sp.Min,
    identity=sp.Integer(1),
    on_numbers=min,
    repeated=_idempotent,
    numpy="minimum",
    tir=("And", "BitwiseAnd", "bitwise_and"),
    law="predicate",
    logical=True,
)
OR = Reducer(
    "or",
    "∨",
    r"\bigvee",
    combine=sp.Max,
    identity=sp.Integer(0),
    on_numbers=max,
    repeated=_idempotent,
    numpy="maximum",
    tir=("Or", "BitwiseOr", "bitwise_or"),
    law="predicate",
    logical=True,
)

REDUCERS: dict[str, Reducer] = {reducer.name: reducer for reducer in (SUM, PROD, MAX, MIN, AND, OR)}
"""All reducers by name: a row here is all that it takes to add one."""
