"""The derivation of a fold from a cascade, reduction by reduction, through the table of laws."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, Cascade, Reduction
from tvm_cascade.algebra.cases import joined, truth_of
from tvm_cascade.algebra.comparisons import folded_choice, truth_of_all
from tvm_cascade.algebra.derivation import Derivation, Refused
from tvm_cascade.algebra.fold import Component, Fold, Reference
from tvm_cascade.algebra.order_law import order_law
from tvm_cascade.algebra.policy import Move
from tvm_cascade.algebra.product_law import Law, product_law
from tvm_cascade.algebra.reducer import AND, EXTREMES, HIGHEST, LOWEST, MAX, MIN, OR, PROD, SUM
from tvm_cascade.algebra.selection_law import selection_law
from tvm_cascade.algebra.sum_law import sum_law
from tvm_cascade.algebra.tuple_law import note_tuple, tuple_law
from tvm_cascade.algebra.verdict import Reason, Refusal, Search
from tvm_cascade.symbolic.masks import indicator, masks_that_keep
from tvm_cascade.symbolic.separate import strip_rounding
from tvm_cascade.symbolic.work import ExhaustedError

MOST_CASES = 8
"""Cases, by conditions on results, in which one element may be something else."""


def derived(
    cascade: Cascade,
    rescalable_casts: Sequence[str],
    move: Move,
    meaning: Mapping[sp.Symbol, sp.Expr],
    search: Search,
) -> Fold | Refusal:
    """The fold of a cascade, or the refusal that names the reduction, the expression and the law that fails.

    Parameters
    ----------
    cascade, rescalable_casts, move, meaning : see `tvm_cascade.derive`.
    search : what looks for numbers on which a law fails.
    """
    constants, casts = NamedConstants(meaning.get(LENGTH)), tuple(rescalable_casts)
    at = cascade.results[-1]
    try:
        started = plain(cascade)
        derivation = Derivation(constants.named(started), casts, search, constants.values, move, meaning)
        for block in derivation.cascade.blocks:
            at = block[-1].result
            _take_in(derivation, block)
        at = cascade.results[-1]
        return from_their_starts(constants.numbered(derivation.fold(), started), cascade)
    except Refused as refused:
        return refused.refusal
    except ExhaustedError as exhausted:
        return Refusal(str(at), Reason("work_limit", str(exhausted)))
    except RecursionError:  # SymPy turns some comparisons of logarithms round for ever
        return Refusal(str(at), Reason("work_limit", "rewriting a comparison"))


def _take_in(derivation: Derivation, block: tuple[Reduction, ...]) -> None:
    """One more reduction, or one of tuples, by the law of its reducer."""
    block = tuple(sorted(block, key=lambda reduction: reduction.reducer.part))
    for reduction, value in zip(block, _in_each_case(derivation, block, 1), strict=True):
        derivation.finish[reduction.result] = value
    note_tuple(derivation, block) if block[0].reducer.whole is not None else derivation.note(block[0])


def _in_each_case(derivation: Derivation, block: tuple[Reduction, ...], cases: int) -> list[sp.Expr]:
    """The results, by the law of their reducer: those of each case where results decide between elements.

    `cases` is how many there are beside this one.
    """
    block = tuple(replace(reduction, element=derivation.decided(joined(reduction.element))) for reduction in block)
    unions = ((part, derivation.by_results(reduction.element)) for part, reduction in enumerate(block))
    part, union = next(((part, union) for part, union in unions if union is not None), (0, None))
    if union is None and len(block) == 1 and block[0].element == block[0].reducer.neutral:
        return [block[0].element]  # a sum of zeros needs no state
    if union is None:
        whole = block[0].reducer.whole
        if whole is None:
            return [_by_its_law(derivation, block[0])]
        selection = whole.selection
        return tuple_law(derivation, block) if selection is None else selection_law(derivation, block, selection)
    cases *= len(union.cases)
    if cases > MOST_CASES:
        raise derivation.refuse(block[part], "work_limit", block[part].element)
    branches = []
    for case in union.cases:
        within = (*block[:part], replace(block[part], element=case.term), *block[part + 1 :])
        branches.append((_in_each_case(derivation, within, cases), case.guard))
    return [sp.Piecewise(*((values[k], guard) for values, guard in branches)) for k in range(len(block))]


def _by_its_law(derivation: Derivation, reduction: Reduction) -> sp.Expr:
    logical = reduction.reducer in (AND, OR)
    if logical and (predicate := truth_of(reduction.element, derivation.elements)) is not None:
        return truth_of_all(derivation, reduction, predicate, _by_its_law)
    if (union := derivation.by_both(reduction.element)) is not None:
        return folded_choice(derivation, reduction, union, _by_its_law)
    apart, quotients = _taken_apart(reduction, derivation)
    element, used = derivation.take_in(apart)
    if (reduction.reducer.ordered or logical) and not element.has(*derivation.elements):
        return element.xreplace(derivation.invariants.values)  # the same at all positions
    if not used:
        total = derivation.component(reduction, reduction.reducer, element)
    elif isinstance(law := LAWS[reduction.reducer.law], str):
        raise derivation.refuse(reduction, law, element)
    else:
        total = law(derivation, apart, element, used)
    return _where_real(derivation, reduction, quotients, total)


LAWS: dict[str, Law | str] = {
    "sum": sum_law,
    "product": partial(product_law, sum_law),
    "order": order_law,
    "predicate": "logical_dependence",
    "none": "reducer_dependence",
}
"""By what a `Reducer.law` may be: how ⊕ takes in elements that read results, or the code of a refusal."""


# Logarithms and roots of quotients split: log(x/s) as log|x| − log|s|, √(x/s) as √|x|/√|s|.
#
# They are the same where x/s is not negative, whichever sign x and s have. Where some x/s is, the element is no number,
# and neither is the sum: the least and the largest x tell.
#
# | log(a·b), (a·b)^r, r no integer  | becomes                        | needed for a number                         |
# |----------------------------------|--------------------------------|---------------------------------------------|
# | b > 0                            | log a + log b                  | nothing: log a is no number where a·b has none |
# | a > 0                            | log a + log b                  | nothing                                     |
# | neither sign is known            | log |a| + log |b|              | min a ≥ 0 and b ≥ 0, or max a ≤ 0 and b ≤ 0 |


@dataclass(frozen=True)
class _Quotient:
    """a(x)·b(d) under a logarithm or a root, of unknown signs: the varying and the loop-invariant factor."""

    varying: sp.Expr
    fixed: sp.Expr


def _taken_apart(reduction: Reduction, derivation: Derivation) -> tuple[Reduction, tuple[_Quotient, ...]]:
    """The sum with logarithms and roots of products split, and the products whose signs are unknown."""
    if reduction.reducer is not SUM or not derivation.results:
        return reduction, ()
    found: dict[_Quotient, None] = {}
    elements, results = derivation.elements, derivation.results

    def split(base: sp.Expr) -> tuple[sp.Expr, sp.Expr] | None:
        fixed, varying = sp.powsimp(base).as_independent(*elements, as_Add=False)
        if not fixed.has(*results) or varying.has(*results) or varying == 1:
            return None
        if varying.is_nonnegative or fixed.is_nonnegative:
            return varying, fixed
        found[_Quotient(varying, fixed)] = None
        return sp.Abs(varying), sp.Abs(fixed)

    def logarithm(argument: sp.Expr) -> sp.Expr:
        parts = split(argument) if isinstance(argument, sp.Mul) else None
        return sp.log(argument) if parts is None else sum((_log(part) for part in parts), sp.S.Zero)

    def root(base: sp.Expr, exponent: sp.Expr) -> sp.Expr:
        parts = split(base) if isinstance(base, sp.Mul) and exponent.is_Rational and not exponent.is_Integer else None
        return base**exponent if parts is None else sp.Mul(*(part**exponent for part in parts))

    element = derivation.signed(reduction.element).replace(sp.log, logarithm).replace(sp.Pow, root)
    return Reduction(reduction.result, reduction.reducer, derivation.plain(element)), tuple(found)


def _log(part: sp.Expr) -> sp.Expr:
    """log of 1/|s| as −log|s|."""
    base, exponent = part.as_base_exp()
    return exponent * sp.log(base) if exponent.is_Integer and base.is_nonnegative else sp.log(part)


def _where_real(
    derivation: Derivation, reduction: Reduction, quotients: Sequence[_Quotient], total: sp.Expr
) -> sp.Expr:
    """The total, or NaN where some quotient was negative, as its element is."""
    kept = indicator(masks_that_keep(reduction.element, derivation.elements))
    for quotient in quotients:
        least, largest = (derivation.component(reduction, reducer, kept * quotient.varying) for reducer in (MIN, MAX))
        real = sp.Or(
            sp.And(least >= 0, quotient.fixed >= 0),
            sp.And(largest <= 0, quotient.fixed <= 0),
        )
        total = sp.Piecewise((total, real), (sp.nan, True))
    return total


# Floating-point constants as symbols, since SymPy takes exp(1.4427·x) for a power of exp(x/10000).
#
# So too in N**1.4427, whose roots of numbers take minutes, and beside logarithms and under waves: 10000·log N for the
# log of a power, sin(10000·x) for a polynomial in sin x.


LARGEST_PLAIN = 16
"""Numerators and denominators up to this stay numbers."""


class NamedConstants:
    """Positive symbols for floating-point constants of exponents, logarithms and waves; real ones for fixed logarithms.

    Attributes
    ----------
    values : what each symbol stands for.

    Parameters
    ----------
    length : N, where it is a number: as a factor within a logarithm it has a symbol, since log(13·p) of 13 shares p is
        log(n·p) of the first n.
    """

    def __init__(self, length: sp.Expr | None = None) -> None:
        self.length = length
        self.values: dict[sp.Symbol, sp.Expr] = {}

    def named(self, cascade: Cascade) -> Cascade:
        names: dict[sp.Expr, sp.Expr] = {}
        cascade = Cascade([replace(r, element=self._counted(r.element)) for r in cascade.reductions], cascade.elements)
        for reduction in cascade.reductions:
            whole = reduction.element.has(sp.log, sp.sin, sp.cos)
            read = [reduction.element] if whole else list(_exponents(reduction.element))
            names.update(self._logarithms(reduction.element, {*cascade.elements, *cascade.results, LENGTH}))
            for expression in read:
                names.update(self._names(expression))
        # Everywhere, not under exponentials alone: max x·k must still be seen to bound exp(x·k − max).
        reductions = [Reduction(r.result, r.reducer, r.element.xreplace(names)) for r in cascade.reductions]
        return Cascade(reductions, cascade.elements)

    def numbered(self, fold: Fold, cascade: Cascade) -> Fold:
        """The fold of the original cascade, with numbers for those symbols."""

        def back(expression: sp.Expr) -> sp.Expr:
            return expression.xreplace(self.values)

        steps = tuple(self._step(step) for step in fold.steps)
        finish = {result: back(value) for result, value in fold.finish.items()}
        deferred = {result: tuple(map(back, quantities)) for result, quantities in fold.deferred.items()}
        return Fold(cascade, steps, finish, deferred)

    def _step(self, step: Component | Reference) -> Component | Reference:
        if isinstance(step, Component):
            lift, shift = step.lift.xreplace(self.values), step.shift.xreplace(self.values)
            return dataclasses.replace(step, lift=lift, shift=shift)
        tracks, value = step.tracks.xreplace(self.values), step.value.xreplace(self.values)
        return dataclasses.replace(step, tracks=tracks, value=value)

    def _logarithms(self, element: sp.Expr, varying: set[sp.Symbol]) -> dict[sp.Expr, sp.Expr]:
        """Symbols for logarithms of parameters: SymPy takes a fourth power of a sum of them apart for minutes."""
        fixed = (e for e in element.atoms(sp.log) if e.is_real and e.free_symbols and not e.free_symbols & varying)
        return {e: self._symbol(e, real=True) for e in sorted(fixed, key=str)}

    def _counted(self, element: sp.Expr) -> sp.Expr:
        logarithms = {e: e.args[0].as_coeff_Mul() for e in element.atoms(sp.log)} if self.length is not None else {}
        of_all = {e: rest for e, (factor, rest) in logarithms.items() if factor == self.length != 1}
        return element.xreplace({e: sp.log(self._symbol(self.length, positive=True) * p) for e, p in of_all.items()})

    def _symbol(self, value: sp.Expr, **facts: bool) -> sp.Symbol:
        """The symbol of a value, made on first use."""
        known = next((symbol for symbol, meant in self.values.items() if meant == value), None)
        symbol = known or sp.Symbol(f"_k{len(self.values)}", **facts)
        self.values[symbol] = value
        return symbol

    def _names(self, argument: sp.Expr) -> dict[sp.Expr, sp.Expr]:
        names: dict[sp.Expr, sp.Expr] = {}
        for number in argument.atoms(sp.Rational):
            if max(abs(number.p), number.q) > LARGEST_PLAIN:
                symbol = self._symbol(abs(number), positive=True)
                names[number] = symbol if number > 0 else -symbol
        return names


def _exponents(expression: sp.Expr) -> Iterator[sp.Expr]:
    """Of exponentials, and those of powers that are no whole numbers: x**32 stays a polynomial."""
    yield from (e.args[0] for e in expression.atoms(sp.exp))
    yield from (p.exp for p in expression.atoms(sp.Pow) if not p.exp.is_integer)


# Reductions initialised with ±∞: where no element is finite, the result is that infinity.
#
# A fold is derived as if every extremum started at the dtype's own lowest or highest number. A row of −∞ then has
# finite references, which what is met later may still move. For those d that start at −∞ four things change:
#
#     component    starts at −∞; everything else in the state reads max(component, lowest)
#     [a = c]      [max(a, lowest) = c]
#     finish of d  reads the component as it is
#     finish of Σ  NaN where d = −∞ and some position counts, as exp(−∞ − (−∞)) is
#
# Where an element has a value beside d = −∞, as w/d has, NaN tells a guard that it is needed (`obligations.ends`).


Bounds = Mapping[sp.Symbol, sp.Expr]
"""Extrema, each no further than the dtype's own lowest or highest number."""


