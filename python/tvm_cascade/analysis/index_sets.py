"""Sets of indices: whether one stays within another, covers it, has each element once, or is run through in order.

A set is what indices take while variables run over a box, each from 0 on. Answers are those that can be proved: False
says that nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import ir, s_tir, sym, tirx
from tvm.sym.iter_affine_map import IterMapLevel, IterSumExpr, detect_iter_map, inverse_affine_iter_map

from tvm_cascade.analysis.tir import (
    DATA_PARALLEL,
    Extent,
    analyzer_of,
    as_index,
    domain_of,
    dtype_of,
    extent_of,
    product,
    same,
    same_extent,
    substitute,
    uses,
)


def greatest(value: ir.Expr, ranges: dict[tirx.Var, tuple[ir.Expr, ir.Expr]]) -> ir.Expr | None:
    """The greatest value of an integer expression while variables run from a first to a last value; None if unknown."""
    domain = {var: sym.IntervalSet(first, last) for var, (first, last) in ranges.items()}
    analyzer = sym.Analyzer()
    interval = analyzer.int_set(analyzer.simplify(value), domain)
    if not isinstance(interval, sym.IntervalSet):
        return None
    most = analyzer.simplify(interval.max_value)
    return most if dtype_of(most).startswith("int") and not uses(most, list(ranges)) else None


def stay_within(indices: Sequence[ir.Expr], shape: Sequence[ir.Expr], known: sym.Analyzer) -> bool:
    """Whether indices are places of a buffer of a shape, for all that is known of their variables."""
    pairs = zip(indices, shape, strict=True)
    return all(known.can_prove(index >= 0) and known.can_prove(index < extent) for index, extent in pairs)


def cover(
    written: Sequence[ir.Expr],
    over: Mapping[tirx.Var, Extent],
    read: Sequence[ir.Expr],
    reading: Mapping[tirx.Var, Extent],
    shape: Sequence[ir.Expr],
) -> bool:
    """Whether places that are written over one box are all that are read over another, of a buffer of a shape."""
    taken, known = set[tirx.Var](), analyzer_of(reading)
    for one, other, size in zip(written, read, shape, strict=True):
        if one in over:
            whole = same_extent(over[one], extent_of(size))
            if one in taken or not (whole or stay_within([other], [as_index(over[one], dtype_of(other))], known)):
                return False
            taken.add(one)
        elif extent_of(size) != 1 and (uses(one, [*over]) or uses(other, [*reading]) or not same(one, other)):
            return False
    return True


def are_of_one_point_each(indices: Sequence[ir.Expr], block: s_tir.SBlock) -> bool:
    """Whether different points of the block's data-parallel domain have different indices."""
    reduced = [iv.var for iv in block.iter_vars if iv.iter_type != DATA_PARALLEL]
    moving = [iv for iv in block.iter_vars if iv.iter_type == DATA_PARALLEL and extent_of(iv.dom.extent) != 1]
    if any(uses(index, reduced) for index in indices):
        return False
    if {iv.var for iv in moving} <= {*indices}:
        return True
    domain = {iv.var: iv.dom for iv in block.iter_vars if iv.iter_type == DATA_PARALLEL}
    # A map that uses up every iterator whole, and none twice: what it gives, an arithmetic of its own can take back.
    return bool(detect_iter_map(list(indices), domain, True, IterMapLevel.Bijective, True, sym.Analyzer()).indices)


# Affine maps between boxes.


@dataclass(frozen=True)
class AffineMap:
    """A bijection from the box of some variables onto the box that indices take.

    Attributes
    ----------
    indices : as TVM's iterator maps: each is its first value, and at most one part that counts up from 0.
    """

    indices: tuple[IterSumExpr, ...]

    @property
    def firsts(self) -> list[ir.Expr]:
        return [index.base for index in self.indices]

    @property
    def extents(self) -> list[Extent]:
        return [extent_of(index.args[0].extent) if index.args else 1 for index in self.indices]

    def places(self, counts: Sequence[tirx.Var]) -> list[ir.Expr]:
        """The indices that are so many from the first ones."""
        return [count + first for count, first in zip(counts, self.firsts, strict=True)]

    def inverse(self, counts: Sequence[tirx.Var]) -> dict[tirx.Var, ir.Expr]:
        """The variables at these indices."""
        return dict(inverse_affine_iter_map(list(self.indices), self.places(counts)).items())


def affine_map(values: Sequence[ir.Expr], extents: dict[tirx.Var, Extent]) -> AffineMap | None:
    """Index expressions of variables as such a map; None where they are anything else."""
    if not all(any(uses(value, (var,)) for value in values) for var in extents):
        return None
    domains = {var: domain_of(var, extent) for var, extent in extents.items()}
    found = AffineMap(tuple(detect_iter_map(list(values), domains, True, IterMapLevel.Bijective, False).indices))
    if len(found.indices) != len(values) or any(len(index.args) > 1 for index in found.indices):
        return None
    plain = all(extent_of(part.scale) == 1 for index in found.indices for part in index.args)
    return found if plain and _is_bijection(values, extents, found) else None


def _is_bijection(values: Sequence[ir.Expr], extents: dict[tirx.Var, Extent], found: AffineMap) -> bool:
    """Whether a map is what it says: TVM takes (v + 1) // 2 and (v + 1) % 2 for those of v.

    Its inverse leads back to every position of as large a box, from within the variables' own.
    """
    at = [tirx.Var(f"d{k}", dtype_of(value)) for k, value in enumerate(values)]
    known, inverse = analyzer_of(dict(zip(at, found.extents, strict=True))), found.inverse(at)
    pairs = zip(values, found.places(at), strict=True)
    back = all(known.can_prove_equal(substitute(value, inverse), place) for value, place in pairs)
    shape = [as_index(extent, dtype_of(var)) for var, extent in extents.items()]
    within = stay_within([inverse[var] for var in extents], shape, known)
    return back and within and same_extent(product(found.extents), product(extents.values()))


def run_in_order(old: dict[tirx.Var, Extent], inverse: dict[tirx.Var, ir.Expr], new: dict[tirx.Var, Extent]) -> bool:
    """Whether the new loops run through the points of the old ones in the same order."""
    before = _counted([(substitute(var, inverse), extent) for var, extent in old.items()])
    after = _counted(list(new.items()))
    return before is None or after is None or bool(analyzer_of(new).can_prove_equal(before, after))


def _counted(digits: Sequence[tuple[ir.Expr, Extent]]) -> ir.Expr | None:
    """How many points come before one, outermost digit first; None over no loops."""
    count: ir.Expr | None = None
    for digit, extent in digits:
        count = digit if count is None else count * as_index(extent, dtype_of(count)) + digit
    return count
