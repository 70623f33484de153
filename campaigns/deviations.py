"""Cases whose elements are small where the data are near each other: differences, ratios, deviations and divergences.

    d0 = Σ x;  d1 = Σ w·(exp(x − d0/N) − (x − d0/N) − 1)

Each is zero where all data are equal, while its terms are not: what a fold loses beside the program is digits of these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from campaigns.case import Case, Step
from campaigns.term import LENGTH_TERM, Term, apply

Form = Callable[[Term], Term]
Choice = TypeVar("Choice")


def _input(name: str) -> Term:
    return Term("input", leaf=name)


def _exp(a: Term) -> Term:
    return apply("exp", a)


def _log(a: Term) -> Term:
    return apply("log", a)


def _square(a: Term) -> Term:
    return apply("square", a)


# What is compared, positive or not, and where all of it is.
REAL = (_input("x"), _input("x") * 0.5, _input("x") + _input("w"), _input("x") * _input("r"), _input("y"))
POSITIVE = (_input("r"), _exp(_input("x") * 0.25), _input("r") * _input("g"), 1.0 + _square(_input("x")))
LOCATIONS: tuple[tuple[str, Form], ...] = (
    *(("sum", lambda d: d / LENGTH_TERM),) * 3,
    *(("max", lambda d: d),) * 2,
    ("min", lambda d: d),
)

# Of a difference d, zero at 0.
DIFFERENCES: tuple[Form, ...] = (
    lambda d: _exp(d) - d - 1.0,
    lambda d: _exp(d) - 1.0 - d,
    lambda d: _exp(d) - 1.0,
    lambda d: _square(_exp(d) - 1.0),
    lambda d: (_exp(d) - 1.0) * d,
    lambda d: _exp(d) * d - _exp(d) + 1.0,
    lambda d: _exp(d) + _exp(0.0 - d) - 2.0,
    lambda d: _exp(d * 0.5) - _exp(0.0 - d * 0.5),
    lambda d: 1.0 - apply("cosine", d),
    lambda d: _square(apply("sine", d)),
    lambda d: d * apply("sine", d),
    lambda d: _exp(d) * _square(d),
    lambda d: _exp(d) - 1.0 - d - _square(d) * 0.5,
    lambda d: _square(d) * (1.0 + d),
    lambda d: apply("cube", d),
    lambda d: apply("absolute", d),
)

# Of a ratio z, zero at 1.
RATIOS: tuple[Form, ...] = (
    lambda z: z - 1.0,
    lambda z: 1.0 - z,
    lambda z: _square(z - 1.0),
    lambda z: _square(1.0 - z),
    lambda z: z - 1.0 - _log(z),
    lambda z: z * _log(z) - z + 1.0,
    lambda z: z * _log(z),
    lambda z: _log(z),
    lambda z: _square(_log(z)),
    lambda z: (z - 1.0) * _log(z),
    lambda z: _square(apply("sqrt", z) - 1.0),
    lambda z: apply("sqrt", z) - 1.0,
    lambda z: z + 1.0 / z - 2.0,
    lambda z: _square(z) - 1.0 - _log(_square(z)),
    lambda z: apply("cube", z - 1.0),
    lambda z: apply("absolute", z - 1.0),
)

# Of a share p of N, zero at 1/N.
SHARES: tuple[Form, ...] = (
    lambda p: _square(p * LENGTH_TERM - 1.0),
    lambda p: _square(p - 1.0 / LENGTH_TERM),
    lambda p: p * _log(p * LENGTH_TERM),
    lambda p: p * LENGTH_TERM - 1.0 - _log(p * LENGTH_TERM),
)

FACTORS: tuple[Form, ...] = (
    *(lambda f: f,) * 6,
    lambda f: f * _input("w"),
    lambda f: _input("g") * f,
    lambda f: apply("guarded", _input("keep"), f),
    lambda f: f + _input("y") * 0.001,
)
ROWS, LENGTHS = (7, 33, 67), (13, 37, 64, 131, 257)
TILES, SEGMENTS, LANES = (1, 4, 8, 16, 64, None), (1, 1, 1, 2, 3), (1, 4, None)
DTYPES = ("float32",) * 8 + ("float64",)
DATA = ("nearly_equal",) * 10 + ("normal", "rising", "falling")


def draw_deviation(seed: int) -> Case:
    """The case of a seed, the same for ever as long as the tables are."""
    source = random.Random(seed)
    steps = _steps(source)
    return Case(
        seed=seed,
        steps=tuple(steps),
        rows=(source.choice(ROWS),),
        length=source.choice(LENGTHS),
        free=1,
        dtype=source.choice(DTYPES),
        tile=source.choice(TILES),
        segments=source.choice(SEGMENTS),
        lanes=source.choice(LANES),
        asked=tuple(k == len(steps) - 1 or source.random() < 0.3 for k in range(len(steps))),
        staged=(),
        inputs=source.choice(DATA),
        patterned=("x", "y", "r"),
    )


def _steps(source: random.Random) -> list[Step]:
    kind = source.choice((_difference, _difference, _ratio, _ratio, _share, _two))
    return kind(source)


def _pick(source: random.Random, table: Sequence[Choice]) -> Choice:
    return table[source.randrange(len(table))]


def _located(source: random.Random, elements: Sequence[Term], at: int) -> tuple[Step, Term, Term]:
    """A reduction, its element, and the location that its result is."""
    element, (reducer, location) = _pick(source, elements), _pick(source, LOCATIONS)
    return Step(reducer, element, "real"), element, location(Term("result", leaf=at))


def _total(source: random.Random, form: Term) -> Step:
    return Step("sum", _pick(source, FACTORS)(form), "real")


def _difference(source: random.Random) -> list[Step]:
    step, element, location = _located(source, REAL, 0)
    return [step, _total(source, _pick(source, DIFFERENCES)(element - location))]


def _ratio(source: random.Random) -> list[Step]:
    step, element, location = _located(source, POSITIVE, 0)
    return [step, _total(source, _pick(source, RATIOS)(element / location))]


def _share(source: random.Random) -> list[Step]:
    element = _pick(source, REAL)
    exponential = _exp(element - Term("result", leaf=0))
    steps = [Step("max", element, "real"), Step("sum", exponential, "positive")]
    return [*steps, _total(source, _pick(source, SHARES)(exponential / Term("result", leaf=1)))]


def _two(source: random.Random) -> list[Step]:
    """The product of two deviations, from locations of different data or of the same."""
    first, element, location = _located(source, REAL, 0)
    second, other, place = _located(source, REAL, 1)
    product = _pick(source, DIFFERENCES[:8])(element - location) * (other - place)
    return [first, second, _total(source, product)]
