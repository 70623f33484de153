"""The knobs of a CPU's lowering: what there is to choose, and which values are the schedule's own."""

from __future__ import annotations

import pytest
from tvm.target import Target

from corpus import workloads
from tvm_cascade.driver.gpu_space import space_of
from tvm_cascade.driver.lowering import goal_of
from tvm_cascade.driver.space import Space
from tvm_cascade.options import FuseOptions

CORE = Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "znver4", "num-cores": 1})


def space(rows: int) -> Space:
    func = workloads.get("logsumexp").with_shape(rows=rows, length=4096).build()
    return space_of(func, "main", goal_of(CORE, FuseOptions()), None)


@pytest.mark.parametrize(("rows", "offered"), [(1, True), (3, True), (4, False), (512, False)])
def test_segments_are_offered_where_rows_are_few(rows: int, offered: bool) -> None:
    """From four rows a core on, these keep it busy without states to merge."""
    assert ("segments" in {knob.name for knob in space(rows).knobs}) == offered


def test_what_is_chosen_by_shape_comes_first() -> None:
    knobs = {knob.name: knob.values for knob in space(512).knobs}
    assert all(knobs[name][0] == "by shape" for name in ("tile", "lanes", "rows"))
    assert knobs["rows"][1:] == ("16", "32", "64", "128") and "64" in knobs["lanes"]
