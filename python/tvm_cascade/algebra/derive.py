"""The derivation: Cascade -> Fold, reduction by reduction, through a table of laws."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Cascade, Reduction, Round
from tvm_cascade.algebra.fold import Component, Fold, Reference
from tvm_cascade.algebra.gauge import (
    Gauge,
    Handle,
    HandleTable,
    bounded_by_results,
    exponents,
    factor_in,
    may_be_singular,
    may_cancel,
    tracking_gauge,
    translated_part,
)
from tvm_cascade.algebra.monotone import through_order
from tvm_cascade.algebra.prove import prove
from tvm_cascade.algebra.reducer import AND, MAX, MIN, OR, PROD, SUM, Reducer
from tvm_cascade.algebra.separate import (
    RANK_LIMIT,
    Move,
    basis_by_derivatives,
    numeric_rank_exceeds,
    shift_matrix,
    strip_rounding,
)
from tvm_cascade.algebra.verdict import Reason, Refusal

RESCALABLE_CASTS = ("float16", "bfloat16")


class _Refused(Exception):
    """Carries a refusal out of the derivation; never leaves this module."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def derive(cascade: Cascade, rescalable_casts: Sequence[str] = RESCALABLE_CASTS) -> Fold | Refusal:
    """The fold of a cascade, proved; or the refusal that names the reduction, the expression and the law that fails.

    Parameters
    ----------
    cascade : reductions over one axis, in dependency order.
    rescalable_casts : dtypes whose rounding inside an element may happen at another scale.

    Returns
    -------
    Fold or Refusal

    Raises
    ------
    FoldError
        When a derived fold fails a proof obligation, which is a defect of this package.

    Examples
    --------
    >>> from tvm_cascade.algebra.cascade import element, result
    >>> x, (m, t) = element("x"), result("m t")
    >>> fold = derive(Cascade([Reduction(m, MAX, x), Reduction(t, SUM, sp.exp(x - m))], [x]))
    >>> fold.components[1].shift
    t_0*exp(c_m - c_m')
    """
    derivation = _Derivation(cascade, tuple(rescalable_casts))
    try:
        for reduction in cascade.reductions:
            derivation.add(reduction)
    except _Refused as refused:
        return refused.refusal
    fold = derivation.fold()
    prove(fold)
    return fold


