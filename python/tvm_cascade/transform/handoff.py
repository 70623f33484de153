"""Hand-off to MetaSchedule: one anchor block asks for our schedule rule, every other block for none.

Default rules split and inline blocks of the fused loop one by one, which breaks it; with the root annotated as well,
even a plain `meta_schedule.tune_tir` samples our space alone. The anchor tells of the fold, too: Relax's FuseTIR drops
attributes of the functions that it merges, and keeps those of their blocks.
"""

from __future__ import annotations

import json

import tvm_ffi
from tvm import s_tir, tirx

from tvm_cascade.transform.nest import ROLE

SCHEDULE_RULE = "tvm_cascade"
"""Name of the schedule rule, registered as `s_tir.meta_schedule.<target>.tvm_cascade`."""


FUSED = "tvm_cascade.fused"
"""Attribute of a fused function, and of its anchor block: JSON with its groups and folds."""


def summary_of(func: tirx.PrimFunc) -> str | None:
    """What a fused function tells of its groups and folds, in JSON; None where nothing of it was fused."""
    if func.attrs is not None and FUSED in func.attrs:
        return str(func.attrs[FUSED])
    found: list[str] = []

    def note(block: s_tir.SBlock) -> None:
        if FUSED in block.annotations:
            found.append(str(block.annotations[FUSED]))

    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, note))
    return json.dumps([group for summary in found for group in json.loads(summary)]) if found else None


def hand_to_tuner(func: tirx.PrimFunc, summary: str) -> tirx.PrimFunc:
    """The function with a `schedule_rule` on every block, and with the summary of its folds."""
    anchored = False

    def annotate(block: s_tir.SBlock, mutator: object) -> s_tir.SBlock:
        nonlocal anchored
        block = mutator.default_mutate(block)  # type: ignore[attr-defined]
        anchor = not anchored and block.annotations.get(ROLE) == "update"
        anchored = anchored or anchor
        own = {"schedule_rule": SCHEDULE_RULE, FUSED: summary} if anchor else {"schedule_rule": "None"}
        annotations = {**dict(block.annotations), **own}
        return s_tir.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            block.name_hint,
            block.body,
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            annotations,
        )

    annotated = func.with_body(tvm_ffi.structural_mutate(func.body, (s_tir.SBlock, annotate)))
    return annotated.with_attr(FUSED, summary)
