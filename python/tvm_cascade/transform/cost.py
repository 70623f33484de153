"""The CPU cost model: time of everything along a cascade's axis, unfused and fused.

Unfused, every stage is a nest of its own. Fused, the loop is priced as it will be written: its producers, temporaries
and components tile by tile, the moves of its state, and its results. What it reads and does not compute itself stays a
nest before it; a pass that remains after the loop (the division of a softmax) has to compute again what is no longer
stored. Both are priced by the same rules (`nest_cost`). On several cores each nest shares out its rows, and starts the
threads and waits for them once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.fold import Component
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.inline import Inliner, inliner_of
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.passes import passes_of
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import loads_of, reached, reads_buffer, substitute, uses
from tvm_cascade.devices.device import Cpu, Device
from tvm_cascade.devices.read import ANY_CPU
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.assemble import sources_of
from tvm_cascade.transform.layout import Layout, Producer, contracts
from tvm_cascade.transform.nest_cost import (
    ACCESS_OPERATIONS,
    CHAIN_NS,
    FORK_NS,
    FUNCTION_OPERATIONS,
    GATHER_NS,
    PACKING_NS,
    PACKING_ROWS_NS,
    copied,
    distinct,
    find_product,
    gathered,
    is_contiguous,
    overlapped_ns,
    product_ns,
    size_of,
    stage_ns,
    threads_of,
    traffic_ns,
    vector_ns,
)
from tvm_cascade.transform.planning import Loop
from tvm_cascade.transform.tiling import PAGE_BYTES

LEAST_LOSS_NS = 50.0
"""A predicted loss below this is not worth a refusal: a call costs forty times as much."""


@dataclass(frozen=True)
class Estimate:
    """Predicted cost of both forms.

    Attributes
    ----------
    passes_before, passes_after : passes over the cascade axis.
    bytes_before, bytes_after : of intermediates that grow with the cascade axis, outputs left out.
    ns_before, ns_after : predicted time, in nanoseconds.
    cores : that it is predicted for.
    """

    passes_before: int
    passes_after: int
    bytes_before: int
    bytes_after: int
    ns_before: float
    ns_after: float
    cores: int = 1

    @property
    def slower(self) -> bool:
        """Whether the fused form is predicted to be significantly slower."""
        return self.ns_after - self.ns_before > LEAST_LOSS_NS

    def __str__(self) -> str:
        cores = "one core" if self.cores == 1 else f"{self.cores} cores"
        return f"estimated {self.ns_before / 1e3:.1f} us unfused, {self.ns_after / 1e3:.1f} us fused ({cores})"


def estimate(program: Program, loop: Loop, options: FuseOptions, device: Device) -> Estimate:
    """Both forms' passes, intermediates and time: on the CPU, or on one core of any CPU where the device is none."""
    cpu, vector_math = device if isinstance(device, Cpu) else ANY_CPU, options.vector_math
    plan, group = loop.plan, loop.plan.group
    passes = passes_of(program, group)
    after = passes.after
    intermediates = [s for s in passes.inside if not program.is_param(s.buffer) and not _is_result(s, group)]
    kept = [s for s in intermediates if any(reads_buffer(a.value, s.buffer) for a in after) and s.reducer is not None]
    fused = LoopCost(loop.layout, plan.producers, cpu, vector_math)
    inline = inliner_of(program)
    stages = (*passes.inside, *after)
    before = [stage for stage in passes.inside if stage.name in _read_from_memory(program, plan.reads)]
    return Estimate(
        len(stages),
        1 + len(after),
        sum(size_of(stage.buffer) for stage in intermediates),
        sum(size_of(stage.buffer) for stage in kept),
        sum(alone_ns(program, stage, cpu, vector_math) for stage in stages),
        sum(alone_ns(program, stage, cpu, vector_math) for stage in before)
        + fused.ns / fused.threads
        + _fork_ns(cpu)
        + sum(_after_ns(inline, stage, cpu, vector_math) for stage in after),
        cpu.cores,
    )


def _read_from_memory(program: Program, reads: Sequence[tirx.Var]) -> set[str]:
    """The names of the stages that write what a loop reads, and what these read."""
    buffers = reached(reads, lambda buffer: sources_of(program, program.writer(buffer)))
    return {stage.name for buffer in buffers if (stage := program.writer(buffer)) is not None}


