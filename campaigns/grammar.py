"""The fuzz grammar: productions as data, and drawing a case from a seed.

A production is a function of slots, named by their first letter:

    e  a real part of the element that reads no result        d  a real quantity built from earlier results
    p  a positive one                                         s  a positive one
    c  a condition on the position                            f  another element that may read earlier results
    k  an element and its extremum; any element and quantity where there is none

Some elements are lawful, some are not; the grammar does not know which.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from campaigns.case import INPUTS, Case, Step
from campaigns.deviations import draw_deviation
from campaigns.term import LENGTH_TERM, Term, apply, as_term
from tvm_cascade.algebra.reducer import REDUCERS

Key = TypeVar("Key")


@dataclass(frozen=True)
class Production:
    """A rule.

    Attributes
    ----------
    build : the term from its slots; parameters name the slots.
    weight : how often it is drawn.
    sort : of what it builds.
    """

    build: Callable[..., Term]
    weight: float = 1.0
    sort: str = "real"

    @property
    def slots(self) -> list[str]:
        """The first letter of each slot."""
        return [name[0] for name in inspect.signature(self.build).parameters]


def _exp(a: Term) -> Term:
    return apply("exp", a)


# Parts of an element that read no earlier result.
ELEMENT_PARTS: dict[str, tuple[Production, ...]] = {
    "e": (
        Production(lambda e: e * 0.5, 2),
        Production(lambda e: e * 0.125, 1),
        Production(lambda e: e * 1.4426950408889634, 0.3),
        Production(lambda e: 0.0 - e, 0.5),
        Production(lambda e, e2: e + e2, 1),
        Production(lambda e, e2: e - e2, 0.5),
        Production(lambda e, e2: e * e2, 1),
        Production(lambda e, p: e / p, 0.5),
        Production(lambda e, p: e * p, 0.5),
        Production(lambda e: apply("absolute", e), 0.5),
        Production(lambda e: apply("square", e), 0.5),
        Production(lambda p: apply("log", p), 0.5),
        Production(lambda p: p, 0.5),
        Production(lambda e: apply("sine", e), 0.3),
        Production(lambda e: apply("tanh", e), 0.3),
        Production(lambda e: apply("rounded", e), 0.3),
        Production(lambda e, e2: apply("larger", e, e2), 0.3),
        Production(lambda e, e2: apply("smaller", e, e2), 0.2),
        Production(lambda c, e, e2: apply("select", c, e, e2), 0.7),
        Production(lambda c, e: apply("guarded", c, e), 0.5),
        Production(lambda c, e: apply("select", c, e, -10000.0), 0.3),
    ),
    "p": (
        Production(lambda e: _exp(e * 0.25), 1),
        Production(lambda p: apply("sqrt", p), 1),
        Production(lambda p: 1.0 / p, 0.7),
        Production(lambda p, p2: p * p2, 0.7),
        Production(lambda e: 1.0 + apply("square", e), 0.7),
        Production(lambda e: 0.5 + apply("absolute", e), 0.5),
        Production(lambda c, p, p2: apply("select", c, p, p2), 0.3),
    ),
    "c": (Production(lambda c: apply("not", c), 1),),
}

# Quantities built from earlier results.
QUANTITIES: dict[str, tuple[Production, ...]] = {
    "d": (
        Production(lambda d: d / LENGTH_TERM, 3),
        Production(lambda d: d * 0.5, 1),
        Production(lambda d: 0.0 - d, 0.5),
        Production(lambda d: d + 1.0, 0.5),
        Production(lambda d, d2: d + d2, 1),
        Production(lambda d, d2: d - d2, 0.5),
        Production(lambda d, d2: d * d2, 0.5),
        Production(lambda d, s: d / s, 1.5),
        Production(lambda s: apply("log", s), 1),
        Production(lambda d, s: d + apply("log", s), 1),
        Production(lambda s: s, 0.5),
        Production(lambda d: apply("absolute", d), 0.3),
        Production(lambda d, d2: apply("larger", d, d2), 0.3),
        Production(lambda d: apply("square", d), 0.3),
        Production(lambda d: apply("sine", d), 0.2),
    ),
    "s": (
        Production(lambda s: s / LENGTH_TERM, 2),
        Production(lambda s: s + 0.001, 0.5),
        Production(lambda s: apply("sqrt", s), 1),
        Production(lambda s: apply("rsqrt", s), 0.5),
        Production(lambda s, s2: s * s2, 0.5),
        Production(lambda d: 1.0 + apply("square", d), 1),
        Production(lambda d: 0.5 + apply("absolute", d), 1),
        Production(lambda d: apply("larger", d, 1.0), 0.5),
        Production(lambda d: _exp(0.0 - apply("absolute", d)), 0.3),
    ),
}

# Elements that read earlier results.
FORMS: tuple[Production, ...] = (
    Production(lambda e, d: e - d, 3),
    Production(lambda e, d: e * d, 2),
    Production(lambda e, s: e * s, 1),
    Production(lambda e, s: e / s, 3),
    Production(lambda p, s: p / s, 2, "positive"),
    Production(lambda p, s: p * s, 1, "positive"),
    Production(lambda e, d, s: (e - d) / s, 2),
    Production(lambda e, d: _exp(e - d), 5, "positive"),
    Production(lambda e, d: _exp((e - d) * 0.125), 2, "positive"),
    Production(lambda e, d: _exp((e - d) * 1.4426950408889634), 0.5, "positive"),
    Production(lambda e, d, s: _exp(e - d) / s, 3, "positive"),
    Production(lambda e, d, e2: _exp(e - d) * e2, 2),
    Production(lambda e, d, s, e2: _exp(e - d) / s * e2, 3),
    Production(lambda e, d, s, e2, d2: _exp(e - d) / s * apply("square", e2 - d2), 1),
    Production(lambda e, d: _exp(e - d) * (e - d), 1),
    Production(lambda e, d: apply("square", e - d), 3),
    Production(lambda e, d, p: p * apply("square", e - d), 1),
    Production(lambda e, d, e2, d2: (e - d) * (e2 - d2), 1.5),
    Production(lambda e, d: apply("cube", e - d), 0.7),
    Production(lambda e, d: apply("fourth", e - d), 0.3, "real"),
    Production(lambda e, d, s: apply("square", (e - d) / s), 1),
    Production(lambda e, d: apply("absolute", e - d), 1.5),
    Production(lambda e, d: apply("cosine", e - d), 0.3),
    Production(lambda e, d: apply("larger", e, d), 0.5),
    Production(lambda e, d: e * d + apply("square", d), 0.5),
    Production(lambda c, f: apply("guarded", c, f), 2),
    Production(lambda c, f, e: apply("select", c, f, e), 1),
    Production(lambda f, e: f * e, 1),
    Production(lambda f, e: f + e, 1),
    Production(lambda f, f2: f + f2, 0.5),
    Production(lambda f, d: f * d, 0.5),
    Production(lambda f, f2: f * f2, 0.3),
    Production(lambda f: apply("rounded", f), 0.5),
    Production(lambda f: f * 0.5, 0.5),
    # Mostly no folds.
    Production(lambda e, d: apply("tanh", e - d), 0.5),
    Production(lambda e, d: apply("sigmoid", e - d), 0.4, "positive"),
    Production(lambda e, s: _exp(e / s), 0.4, "positive"),
    Production(lambda e, d: apply("log", 1.0 + _exp(e - d)), 0.3, "positive"),
    Production(lambda p, s: apply("sqrt", p + s), 0.3, "positive"),
    Production(lambda p, s: 1.0 / (p + s), 0.3, "positive"),
    Production(lambda e, d: _exp(0.0 - apply("square", e - d)), 0.3, "positive"),
)

# Elements that are compared with earlier results.
COMPARISONS: tuple[Production, ...] = (
    Production(lambda k, e: apply("at_least", *k, e, 0.0), 2),
    Production(lambda k, e: apply("at_most", *k, e, 0.0), 2),
    Production(lambda k: apply("at_least", *k, 1.0, 0.0), 1),
    Production(lambda k, f: apply("at_least", *k, f, 0.0), 1),
    Production(lambda k, e, f: apply("at_most", *k, e, f), 1),
    Production(lambda e, d: apply("above", e, d), 2, "truth"),
    Production(lambda d, e: apply("above", d, e), 1, "truth"),
    Production(lambda f, d: apply("above", f, d), 1, "truth"),
    # No folds.
    Production(lambda e, d, e2: apply("at_least", e, d, e2, 0.0), 0.5),
)
COMPARISONS_FROM = 80_000_000
"""Smaller seeds draw none of them, so that they stay the cases that findings were made with."""

SELECTIONS_FROM = 1_000_000_000
"""Smaller seeds draw no selections, for the same reason; the clock's seconds are larger."""

