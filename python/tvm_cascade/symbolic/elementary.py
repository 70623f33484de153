"""Elementary functions of one number, a row each: all that the algebra, its readers and its printers know of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.symbolic.functions import PowerOfTwo, WholePower


@dataclass(frozen=True)
class Elementary:
    """What is known of a function of one number.

    Attributes
    ----------
    name : of TVM's operator; empty where programs have none.
    at : its value at a number, which bounds it where it rises, or is even.
    rises : it does, strictly, wherever it is defined.
    even : it falls below zero, and rises above.
    least, most : between which it stays.
    of_positive : it is defined at positive numbers alone.
    is_wave : it stays between bounds wherever its argument is moved to.
    has_addition : of a sum, it is a sum of products of functions of each term.
    is_cheap : its value is computed again rather than kept.
    """

    name: str = ""
    at: Callable[[float], float] | None = None
    rises: bool = False
    even: bool = False
    least: float = -math.inf
    most: float = math.inf
    of_positive: bool = False
    is_wave: bool = False
    has_addition: bool = False
    is_cheap: bool = False


ELEMENTARY: dict[type[sp.Basic], Elementary] = {
    sp.exp: Elementary("exp", math.exp, rises=True, least=0.0),
    sp.log: Elementary("log", math.log, rises=True, of_positive=True),
    sp.sinh: Elementary("sinh", math.sinh, rises=True, has_addition=True),
    sp.cosh: Elementary("cosh", math.cosh, even=True, least=1.0, has_addition=True),
    sp.tanh: Elementary("tanh", math.tanh, rises=True, least=-1.0, most=1.0),
    sp.atan: Elementary("atan", math.atan, rises=True, least=-math.pi / 2, most=math.pi / 2),
    sp.sin: Elementary("sin", least=-1.0, most=1.0, is_wave=True, has_addition=True),
    sp.cos: Elementary("cos", least=-1.0, most=1.0, is_wave=True, has_addition=True),
    sp.tan: Elementary("tan"),
    sp.Abs: Elementary("abs", abs, even=True, least=0.0, is_cheap=True),
    sp.sign: Elementary(least=-1.0, most=1.0),
    WholePower: Elementary(least=0.0),
    PowerOfTwo: Elementary(),
}

RISING = tuple(function for function, row in ELEMENTARY.items() if row.rises)
"""Those that keep order."""

WAVES = tuple(function for function, row in ELEMENTARY.items() if row.is_wave)
"""Those that are bounded wherever their argument is moved to."""

SEPARABLE = tuple(function for function, row in ELEMENTARY.items() if row.has_addition)
"""Those with an addition theorem; the exponential's is a law of powers."""

NAMED = {row.name: function for function, row in ELEMENTARY.items() if row.name}
"""Those that programs have, by the name of TVM's operator."""

COSTLY = tuple(function for function in NAMED.values() if not ELEMENTARY[function].is_cheap)
"""Those of programs whose values are kept rather than computed again."""
