"""A skeleton that the package does not have: two warp groups share rows, each with half of the cascade axis.

    group 0, 1    fold their own tiles; leave their states in shared memory
    group 0       take the other's states; merge; finish; store

It is one module and one row of the table: everything but the split is the stream skeleton's.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import COUNT, LENGTH
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.options import FuseOptions
from tvm_cascade.steps.program import program_of
from tvm_cascade.tile.attention.operands.feed import Feed
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.shape import Stream
from tvm_cascade.tile.cost import Counts, in_turn
from tvm_cascade.tile.emit import bind, kernel_extent, ptx, registers, when
from tvm_cascade.tile.estimate import Work as Amounts
from tvm_cascade.tile.fragment import DTYPE, QUAD, ROWS
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.live import TileRange
from tvm_cascade.tile.merge.combine import Alone, merge
from tvm_cascade.tile.merge.places import Slots, shared_slots
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeleton import Setting
from tvm_cascade.tile.skeletons.stream.config import StreamConfig
from tvm_cascade.tile.skeletons.stream.consumer import Consumer
from tvm_cascade.tile.skeletons.stream.epilogue import Epilogue, row_states
from tvm_cascade.tile.skeletons.stream.kernel import StreamKernel
from tvm_cascade.tile.skeletons.stream.skeleton import StreamSkeleton
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.state import COUNTER, Part, PartForm, State
from tvm_cascade.tile.work import WARP_GROUP, Threads, Work

_HALVES = 2
_FIXUP = 15
"""The named barrier of the two groups."""


def state_form(stream: Stream) -> list[PartForm]:
    """The registers of one row in a thread: scalars, and a fragment of each product's accumulator."""
    widths = {product.component.symbol: product.width // QUAD for product in stream.products}
    components = [PartForm(DTYPE, widths.get(component.symbol, 1)) for component in stream.fold.components]
    return [*components, *(PartForm(DTYPE) for _ in stream.fold.references), PartForm(COUNTER)]


@dataclass(frozen=True)
class SplitConfig(StreamConfig):
    """Both groups have the same rows."""

    @property
    def row_groups(self) -> int:
        """Warp groups that have rows of their own."""
        return 1

    def shared_bytes(self, program: TileProgram) -> int:
        """Bytes of shared memory for the operands and for the states that change hands."""
        registers = sum(part.width for part in state_form(program.stream))
        return super().shared_bytes(program) + len(ROWS) * WARP_GROUP * 4 * registers


class SplitConsumer(Consumer):
    """One of the two groups."""

    def __init__(
        self, tiling: Tiling, threads: Threads, left: Feed, right: Feed, value: Feed, epilogue: SplitEpilogue
    ) -> None:
        super().__init__(tiling, threads, left, right, value, epilogue)
        self.slots = epilogue.slots

    @property
    def apart(self) -> bool:
        """Whether the groups of a block fold different tiles."""
        return True

    def own_tiles(self, work: Work) -> TileRange:
        """The first half of the tiles, or the rest."""
        tiles = work.tiles
        middle = bind("middle", tiles.first + (tiles.end - tiles.first) // _HALVES)
        self.own = TileRange(
            bind("own_first", tirx.Select(self.index == 0, tiles.first, middle)),
            bind("own_end", tirx.Select(self.index == 0, middle, tiles.end)),
        )
        return self.own

    def hand_over(self) -> None:
        """Group 1 leaves its states; group 0 merges them with its own, and stores."""
        counter = Part(registers("folded", 1, COUNTER))
        length = kernel_extent(self.stream.extent(self.stream.position))
        counter.put(tirx.min(self.own.end * self.columns, length) - self.own.first * self.columns)
        states, place = row_states(self.stream, self, counter), self.threads.warp * 32 + self.threads.lane
        with when(self.index == 1):
            for slots, state in zip(self.slots, states, strict=True):
                slots.leave(state, place)
            if not self.epilogue.own_staging:
                with when(self.threads.leads):
                    self.left_is_read()
        self._meet()
        with when(self.index == 0):
            for row, (slots, state) in enumerate(zip(self.slots, states, strict=True)):
                self._merge(row, state, slots, place)
            self.epilogue.emit(self)
        self._meet()  # before the states of the next rows are left

    def _merge(self, row: int, state: State, slots: Slots, place: ir.Expr) -> None:
        widths = {symbol: part.width for symbol, part in state.fragments.items()}
        other = State.in_registers(state.fold, state.dtypes, DTYPE, "_other", widths)
        slots.take(other, place)
        inputs = {s: self.rows.values[s][row] for s in self.program.row_inputs}
        length = kernel_extent(self.stream.extent(self.stream.position))
        merge(
            program_of(self.stream.fold), state, Alone(), {**inputs, LENGTH: tirx.Cast(DTYPE, length)}, others=[other]
        )

    def _meet(self) -> None:
        ptx("bar.sync", T.uint32(_FIXUP), T.uint32(_HALVES * WARP_GROUP))


class SplitEpilogue(Epilogue):
    """Also has the memory for states that change hands."""

    def allocate(self, pool: Any, left_boxes: int) -> None:
        """Shared memory for the stores, and for a state of each thread's rows."""
        super().allocate(pool, left_boxes)
        self.slots = [shared_slots("states", pool, state_form(self.stream), WARP_GROUP) for _ in ROWS]


class SplitKernel(StreamKernel):
    """Emits the kernel."""

    def _epilogue(self) -> Epilogue:
        self.states = SplitEpilogue(self.tiling)
        return self.states

    def consume(self) -> None:
        """See `SplitConsumer`."""
        feeds = self.left_feed, self.right_feed, self.value_feed
        SplitConsumer(self.tiling, self.threads, *feeds, self.states).run(self.each_work)


class SplitStreamSkeleton(StreamSkeleton):
    """Stream kernels for rows that are too few to give each warp group its own."""

    name, covers = "split stream", "folds of a matrix product with a long axis"

    def read(self, program: Program, group: Group, options: FuseOptions) -> TileProgram:
        """Of a fold that does not count positions, along two tiles or more, all of which every row visits."""
        found = super().read(program, group, options)
        stream = found.stream
        length = stream.extent(stream.position)
        if not isinstance(length, int) or length <= SPLIT.columns:
            raise Unfit(f"{length} positions are no two tiles of {SPLIT.columns}")
        shifts = [c.shift for c in stream.fold.components] + [r.value for r in stream.fold.references]
        if any(COUNT in expression.free_symbols for expression in shifts):
            raise Unfit("its shifts count positions")
        if found.uneven:
            raise Unfit("rows visit different numbers of tiles")
        return found

    def counts(self, program: TileProgram, config: StreamConfig, work: Amounts, setting: Setting) -> Counts:
        """The axis takes two groups half as long, and few rows need no more of them."""
        return in_turn([super().counts(program, config, work, setting)], 1 / _HALVES)

    def alternatives(self, program: TileProgram, setting: Setting) -> list[StreamConfig]:
        """The one configuration that there is."""
        return [dataclasses.replace(SPLIT, blocks=setting.gpu.processors)]

    def emit(self, program: TileProgram, config: StreamConfig, name: str, launch: Launch) -> tirx.PrimFunc:
        """See `SplitKernel`."""
        return SplitKernel(program, config, launch).build(name)


SPLIT = SplitConfig(columns=64, consumers=_HALVES, stages=4, ping_pong=False)
