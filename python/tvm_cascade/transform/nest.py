"""Loop nests with one block each: the only statement form that the rewrite emits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tvm import ir, s_tir, tirx

from tvm_cascade.analysis.statements import ROLE, in_loops, new_block, sequence, unused
from tvm_cascade.analysis.tir import DATA_PARALLEL, REDUCTION, Extent, domain_of

TILE_ROLES = frozenset({"producer", "element", "lanes", "partial"})
"""Roles of the blocks in a fused loop whose results live for one tile."""

CARRYING_ROLES = frozenset({"update", "reference"})
"""Roles of the blocks in a fused loop whose state goes from tile to tile."""

GUARD = "guard"
"""The role of a block that decides on a fused result, and folds its row again where that may not be used."""

OPAQUE = "opaque"
"""The role of a block that could not be read, and that nobody may touch."""

AXES = "tvm_cascade.axes"
"""Block annotation: the axis of each iterator, in their order; one name is one axis within a fused loop.

An axis is one of `MARKERS`, a variable of the cascade's frame, or a producer's own reduction.
"""

MARKERS = ("segment", "tile", "inside", "lane", "strip")
"""Axes into which the cascade axis is cut, outermost first; lanes and strips are a block's own."""

Values = dict[object, ir.Expr]


@dataclass(frozen=True)
class Iter:
    """One iterator of a block.

    Attributes
    ----------
    key : what it stands for: a variable of the frame, or one of the markers of `tiling`.
    extent : of its domain.
    reduce : a reduction iterator rather than a data-parallel one.
    loop : an enclosing loop that it is bound to; a loop of its own when None.
    """

    key: object
    name: str
    extent: Extent
    reduce: bool = False
    loop: tirx.Var | None = None


@dataclass
class NestBuilder:
    """Builds nests over fresh variables.

    Attributes
    ----------
    dtype : of loop variables.
    names : of blocks, taken already.
    annotated : blocks tell their role and their axes, as those of a fused function do.
    """

    dtype: str = "int32"
    names: set[str] = field(default_factory=set)
    annotated: bool = True
    _axes: dict[tirx.Var, str] = field(default_factory=dict)

    def nest(
        self,
        name: str,
        role: str,
        iters: Sequence[Iter],
        body: Callable[[Values], list[tirx.Stmt]],
        init: Callable[[Values], list[tirx.Stmt]] | None = None,
        notes: Callable[[Values], dict[str, object]] | None = None,
        scratch: Sequence[tirx.Var] = (),
    ) -> tirx.Stmt:
        """`for …: block(name)` around the statements that `body` makes from the block's variables by key.

        `scratch` are buffers of the block's own.
        """
        block_vars = {it.key: tirx.Var(f"v_{it.name}", self.dtype) for it in iters}
        loop_vars = [it.loop if it.loop is not None else tirx.Var(it.name, self.dtype) for it in iters]
        iter_vars = [
            tirx.IterVar(domain_of(var, it.extent), var, REDUCTION if it.reduce else DATA_PARALLEL)
            for it, var in zip(iters, block_vars.values(), strict=True)
        ]
        values: Values = dict(block_vars)
        told = {ROLE: role, AXES: [self._axis(it) for it in iters]} if self.annotated else {}
        block = new_block(
            self.unique(name),
            sequence(body(values)),
            iter_vars,
            None if init is None else sequence(init(values)),
            scratch,
            {**told, **(notes(values) if notes else {})},
        )
        own = {var: it.extent for it, var in zip(iters, loop_vars, strict=True) if it.loop is None}
        return in_loops(own, s_tir.SBlockRealize(loop_vars, True, block))

    def reduction(
        self,
        name: str,
        role: str,
        iters: Sequence[Iter],
        cell: tuple[tirx.Var, Callable[[Values], list[ir.Expr]]],
        combine: Callable[[ir.Expr, ir.Expr], ir.Expr],
        identity: ir.Expr,
        value: Callable[[Values], ir.Expr],
    ) -> tirx.Stmt:
        """A nest that combines a value of every point into a cell, a buffer and its indices, from the identity on."""
        buffer, where = cell

        def body(at: Values) -> list[tirx.Stmt]:
            return [store(buffer, combine(load(buffer, where(at)), value(at)), where(at))]

        return self.nest(name, role, iters, body, lambda at: [store(buffer, identity, where(at))])

    def unique(self, name: str) -> str:
        chosen = unused(name, self.names)
        self.names.add(chosen)
        return chosen

    def _axis(self, it: Iter) -> str:
        """The axis of an iterator by name: each variable has its own, in characters that TVM's printer keeps."""
        var = it.key
        if not isinstance(var, ir.Var):
            return var if isinstance(var, str) else it.name
        if var not in self._axes:
            plain = str(it.name) if str(it.name).isascii() and str(it.name).isprintable() else "axis"
            self._axes[var] = unused(plain, {*MARKERS, *self._axes.values()})
        return self._axes[var]


def store(buffer: tirx.Var, value: ir.Expr, indices: Sequence[ir.Expr]) -> tirx.Stmt:
    return tirx.BufferStore(buffer, value, list(indices))


def load(buffer: tirx.Var, indices: Sequence[ir.Expr]) -> ir.Expr:
    return tirx.BufferLoad(buffer, list(indices))
