"""The one question that laws ask of refutations: numbers on which the law behind a code fails.

| code                                  | what is shown                                                             |
|---------------------------------------|---------------------------------------------------------------------------|
| infinite_rank, prod_dependence        | values at which F(x, d) (log F of a product) has a rank above RANK_LIMIT   |
| not_monotone                          | positions each of which alone decides the result at some d                |
| rounding, rounding_rank               | an element that rounds to another value at another scale                  |
| rounding_range                        | one that leaves its dtype's range at the scale of a part                  |

Numbers are found by random search: that none are found says nothing. What is shown is checked exactly, or at many
digits, where it is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sympy as sp

from tvm_cascade.algebra.counterexample import Counterexample
from tvm_cascade.algebra.question import Question
from tvm_cascade.algebra.reducer import MAX, MIN, PROD
from tvm_cascade.algebra.refute.asked import Asked
from tvm_cascade.algebra.refute.crossings import envelope_at_crossings, rank_at_crossings
from tvm_cascade.algebra.refute.envelope import envelope
from tvm_cascade.algebra.refute.rank import full_rank
from tvm_cascade.algebra.refute.roundings import leaves_range_in_part, rounds_elsewhere
from tvm_cascade.algebra.refute.shown import deciding_positions, rank_of
from tvm_cascade.algebra.refute.tangents import envelope_at_tangents
from tvm_cascade.symbolic.separate import RANK_LIMIT, strip_rounding

_SIZE = RANK_LIMIT + 1
"""Of what no state of `RANK_LIMIT` components determines."""


def refutation(code: str, question: Question) -> Counterexample | None:
    """Numbers on which the law behind a code fails; None where it has none of this kind, or none were found."""
    find = _SEARCHES.get(code)
    return None if find is None else find(Asked(**vars(question)))


def _rank_grows(question: Asked) -> Counterexample | None:
    """Values at which the matrix of the element, or of a factor's logarithm, exceeds the rank limit."""
    whole = question.over_results
    if question.reducer is PROD:
        found = full_rank(sp.log(sp.Abs(strip_rounding(whole))), question.earlier, _SIZE)
    else:
        found = rank_at_crossings(whole, question.earlier, _SIZE)
        found = found or full_rank(strip_rounding(whole), question.earlier, _SIZE)
    return None if found is None else rank_of(found, question)


def _positions_decide(question: Asked) -> Counterexample | None:
    """Positions each of which is the only extremum at some results, or is selected there."""
    whole, reducer = question.reducer.whole, question.reducer
    selection = None if whole is None else whole.selection
    if selection is not None:
        reducer = MAX if selection.largest else MIN
    if not reducer.ordered:
        return None
    asked = (question.over_results, reducer, question.earlier, _SIZE)
    ties = selection is not None and selection.lower
    found = envelope_at_crossings(*asked, ties) if question.where == sp.true else None
    found = found or envelope(*asked, question.where) or envelope_at_tangents(*asked, question.where)
    return None if found is None else deciding_positions(found, question)


_SEARCHES: Mapping[str, Callable[[Asked], Counterexample | None]] = {
    "infinite_rank": _rank_grows,
    "prod_dependence": _rank_grows,
    "not_monotone": _positions_decide,
    "rounding": rounds_elsewhere,
    "rounding_rank": rounds_elsewhere,
    "rounding_range": leaves_range_in_part,
}
