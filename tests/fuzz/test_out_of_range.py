"""Values that leave every range on the way: more digits or nearer data prove the fold, and a wrong one is caught."""

from __future__ import annotations

import dataclasses

import pytest

from campaigns.grammar import draw
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.errors import FoldError
from tvm_cascade.obligations.check import check
from tvm_cascade.obligations.derive import derive


@pytest.mark.parametrize("seed", [1003649, 1010387])
def test_a_fold_that_loses_sixty_digits_is_proved_at_more(seed: int) -> None:
    fold = derive(draw(seed).cascade())
    assert isinstance(fold, Fold)
    last = fold.cascade.results[-1]
    with pytest.raises(FoldError):
        check(dataclasses.replace(fold, finish={**fold.finish, last: 2 * fold.finish[last]}))


def test_an_exponential_of_exponentials_is_undefined_rather_than_an_error() -> None:
    outcome = derive(draw(4000109).cascade())
    assert not isinstance(outcome, Fold) and outcome.reason.code == "undefined"
