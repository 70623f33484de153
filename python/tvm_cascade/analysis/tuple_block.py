"""Blocks that reduce tuples: separates the combine from the element that it is applied to.

A block stores u_k = (a ∘ e)_k for each part k, with a what its buffers hold and e the element. The element is what the
identity leaves, e = identity ∘ e; its occurrences in u give way to b. Argmax, argmin and top-k are recognised by what
they do on the tuples that they reach, however they are written; their ties are made a total order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import sympy as sp
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, Reducer, Selection, TupleReducer, first, second
from tvm_cascade.algebra.selection_law import selecting
from tvm_cascade.algebra.tuple_law import broken_law
from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.expression import (
    ARITHMETIC,
    RELATIONS,
    Forms,
    NotExpressible,
    joined,
    number,
    selection_of,
    widens,
    widens_integer,
)
from tvm_cascade.analysis.program import Stage
from tvm_cascade.analysis.reducers import stores_at_once
from tvm_cascade.analysis.tir import REDUCTION, dtype_of, loads_of, same
from tvm_cascade.symbolic.sampling import as_function

ROUNDS, STEPS = 24, 7
"""Random runs of a reduction, and elements in each, by which a selection is recognised."""


def read_tuple(nest: tirx.Stmt, block: s_tir.SBlock) -> list[Stage] | Reason:
    """One stage for each part of a block that reduces a tuple, or the reason why there is none."""
    read = _read_parts(block)
    if isinstance(read, Reason):
        return read
    at = read[0].store.indices
    return [Stage.of(nest, block, part.store.buffer, at, part.element, part.reducer, part.init) for part in read]


@dataclass(frozen=True)
class _Part:
    """A part of a tuple: what is stored, the element that it is of, how elements are combined, and from what."""

    store: tirx.BufferStore
    element: ir.Expr
    reducer: Reducer
    init: ir.Expr


@lru_cache(maxsize=64)
def _read_parts(block: s_tir.SBlock) -> tuple[_Part, ...] | Reason:
    """The parts of a block, read once for each object: every function that a plan cuts out shares its blocks."""
    name = block.name_hint
    stores = stores_at_once(block.body)
    starts = stores_at_once(block.init)
    if stores is None or starts is None or len(stores) != len(starts):
        return Reason("reducer", f"block {name} holds other statements than a store and a start for each part")
    indices = tuple(stores[0].indices)
    plain = all(same(list(store.indices), list(indices)) for store in (*stores, *starts))
    inits = [next((s.value for s in starts if s.buffer.same_as(store.buffer)), None) for store in stores]
    if not plain or not all(isinstance(init, (prim.IntImm, prim.FloatImm)) for init in inits):
        return Reason("reducer", f"block {name} stores or starts the parts of its tuple at different places")
    try:
        elements, reducers = _split(stores, inits, _reduction_variable(block))
    except NotExpressible as unknown:
        return Reason("reducer", f"block {name}: {unknown.reason.detail}")
    return tuple(map(_Part, stores, elements, reducers, inits))


def _reduction_variable(block: s_tir.SBlock) -> tirx.Var | None:
    reduced = [iv.var for iv in block.iter_vars if iv.iter_type == REDUCTION]
    return reduced[0] if len(reduced) == 1 else None


def _split(
    stores: Sequence[tirx.BufferStore], inits: Sequence[ir.Expr], position: tirx.Var | None
) -> tuple[list[ir.Expr], list[Reducer]]:
    """The element of each part, and its reducer.

    Raises
    ------
    NotExpressible
        Where the combine has no algebra here, or the element cannot be told from it.
    """
    form = TupleForm([store.buffer for store in stores])
    start = {first(k): constant_form(init) for k, init in enumerate(inits)}
    elements = [form.element(store.value, start, dtype_of(store.buffer)) for store in stores]
    selection = _as_selection(form, stores, elements, list(start.values()), position)
    if selection is not None:
        return elements, selection
    candidates = [TupleReducer("∘", combined, tuple(start.values())) for combined in form.generalised(stores, elements)]
    if not candidates:
        raise NotExpressible("reducer", "no operation on tuples is found in what it stores")
    lifts = [constant_form(e) if is_constant(e) else second(k) for k, e in enumerate(elements)]
    found = next((c for c in candidates if broken_law(c, lifts) is None), candidates[0])
    return elements, [found.of(k) for k in range(found.width)]


def _as_selection(
    form: TupleForm,
    stores: Sequence[tirx.BufferStore],
    elements: Sequence[ir.Expr],
    start: Sequence[sp.Expr],
    position: tirx.Var | None,
) -> list[Reducer] | None:
    """The parts of an argmax, argmin or top-k, where the block does what such a one does."""
    varying = [k for k, element in enumerate(elements) if not is_constant(element)]
    if len(varying) < 2:
        return None
    combined = [form.over([(k, elements[k]) for k in varying], store.value) for store in stores]
    symbols = [side(k) for side in (first, second) for k in range(len(stores))]
    update = as_function([*symbols, LOWEST, HIGHEST], combined, "math")
    positions = [k for k in varying if position is not None and index_of(elements[k]).same_as(position)]
    for selection, order in _layouts(len(stores), varying, start):
        key, index = order[0], order[1]
        if start[key] not in (LOWEST, HIGHEST, -sp.oo, sp.oo) or (start[key] in (LOWEST, -sp.oo)) != selection.largest:
            continue
        if selection.payloads and index not in positions:
            continue
        run = _Run(selection, order, update, start, counted=index in positions)
        if run.agrees():
            whole = selecting(selection)
            return [whole.of(order.index(k)) for k in range(len(stores))]
    return None


def _layouts(
    width: int, varying: Sequence[int], start: Sequence[sp.Expr]
) -> Iterator[tuple[Selection, tuple[int, ...]]]:
    """Selections that a tuple of so many parts may stand for, each with the program's part of every part of it."""
    orders: list[tuple[int, int, tuple[int, ...]]] = []
    for key in varying:
        for index in varying:
            if key == index:
                continue
            if len(varying) == width:
                others = [k for k in varying if k not in (key, index)]
                orders.append((1, len(others), (key, index, *others)))
            elif len(varying) == 2 and width % 2 == 0:
                ranks = width // 2
                by_rank = tuple(part for rank in range(ranks) for part in (key + 2 * rank, index + 2 * rank))
                by_role = tuple(part for rank in range(ranks) for part in (key + rank, index + rank))
                orders += [(ranks, 0, o) for o in (by_rank, by_role) if sorted(o) == list(range(width))]
    for count, payloads, order in orders:
        absent = tuple(start[k] for k in order)
        for largest in (True, False):
            for lower in (True, False):
                yield Selection(count, largest, lower, payloads, absent), order


