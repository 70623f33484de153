"""Functions of one number as rows: which way they go, the values that they stay within, and where they are defined."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.symbolic.functions import PowerOfTwo, WholePower


@dataclass(frozen=True)
class Row:
    """What is known of a function of one number.

    Attributes
    ----------
    at : its value at a number, which bounds it where it rises, or is even.
    rises : it does, strictly, wherever it is defined.
    even : it falls below zero, and rises above.
    least, most : between which it stays.
    of_positive : it is defined at positive numbers alone.
    """

    at: Callable[[float], float] | None = None
    rises: bool = False
    even: bool = False
    least: float = -math.inf
    most: float = math.inf
    of_positive: bool = False


FUNCTIONS: dict[type[sp.Basic], Row] = {
    sp.exp: Row(math.exp, rises=True, least=0.0),
    sp.log: Row(math.log, rises=True, of_positive=True),
    sp.sinh: Row(math.sinh, rises=True),
    sp.tanh: Row(math.tanh, rises=True, least=-1.0, most=1.0),
    sp.atan: Row(math.atan, rises=True, least=-math.pi / 2, most=math.pi / 2),
    sp.cosh: Row(math.cosh, even=True, least=1.0),
    sp.Abs: Row(abs, even=True, least=0.0),
    sp.sin: Row(least=-1.0, most=1.0),
    sp.cos: Row(least=-1.0, most=1.0),
    sp.sign: Row(least=-1.0, most=1.0),
    WholePower: Row(least=0.0),
    PowerOfTwo: Row(),
}

RISING = tuple(function for function, row in FUNCTIONS.items() if row.rises)
"""Those that keep order."""

WAVES = (sp.sin, sp.cos)
"""Those that are bounded wherever their argument is moved to."""
