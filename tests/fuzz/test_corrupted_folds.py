"""Fuzz of the checker itself: every corruption of every golden fold is caught, and every obligation catches some."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tvm_cascade.algebra.fold import Fold
from tvm_cascade.errors import FoldError
from tvm_cascade.proof.prove import OBLIGATIONS, UndefinedError, UnverifiedError, prove

from ..algebra.cascades import FUSABLE, fold_of
from .corruptions import CORRUPTIONS


def catcher(fold: Fold) -> str:
    """The obligation that a fold fails; empty where it passes them all."""
    try:
        prove(fold)
    except FoldError as caught:
        return caught.expected.split(":")[0]
    except (ArithmeticError, ValueError, TypeError, UndefinedError, UnverifiedError) as singular:
        return f"no value: {type(singular).__name__}"
    return ""


@cache
def catchers(corruption: str) -> Counter[str]:
    return Counter(catcher(bad) for name in FUSABLE for bad in CORRUPTIONS[corruption](fold_of(name)))


@pytest.mark.slow
@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_a_corrupted_fold_is_caught(corruption: str) -> None:
    found = catchers(corruption)
    assert sum(found.values()) >= 5, "the corruption applies to hardly any fold"
    assert not found[""], found


@pytest.mark.slow
def test_every_obligation_is_the_catcher_of_some_corruption() -> None:
    every = sum((catchers(corruption) for corruption in CORRUPTIONS), Counter())
    assert set(OBLIGATIONS) <= set(every), every
