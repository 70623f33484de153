"""Blocks that reduce tuples: separates the combine from the element that it is applied to.

A block stores u_k = (a ∘ e)_k for each part k, with a what its buffers hold and e the element. The element is what the
identity leaves, e = identity ∘ e; its occurrences in u give way to b. Argmax, argmin and top-k are recognised by what
they do on the tuples that they reach, however they are written; their ties are made a total order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import sympy as sp
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, Reducer, Selection, TupleReducer, first, second
from tvm_cascade.algebra.selection import selecting
from tvm_cascade.algebra.tuple_law import broken_law
from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.expression import NotExpressible
from tvm_cascade.analysis.program import Stage
from tvm_cascade.analysis.tir import DATA_PARALLEL, REDUCTION, dtype_of, same, substitute
from tvm_cascade.analysis.tuple_form import INFINITE, TupleForm, constant_form, index_of
from tvm_cascade.symbolic.sampling import as_function

ROUNDS, STEPS = 24, 7
"""Random runs of a reduction, and elements in each, by which a selection is recognised."""


def read_tuple(nest: tirx.Stmt, block: s_tir.SBlock, extents: dict[tirx.Var, int]) -> list[Stage] | Reason:
    """One stage for each part of a block that reduces a tuple, or the reason why there is none."""
    read = _read_parts(block)
    if isinstance(read, Reason):
        return read
    spatial = tuple(iv.var for iv in block.iter_vars if iv.iter_type == DATA_PARALLEL)
    reduce = tuple(iv.var for iv in block.iter_vars if iv.iter_type == REDUCTION)
    return [
        Stage(
            block.name_hint,
            part.store.buffer,
            block,
            nest,
            spatial,
            reduce,
            extents,
            tuple(read[0].store.indices),
            part.element,
            part.reducer,
            part.init,
        )
        for part in read
    ]


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
    """The one reduction variable: the position on the axis."""
    reduced = [iv.var for iv in block.iter_vars if iv.iter_type == REDUCTION]
    return reduced[0] if len(reduced) == 1 else None


def stores_at_once(body: tirx.Stmt) -> list[tirx.BufferStore] | None:
    """The stores of a body, each with what it stores in what was there before the body; None for other statements."""
    lets: dict[tirx.Var, ir.Expr] = {}
    stores: list[tirx.BufferStore] = []

    def before(value: ir.Expr) -> ir.Expr:
        def replace(load: ir.TensorLoad) -> ir.Expr:
            return next((s.value for s in stores if s.buffer.same_as(load.source)), load)

        # Loads first: what a let stands for was read when it was bound.
        return substitute(tvm_ffi.structural_map(value, (ir.TensorLoad, replace)), lets)

    for statement in body.seq if isinstance(body, tirx.SeqStmt) else [body]:
        if isinstance(statement, tirx.Bind):
            lets[statement.var] = before(statement.value)
        elif isinstance(statement, tirx.BufferStore):
            stores.append(tirx.BufferStore(statement.buffer, before(statement.value), list(statement.indices)))
        else:
            return None
    return stores


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
    lifts = [form.constant(e) if form.constant(e) is not None else second(k) for k, e in enumerate(elements)]
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
    varying = [k for k, element in enumerate(elements) if form.constant(element) is None]
    if len(varying) < 2:
        return None
    combined = form.with_elements(stores, {k: elements[k] for k in varying})
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
