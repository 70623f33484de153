"""Narrow floating-point formats as data, and rounding to them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """A narrow floating-point format.

    Attributes
    ----------
    bits : significant bits.
    smallest : exponent of the smallest subnormal number.
    largest : the largest number.
    overflow : what rounds beyond it.
    """

    bits: int
    smallest: int
    largest: float
    overflow: float


FORMATS: dict[str, Format] = {
    "float16": Format(11, -24, 65504.0, math.inf),
    "bfloat16": Format(8, -133, (2 - 2.0**-7) * 2.0**127, math.inf),
    "float8_e4m3fn": Format(4, -9, 448.0, math.nan),
    "float8_e5m2": Format(3, -16, 57344.0, math.inf),
}

WHOLE_NUMBERS: dict[str, tuple[str, Callable[[float], float]]] = {
    "round": ("the nearest whole number", round),
    "nearbyint": ("the nearest whole number", round),
    "floor": ("the whole number below", math.floor),
    "ceil": ("the whole number above", math.ceil),
    "trunc": ("the whole number towards zero", math.trunc),
}
"""Functions that round to whole numbers: what they round to, as a dtype is called, and how."""

_ROUNDINGS = dict(WHOLE_NUMBERS.values())

NARROW_RANGE = ("float16", "float8_e4m3fn", "float8_e5m2")
"""Dtypes whose exponent range is so small that rounding at another scale may overflow or lose digits."""


def round_to(value: float, dtype: str) -> float:
    """A number cast to a dtype, overflow left aside: to nearest even for floats, towards zero for integers.

    Or rounded to what `WHOLE_NUMBERS` calls otherwise.
    """
    if dtype not in FORMATS:
        return float(_ROUNDINGS.get(dtype, math.trunc)(value))
    kind = FORMATS[dtype]
    last = max(math.frexp(value)[1] - kind.bits, kind.smallest)
    return math.ldexp(round(math.ldexp(value, -last)), last)
