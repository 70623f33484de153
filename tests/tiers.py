"""Which parameters of a test run by default: one of each path, the others where slow tests are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(quick: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Parameters of which all but the quick ones are marked slow; a quick one that there is not is an error.

    A tuple holds the values of several parameters.
    """
    quick, values = list(quick), list(values)
    missing = [value for value in quick if value not in values]
    if missing:
        raise ValueError(f"quick parameters {missing} are none of {values}")
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [
        pytest.param(*row, marks=() if value in quick else pytest.mark.slow)
        for row, value in zip(rows, values, strict=True)
    ]


def quick_but(slow: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Parameters of which these are marked slow, and all others are quick; a slow one that there is not is an error."""
    slow, values = list(slow), list(values)
    missing = [value for value in slow if value not in values]
    if missing:
        raise ValueError(f"slow parameters {missing} are none of {values}")
    return slow_but([value for value in values if value not in slow], values)