class _Run:
    """A block's update and a selection, run on the same random elements."""

    def __init__(
        self, selection: Selection, order: tuple[int, ...], update: object, start: Sequence[sp.Expr], counted: bool
    ) -> None:
        self.selection, self.order, self.update, self.counted = selection, order, update, counted
        self.start = [float(value.xreplace(INFINITE)) for value in start]

    def agrees(self) -> bool:
        """Whether both select the same elements at every step of every run."""
        return all(self._one_run(random.Random(seed)) for seed in range(ROUNDS))

    def _one_run(self, source: random.Random) -> bool:
        pool = [Fraction(source.randint(-40, 40), source.choice((1, 7, 1000))) for _ in range(1 + source.randrange(4))]
        indices = list(range(STEPS))
        if not self.counted:
            source.shuffle(indices)
        state: list[object] = list(self.start)
        seen: list[tuple[object, ...]] = []
        width = self.selection.per_rank
        for index in indices:
            element: list[object] = list(self.start)
            element[self.order[0]], element[self.order[1]] = source.choice(pool), index
            for part in self.order[2:width]:
                element[part] = source.choice(pool)
            seen.append(tuple(element[part] for part in self.order[:width]))
            state = self.update(*state, *element, float("-inf"), float("inf"))  # type: ignore[operator]
            if [state[part] for part in self.order] != self._selected(seen):
                return False
        return True

    def _selected(self, seen: list[tuple[object, ...]]) -> list[object]:
        way, tie = -1 if self.selection.largest else 1, 1 if self.selection.lower else -1
        ranked = sorted(seen, key=lambda t: (way * t[0], tie * t[1]))[: self.selection.count]  # type: ignore[operator]
        missing = self.selection.count - len(ranked)
        nothing = [self.start[part] for part in self.order[: self.selection.per_rank]]
        return [value for t in ranked for value in t] + nothing * missing


# The expressions of a tuple reduction in SymPy, over `first` (the accumulators) and `second` (the element).


INFINITE = {LOWEST: -sp.oo, HIGHEST: sp.oo}
Named = Callable[[ir.Expr], "sp.Expr | None"]


def is_constant(expression: ir.Expr) -> bool:
    return isinstance(expression, (prim.IntImm, prim.FloatImm))


def constant_form(constant: prim.IntImm | prim.FloatImm) -> sp.Expr:
    """A constant exactly; the dtype's own lowest and highest value by name."""
    dtype = dtype_of(constant)
    if dtype.startswith(("float", "bfloat", "int")) and dtype != "int1":
        if same(constant, tirx.min_value(dtype)):
            return LOWEST
        if same(constant, tirx.max_value(dtype)):
            return HIGHEST
    return number(constant)


