"""Sorted tuples of the best elements, by few comparisons and no branches.

    merge       the better of a_i and b_{k−1−i}, for every i, are the k best; a bitonic network sorts them
    elements    are sorted by merging halves, of which no more is kept than there are ranks

What a comparison is comes from the selection's order (`algebra.selection_law`). Source of the network: Batcher,
"Sorting networks and their applications" (1968).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Generic, TypeVar

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.reducer import Selection
from tvm_cascade.algebra.selection_law import better, bottom
from tvm_cascade.steps.program import Tuple
from tvm_cascade.tile.emit import in_register
from tvm_cascade.tile.fragment import TilePrinter

Values = dict[sp.Symbol, ir.Expr]
"""Of a tuple, by component."""

Rank = dict[int, ir.Expr]
"""An element's key, index and payloads, by role; those that the fold keeps."""

_KEYS, _INDICES = sp.symbols("key other_key", real=True), sp.symbols("index other_index", real=True)

Element = TypeVar("Element")


@dataclass(frozen=True)
class Network(Generic[Element]):
    """Networks of comparisons of elements.

    Attributes
    ----------
    count : of the best that are kept.
    ordered : both, the better one first.
    """

    count: int
    best: Callable[[Element, Element], Element]
    ordered: Callable[[Element, Element], tuple[Element, Element]]

    def sorted(self, elements: list[Element]) -> list[Element]:
        if len(elements) == 1:
            return elements
        middle = len(elements) // 2
        return self.merged(self.sorted(elements[:middle]), self.sorted(elements[middle:]))

    def merged(self, left: list[Element], right: list[Element]) -> list[Element]:
        count = min(len(left) + len(right), self.count)
        width = 1 << (count - 1).bit_length()
        ours, theirs = ([*side[:width], *[None] * (width - len(side))] for side in (left, right))
        pairs = zip(ours, reversed(theirs), strict=True)
        ranks = [self.best(a, b) if a is not None and b is not None else b if a is None else a for a, b in pairs]
        distance = width // 2
        while distance:
            for k in (k for k in range(width) if not k & distance):
                one, two = ranks[k], ranks[k + distance]
                if one is None or two is None:
                    ranks[k], ranks[k + distance] = two if one is None else one, None
                else:
                    ranks[k], ranks[k + distance] = self.ordered(one, two)
            distance //= 2
        return [rank for rank in ranks[:count] if rank is not None]


class Ranks:
    """The ranks of a step's tuples."""

    def __init__(self, selection: Selection, symbols: list[dict[int, sp.Symbol]], dtypes: Mapping[sp.Symbol, str]):
        self.selection, self.symbols, self.dtypes = selection, symbols, dtypes
        self.network = Network(len(symbols), self._best, self._ordered)

    def merge(self, left: Values, right: Values) -> Values:
        return self._values(self.network.merged(self._ranks(left), self._ranks(right)))

    def merge_with(self, own: Values | None, elements: Sequence[Rank]) -> Values:
        """The best of a sorted tuple, or of none, and of elements in any order."""
        found = self.network.sorted(list(elements))
        none = [self._bottom(k) for k in range(len(found), len(self.symbols))]
        return self._values(self.network.merged(self._ranks(own), found) if own else [*found, *none])

    def with_neighbours_in_order(self, values: Values) -> Values:
        """A tuple in which neighbours may have to change places, each with one other, sorted."""
        ranks = self._ranks(values)
        for first in (0, 1):
            for k in range(first, len(ranks) - 1, 2):
                ranks[k : k + 2] = self._ordered(*ranks[k : k + 2])
        return self._values(ranks)

    def may_enter(self, own: Values, elements: Sequence[Rank]) -> ir.Expr:
        most, last = tirx.max if self.selection.largest else tirx.min, own[self.symbols[-1][0]]
        best = in_register("best", reduce(most, [element[0] for element in elements]))
        return best >= last if self.selection.largest else best <= last

    def _best(self, one: Rank, other: Rank) -> Rank:
        wins = in_register("wins", self._precedes(other, one))
        return self._chosen(wins, other, one)

    def _ordered(self, one: Rank, two: Rank) -> tuple[Rank, Rank]:
        swap = in_register("swap", self._precedes(two, one))
        return self._chosen(swap, two, one), self._chosen(swap, one, two)

    def _bottom(self, rank: int) -> Rank:
        empty = bottom(self.selection)
        return {
            role: TilePrinter({}, self.dtypes[symbol], {})(empty[role]) for role, symbol in self.symbols[rank].items()
        }

    @staticmethod
    def _chosen(condition: ir.Expr, one: Rank, other: Rank) -> Rank:
        return {role: in_register("rank", tirx.Select(condition, one[role], other[role])) for role in one}

    def _precedes(self, one: Rank, other: Rank) -> ir.Expr:
        """Whether an element is better than another one; by keys alone where indices are not kept."""
        indices = (one[1], other[1]) if 1 in one else (tirx.const(0, "int32"), tirx.const(0, "int32"))
        bindings = dict(zip((*_KEYS, *_INDICES), (one[0], other[0], *indices), strict=True))
        return TilePrinter(bindings, str(one[0].ty.dtype), {}).condition(_order(self.selection, 1 in one))

    def _ranks(self, values: Values) -> list[Rank]:
        return [{role: values[symbol] for role, symbol in rank.items()} for rank in self.symbols]

    def _values(self, ranks: list[Rank]) -> Values:
        pairs = zip(self.symbols, ranks, strict=True)
        return {symbol: rank[role] for symbols, rank in pairs for role, symbol in symbols.items()}


@cache
def _order(selection: Selection, indexed: bool) -> sp.Basic:
    index, other = _INDICES if indexed else (sp.S.Zero, sp.S.Zero)
    return better(selection, _KEYS[0], index, _KEYS[1], other, or_same=False)


def ranks_of(step: Tuple, dtypes: Mapping[sp.Symbol, str]) -> Ranks | None:
    """The ranks of a step's tuples; None where it does not select, or keeps no whole ranks."""
    selection = step.reducer.selection
    if selection is None:
        return None
    ranks: dict[int, dict[int, sp.Symbol]] = {}
    for symbol, part in zip(step.components, step.parts, strict=True):
        ranks.setdefault(part // selection.per_rank, {})[part % selection.per_rank] = symbol
    symbols = [ranks[k] for k in sorted(ranks)]
    whole = sorted(ranks) == list(range(len(ranks))) and all(rank.keys() == symbols[0].keys() for rank in symbols)
    return Ranks(selection, symbols, dtypes) if whole and 0 in symbols[0] else None


def has_one_element(step: Tuple) -> bool:
    """Whether what a position lifts to has an element in its first rank alone."""
    selection = step.reducer.selection
    if selection is None:
        return False
    empty = bottom(selection)
    lifts = zip(step.parts, step.lifts, strict=True)
    return all(lift == empty[part] for part, lift in lifts if part >= selection.per_rank)
