"""The state of a derivation: components, references and results so far, and how laws add to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Cascade, Reduction
from tvm_cascade.algebra.cases import Union, by_both, by_results
from tvm_cascade.algebra.facts.extent import sign_within
from tvm_cascade.algebra.facts.relation import AT_A_MAXIMUM, compared, is_bounded_above, ordered_by_results
from tvm_cascade.algebra.fold import Component, Fold, Reference
from tvm_cascade.algebra.invariants import Invariant, InvariantTable, exponents
from tvm_cascade.algebra.policy import Move, Policy, is_power_of_two
from tvm_cascade.algebra.reducer import SUM, Reducer, TupleReducer
from tvm_cascade.algebra.verdict import Counterexample, Question, Reason, Refusal, Search
from tvm_cascade.symbolic.functions import Round, WholePower, innermost
from tvm_cascade.symbolic.masks import conditions_that_keep
from tvm_cascade.symbolic.separate import strip_rounding
from tvm_cascade.symbolic.work import cancelled


class Refused(Exception):
    """Carries a refusal out of a law; never leaves `derive`."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class Derivation:
    """A fold under construction.

    Parameters
    ----------
    search : what looks for numbers on which a law fails.

    Attributes
    ----------
    invariants : quantities that elements read of earlier results.
    done : the reductions taken in, under symbols that carry the signs of their results.
    finish : each result in the state.
    numbers : symbols that stand for constants.
    move : how running references move where there is a choice.
    meaning : what symbols are known to stand for: N where it is fixed, elements in terms of others, numbers.
    where : the positions that new components are taken over.
    """

    def __init__(
        self,
        cascade: Cascade,
        rescalable_casts: tuple[str, ...],
        search: Search,
        numbers: Mapping[sp.Symbol, sp.Expr] | None = None,
        move: Move = Move.EXACT,
        meaning: Mapping[sp.Symbol, sp.Expr] | None = None,
    ) -> None:
        self.move, self._search = move, search
        self.cascade, self.rescalable_casts, self.numbers = cascade, rescalable_casts, dict(numbers or {})
        self.meaning = {**self.numbers, **(meaning or {})}
        self.elements = cascade.elements
        self.invariants = InvariantTable()
        self.steps: list[Component | Reference] = []
        self.finish: dict[sp.Symbol, sp.Expr] = {}
        self.deferred: dict[sp.Symbol, tuple[sp.Expr, ...]] = {}
        self.done: list[Reduction] = []
        self.where: sp.Basic = sp.true
        self._references: dict[object, Reference] = {}
        self._constants: list[Reference] = []
        given = {s for r in cascade.reductions for s in {r.result, *r.element.free_symbols}}
        self._given_names = {str(symbol) for symbol in given}
        self._signed: dict[sp.Symbol, sp.Symbol] = {}

    def fold(self) -> Fold:
        """The fold of the reductions so far."""
        finish = {result: self.plain(value) for result, value in self.finish.items()}
        return Fold(self.cascade, tuple(self.steps), finish, self.deferred)

    @property
    def results(self) -> list[sp.Symbol]:
        """Symbols of the results so far, with their signs."""
        return [reduction.result for reduction in self.done]

    def take_in(self, reduction: Reduction) -> tuple[sp.Expr, list[Invariant]]:
        """The element with invariants in place of earlier results, and those invariants.

        Raises
        ------
        Refused
            When an earlier result is rounded to a dtype that may not be rescaled.
        """
        if cases := self.by_results(reduction.element) or self.by_both(reduction.element):
            raise self.refuse(reduction, "tuple_dependence", cases.choice)
        for rounded in sorted(reduction.element.atoms(Round), key=innermost):
            value, dtype = rounded.args
            floats = str(dtype).startswith(("float", "bfloat"))
            commutes = str(dtype) in self.rescalable_casts or (floats and self._scaled_by_powers_of_two(value))
            if value.has(*self.cascade.results) and not commutes:
                written = self.plain(value.xreplace(self.numbers))
                raise self.refuse(reduction, "rounding", f"{written} rounded to {dtype}", rounded)
        # log(p) with p = exp(x − m)/t is x − m − log t: a sum of invariants rather than an invariant of its own.
        # A power of two stays as it is written: a whole part must not see a logarithm that rounds otherwise.
        signed = reduction.element.xreplace(self._signed)
        whole = {power: sp.Dummy(positive=True) for power in signed.atoms(WholePower)}
        element = sp.expand_log(signed.xreplace(whole)).xreplace({v: k for k, v in whole.items()})
        element = ordered_by_results(element, self.done)
        extracted = self.extracted(element)
        return extracted, [invariant for invariant in self.invariants if invariant.symbol in extracted.free_symbols]

    def by_results(self, element: sp.Expr) -> Union | None:
        """The cases of an element whose guards read results alone."""
        return by_results(element, self.elements)

    def by_both(self, element: sp.Expr) -> Union | None:
        """The cases of an element whose guards read results and positions."""
        return by_both(element, self.elements, self.cascade.results)

    def extracted(self, element: sp.Expr) -> sp.Expr:
        """The expression with invariants in place of the results so far."""
        ordered = [r.result for r in self.done if r.reducer.ordered]
        return self.invariants.extract(element, self.elements, self.results, ordered)

    def _scaled_by_powers_of_two(self, value: sp.Expr) -> bool:
        """Whether earlier results enter as factors 2^k alone: those commute with the rounding of any float."""
        read = [f for f in sp.Mul.make_args(value) if f.has(*self.cascade.results)]
        return bool(read) and not any(f.has(*self.elements) for f in read) and is_power_of_two(sp.Mul(*read))

    def note(self, reduction: Reduction, keeps_sign: bool = False) -> None:
        """Marks a reduction as derived; later laws may use the sign of its result.

        Parameters
        ----------
        keeps_sign : positive elements give a positive result, whatever the reducer says of itself.
        """
        element = self.signed(self.decided(reduction.element))
        keeps = keeps_sign or reduction.reducer.keeps_sign
        if keeps and (facts := sign_within(strip_rounding(element))):
            self._signed[reduction.result] = sp.Symbol(str(reduction.result), real=True, **facts)
            self.finish = {key: value.xreplace(self._signed) for key, value in self.finish.items()}
        self.done.append(Reduction(self._signed.get(reduction.result, reduction.result), reduction.reducer, element))

    def signed(self, value: sp.Expr) -> sp.Expr:
        """The expression over result symbols with their known signs as assumptions."""
        return value.xreplace(self._signed)

    def plain(self, value: sp.Expr) -> sp.Expr:
        """The expression over the cascade's own result symbols."""
        return value.xreplace({signed: original for original, signed in self._signed.items()})

    def refuse(
        self,
        reduction: Reduction,
        code: str,
        detail: object,
        function: sp.Expr | None = None,
        shown: Counterexample | None = None,
    ) -> Refused:
        """A refusal as an exception, with invariants written out.

        `function` is the part of the element that breaks the law, where `detail` is not it; `shown` is the
        counterexample, where it is known and need not be looked for.
        """
        broken = function if function is not None else detail
        if shown is None and isinstance(broken, sp.Expr):
            shown = self.counterexample(code, reduction, broken)
        if isinstance(detail, sp.Basic):
            detail = self.plain(detail.xreplace(self.invariants.values).xreplace(self.numbers))
        reason = Reason(code, f"{reduction.reducer.name} of {detail}", shown)
        return Refused(Refusal(str(reduction.result), reason))

    def counterexample(
        self, code: str, reduction: Reduction, function: sp.Expr, where: sp.Basic = sp.true
    ) -> Counterexample | None:
        """Numbers on which the law behind a code fails for a function over invariants; None where none were found.

        Parameters
        ----------
        where : the condition on elements under which the function is the element.
        """
        values = self.invariants.values
        earlier = self._before(function.xreplace(self._signed).xreplace(values))
        names = {signed: original for original, signed in self._signed.items()}
        asked = (function.xreplace(self._signed), values, earlier, self.elements, self.meaning, names, where)
        return self._search(code, Question(reduction.reducer, *asked))

    def _before(self, function: sp.Expr) -> list[Reduction]:
        """The reductions so far, tuples whole; those of which numbers alone are read, as extrema and sums."""
        done, read, found = {self.plain(r.result): r for r in self.done}, function.free_symbols, list[Reduction]()
        for block in reversed(self.cascade.blocks):
            parts = [done[r.result] for r in block if r.result in done]
            if any(part.reducer.whole is not None and part.result in read for part in parts):
                parts = [replace(part, reducer=r.reducer) for part, r in zip(parts, block, strict=True)]
            else:
                parts = [part for part in parts if part.reducer.whole is None]
            read, found = read.union(*(part.element.free_symbols for part in parts)), [*parts, *found]
        return found

    def bounds(self, exponent: sp.Expr, function: sp.Expr) -> bool:
        """Whether the partial results bound an exponent over invariants at the positions at which a function counts."""
        kept = conditions_that_keep(function, self.elements)
        return is_bounded_above(exponent, self.invariants.values, self.done, self.elements, kept)

    def unbounded(self, function: sp.Expr, invariant: Invariant) -> list[sp.Expr]:
        """The exponents of a function that read an invariant and elements, and are not bounded."""
        found = exponents(function, invariant.symbol, self.elements)
        return [exponent for exponent in found if not self.bounds(exponent, function)]

    def compared(self, condition: sp.Basic) -> tuple[Reduction, tuple[bool, bool]] | None:
        """The earlier extremum that a condition compares its element with, and its value at ties and elsewhere."""
        return compared(self.signed(condition), self.done)

    def decided(self, element: sp.Expr, at: Reduction | None = None, here: bool = True) -> sp.Expr:
        """The element with those comparisons with earlier extrema decided that hold everywhere or nowhere.

        Results that are numbers whatever the data are are these numbers.

        Parameters
        ----------
        at, here : an extremum, and whether the element is for the positions that attain it, or for all others.
        """
        truths: dict[sp.Basic, sp.Basic] = {d: value for d, value in self.finish.items() if value.is_number}
        for relation in sorted(element.atoms(*AT_A_MAXIMUM, sp.ITE), key=sp.count_ops):  # those within others first
            extreme, holds = self.compared(relation.xreplace(truths)) or (None, (True, False))
            if extreme is not None and (extreme is at or holds[0] is holds[1]):
                truths[relation] = sp.sympify(holds[0 if here else 1])
        return element.xreplace(truths)

    @property
    def length(self) -> int | None:
        """N, where it is a number."""
        length = self.meaning.get(LENGTH)
        return None if length is None else int(length)

    def over_length(self, expression: sp.Expr) -> sp.Expr:
        """The expression with N for each symbol that stands for as many."""
        return expression.xreplace({symbol: LENGTH for symbol, value in self.meaning.items() if value == self.length})

    def component(
        self,
        reduction: Reduction,
        reducer: Reducer,
        lift: sp.Expr,
        shift: Callable[[sp.Symbol], sp.Expr] = lambda own: own,
    ) -> sp.Symbol:
        """The component of a lift over the positions that components are taken over: an earlier one, or a new one.

        Parameters
        ----------
        shift : what it becomes as references move, from itself.
        """
        lift = self.masked(reducer, lift)
        return self.known(reducer, lift) or self.add(reduction, reducer, lift, shift(self.unused(reduction)))

    @contextmanager
    def over(self, where: sp.Basic) -> Iterator[None]:
        """Masks new components to the positions where a condition holds."""
        outside, self.where = self.where, where
        try:
            yield
        finally:  # a law may be refused inside, and another tried
            self.where = outside

    def masked(self, reducer: Reducer, lift: sp.Expr) -> sp.Expr:
        """The lift where the condition holds, the identity elsewhere."""
        return sp.Piecewise((lift, self.where), (reducer.neutral, True)) if self.where != sp.true else lift

    def known(self, reducer: Reducer, lift: sp.Expr) -> sp.Symbol | None:
        """The component with that lift, if there is one."""
        same = (s for s in self.steps if isinstance(s, Component) and s.reducer is reducer and s.lift == lift)
        return next((s.symbol for s in same), None)

    def lift_of(self, done: Reduction) -> sp.Expr | None:
        """The lift of the component that equals an earlier result; None where several components make it up."""
        result = self.finish[self.plain(done.result)]
        best = result.args[-1].expr if isinstance(result, sp.Piecewise) else result  # of a selection: the best key
        return next((s.lift for s in self.steps if isinstance(s, Component) and s.symbol == best), None)

    def add(self, reduction: Reduction, reducer: Reducer, lift: sp.Expr, shift: sp.Expr) -> sp.Symbol:
        """A new component."""
        self.steps.append(Component(self.unused(reduction), reduction.result, reducer, lift, shift))
        return self.steps[-1].symbol

    def tuple_of(self, whole: TupleReducer, block: Sequence[Reduction], lifts: Sequence[sp.Expr]) -> list[sp.Symbol]:
        """The components of a tuple, by part: those of an equal earlier tuple, or new ones.

        Parameters
        ----------
        block : the reduction that each part serves.
        """
        for unit in self.fold().units:
            if isinstance(unit, tuple) and unit[0].reducer.whole == whole and [c.lift for c in unit] == list(lifts):
                return [component.symbol for component in unit]
        owners = [reduction.result for reduction in block]
        symbols = tuple(self.unused(r, ahead=owners[:part].count(r.result)) for part, r in enumerate(block))
        for part, (reduction, lift) in enumerate(zip(block, lifts, strict=True)):
            step = Component(symbols[part], reduction.result, whole.of(part), lift, symbols[part], symbols)
            self.steps.append(step)
        return list(symbols)

    def unused(self, reduction: Reduction, ahead: int = 0) -> sp.Symbol:
        """An unused symbol for the reduction's next component, or a later one."""
        own = sum(isinstance(s, Component) and s.owner == reduction.result for s in self.steps)
        name = f"{reduction.result}_{own + ahead}"
        while name in self._given_names:
            name += "_"
        return sp.Symbol(name, real=True)

    def refer(self, key: object, tracks: sp.Expr, policy: Policy, value: sp.Expr, **flags: Any) -> Reference:
        """The reference of a key, created after what it reads on first use."""
        if key not in self._references:
            read = [str(r) for r in self.results if r in tracks.free_symbols] or sorted(map(str, tracks.free_symbols))
            base, taken = "c_" + "_".join(read), {str(r.symbol) for r in self._references.values()} | self._given_names
            name = next(n for k in range(len(taken) + 1) if (n := base + (f"_{k}" if k else "")) not in taken)
            old, new, step = (sp.Symbol(text, real=True) for text in (name, name + "'", "Δ" + name))
            self._references[key] = Reference(old, new, step, policy, self.plain(tracks), value, **flags)
            self.steps.append(self._references[key])
        return self._references[key]

    def constant(self) -> Reference:
        """The constant reference 0, which never moves."""
        names = ("c_constant", "c_constant'", "Δc_constant")
        old, new, step = (sp.Symbol(f"{name}_{len(self._constants)}", real=True) for name in names)
        self._constants.append(Reference(old, new, step, Policy.DEFERRED, sp.S.Zero, sp.S.Zero))
        return self._constants[-1]

    def predicted(self, value: sp.Expr) -> sp.Expr:
        """A predictor of the quantity's final value from partial results: sums are extrapolated by N/n.

        Under a logarithm or root they are not: there one large element outweighs the number of those to come.
        """
        for done in reversed(self.done):
            value = self.signed(value).subs(done.result, self.finish[self.plain(done.result)])
        sums = {s.symbol for s in self.steps if isinstance(s, Component) and s.reducer is SUM} & value.free_symbols
        if sums and value.is_rational_function(*sums):
            scaled = value.subs({total: total * LENGTH / COUNT for total in sums}, simultaneous=True)
            return cancelled(scaled)
        return self.over_length(value).subs(LENGTH, COUNT)
