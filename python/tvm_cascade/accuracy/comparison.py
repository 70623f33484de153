"""One output of a program on one input: exact, unfused and fused values, and whether the fused one passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import ir

from tvm_cascade.algebra.reducer import Selection
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import dtype_of, loads_of
from tvm_cascade.evaluate import tolerance
from tvm_cascade.evaluate.expression import Evaluator, Grid

Array = NDArray[Any]


@dataclass(frozen=True)
class Compared:
    """One output, by the oracle, the unfused and the fused program.

    Attributes
    ----------
    output : its buffer.
    exact, dropped, unfused, fused : arrays of its shape, exact ones in float64, and those where max and min drop NaN.
    length : positions of the cascade axis.
    ranking : the keys behind it, where a selection decides it: indices are compared by the keys that they name.
    """

    output: ir.Var
    exact: Array
    dropped: Array
    unfused: Array
    fused: Array
    length: int
    ranking: Ranking | None

    @cached_property
    def judged(self) -> tolerance.Comparison:
        """The comparison of the fused output by the rule of `evaluate.tolerance`."""
        given = (self.exact, self.dropped, self.unfused, self.fused)
        exact, dropped, unfused, fused = (self.as_compared(values) for values in given)
        defined = _where_defined(fused, unfused, exact, dropped)
        return tolerance.check(defined, exact, unfused, length=self.length, dtype=self.dtype)

    @cached_property
    def _by_key(self) -> bool:
        return self.ranking is not None and self.exact.dtype.kind in "iu" and self.ranking.explains(self.exact)

    @property
    def dtype(self) -> str:
        """Of what is compared."""
        return self.ranking.dtype if self.ranking is not None and self._by_key else dtype_of(self.output)

    def as_compared(self, values: Array) -> Array:
        """Values for comparison: without those that have no order, and keys in place of indices."""
        if self.ranking is None:
            return values
        defined = np.where(self.ranking.undefined(self.exact), self.exact, values)
        return self.ranking.named(defined) if self._by_key else defined


def _where_defined(fused: Array, unfused: Array, exact: Array, dropped: Array) -> Array:
    """The fused result, without elements that only the order of evaluation defines.

    TVM's max and min drop a NaN, and with it some of the numbers, by where it stands. Where an exact result is NaN
    that is none if every NaN is dropped, and the unfused result is none either, only the class is compared.
    """
    by_order = np.isnan(exact) & ~np.isnan(dropped) & ~np.isnan(unfused)
    return np.where(by_order & (tolerance.kinds(fused) == tolerance.kinds(unfused)), unfused, fused)


# Outputs of selections (argmax, top-k): an index is right if the key at it is.
#
# Keys that are equal up to rounding may be ranked either way, by the unfused program as well. So indices are compared
# by the keys that they name, by the same tolerance as numbers. A row that holds a NaN key has no order: what TVM's
# comparisons make of it depends on where the NaN stands, and nothing is asked of it.


@dataclass(frozen=True)
class Ranking:
    """The keys behind an output of a selection.

    Attributes
    ----------
    keys : in float64: for each row the keys of all its elements, along the last axis.
    dtype : of the keys in the program.
    largest : larger keys come first.
    rank_axis : the output's axis along which ranks run; None where it holds the best one alone.
    """

    keys: Array
    dtype: str
    largest: bool
    rank_axis: int | None

    def undefined(self, output: Array) -> NDArray[np.bool_]:
        """Which elements of the output belong to rows that have no order."""
        rows = np.isnan(self.keys).any(axis=-1)
        return np.broadcast_to(rows if self.rank_axis is None else np.expand_dims(rows, self.rank_axis), output.shape)

    def named(self, indices: Array) -> Array:
        """The keys at the indices, ranks last; ∓inf for a missing or repeated index."""
        ranked = indices[..., None] if self.rank_axis is None else np.moveaxis(indices, self.rank_axis, -1)
        valid = (ranked >= 0) & (ranked < self.keys.shape[-1])
        for rank in range(1, ranked.shape[-1]):
            valid[..., rank] &= (ranked[..., :rank] != ranked[..., rank : rank + 1]).all(axis=-1)
        found = np.take_along_axis(self.keys, np.where(valid, ranked, 0).astype(np.int64), axis=-1)
        return np.where(valid, found, -np.inf if self.largest else np.inf)

    def explains(self, indices: Array) -> bool:
        """Whether the exact indices select the best keys in order, so that indices may be compared by keys."""
        named = self.named(indices)
        best = np.sort(self.keys, axis=-1)[..., ::-1] if self.largest else np.sort(self.keys, axis=-1)
        short = named.shape[-1] - best.shape[-1]
        if short > 0:
            worst = np.full((*best.shape[:-1], short), -np.inf if self.largest else np.inf)
            best = np.concatenate([best, worst], axis=-1)
        ordered = ~np.isnan(self.keys).any(axis=-1)
        return bool(np.array_equal(named[ordered], best[ordered][..., : named.shape[-1]]))


def ranking_of(program: Program, output: ir.Var, buffers: Mapping[ir.Var, Array]) -> Ranking | None:
    """The ranking behind an output; None where it does not repeat a selection, element by element.

    Parameters
    ----------
    buffers : every buffer of the program, in float64.
    """
    stage = _selection_behind(program, output)
    if stage is None or len(stage.reduce) != 1:
        return None
    if not all(index.same_as(variable) for index, variable in zip(stage.indices, stage.spatial, strict=True)):
        return None
    variables = (*stage.spatial, *stage.reduce)
    grid = Grid(variables, (0,) * len(variables), tuple(int(stage.extents[v]) for v in variables))
    keys = np.broadcast_to(Evaluator(grid, buffers, False, stage.name)(stage.value), grid.shape)
    chosen = _selection(stage)
    shape, rows = tuple(int(extent) for extent in output.ty.shape), grid.shape[:-1]
    axes = [k for k in range(len(shape)) if shape[k] == chosen.count and (*shape[:k], *shape[k + 1 :]) == rows]
    if shape != rows and not axes:
        return None
    return Ranking(keys, dtype_of(stage.buffer), chosen.largest, None if shape == rows else axes[-1])


def _selection(stage: Stage) -> Selection:
    assert stage.reducer is not None and stage.reducer.whole is not None
    assert stage.reducer.whole.selection is not None
    return stage.reducer.whole.selection


def _selection_behind(program: Program, output: ir.Var) -> Stage | None:
    """The stage of the keys of the one selection that the output is taken from; None where it is anything else."""
    pending, found = [output], []
    while pending:
        stage = program.writer(pending.pop())
        if stage is None:
            return None
        if stage.reducer is None:
            pending += [load.source for load in loads_of(stage.value)]
        elif stage.reducer.whole is not None and stage.reducer.whole.selection is not None:
            found.append(program.together(stage)[0])
        else:
            return None
    same = found and all(stage is found[0] for stage in found)
    return found[0] if same else None