def plain(cascade: Cascade) -> Cascade:
    """The cascade with the dtype's lowest or highest number as the init of every extremum."""
    return Cascade([replace(r, reducer=r.reducer.plain) for r in cascade.reductions], cascade.elements)


def from_their_starts(fold: Fold, cascade: Cascade) -> Fold:
    """The fold of a cascade from that of its `plain` one."""
    starting = {r.result: r for r in cascade.reductions if r.reducer.infinite}
    if not starting:
        return fold
    read = set().union(*(fold.finish[result].free_symbols for result in starting))
    kept = {c.symbol: c for c in fold.components if c.symbol in read and c.reducer.ordered}
    bounds = {symbol: _bounded(symbol, component) for symbol, component in kept.items()}
    tracked = {r.symbol: r.tracks.free_symbols & starting.keys() for r in fold.references}
    compared = {symbol: starting[next(iter(results))] for symbol, results in tracked.items() if results}
    steps: list[Component | Reference] = []
    for step in fold.steps:
        if isinstance(step, Reference):
            steps.append(replace(step, value=step.value.xreplace(bounds)))
        else:
            steps.append(_comparing(_from_infinity(step) if step.symbol in kept else _reading(step, bounds), compared))
    finish = dict(fold.finish)
    for reduction in cascade.reductions:
        result, reducer = reduction.result, reduction.reducer
        if reducer.infinite:
            finish[result] = _without_element(finish[result])
        elif reducer in (SUM, PROD) and reduction.element.free_symbols & starting.keys():
            finish[result] = _finished(reduction, starting, finish[result], cascade.elements, bounds, steps)
        else:
            finish[result] = finish[result].xreplace(bounds)
    return Fold(cascade, tuple(steps), finish, fold.deferred)


