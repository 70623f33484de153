"""Values that leave every range on the way: more bits or nearer data tell of the fold, and a wrong one is caught."""

from __future__ import annotations

import dataclasses

import pytest

from campaigns.grammar import draw
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.errors import FoldError
from tvm_cascade.obligations.check import check
from tvm_cascade.obligations.derive import derive


@pytest.mark.parametrize("seed", [1003649, 1010387, 591, 2393])
def test_a_fold_that_goes_out_of_every_range_on_the_way_is_checked(seed: int) -> None:
    fold = derive(draw(seed).cascade())
    assert isinstance(fold, Fold)
    last = fold.cascade.results[-1]
    with pytest.raises(FoldError):
        check(dataclasses.replace(fold, finish={**fold.finish, last: 2 * fold.finish[last]}))


def test_an_exponential_of_exponentials_is_checked() -> None:
    fold = derive(draw(4000109).cascade())
    assert isinstance(fold, Fold), str(fold)
