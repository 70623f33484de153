"""Hand-off to MetaSchedule: one anchor block asks for our schedule rule, every other block for none.

Default rules split and inline blocks of the fused loop one by one, which breaks it; with the root annotated as well,
even a plain `meta_schedule.tune_tir` samples our space alone.
"""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx

from tvm_cascade.transform.nest import ROLE

SCHEDULE_RULE = "tvm_cascade"
"""Name of the schedule rule, registered as `s_tir.meta_schedule.<target>.tvm_cascade`."""


def hand_to_tuner(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with a `schedule_rule` on every block."""
    anchored = False

    def annotate(block: s_tir.SBlock, mutator: object) -> s_tir.SBlock:
        nonlocal anchored
        block = mutator.default_mutate(block)  # type: ignore[attr-defined]
        anchor = not anchored and block.annotations.get(ROLE) == "update"
        anchored = anchored or anchor
        annotations = {**dict(block.annotations), "schedule_rule": SCHEDULE_RULE if anchor else "None"}
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

    return func.with_body(tvm_ffi.structural_mutate(func.body, (s_tir.SBlock, annotate)))