@dataclass
class TupleForm(Forms):
    """SymPy forms of what a block stores into its buffers; `named` gives expressions a form of their own."""

    buffers: list[tirx.Var]
    named: Named = lambda _expression: None

    def is_free(self, expression: ir.Expr) -> bool:
        """Whether the expression reads none of the block's own buffers."""
        return {*self.buffers}.isdisjoint(load.source for load in loads_of(expression))

    def element(self, stored: ir.Expr, start: Mapping[sp.Symbol, sp.Expr], dtype: str) -> ir.Expr:
        """The element of a part: what is stored where the buffers hold the identity.

        Raises
        ------
        NotExpressible
            Where no part of what is stored has that value.
        """

        def is_own(part: ir.Expr) -> bool:
            return self.is_free(part) and dtype_of(part) == dtype

        # Largest parts first: -oo > exp(x) / t is decided where the quotient is one number, not where t may be zero.
        at_start = {**{symbol: value.xreplace(INFINITE) for symbol, value in start.items()}, **INFINITE}
        for form in (replace(self, named=self._as_leaf), self):
            value = sp.sympify(form.form(stored).xreplace(at_start))
            value = value if value.is_Symbol or value.is_number else sp.simplify(value)
            for part in _parts(stored):
                if is_own(part) and sp.sympify(form.form(part).xreplace(INFINITE)) == value:
                    return part
            if value.is_number and value.is_finite:
                return tirx.const(float(value) if dtype.startswith(("float", "bfloat")) else int(value), dtype)
        # The identity leaves no element where it is none: the largest part will do to show that by a counterexample.
        for part in _parts(stored):
            if is_own(part) and not is_constant(part):
                return part
        raise NotExpressible("reducer", f"no element is found in {stored}")

    def _as_leaf(self, expression: ir.Expr) -> sp.Expr | None:
        """A leaf for everything free of the block's buffers, constants apart."""
        return self.other(expression) if self.is_free(expression) and not is_constant(expression) else None

    def over(self, elements: Sequence[tuple[int, ir.Expr]], stored: ir.Expr) -> sp.Expr:
        """What is stored, over `first` and, for the elements given, `second`: of those that are alike, the first."""

        def named(expression: ir.Expr) -> sp.Expr | None:
            return next((second(k) for k, e in elements if _alike(e, expression)), None)

        return replace(self, named=named).form(stored)

    def generalised(
        self, stores: Sequence[tirx.BufferStore], elements: Sequence[ir.Expr]
    ) -> Iterator[tuple[sp.Expr, ...]]:
        """Operations that may have been applied to the elements, likeliest first.

        A part's element may stand for itself, for an equal one of another part, or be a constant of the operation.
        """
        sides = {side(k) for side in (first, second) for k in range(len(stores))}
        everything = list(enumerate(elements))
        varying = [(k, e) for k, e in everything if not is_constant(e)]
        for known, own_first in ((everything, True), (everything, False), (varying, True)):
            orders = [sorted(known, key=lambda item: own_first and item[0] != part) for part in range(len(stores))]
            found = [self.over(order, store.value) for order, store in zip(orders, stores, strict=True)]
            symbols = set().union(*(expression.free_symbols for expression in found))
            if symbols <= {*sides, LOWEST, HIGHEST}:
                yield tuple(found)

    def form(self, expression: ir.Expr) -> sp.Expr:
        """The SymPy form.

        Raises
        ------
        NotExpressible
            Where the block's own buffers are an argument of something that has no algebra here.
        """
        if (own := self.named(expression)) is not None:
            return own
        if type(expression) in RELATIONS:
            return RELATIONS[type(expression)](self.form(expression.a), self.form(expression.b))
        found = joined(expression, self.form)
        return super().form(expression) if found is None else found

    def constant(self, expression: prim.IntImm | prim.FloatImm) -> sp.Expr:
        return constant_form(expression)

    def computes(self, expression: ir.Expr) -> bool:
        return True

    def facts(self, expression: ir.Expr) -> dict[str, bool]:
        return {}

    def passes(self, cast: prim.Cast) -> bool:
        return widens(cast) or widens_integer(cast)

    def other(self, expression: ir.Expr) -> sp.Expr:
        if parts := selection_of(expression):
            condition, chosen, other = map(self.form, parts)
            return sp.Piecewise((chosen, condition), (other, True))
        if isinstance(expression, ir.TensorLoad) and expression.source in self.buffers:
            return first(self.buffers.index(expression.source))
        if not self.is_free(expression):
            raise NotExpressible("reducer", str(expression))
        return self.leaf(index_of(expression))


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


def _parts(expression: ir.Expr) -> list[ir.Expr]:
    """Every part of an expression that is a value, largest first."""
    found: list[ir.Expr] = []
    kinds = [*ARITHMETIC, prim.Cast, prim.Select, prim.IntImm, prim.FloatImm, ir.Call, ir.TensorLoad, ir.Var]
    tvm_ffi.structural_walk(expression, [(kind, found.append) for kind in kinds], order="pre")
    return [part for part in found if not (isinstance(part, ir.Var) and tirx.is_buffer_var(part))]