def _bounded(symbol: sp.Symbol, started: Component | Reduction) -> sp.Expr:
    reducer = started.reducer.plain
    return reducer.combine(symbol, reducer.neutral)


def _from_infinity(component: Component) -> Component:
    """The component, where no element is −∞ rather than the lowest number."""
    lift, shift = (_without_element(e) for e in (component.lift, component.shift))
    return replace(component, reducer=component.reducer.from_infinity, lift=lift, shift=shift)


def _without_element(expression: sp.Expr) -> sp.Expr:
    """The expression with −∞ in place of the lowest number wherever it may have that value."""
    if expression in (LOWEST, HIGHEST):
        return EXTREMES[expression]
    if isinstance(expression, sp.Piecewise):
        return sp.Piecewise(*((_without_element(value), condition) for value, condition in expression.args))
    if isinstance(expression, (sp.Max, sp.Min)):
        return expression.func(*(_without_element(value) for value in expression.args))
    return expression


def _reading(component: Component, bounds: Bounds) -> Component:
    return replace(component, lift=component.lift.xreplace(bounds), shift=component.shift.xreplace(bounds))


def _comparing(component: Component, compared: Mapping[sp.Symbol, Reduction]) -> Component:
    """[a = c] as [max(a, lowest) = c], since c is no lower than that."""
    lift = component.lift
    for equation in lift.atoms(sp.Eq):
        for element, reference in (equation.args, equation.args[::-1]):
            if reference in compared:
                lift = lift.xreplace({equation: sp.Eq(_bounded(element, compared[reference]), reference)})
    return replace(component, lift=lift)


