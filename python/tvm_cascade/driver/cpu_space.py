"""The knobs of a CPU's lowering: whether to fuse, and the tile, rows, lanes and segments of a fused loop."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

from tvm import ir, tirx

from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.analysis.extract import Group, Reductions
from tvm_cascade.analysis.passes import passes_of
from tvm_cascade.analysis.program import Program, Stage, at_sizes, is_static
from tvm_cascade.analysis.tir import product
from tvm_cascade.devices.device import Cpu
from tvm_cascade.driver.backend import Goal, Lowered, as_it_is
from tvm_cascade.driver.llvm import lower_cpu
from tvm_cascade.driver.space import Design, Knob, Sizes, Space
from tvm_cascade.options import FuseOptions
from tvm_cascade.schedule.row_plan import MOST_ROWS
from tvm_cascade.transform.cost import alone_ns, estimate
from tvm_cascade.transform.fuse_function import Outcome, fuse_function, read_function
from tvm_cascade.transform.planning import asked_for, loop_of, loops_of

FUSED, UNFUSED, CHOSEN = "fused", "unfused", "by shape"

_OPTIONS: dict[str, tuple[int, ...]] = {
    "tile": (32, 64, 128, 256, 512, 1024),
    "lanes": (1, 16, 32, 64),
    "segments": (2, 4),
}
"""Options of the pass that are knobs where the caller leaves them open, and their values beside the default."""


def cpu_space(func: tirx.PrimFunc, name: str, goal: Goal) -> Space:
    """The designs of a function: unfused, or fused with tiles, lanes, segments and rows of a task."""
    outcome = fuse_function(func, goal.options, goal.device)
    groups = [one.candidate.group for one in outcome.decisions if one.reason.verdict in _FUSABLE]
    found = [group for group in groups if group is not None]
    if outcome.program is None or not found:
        return Space((), lambda _design: 0.0, lambda _design, called=name: (outcome, lower_cpu(outcome, called, goal)))
    forms = (FUSED, UNFUSED) if outcome.fused else (UNFUSED, FUSED)
    assert isinstance(goal.device, Cpu)
    knobs = (Knob("form", forms), *_knobs(goal.options, found, goal.device, (0, forms.index(FUSED))))

    @cache
    def seconds(options: FuseOptions, form: str) -> float:
        assert outcome.program is not None
        if not is_static(outcome.program):
            return 0.0
        loops = loops_of(asked_for(outcome.program, found), options, goal.device)
        numbers = [estimate(outcome.program, loop, options, goal.device) for loop in loops]
        return sum(one.ns_after if form == FUSED else one.ns_before for one in numbers) * 1e-9

    assert isinstance(goal.device, Cpu)
    costs = LengthCosts(outcome.program, found, goal.options, goal.device)

    def at(sizes: Sizes) -> Callable[[Design], float]:
        def seconds_at(design: Design) -> float:
            form, chosen, _ = _read(knobs, design, goal.options)
            known = tuple(sizes.items())
            return 1e-9 * (costs.fused_ns(known, chosen.tile) if form == FUSED else costs.unfused_ns(known))

        return seconds_at

    def lower(design: Design, called: str = name) -> tuple[Outcome, Lowered]:
        form, options, rows = _read(knobs, design, goal.options)
        if not any(design):
            made = outcome
        else:
            made = fuse_function(func, options, goal.device) if form == FUSED else as_it_is(func)
        return made, lower_cpu(made, called, dataclasses.replace(goal, options=options), rows)

    return Space(
        knobs,
        lambda design: seconds(*reversed(_read(knobs, design, goal.options)[:2])),
        lower,
        at,
    )


_FUSABLE = (Verdict.FUSED, Verdict.DECLINED)


_ROWS_OF_A_CORE = 4
"""From which on rows keep cores busy without segments: these share the work of few rows, and have to be merged."""


def _knobs(options: FuseOptions, groups: list[Group], cpu: Cpu, under: tuple[int, int]) -> list[Knob]:
    """Of a fused function: the options that are not given, of values that are shorter than the axis, and rows."""
    lengths = [group.frame.length for group in groups]
    few = any(_rows_of(group) < _ROWS_OF_A_CORE * cpu.cores for group in groups)
    longest = max(length if isinstance(length, int) else math.inf for length in lengths)
    default = FuseOptions()
    found = []
    for name, values in _OPTIONS.items():
        if getattr(options, name) == getattr(default, name) and (few or name != "segments"):
            found.append(Knob(name, (CHOSEN, *(str(value) for value in values if value < longest)), under))
    return [*(knob for knob in found if len(knob.values) > 1), Knob("rows", (CHOSEN, *map(str, MOST_ROWS)), under)]


def _rows_of(group: Group) -> float:
    """Outputs of the member that has the fewest; 0 where that is not known."""
    outputs = [product(member.stage.extents[v] for v in member.stage.spatial) for member in group.members]
    return min(number if isinstance(number, int) else 0 for number in outputs)


def _read(knobs: tuple[Knob, ...], design: Design, options: FuseOptions) -> tuple[str, FuseOptions, int | None]:
    words = {knob.name: knob.values[place] for knob, place in zip(knobs, design, strict=True)}
    given: dict[str, Any] = {name: int(word) for name, word in words.items() if name in _OPTIONS and word != CHOSEN}
    force = options.force or (words["form"] == FUSED and any(design))
    rows = None if words["rows"] == CHOSEN else int(words["rows"])
    return words["form"], dataclasses.replace(options, **given, force=force), rows


# Estimates of a CPU's designs of a function with symbolic extents, for the lengths up to given ones.


_MEAN = 0.75
"""Of the lengths between the half of one and itself."""

_UNKNOWN = 1.35
"""Time of a loop whose lanes or sums are of a symbolic extent over that of a known one (measured: 1.1 to 1.4 in
products, 1.0 to 1.4 in reductions of rows, 1.1 to 1.3 in maps, 1.0 to 2.4 in fused loops, most in short rows)."""


class LengthCosts:
    """What groups of a function with symbolic extents cost at lengths.

    Parameters
    ----------
    program, groups : as they were read, with symbolic extents.
    """

    def __init__(self, program: Program, groups: Sequence[Group], options: FuseOptions, cpu: Cpu) -> None:
        self._program, self._groups, self._options, self._cpu = program, groups, options, cpu
        self._read, self._whole_ns = cache(self._read_at), cache(self._estimated_ns)
        self.fused_ns, self.unfused_ns = cache(self._fused_ns), cache(self._unfused_ns)

    def _fused_ns(self, sizes: tuple[tuple[str, int], ...], tile: int | None) -> float:
        """Time of all loops in tiles of so many positions, or of those by shape; 0 where it is not known."""
        return sum(self._loop_ns(group, sizes, tile) for group in self._groups)

    def _loop_ns(self, group: Group, sizes: tuple[tuple[str, int], ...], tile: int | None) -> float:
        extent = group.frame.extents[group.frame.axis[-1]]
        tile = tile or self._tiles[group.names]
        long = {name: max(size, self._least_rows if self._multiplies else 1) for name, size in sizes}
        end = long[extent.name] if isinstance(extent, ir.Var) and extent.name in long else 0
        if end:
            long[str(extent)] = max(end, tile)
        whole = self._whole_ns(group.names, tuple(long.items()), tile) * (_UNKNOWN if end else 1.0)
        return whole if end <= tile else whole * (_MEAN * end + tile / 2) / end

    def _estimated_ns(self, names: tuple[str, ...], sizes: tuple[tuple[str, int], ...], tile: int) -> float:
        """Time of a loop at sizes that its tiles divide; 0 where the function has none there."""
        program, known = self._read(sizes)
        if program is None or names not in known:
            return 0.0
        options = dataclasses.replace(self._options, tile=tile)
        loop = loop_of(program, known[names], options, self._cpu)
        return estimate(program, loop, options, self._cpu).ns_after

    def _unfused_ns(self, sizes: tuple[tuple[str, int], ...]) -> float:
        """Time of all stages in nests of their own; 0 where it is not known."""
        # An odd length: nothing divides it.
        program = _static(self._program, {name: int(_MEAN * size) | 1 for name, size in sizes})
        if program is None:
            return 0.0
        stages = {stage.name: stage for stage in program.stages}
        found = [passes_of(self._program, group) for group in self._groups]
        own = {stage.name: stage for passes in found for stage in (*passes.inside, *passes.after)}

        def stage_ns(name: str, symbolic: Stage) -> float:
            inner = (*symbolic.spatial[1:], *symbolic.reduce)
            known = all(isinstance(symbolic.extents[axis], int) for axis in inner)
            alone = alone_ns(program, stages[name], self._cpu, self._options.vector_math)
            return alone if known else alone * _UNKNOWN

        return sum(stage_ns(*one) for one in own.items())

    @cached_property
    def _tiles(self) -> dict[tuple[str, ...], int]:
        """The tiles by shape, of loops of symbolic length."""
        loops = [loop_of(self._program, one, self._options, self._cpu) for one in self._groups]
        return {loop.plan.group.names: loop.layout.tiling.tile for loop in loops}

    @cached_property
    def _multiplies(self) -> bool:
        """Whether a product is inside, whose rows are padded to whole vectors."""
        stages = [stage for group in self._groups for stage in passes_of(self._program, group).inside]
        return any(len(stage.spatial) > 1 and len(stage.spatial) + len(stage.reduce) > 2 for stage in stages)

    @property
    def _least_rows(self) -> int:
        return 2 * self._cpu.lanes("float32")

    def _read_at(self, sizes: tuple[tuple[str, int], ...]) -> tuple[Program | None, dict[tuple[str, ...], Group]]:
        """The program at sizes, and its groups by the names of their results."""
        program = _static(self._program, dict(sizes))
        if program is None:
            return None, {}
        found = Reductions(program, self._options.rescalable_casts, self._options.reference).cascades()
        groups = [candidate.group for candidate in found if candidate.group is not None]
        return program, {group.names: group for group in groups}


def _static(program: Program, sizes: Sizes) -> Program | None:
    """The program at sizes; None where these leave an extent open."""
    read = read_function(at_sizes(program.func, sizes))
    return read if isinstance(read, Program) and is_static(read) else None
