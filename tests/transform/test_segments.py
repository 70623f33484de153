"""Segments of the axis, merged at one reference by every rule of movement."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from tvm import te, tirx

from tvm_cascade.analysis.extract import Reductions
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program

from ..analysis.programs import LENGTH, ROWS, array, fold, maximum, number, program
from .programs import entropy_of_probabilities, softmax_times_values
from .running import Unfused, build

RULES = ("exact", "lazy", "power_of_two")
TILINGS = [(4, 7), (16, 2)]
"""(tile, segments): of ten tiles seven segments are asked for, and five made, so that none is empty."""


def log_ratios() -> tirx.PrimFunc:
    """x -> Σ log(x / max x), of x above 1: the reference is a scale."""
    x = array("x")
    above = lambda i, j: te.abs(x[i, j]) + number(1)  # noqa: E731
    largest = fold("largest", above, maximum)
    return program(x, fold("out", lambda i, j: te.log(above(i, j) / largest[i])))


PROGRAMS: dict[str, Callable[[], tirx.PrimFunc]] = {
    "entropy": entropy_of_probabilities,
    "log of ratios": log_ratios,
    "softmax times values": softmax_times_values,
}


@cache
def unfused(name: str, rule: str) -> Unfused:
    func = PROGRAMS[name]()
    read = read_program(func)
    assert isinstance(read, Program)
    groups = [c.group for c in Reductions(read, reference=rule).cascades() if c.group is not None]
    assert groups
    return Unfused(func, read, groups, build(func))


def rows(kind: str) -> NDArray[np.float32]:
    ramp = np.linspace(0, 60, LENGTH, dtype="float32")
    rng = np.random.default_rng(1)
    return {
        "normal": rng.standard_normal((ROWS, LENGTH)),
        "rising": np.tile(ramp, (ROWS, 1)),
        "falling": np.tile(ramp[::-1], (ROWS, 1)),
    }[kind].astype("float32")


@pytest.mark.parametrize("tiling", TILINGS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_segments_merge_by_every_rule(name: str, rule: str, tiling: tuple[int, int]) -> None:
    tile, segments = tiling
    one = unfused(name, rule)
    values = np.random.default_rng(2).standard_normal((LENGTH, 5)).astype("float32")
    for kind in ("normal", "rising", "falling"):
        given = [rows(kind), values][: len(one.func.params) - 1]
        one.check(given, tile=tile, segments=segments)