def _finished(
    reduction: Reduction,
    starting: Mapping[sp.Symbol, Reduction],
    finish: sp.Expr,
    elements: Sequence[sp.Symbol],
    bounds: Bounds,
    steps: list[Component | Reference],
) -> sp.Expr:
    """The finish of a sum or product that reads extrema; what counts positions is added to the steps."""
    results = sorted(reduction.element.free_symbols & starting.keys(), key=str)
    read = [(_beside_its_start(result, reduction.element, elements), starting[result]) for result in results]
    terms = [term for term in sp.Add.make_args(strip_rounding(reduction.element)) if term.has(*results)]
    where = indicator(masks_that_keep(sp.Add(*terms), elements))
    infinite = sp.Or(*(_is_infinite(value, start) for value, start in read))
    met = sp.true if where == 1 else _count(reduction, where, steps) > 0
    finite = finish.xreplace({**bounds, **{result: _bounded(result, starting[result]) for result in results}})
    return sp.Piecewise((sp.nan, sp.And(infinite, met)), (finite, True))


def _beside_its_start(result: sp.Symbol, element: sp.Expr, elements: Collection[sp.Symbol]) -> sp.Expr:
    """What an element reads of an extremum: max(b, d) where the program starts it at some b of its data."""
    read = [e for e in element.atoms(sp.Max, sp.Min) if result in e.args and not e.has(*elements)]
    return max(read, key=sp.count_ops, default=result)


def _is_infinite(read: sp.Expr, start: Reduction) -> sp.Basic:
    """Whether an extremum is what it started at."""
    reducer = start.reducer.plain
    return read < reducer.neutral if reducer.identity < 0 else read > reducer.neutral


def _count(reduction: Reduction, where: sp.Expr, steps: list[Component | Reference]) -> sp.Symbol:
    """The component that counts positions: one that is there already, or a new one."""
    known = (s for s in steps if isinstance(s, Component) and s.reducer == SUM and s.lift == where)
    if (same := next(known, None)) is not None:
        return same.symbol
    own = sum(isinstance(s, Component) and s.owner == reduction.result for s in steps)
    taken = {str(s.symbol) for s in steps}
    name = next(n for k in range(len(taken) + 1) if (n := f"{reduction.result}_{own + k}") not in taken)
    symbol = sp.Symbol(name, real=True)
    steps.append(Component(symbol, reduction.result, SUM, where, symbol))
    return symbol
