"""Fuzz of the checker itself: every corruption of every golden fold is caught by the obligation that it breaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from tvm_cascade.algebra.fold import Fold
from tvm_cascade.errors import FoldError
from tvm_cascade.obligations.check import OBLIGATIONS, UnverifiedError, check

from ..algebra.cascades import FUSABLE, fold_of
from .corruptions import CORRUPTIONS

SOME = ("variance", "softmax", "softmax_times_values", "cosine", "most_probable")
NO_VALUE = "no value"
"""Of folds that compute no number wherever they are tried, as 0/0 where a norm was dropped: none is accepted."""


def catcher(fold: Fold) -> str:
    """The obligation that a fold fails; empty where it passes them all. Whatever else is raised is an error."""
    try:
        check(fold)
    except FoldError as caught:
        return caught.expected.split(":")[0]
    except UnverifiedError:
        return NO_VALUE
    return ""


def catchers(corruption: str, names: Iterable[str]) -> Counter[str]:
    corrupt, _ = CORRUPTIONS[corruption]
    return Counter(catcher(bad) for name in names for bad in corrupt(fold_of(name)))


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_corrupted_folds_of_a_few_kinds_are_caught(corruption: str) -> None:
    found = catchers(corruption, SOME)
    assert CORRUPTIONS[corruption][1] & set(found) and set(found) <= {*OBLIGATIONS, NO_VALUE}, found


@pytest.mark.slow
@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_a_corrupted_fold_is_caught_by_the_obligation_that_it_breaks(corruption: str) -> None:
    found = catchers(corruption, FUSABLE)
    assert sum(found.values()) >= 5, "the corruption applies to hardly any fold"
    assert CORRUPTIONS[corruption][1] <= set(found) <= {*OBLIGATIONS, NO_VALUE}, found
    assert found[NO_VALUE] <= sum(found.values()) / 8, found


def test_every_obligation_catches_some_corruption_and_there_is_no_other_catcher() -> None:
    assert set.union(*(obligations for _, obligations in CORRUPTIONS.values())) == OBLIGATIONS.keys()