class _Derivation:
    """The fold so far. Each law adds the components, references and finish of one reduction."""

    def __init__(self, cascade: Cascade, rescalable_casts: tuple[str, ...]) -> None:
        self.cascade, self.rescalable_casts = cascade, rescalable_casts
        self.elements = cascade.elements
        self.handles = HandleTable()
        self.steps: list[Component | Reference] = []
        self.finish: dict[sp.Symbol, sp.Expr] = {}
        self.deferred: dict[sp.Symbol, tuple[sp.Expr, ...]] = {}
        self.done: list[Reduction] = []
        self.references: dict[sp.Symbol, Reference] = {}
        self.signs: dict[sp.Symbol, sp.Symbol] = {}

    def fold(self) -> Fold:
        """The fold of what was added."""
        plain = {signed: original for original, signed in self.signs.items()}
        restored = {result: value.xreplace(plain) for result, value in self.finish.items()}
        return Fold(self.cascade, tuple(self.steps), restored, self.deferred)

    def add(self, reduction: Reduction) -> None:
        """Applies the law of the reduction's reducer."""
        element = reduction.element.xreplace(self.signs)
        earlier = [self.signs.get(r.result, r.result) for r in self.done]
        self._check_rounding(reduction)
        held = self.handles.extract(element, self.elements, earlier)
        if not held.has(*self.elements) and not held.free_symbols & {h.symbol for h in self.handles}:
            held = element
        used = [handle for handle in self.handles if handle.symbol in held.free_symbols]
        if not used:
            self._independent(reduction, element)
        else:
            _LAWS[reduction.reducer.name](self, reduction, held, used)
        self.done.append(Reduction(self._signed(reduction, element), reduction.reducer, element))

    def refuse(self, reduction: Reduction, code: str, detail: object = "") -> _Refused:
        """An exception that carries the refusal; handles are shown as what they stand for."""
        shown = detail
        if isinstance(detail, sp.Basic):
            plain = {signed: original for original, signed in self.signs.items()}
            shown = detail.xreplace({h.symbol: h.value for h in self.handles}).xreplace(plain)
        return _Refused(
            Refusal(str(reduction.result), Reason(code, f"{reduction.reducer.name} of {shown}" if shown != "" else ""))
        )

    def _signed(self, reduction: Reduction, element: sp.Expr) -> sp.Symbol:
        """The result's symbol with the sign facts that follow from its element; later laws may rely on them."""
        bare = strip_rounding(element)
        facts = {"positive": True} if bare.is_positive else {"nonnegative": True} if bare.is_nonnegative else {}
        if not facts:
            return reduction.result
        self.signs[reduction.result] = sp.Symbol(str(reduction.result), real=True, **facts)
        signed = self.signs[reduction.result]
        self.finish = {key: value.xreplace(self.signs) for key, value in self.finish.items()}
        return signed

    def _check_rounding(self, reduction: Reduction) -> None:
        results = self.cascade.results
        for rounded in reduction.element.atoms(Round):
            value, dtype = rounded.args
            if value.has(*results) and str(dtype) not in self.rescalable_casts:
                raise self.refuse(reduction, "rounding", f"{value} rounded to {dtype}")

    def _independent(self, reduction: Reduction, element: sp.Expr) -> None:
        component = self._component(reduction, 0, reduction.reducer, element)
        self.finish[reduction.result] = component.symbol

    def _component(
        self, reduction: Reduction, index: int, reducer: Reducer, lift: sp.Expr, shift: sp.Expr | None = None
    ) -> Component:
        symbol = component_symbol(reduction.result, index)
        component = Component(symbol, reduction.result, reducer, lift, symbol if shift is None else shift)
        self.steps.append(component)
        return component

    def sum_law(self, reduction: Reduction, held: sp.Expr, used: list[Handle]) -> None:
        """Σ of a finite-rank element: factors deferred, the rest held at a reference and shifted."""
        function = strip_rounding(held)
        factor, tracked, later = sp.Integer(1), [], []
        for handle in used:
            weight = factor_in(function, handle.symbol, self.elements)
            if weight is None:
                tracked.append(handle)
                continue
            factor *= weight.subs(handle.symbol, handle.value)
            later.append(handle.value)
            function, held = function.subs(handle.symbol, 1), held.subs(handle.symbol, 1)
        self.deferred[reduction.result] = tuple(value.xreplace(self._plain()) for value in later)
        if not tracked:
            component = self._component(reduction, 0, SUM, held)
            self.finish[reduction.result] = factor * component.symbol
            return
        symbols = [handle.symbol for handle in tracked]
        basis = basis_by_derivatives(function, self.elements, symbols)
        if basis is None:
            exceeded = numeric_rank_exceeds(function, self.elements, symbols, RANK_LIMIT)
            raise self.refuse(reduction, "infinite_rank" if exceeded else "separation_unknown", function)
        if basis.rank > RANK_LIMIT:
            raise self.refuse(reduction, "rank_limit", function)
        if basis.rank > 1 and held != function:
            raise self.refuse(reduction, "rounding_rank", function)
        references = [self._reference(reduction, handle, function) for handle in tracked]
        old = [r.symbol for r in references]
        shift = shift_matrix(basis, symbols, [Move(r.symbol, r.moved, r.step) for r in references])
        if shift is None:
            raise self.refuse(reduction, "separation_unknown", function)
        lifts = [f.subs(dict(zip(symbols, old, strict=True)), simultaneous=True) for f in (held, *basis.functions[1:])]
        state = self._state_of(reduction, lifts)
        for k, lift in enumerate(lifts):
            if state[k] == component_symbol(reduction.result, k):
                moved = sum((shift[k, j] * state[j] for j in range(basis.rank)), sp.Integer(0))
                self._component(reduction, k, SUM, lift, moved)
        self.finish[reduction.result] = factor * self._at_results(shift, state, references, tracked)

    def _state_of(self, reduction: Reduction, lifts: list[sp.Expr]) -> list[sp.Expr]:
        """The component of each lift: the count for one that does not vary, an earlier component with the same lift."""
        known = {s.lift: s.symbol for s in self.steps if isinstance(s, Component) and s.reducer is SUM}
        return [
            known.get(lift, component_symbol(reduction.result, k)) if lift.has(*self.elements) else COUNT * lift
            for k, lift in enumerate(lifts)
        ]

    def _at_results(
        self, shift: sp.Matrix, state: list[sp.Expr], references: list[Reference], tracked: list[Handle]
    ) -> sp.Expr:
        """Component 0 shifted to the final results. A reference that ends at its quantity needs no shift."""
        final = sp.Add(*(shift[0, j] * state[j] for j in range(len(state)))).subs(COUNT, LENGTH)
        for reference, handle in zip(references, tracked, strict=True):
            if reference.guarded or reference.auxiliary:
                final = final.xreplace({reference.step: handle.value - reference.symbol, reference.moved: handle.value})
            else:
                final = final.subs({reference.moved: reference.symbol, reference.step: 0})
        return final

    def _reference(self, reduction: Reduction, handle: Handle, function: sp.Expr) -> Reference:
        unbounded = [
            e for e in exponents(function, handle.symbol, self.elements) if not bounded_by_results(e, handle, self.done)
        ]
        key = handle.symbol if not unbounded else sp.Symbol(f"{handle.symbol}_for_{reduction.result}")
        if key in self.references:
            return self.references[key]
        name = self._reference_name(handle)
        old, new = sp.Symbol(name, real=True), sp.Symbol(name + "'", real=True)
        results = [r.result for r in self.done]
        gauge = Gauge.RUNNING if unbounded else tracking_gauge(handle, self.done)
        partner = translated_part(function, handle.symbol, self.elements)
        averaged = not unbounded and partner is not None and may_cancel(handle.value, results)
        if unbounded:
            value = self._bound(reduction, handle, unbounded)
        elif averaged:
            value = self._auxiliary(reduction, SUM, partner) / COUNT
        else:
            value = self._predicted(handle.value, gauge)
        auxiliary = averaged or bool(unbounded)
        guarded = not auxiliary and may_be_singular(handle.value, results)
        reference = Reference(
            old,
            new,
            sp.Symbol("Δ" + name, real=True),
            gauge,
            handle.value.xreplace(self._plain()),
            value,
            guarded,
            auxiliary,
        )
        self.references[key] = reference
        self.steps.append(reference)
        return reference

    def _reference_name(self, handle: Handle) -> str:
        """A reference is called after the results that its quantity reads."""
        read = [str(r.result) for r in self.done if r.result in handle.value.free_symbols]
        name, taken = "c_" + "_".join(read), {str(r.symbol) for r in self.references.values()}
        return next(n for k in range(len(taken) + 1) if (n := name + (f"_{k}" if k else "")) not in taken)

    def _bound(self, reduction: Reduction, handle: Handle, unbounded: list[sp.Expr]) -> sp.Expr:
        """A reference at which the exponent is at most zero: its own running maximum, kept as one more component."""
        exponent = unbounded[0]
        slope = sp.diff(exponent, handle.symbol)
        if len(set(unbounded)) > 1 or slope.has(handle.symbol, *self.elements):
            raise self.refuse(reduction, "separation_unknown", exponent)
        return -self._auxiliary(reduction, MAX, exponent.subs(handle.symbol, 0)) / slope

    def _auxiliary(self, reduction: Reduction, reducer: Reducer, lift: sp.Expr) -> sp.Symbol:
        """A component kept for a reference alone, or an earlier one that is the same."""
        known = {s.lift: s.symbol for s in self.steps if isinstance(s, Component) and s.reducer is reducer}
        if lift not in known:
            taken = {str(s.symbol) for s in self.steps}
            names = (f"{reducer}_for_{reduction.result}" + (f"_{k}" if k else "") for k in range(len(taken) + 1))
            symbol = sp.Symbol(next(name for name in names if name not in taken), real=True)
            self.steps.append(Component(symbol, reduction.result, reducer, lift, symbol))
            return symbol
        return known[lift]

    def _predicted(self, value: sp.Expr, gauge: Gauge) -> sp.Expr:
        """The quantity at what the final results look like from here: partial sums are scaled by N/n.

        Under a logarithm or root they are not: there one large element outweighs the number of those to come.
        """
        sums = [r.result for r in self.done if r.reducer is SUM and r.result in value.free_symbols]
        scaled = gauge is Gauge.CENTRED and bool(sums) and value.is_polynomial(*sums)
        for done in reversed(self.done):
            partial = self.finish[self._plain().get(done.result, done.result)].subs(LENGTH, COUNT)
            value = value.subs(done.result, partial * LENGTH / COUNT if scaled and done.result in sums else partial)
        return value

    def _plain(self) -> dict[sp.Symbol, sp.Symbol]:
        return {signed: original for original, signed in self.signs.items()}

    def product_law(self, reduction: Reduction, held: sp.Expr, used: list[Handle]) -> None:
        """Π of G(x)·H(d) is (Π G)·H(d)^N."""
        function, factor = strip_rounding(held), sp.Integer(1)
        for handle in used:
            weight = factor_in(function, handle.symbol, self.elements)
            if weight is None:
                raise self.refuse(reduction, "prod_dependence", function)
            factor *= weight.subs(handle.symbol, handle.value)
            function = function.subs(handle.symbol, 1)
        self.deferred[reduction.result] = tuple(h.value.xreplace(self._plain()) for h in used)
        component = self._component(reduction, 0, PROD, function)
        self.finish[reduction.result] = factor**LENGTH * component.symbol

    def order_law(self, reduction: Reduction, held: sp.Expr, used: list[Handle]) -> None:
        """max and min pass through monotone maps; convex ones keep both ends."""
        function = strip_rounding(held)
        passed = through_order(function, reduction.reducer, self.elements, [h.symbol for h in used])
        if isinstance(passed, str):
            raise self.refuse(reduction, passed, function)
        inner, kept, outer = passed
        ends = [self._component(reduction, k, reducer, inner).symbol for k, reducer in enumerate(kept)]
        values = {h.symbol: h.value for h in used}
        self.deferred[reduction.result] = tuple(h.value.xreplace(self._plain()) for h in used)
        self.finish[reduction.result] = reduction.reducer.over(
            [outer(end).subs(values, simultaneous=True) for end in ends]
        )

    def logical_law(self, reduction: Reduction, held: sp.Expr, used: list[Handle]) -> None:
        """A predicate on an earlier result has no finite state."""
        raise self.refuse(reduction, "logical_dependence", held)


_LAWS: dict[str, Callable[[_Derivation, Reduction, sp.Expr, list[Handle]], None]] = {
    SUM.name: _Derivation.sum_law,
    PROD.name: _Derivation.product_law,
    MAX.name: _Derivation.order_law,
    MIN.name: _Derivation.order_law,
    AND.name: _Derivation.logical_law,
    OR.name: _Derivation.logical_law,
}


def component_symbol(result: sp.Symbol, index: int) -> sp.Symbol:
    """T_index of a result's reduction."""
    return sp.Symbol(f"{result}_{index}", real=True)