DEVIATIONS_FROM = 10_000_000_000
"""Larger seeds are cases of `deviations`."""

SELECTION_ODDS = 0.12
RANKS = {1: 4, 2: 2, 3: 1}

REDUCER_WEIGHTS: dict[str, dict[str, float]] = {
    "real": {"sum": 6, "max": 2, "min": 1},
    "positive": {"sum": 7, "max": 2, "min": 1, "prod": 1},
    "truth": {"and": 1, "or": 1},
}
DEPTH_WEIGHTS = {1: 1, 2: 6, 3: 6, 4: 4, 5: 2, 6: 1, 7: 0.6, 8: 0.6}
TILES = (1, 2, 4, 8, 16, 64, None)
LANES = (1, 4, None)
SEGMENTS = {1: 5, 2: 2, 3: 1, 5: 1}
DTYPES = {"float32": 16, "float64": 3, "float16": 2}
ROWS = ((), (1,), (3,), (5,), (2, 3))
DATA = {
    "normal": 8,
    "ties": 1,
    "rising": 1,
    "falling": 1,
    "late_spike": 0.5,
    "large_offset": 0.5,
    "alternating_sign": 0.3,
    "zeros": 0.5,
}
_LEAF_ODDS = 0.6
_DEEPEST = 3


def draw(seed: int) -> Case:
    """The case of a seed, the same for ever as long as the tables are."""
    return draw_deviation(seed) if seed >= DEVIATIONS_FROM else _Draw(seed).case()


