"""The knobs of a CPU's lowering: whether to fuse, and the tile, rows, lanes and segments of a fused loop."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cache
from typing import Any

from tvm import tirx

from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import is_static
from tvm_cascade.analysis.tir import product
from tvm_cascade.devices.device import Cpu
from tvm_cascade.driver.backend import Goal, Lowered, as_it_is
from tvm_cascade.driver.cpu_lengths import LengthCosts
from tvm_cascade.driver.llvm import lower_cpu
from tvm_cascade.driver.space import Design, Knob, Sizes, Space
from tvm_cascade.options import FuseOptions
from tvm_cascade.schedule.row_plan import MOST_ROWS
from tvm_cascade.transform.cost import estimate
from tvm_cascade.transform.fuse_function import Outcome, fuse_function

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
        numbers = [estimate(outcome.program, group, options, goal.device) for group in found]
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
    """The form, the options and the rows of a design."""
    words = {knob.name: knob.values[place] for knob, place in zip(knobs, design, strict=True)}
    given: dict[str, Any] = {name: int(word) for name, word in words.items() if name in _OPTIONS and word != CHOSEN}
    force = options.force or (words["form"] == FUSED and any(design))
    rows = None if words["rows"] == CHOSEN else int(words["rows"])
    return words["form"], dataclasses.replace(options, **given, force=force), rows
