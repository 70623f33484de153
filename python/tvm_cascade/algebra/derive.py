"""The derivation: Cascade -> Fold, reduction by reduction, through the table of laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import sympy as sp

from tvm_cascade.algebra.cascade import Cascade, Reduction
from tvm_cascade.algebra.coincidence import folded_where_extreme
from tvm_cascade.algebra.constants import NamedConstants
from tvm_cascade.algebra.derivation import Derivation, Refused
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.gauge import Move
from tvm_cascade.algebra.laws import LAWS
from tvm_cascade.algebra.predicates import extremum_of_two_values, predicate_of, takes_two_values, truth_of_all
from tvm_cascade.algebra.prove import UndefinedError, UnverifiedError, prove
from tvm_cascade.algebra.quotients import taken_apart, where_real
from tvm_cascade.algebra.rounding import FORMATS
from tvm_cascade.algebra.starts import from_their_starts, plain
from tvm_cascade.algebra.tuple_law import tuple_law
from tvm_cascade.algebra.verdict import Reason, Refusal
from tvm_cascade.algebra.work import WORK, ExhaustedError, budget
from tvm_cascade.errors import InputError, OptionError

RESCALABLE_CASTS = ("float16", "bfloat16")

MOST_CASES = 8
"""Cases, by conditions on results, in which one element may be something else."""


def derive(
    cascade: Cascade,
    rescalable_casts: Sequence[str] = RESCALABLE_CASTS,
    move: str = Move.EXACT,
    meaning: Mapping[sp.Symbol, sp.Expr] | None = None,
    work: float = WORK,
) -> Fold | Refusal:
    """The fold of a cascade, proved; or the refusal that names the reduction, the expression and the law that fails.

    Parameters
    ----------
    cascade : reductions over one axis, in dependency order.
    rescalable_casts : dtypes whose rounding inside an element may happen at another scale.
    move : how running references move: "exact", "lazy" or "power_of_two" (see `gauge`).
    meaning : what is known of symbols, for the choice of references alone: N as a number, an element in terms of
        others. The fold holds whatever they are.
    work : operations that the derivation may spend (see `work`); the verdict is unknown where it needs more.

    Returns
    -------
    Fold or Refusal

    Raises
    ------
    InputError
        When it is given something else than a cascade.
    OptionError
        When a dtype, a move or the work is none of the above.
    FoldError
        When a derived fold fails a proof obligation, which is a defect of this package.

    Examples
    --------
    >>> import sympy as sp
    >>> from tvm_cascade import MAX, SUM, Cascade, Reduction, element, result
    >>> x, (m, t) = element("x"), result("m t")
    >>> fold = derive(Cascade([Reduction(m, MAX, x), Reduction(t, SUM, sp.exp(x - m))], [x]))
    >>> fold.components[1].shift
    t_0*exp(-Δc_m)
    """
    _check(cascade, rescalable_casts, move, work)
    with budget(work):
        return _derived(cascade, tuple(rescalable_casts), Move(move), meaning)


def _check(cascade: object, rescalable_casts: Sequence[str], move: str, work: float) -> None:
    if not isinstance(cascade, Cascade):
        hint = "tvm_cascade.Cascade([tvm_cascade.Reduction(…), …], elements); of a program, ask tvm_cascade.explain"
        raise InputError("a Cascade", type(cascade).__name__, "derive", hint)
    listed = isinstance(rescalable_casts, Sequence) and not isinstance(rescalable_casts, str)
    if not listed or not all(dtype in FORMATS for dtype in rescalable_casts):
        raise OptionError(f"dtypes among {', '.join(FORMATS)}", repr(rescalable_casts), "derive(rescalable_casts=…)")
    if move not in list(Move):
        raise OptionError(f"one of {', '.join(Move)}", repr(move), "derive(move=…)")
    if isinstance(work, bool) or not isinstance(work, (int, float)) or not work > 0:
        raise OptionError("a number above 0", repr(work), "derive(work=…)")


def _derived(
    cascade: Cascade,
    rescalable_casts: tuple[str, ...],
    move: Move,
    meaning: Mapping[sp.Symbol, sp.Expr] | None = None,
) -> Fold | Refusal:
    constants = NamedConstants()
    at = cascade.results[-1]
    try:
        started = plain(cascade)
        derivation = Derivation(constants.named(started), rescalable_casts, constants.values, move, meaning)
        for block in derivation.cascade.blocks:
            at = block[-1].result
            _take_in(derivation, block)
        at = cascade.results[-1]
        fold = from_their_starts(constants.numbered(derivation.fold(), started), cascade, meaning or {})
        prove(fold)
    except Refused as refused:
        return refused.refusal
    except ExhaustedError as exhausted:
        return Refusal(str(at), Reason("work_limit", str(exhausted)))
    except RecursionError:  # SymPy turns some comparisons of logarithms round for ever
        return Refusal(str(at), Reason("work_limit", "rewriting a comparison"))
    except UndefinedError as undefined:
        return Refusal(str(at), Reason("undefined", str(undefined)))
    except UnverifiedError as unverified:
        return Refusal(str(at), Reason("unverified", str(unverified)))
    return fold


def _take_in(derivation: Derivation, block: tuple[Reduction, ...]) -> None:
    """One more reduction, or one of tuples, by the law of its reducer."""
    if block[0].reducer.whole is not None:
        tuple_law(derivation, block)
        return
    (reduction,) = block
    derivation.finish[reduction.result] = _in_each_case(derivation, reduction, 1)
    derivation.note(reduction)


def _in_each_case(derivation: Derivation, reduction: Reduction, cases: int) -> sp.Expr:
    """The result, by the law of its reducer: that of each case where results decide between elements.

    `cases` is how many there are beside this one.
    """
    if (choice := derivation.choice_by_results(reduction)) is None:
        return _by_its_law(derivation, reduction)
    cases *= len(choice.args)
    if cases > MOST_CASES:
        raise derivation.refuse(reduction, "work_limit", reduction.element)
    branches = []
    for element, condition in choice.args:
        case = replace(reduction, element=reduction.element.xreplace({choice: element}))
        changes = case.element != reduction.reducer.neutral  # a sum of zeros needs no state
        branches.append((_in_each_case(derivation, case, cases) if changes else case.element, condition))
    return sp.Piecewise(*branches)


def _by_its_law(derivation: Derivation, reduction: Reduction) -> sp.Expr:
    if (predicate := predicate_of(reduction, derivation.elements)) is not None:
        return truth_of_all(derivation, reduction, predicate, _by_its_law)
    if (choice := derivation.choice_by_both(reduction)) is not None:
        if takes_two_values(reduction, choice, derivation.elements):
            return extremum_of_two_values(derivation, reduction, choice, _by_its_law)
        return folded_where_extreme(derivation, reduction, choice, _by_its_law)
    apart, quotients = taken_apart(reduction, derivation)
    held, used = derivation.take_in(apart)
    if used:
        total = LAWS[reduction.reducer.name](derivation, apart, held, used)
    else:
        total = derivation.component(reduction, reduction.reducer, held)
    return where_real(derivation, reduction, quotients, total)


@lru_cache(maxsize=256)
def remembered(
    cascade: Cascade, rescalable_casts: tuple[str, ...], move: str, meaning: tuple[tuple[sp.Symbol, sp.Expr], ...]
) -> Fold | Refusal:
    """`derive`, once for each cascade: a model asks for the same one in every layer, and a tuner at every size."""
    return derive(cascade, rescalable_casts, move, dict(meaning))