class _Draw:
    def __init__(self, seed: int) -> None:
        self.seed, self.source = seed, random.Random(seed)
        self.steps: list[Step] = []
        self.inputs = self._some_inputs()
        self.forms = FORMS + (COMPARISONS if seed >= COMPARISONS_FROM else ())

    def case(self) -> Case:
        depth = self._weighted(DEPTH_WEIGHTS)
        while len(self.steps) < depth:
            self.steps.append(self._step())
        source = self.source
        tile = source.choice(TILES)
        block = tile or 8
        lengths = sorted({1, block - 1, block, block + 1, 2 * block + 1, 13, 37} - {0})
        return Case(
            seed=self.seed,
            steps=tuple(self.steps),
            rows=source.choice(ROWS),
            length=source.choice(lengths),
            free=source.choice((1, 3, 8)),
            dtype=self._weighted(DTYPES),
            tile=tile,
            segments=self._weighted(SEGMENTS),
            lanes=source.choice(LANES),
            asked=tuple(k == depth - 1 or source.random() < 0.3 for k in range(depth)),
            staged=tuple(k for k in range(depth) if source.random() < 0.25),
            inputs=self._weighted(DATA),
        )

    def _weighted(self, table: Mapping[Key, float]) -> Key:
        return self.source.choices(list(table), list(table.values()))[0]

    def _some_inputs(self) -> dict[str, list[str]]:
        """Few inputs, so that parts of different elements meet: each is in with a chance, x always."""
        chosen = [name for name in INPUTS if name == "x" or self.source.random() < 0.4]
        by_sort = {"e": "real", "p": "positive", "c": "truth"}
        varying = [name for name in INPUTS if "axis" in INPUTS[name].axes]
        table = {slot: [n for n in chosen if INPUTS[n].sort == sort and n in varying] for slot, sort in by_sort.items()}
        for slot, name in (("p", "r"), ("c", "keep")):
            table[slot] = table[slot] or [name]
        table["t"] = [n for n in chosen if n not in varying]
        return table

    def _step(self) -> Step:
        source = self.source
        kinds = ["plain", "reading"] if self.steps else ["plain"]
        kind = source.choices(kinds, [1, 5][: len(kinds)])[0]
        if kind == "plain" and source.random() < 0.1:
            element, sort = self._part("c", 0), "truth"
        elif kind == "plain":
            slot, sort = source.choice((("e", "real"), ("e", "real"), ("p", "positive")))
            element = self._part(slot, 0)
        else:
            element, sort = self._form(0)
        if self.seed >= SELECTIONS_FROM and sort != "truth" and source.random() < SELECTION_ODDS:
            return Step(source.choice(("max", "min")), element, sort, self._weighted(RANKS))
        return Step(self._weighted(REDUCER_WEIGHTS[sort]), element, sort)

    def _form(self, depth: int) -> tuple[Term, str]:
        allowed = [form for form in self.forms if depth < 2 or "f" not in form.slots]
        allowed = [form for form in allowed if depth == 0 or form.sort != "truth"]
        form = self.source.choices(allowed, [f.weight for f in allowed])[0]
        return form.build(*(self._slot(slot, depth + 1) for slot in form.slots)), form.sort

    def _slot(self, slot: str, depth: int) -> Term | tuple[Term, Term]:
        if slot == "k":
            return self._extremum()
        if slot == "f":
            return self._form(depth)[0]
        return self._part(slot, 0) if slot in ELEMENT_PARTS else self._quantity(slot, 0)

    def _extremum(self) -> tuple[Term, Term]:
        extrema = [k for k, step in enumerate(self.steps) if REDUCERS[step.reducer].ordered]
        if not extrema:
            return self._part("e", 0), self._quantity("d", 0)
        chosen = self.source.choice(extrema)
        return self.steps[chosen].element, Term("result", leaf=chosen)

    def _part(self, slot: str, depth: int) -> Term:
        if depth >= _DEEPEST or self.source.random() < _LEAF_ODDS:
            return Term("input", leaf=self.source.choice(self.inputs[slot]))
        return self._produced(ELEMENT_PARTS[slot], depth, self._part)

    def _quantity(self, slot: str, depth: int) -> Term:
        sorts = {"d": ("real", "positive"), "s": ("positive",)}[slot]
        results = [k for k, step in enumerate(self.steps) if step.sort in sorts]
        if depth >= _DEEPEST or self.source.random() < _LEAF_ODDS:
            if results:
                # Recent results more often: chains rather than stars.
                return Term("result", leaf=self.source.choices(results, [1 + k for k in results])[0])
            parameters = self.inputs["t"]
            if depth >= _DEEPEST:
                return Term("input", leaf=parameters[0]) if parameters and slot == "s" else as_term(1.0)
        return self._produced(QUANTITIES[slot], depth, self._quantity)

    def _produced(self, table: Sequence[Production], depth: int, fill: Callable[[str, int], Term]) -> Term:
        rule = self.source.choices(table, [p.weight for p in table])[0]
        return rule.build(*(fill(slot, depth + 1) for slot in rule.slots))
