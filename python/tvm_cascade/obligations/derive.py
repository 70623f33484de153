"""`tvm_cascade.derive`: the fold of a cascade, derived by the algebra and checked against the cascade's definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import sympy as sp

from tvm_cascade.algebra.cascade import Cascade
from tvm_cascade.algebra.derive import derived
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.policy import Move
from tvm_cascade.algebra.verdict import Reason, Refusal
from tvm_cascade.errors import InputError, OptionError
from tvm_cascade.obligations.check import UndefinedError, UnverifiedError, check
from tvm_cascade.obligations.refutation import refutation
from tvm_cascade.symbolic.rounding import FORMATS
from tvm_cascade.symbolic.work import WORK, ExhaustedError, budget

RESCALABLE_CASTS = ("float16", "bfloat16")


def derive(
    cascade: Cascade,
    rescalable_casts: Sequence[str] = RESCALABLE_CASTS,
    move: str = Move.EXACT,
    meaning: Mapping[sp.Symbol, sp.Expr] | None = None,
    work: float = WORK,
) -> Fold | Refusal:
    """The fold of a cascade, checked; or the refusal that names the reduction, the expression and the law that fails.

    Parameters
    ----------
    cascade : reductions over one axis, in dependency order.
    rescalable_casts : dtypes whose rounding inside an element may happen at another scale.
    move : how running references move: "exact", "lazy" or "power_of_two" (see `policy`).
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
        When a derived fold fails an obligation, which is a defect of this package.

    Examples
    --------
    >>> import sympy as sp
    >>> from tvm_cascade import MAX, SUM, Cascade, Reduction, element, result
    >>> x, (m, t) = element("x"), result("m t")
    >>> fold = derive(Cascade([Reduction(m, MAX, x), Reduction(t, SUM, sp.exp(x - m))], [x]))
    >>> fold.components[1].shift
    t_0*exp(-Δc_m)
    """
    _validate(cascade, rescalable_casts, move, work)
    with budget(work):
        found = derived(cascade, rescalable_casts, Move(move), meaning or {}, refutation)
        return _checked(found) if isinstance(found, Fold) else found


def _validate(cascade: object, rescalable_casts: Sequence[str], move: str, work: float) -> None:
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


def _checked(fold: Fold) -> Fold | Refusal:
    last = str(fold.cascade.results[-1])
    try:
        check(fold)
    except ExhaustedError as exhausted:
        return Refusal(last, Reason("work_limit", str(exhausted)))
    except RecursionError:  # SymPy turns some comparisons of logarithms round for ever
        return Refusal(last, Reason("work_limit", "rewriting a comparison"))
    except UndefinedError as undefined:
        return Refusal(last, Reason("undefined", str(undefined)))
    except UnverifiedError as unverified:
        return Refusal(last, Reason("unverified", str(unverified)))
    return fold


@lru_cache(maxsize=256)
def remembered(
    cascade: Cascade, rescalable_casts: tuple[str, ...], move: str, meaning: tuple[tuple[sp.Symbol, sp.Expr], ...]
) -> Fold | Refusal:
    """`derive`, once for each cascade: a model asks for the same one in every layer, and a tuner at every size."""
    return derive(cascade, rescalable_casts, move, dict(meaning))