def alone_ns(program: Program, stage: Stage, cpu: Cpu, vector_math: bool) -> float:
    """Time of a stage in a nest of its own."""
    parts = program.together(stage)
    return shared_ns(stage, stage_ns(parts, [part.value for part in parts], cpu, vector_math), cpu)


def _after_ns(inline: Inliner, stage: Stage, cpu: Cpu, vector_math: bool) -> float:
    return shared_ns(stage, stage_ns((stage,), (inline.of(stage),), cpu, vector_math), cpu)


def shared_ns(stage: Stage, alone: float, cpu: Cpu) -> float:
    """Time of a nest whose outputs are shared out among cores."""
    return alone / threads_of(math.prod(int(stage.extents[v]) for v in stage.spatial), cpu) + _fork_ns(cpu)


def _fork_ns(cpu: Cpu) -> float:
    return FORK_NS if cpu.cores > 1 else 0.0


def _is_result(stage: Stage, group: Group) -> bool:
    return any(stage is member.stage for member in group.members)


# The cost of a fused loop on a CPU core, part by part.
#
# Rows are cut into blocks. Where a producer feeds folds of enough rows, these lie side by side and the producer's other
# operand is packed once for each block; where rows are few, the operand that all of them share is packed for each
# block.


BLOCK_ROWS = 64
"""Rows of a block at most."""

BLOCKS = 4
"""Blocks at least, where there are so many rows: work for the threads."""

BLOCK_OVERHEAD_ROWS = 2
"""Rows whose time the product of a block takes beyond that of its own: it reads the whole other operand, which several
blocks share (measured: a norm into a product of 32×192×48, in blocks of 8, takes 1.45 of the time of both apart)."""

VECTOR_ROWS = 16
"""Rows of one vector. More than these lie side by side in a tile, in two whole vectors at least."""

START_NS, ROW_NS = 6.0, 2.0
"""What a fold costs for each row, and for each tile of it, beside its elements: its lanes are added up and joined to
the state (measured: variances and log-sum-exps of 64 positions take 17 and 30 ns a row, of which 4 and 14 are their
elements')."""

RAGGED_NS, GUARDED = 10.0, 2.0
"""What a fold costs for each row whose last tile lacks positions, and the time of that tile's positions beyond that of
others, which have no guard (measured: 5003 positions take 1.5 times as long in tiles of 2048 as of 512; variances and
log-sum-exps of 777 and 1500 positions take 1.7 to 3.3 times as long as of 768)."""

MOVE_NS = 1.5
"""Moving one reference of one row."""

TILED = 1.1
"""How much slower products run whose sums begin anew with each tile than those of a nest of their own (measured: norms
into products of 512×768×768, 512×768×256 and 128×2048×512 take 1.16, 1.14 and 1.11 of the time of both apart)."""

SUM_BYTES = 4
"""Of one sum of a product."""

TUPLE_NS = 2.8
"""One element of a tuple that is combined in registers (measured: the best of 64 shares of a softmax takes 2.7)."""


