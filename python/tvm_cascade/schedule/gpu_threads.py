"""Binds loops to the threads of a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tvm import s_tir

from tvm_cascade.analysis.reducers import identity_of, split_reduction
from tvm_cascade.analysis.tir import same
from tvm_cascade.schedule.nest_schedule import Block, Loop, start_of_none
from tvm_cascade.schedule.nests import BlockPlan

_CROSSING_DTYPES = frozenset({"float32", "float64", "int32", "int64"})
_UNROLLED = 64


@dataclass
class Late:
    """What has to wait until every nest has its structure: loops to unroll, and reductions to start before a loop.

    Arrays are in registers only if every loop over them is unrolled. TVM unrolls `unrolled` ones; `crossed` ones, which
    hold a reduction across threads, are left to nvcc, since TVM lowers a copy of such a reduction wrongly.
    """

    unrolled: list[Loop] = field(default_factory=list)
    crossed: list[Loop] = field(default_factory=list)
    decomposed: list[tuple[Block, Loop]] = field(default_factory=list)

    def apply(self, sch: s_tir.Schedule) -> None:
        """Applies the deferred steps."""
        for loop in self.unrolled:
            if int(sch.get(loop).extent) <= _UNROLLED:
                sch.unroll(loop)
        for loop in self.crossed:
            sch.annotate(loop, "pragma_auto_unroll_max_step", _UNROLLED)
            sch.annotate(loop, "pragma_unroll_explicit", 0)
        for block, loop in self.decomposed:
            sch.decompose_reduction(block, loop)
        start_of_none(sch)


@dataclass(frozen=True)
class Threads:
    """A block of `down` × `across` threads; neighbours along `across` are neighbours in a warp."""

    down: int
    across: int

    def bind(self, sch: s_tir.Schedule, down: Loop | None, across: Loop | None) -> None:
        """Gives two loops to the threads; a dimension of one thread needs no loop."""
        if down is not None and self.down > 1:
            sch.bind(down, "threadIdx.y")
        if across is not None and self.across > 1:
            sch.bind(across, "threadIdx.x")

    def spread(self, sch: s_tir.Schedule, block: Block, loops: Sequence[Loop]) -> None:
        """Gives adjacent loops to all threads, one element each and then the next ones."""
        whole = fused(sch, loops) if loops else sch.add_unit_loop(block)
        _, down, across = sch.split(whole, [None, self.down, self.across])
        self.bind(sch, down, across)


def fused(sch: s_tir.Schedule, loops: Sequence[Loop]) -> Loop:
    """Adjacent loops as one."""
    return sch.fuse(*loops) if len(loops) > 1 else loops[0]


def crosses(sch: s_tir.Schedule, plan: BlockPlan, block: Block) -> bool:
    """Whether TVM reduces this nest across threads, and rightly: one buffer, and a reducer that it knows."""
    init = sch.get(block).init
    if not plan.reduce or len(plan.stores) != 1 or plan.binds or init is None:
        return False
    reduction = split_reduction(plan.stores[0])
    dtype = str(plan.stores[0].buffer.ty.dtype)
    if reduction is None or not reduction[0].across_threads or dtype not in _CROSSING_DTYPES:
        return False
    return same(init.value, identity_of(reduction[0], dtype))


def schedule_narrow(
    sch: s_tir.Schedule,
    threads: Threads,
    late: Late,
    block: Block,
    row: Loop | None,
    columns: Sequence[Loop],
    reduced: Sequence[Loop],
    crossing: bool,
    once: bool,
) -> None:
    """Few results of a row: every thread along threadIdx.x has them all.

    Parameters
    ----------
    crossing : the threads share the work of reducing; otherwise each does all of it.
    once : the results go to global memory, so that one thread stores them.
    """
    rows = [row] if row is not None else []
    sch.reorder(*rows, *columns, *reduced)
    if crossing:
        _, lane = sch.split(fused(sch, reduced), [None, threads.across])
        threads.bind(sch, None, lane)
    elif once:
        _, lane = sch.split(sch.add_unit_loop(reduced[0] if reduced else block), [None, threads.across])
        threads.bind(sch, None, lane)
    if row is not None:
        down, own = sch.split(row, [threads.down, None])
        threads.bind(sch, down, None)
        columns = [own, *columns]
    if crossing:
        late.crossed += columns
    else:
        late.unrolled += columns
