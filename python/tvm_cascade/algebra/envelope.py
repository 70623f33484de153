"""The proof that max or min over an element keeps no finite state: its envelope has as many pieces as one likes.

Let ⊕ be max, and let x_1, …, x_n and u_1, …, u_n be such that F(x_k, u_k) > F(x_i, u_k) for all i ≠ k. Each x_k then
decides the result at its own u_k, so the state must remember all n of them. A monotone map allows n = 1, a convex one
n = 2; what allows more than any limit has no finite state.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.reducer import MAX, Reducer

CANDIDATES = 800
"""Positions to choose from for each further piece."""

POINTS = 30
"""Values of the handles at which they are looked for."""

POSITIONS = 80
"""Positions of random data among which extrema are looked for."""

CLEAR_MARGIN = 1e-9
"""An extremum counts as the only one where the next is further away than this share of the larger of both."""

REACHES = (1.0, 3.0, 3.0, 10.0)
"""How far numbers are drawn from zero, attempt by attempt."""

Point = dict[sp.Symbol, float]


def envelope_exceeds(
    function: sp.Expr, reducer: Reducer, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol], limit: int
) -> bool:
    """Whether `limit` + 1 positions were found that are the only extremum at a value of the handles of their own."""
    symbols = sorted(function.free_symbols, key=str)
    try:
        evaluate = sp.lambdify(symbols, function, "math")
    except (TypeError, ValueError, NotImplementedError):
        return False
    varying, read = [s for s in symbols if s in elements], [s for s in symbols if s in handles]
    search = _Search(evaluate, symbols, 1.0 if reducer is MAX else -1.0)
    for attempt, reach in enumerate(REACHES):
        source = random.Random(attempt)
        fixed = {s: _number(s, source, 1.0) for s in symbols}
        pool = [{s: _number(s, source, reach) for s in varying} for _ in range(CANDIDATES)]
        points = [{**fixed, **{s: _number(s, source, reach) for s in read}} for _ in range(POINTS)]
        if attempt % 2 == 0 and read:
            points.sort(key=lambda point: point[read[0]])
        if search.pieces(pool, points, limit + 1) > limit or search.met(pool[:POSITIONS], points) > limit:
            return True
    return False


@dataclass(frozen=True)
class _Search:
    """Builds an envelope piece by piece, each as little above the others as there is a candidate for."""

    evaluate: Callable[..., float]
    symbols: Sequence[sp.Symbol]
    sign: float

    def pieces(self, pool: list[Point], points: list[Point], enough: int) -> int:
        """How many pieces were found, at most `enough`."""
        chosen: list[tuple[int, list[float]]] = []
        for left, point in zip(range(len(points), 0, -1), points, strict=True):
            if len(chosen) >= enough or len(chosen) + left < enough:
                break
            values = self._values(pool, point)
            if values is None:
                continue
            if not chosen:  # a middling candidate, so that there is room above and below
                chosen.append((sorted(range(len(pool)), key=values.__getitem__)[len(pool) // 2], values))
                continue
            best = max(values[k] for k, _ in chosen)
            allowed = [k for k in range(len(pool)) if _clear(values[k], best) and self._below(k, chosen)]
            if allowed:
                chosen.append((min(allowed, key=values.__getitem__), values))
        return len(chosen)

    def met(self, positions: list[Point], points: list[Point]) -> int:
        """How many of the positions are the only extremum at some point."""
        found = set()
        for point in points:
            values = self._values(positions, point) or []
            best = max(values, default=0.0)
            near = [k for k, value in enumerate(values) if not _clear(best, value)]
            found |= set(near) if len(near) == 1 else set()
        return len(found)

    def _below(self, candidate: int, chosen: list[tuple[int, list[float]]]) -> bool:
        return all(_clear(values[k], values[candidate]) for k, values in chosen)

    def _values(self, pool: list[Point], point: Point) -> list[float] | None:
        try:
            values = [self.sign * float(self.evaluate(*({**point, **x}[s] for s in self.symbols))) for x in pool]
        except (ArithmeticError, ValueError, TypeError, NameError):
            return None
        return values if all(map(math.isfinite, values)) else None


def _clear(larger: float, smaller: float) -> bool:
    return larger - smaller > CLEAR_MARGIN * max(abs(larger), abs(smaller), 1e-6)


def _number(symbol: sp.Symbol, source: random.Random, reach: float) -> float:
    """A number that the symbol may stand for; what is not negative may be a truth value, so it is 0 or 1."""
    if symbol.is_positive:
        return source.uniform(0.05, reach)
    return float(source.random() < 0.5) if symbol.is_nonnegative else source.uniform(-reach, reach)