class LoopCost:
    """The price of one loop; `ns` is the whole; `vector_math` as the option."""

    def __init__(self, layout: Layout, producers: Sequence[Producer], cpu: Cpu, vector_math: bool) -> None:
        self.layout, self.producers, self.cpu, self.vector_math = layout, producers, cpu, vector_math
        self.group, self.dims, self.fold = layout.group, layout.dims, layout.group.fold
        self.length, self.tiles = _number(layout.tiling.length), _number(layout.tiling.total)
        self.products = [c for c in self.fold.components if contracts(c, self.dims)]
        self.row = self._row()
        extent = 1 if self.row is None else self._extent(self.row)
        rows = math.prod(map(self._extent, layout.rows))
        self.block = max(1, min(extent, BLOCK_ROWS, -(-rows // BLOCKS)))
        self.blocks = -(-extent // self.block)
        self.sideways = bool(producers) and extent > VECTOR_ROWS
        whole = max(2, -(-extent // VECTOR_ROWS)) * VECTOR_ROWS
        self.padding = whole / extent if self.sideways else 1.0

    @property
    def threads(self) -> int:
        """Cores that its rows are spread over."""
        return threads_of(math.prod(map(self._extent, self.layout.rows)), self.cpu)

    @property
    def ns(self) -> float:
        """Time on one core."""
        multiplied = {s for c in self.products for s in self.layout.elements.lifts[c.symbol].free_symbols}
        folded = {atom.symbol for atom in self.group.atoms.atoms.values()} - multiplied
        traffic = traffic_ns([size_of(load.source) for load in self._loads(folded)], self.cpu)
        products = sum(map(self._producer_ns, self.producers)) + sum(map(self._product_ns, self.products))
        operands = [load for producer in self.producers for load in loads_of(producer.element)]
        operands = distinct([*self._loads(multiplied), *operands])
        products = overlapped_ns(products, sum(traffic_ns([size_of(one.source)], self.cpu) for one in operands))
        arithmetic = (self._elements_ns() + self._folds_ns()) * self._guarded
        folds = overlapped_ns(arithmetic, traffic) if self._is_fetched_ahead else arithmetic + traffic
        return ((products + folds) * self.padding + self._state_ns()) * self.live + self._results_ns()

    @property
    def _is_fetched_ahead(self) -> bool:
        """Whether the next tile comes while one is computed: where rows are folded, of tiles that are short alone."""
        short = self.layout.tiling.tile * self.layout.streams.widest_bytes <= PAGE_BYTES
        return short or bool(self.products) or bool(self.producers)

    @property
    def _guarded(self) -> float:
        """Time of passes over rows that are only folded, over that without a guard."""
        tiling = self.layout.tiling
        folded = not self.products and not self.producers
        return 1.0 + GUARDED * tiling.tile / self.length if tiling.ragged and folded else 1.0

    @property
    def live(self) -> float:
        """The share of the tiles that masks leave, where that is known."""
        known = self.layout.live
        tile = self.layout.tiling.tile
        return 1.0 if known is None or not known.known else known.share(tile, known.block(tile))

    def _loads(self, symbols: Set[sp.Symbol]) -> list[ir.TensorLoad]:
        """What is read from memory for some symbols of elements, one load of each buffer."""
        read = [a.expression for a in self.group.atoms.atoms.values() if a.varies and a.symbol in symbols]
        return distinct(load for e in read if not self._is_produced(e) for load in loads_of(e))

    def _extent(self, var: tirx.Var) -> int:
        return _number(self.group.frame.extents[var])

    def _points(self, expression: sp.Expr) -> int:
        return math.prod(map(self._extent, self.dims.of(expression)))

    def _row(self) -> tirx.Var | None:
        """The row that some operand of a product is read for again and again; else the last."""
        rows = self.layout.rows
        loads = [load for p in self.producers for load in self._in_frame(p)]
        read = [[v for v in rows if uses(load, [v])] for load in loads]
        read += [[v for v in rows if among(v, self.dims.of(s))] for c in self.products for s in c.lift.free_symbols]
        reused = [v for v in rows if any(not among(v, own) for own in read)]
        return max(reused or rows[-1:], key=self._extent, default=None)

    def _in_frame(self, producer: Producer) -> list[ir.TensorLoad]:
        return loads_of(substitute(producer.element, dict(producer.variables)))

    def _is_produced(self, expression: ir.Expr) -> bool:
        loads = loads_of(expression)
        return any(load.source.same_as(p.stage.buffer) for load in loads for p in self.producers)

    def _producer_ns(self, producer: Producer) -> float:
        extents = {v: _number(e) for v, e in producer.stage.extents.items()}
        points = math.prod(extents.values())
        wanted = self.row if self.sideways else self.group.frame.axis[-1]
        lanes = next((own for own, var in producer.variables.items() if var.same_as(wanted)), None)
        product = None if lanes is None else find_product(producer.stage, producer.element, lanes)
        if product is None:
            return product_ns(points, 1, 0)
        repeated = 1 if self.sideways else self.blocks
        rows = self.layout.tiling.tile if self.sideways else self.block
        packing = PACKING_ROWS_NS if self.sideways else PACKING_NS
        return product_ns(points, rows, product.packed(extents) * repeated, packing)

    def _product_ns(self, component: Component) -> float:
        lift = self.layout.elements.lifts[component.symbol]
        own = self.dims.of(lift)
        points = self.length * math.prod(map(self._extent, own))
        rows = self.block if self.row is not None and among(self.row, own) else self._points(lift)
        packed = sum(self._packed(symbol, own[-1]) for symbol in lift.free_symbols)
        slowed = TILED if self.tiles > 1 else 1.0
        slowed *= 1 + BLOCK_OVERHEAD_ROWS / self.block if self.blocks > 1 else 1.0
        return product_ns(points, rows, packed) * slowed

    def _packed(self, symbol: sp.Symbol, lanes: tirx.Var) -> int:
        """Elements of float32 that are copied into panels: those of what is not contiguous along the lanes."""
        if not self.dims.varies(symbol) or not among(lanes, self.dims.of(symbol)):
            return 0
        loads = [load for a in self.group.atoms.atoms.values() if a.symbol == symbol for load in loads_of(a.expression)]
        if loads and all(is_contiguous(load, lanes) or not uses(load, [lanes]) for load in loads):
            return 0
        shared = self.row is None or among(self.row, self.dims.of(symbol))
        wide = max(map(copied, loads), default=1.0)
        return int(self.length * self._points(symbol) * wide * (1 if shared else self.blocks))

    def _elements_ns(self) -> float:
        """The temporaries of all tiles."""
        total = 0.0
        for temporary in self.layout.elements.temporaries:
            points = self.length * self._points(temporary.symbol)
            total += vector_ns(points, self._operations(temporary.expression) + 2 * ACCESS_OPERATIONS)
            total += points * self._gathers(temporary.expression) * GATHER_NS
        return total

    def _folds_ns(self) -> float:
        """The cost of passes other than products, and the overhead of each row of a tile."""
        total, combined = 0.0, set()
        for component in self.fold.components:
            if component in self.products:
                continue
            lift = self.layout.elements.lifts[component.symbol]
            points = self.length * self._points(lift)
            if component.parts:
                total += 0.0 if component.parts in combined else points * TUPLE_NS
                combined.add(component.parts)
                continue
            passed = vector_ns(points, self._operations(lift) + 1 + ACCESS_OPERATIONS * len(lift.free_symbols))
            total += passed if self.sideways else max(passed, points * CHAIN_NS / self.layout.tiling.lanes)
            total += points * self._gathers(lift) * GATHER_NS
            total += 0.0 if self.sideways else self._points(lift) * self._row_ns()
        return total

    def _row_ns(self) -> float:
        """The cost of a row to a fold, beside its elements."""
        return START_NS + self.tiles * ROW_NS + (RAGGED_NS if self.layout.tiling.ragged else 0.0)

    def _gathers(self, expression: sp.Expr) -> int:
        """Loads of an expression that are strided along the axis."""
        return len(gathered(self._loads(expression.free_symbols), self.group.frame.axis[-1]))

    def _state_ns(self) -> float:
        """Updates of the state after each tile, and moves of its references."""
        moves = sum(self._points(reference.value) for reference in self.fold.references) * self.tiles * MOVE_NS
        updates = sum(
            vector_ns(self._points(c.symbol), self._operations(c.shift) + 1 + 3 * ACCESS_OPERATIONS)
            for c in self.fold.components
        )
        return moves + updates * self.tiles + self._sums_ns()

    def _results_ns(self) -> float:
        return sum(
            vector_ns(self._points(result), self._operations(value) + 2 * ACCESS_OPERATIONS)
            for result, value in self.fold.finish.items()
        )

    def _sums_ns(self) -> float:
        """Traffic of the products' sums: each tile writes its own, reads them, and adds them to those of a block.

        They stay at hand as long as a cache holds a block's beside the operands of a tile.
        """
        points = sum(self._points(c.lift) for c in self.products)
        width = points / math.prod(map(self._extent, self.layout.rows))
        resident = (2 * self.block + self.layout.tiling.tile) * width * SUM_BYTES
        return 3 * points * SUM_BYTES * self.tiles / self.cpu.bytes_per_ns(resident)

    def _operations(self, expression: sp.Expr) -> int:
        """Arithmetic of one point, functions weighted."""
        functions = {f for f in expression.atoms(sp.Function) if not isinstance(f, (sp.Abs, sp.sign, sp.Max, sp.Min))}
        return int(sp.count_ops(expression)) + FUNCTION_OPERATIONS[self.vector_math] * len(functions)


def _number(extent: object) -> int:
    return int(extent)  # type: ignore[call-overload]
