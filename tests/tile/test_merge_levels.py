"""One merge at every level: lanes, warps, blocks of a cluster and of a grid, with empty segments and remainders.

The emulator runs blocks and threads in two orders and asks for the same bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from campaigns.grammar import draw
from campaigns.program import data, program
from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.algebra.policy import Move as Rule
from tvm_cascade.evaluate import tolerance
from tvm_cascade.steps.arithmetic import Float64, Numbers
from tvm_cascade.steps.numbers import EMPTY, NumericSteps, State
from tvm_cascade.tile.merge.grid import LAUNCHES, LEFT_BITS
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.row.config import RowConfig
from tvm_cascade.tile.row.program import RowProgram

from ..analysis.programs import at_huge_offset, squares_about_a_result
from ..tiers import slow_but
from .emulator.guarded import Array
from .emulator.run import EmulationError, compiler, emulate
from .row_programs import PROGRAMS
from .test_row_kernels import assert_right, drawn, row_kernel

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

LEVELS = {
    "lanes": RowConfig(128, 32, 1, 1),
    "warps": RowConfig(128, 128, 1, 1),
    "blocks of a cluster": RowConfig(128, 128, 1, 1, segments=4, clustered=True),
    "blocks of a grid": RowConfig(128, 128, 1, 1, segments=5),
}
ROWS = 2
SEED = 180
"""Sums at a reference that an input of the row moves."""


@pytest.mark.parametrize(
    ("level", "name"),
    slow_but(
        [*((level, "softmax_stats") for level in LEVELS), ("warps", "variance")],
        [*((level, "softmax_stats") for level in LEVELS), ("warps", "variance"), ("warps", "argmax_of_softmax")],
    ),
)
def test_folds_of_a_length_that_nothing_divides(level: str, name: str) -> None:
    assert_right(PROGRAMS[name](dtype="float32", rows=2, length=331), LEVELS[level])


@pytest.mark.parametrize("level", slow_but(["warps", "blocks of a grid"], LEVELS))
def test_a_random_fold(level: str) -> None:
    case = draw(SEED)
    assert_right(program(case), LEVELS[level], inputs=data(case, 0))


@pytest.mark.parametrize(
    ("name", "level"),
    slow_but(
        [
            ("softmax_stats", "blocks of a cluster"),
            ("variance", "blocks of a grid"),
            ("argmax_of_softmax", "blocks of a grid"),
        ],
        product(["softmax_stats", "variance", "argmax_of_softmax"], ["blocks of a cluster", "blocks of a grid"]),
    ),
)
def test_segments_of_nothing_are_the_identity(level: str, name: str) -> None:
    """Three positions: most threads, warps and segments have none."""
    assert_right(PROGRAMS[name](dtype="float32", rows=2, length=3), LEVELS[level])


@pytest.mark.parametrize("level", LEVELS)
def test_states_far_apart(level: str) -> None:
    """The greatest element is in one segment's last position; in another all are −inf."""
    for kind in ("late_spike", "neg_inf_first_segment"):
        assert_right(PROGRAMS["softmax_stats"](dtype="float32", rows=1, length=331), LEVELS[level], kind)


def beside_others(taken: int, unknown: bool = False) -> Callable[[str], str]:
    """The text of a kernel while others have the first sets, launch 1's home among them, with an arrival in each row.

    `unknown` : no launch sees that they are another's.
    """
    unit = (99 << LEFT_BITS + 1) + 2  # of another launch, two blocks of which are left

    def change(text: str) -> str:
        owned, arrived = ", ".join([f"{2 * unit}ull"] * taken), ", ".join(["1"] * (taken * ROWS))
        text, words = re.subn(r"_owned\[\d+\](?=;)", rf"\g<0> = {{{owned}}}", text)
        text, begun = re.subn(r"_arrived\[\d+\](?=;)", rf"\g<0> = {{{arrived}}}", text)
        assert words and begun
        return text.replace("found != 0", "false") if unknown else text

    return change


@pytest.mark.parametrize("taken", [2, LAUNCHES - 1])
def test_launches_in_flight_keep_their_states_apart(taken: int) -> None:
    """With one set left, the second of the emulator's runs waits for ever where a block of the first has kept it."""
    func = PROGRAMS["softmax_stats"](dtype="float32", rows=ROWS, length=331)
    inputs, kernel = drawn(func), row_kernel(func, LEVELS["blocks of a grid"])
    alone, together = (emulate(kernel.func, inputs, change) for change in (lambda text: text, beside_others(taken)))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_launch_that_shares_its_states_with_another_is_told_by_that() -> None:
    """The check above can fail: a launch finds an arrival that is none of its own."""
    func = PROGRAMS["softmax_stats"](dtype="float32", rows=ROWS, length=331)
    inputs, kernel = drawn(func), row_kernel(func, LEVELS["blocks of a grid"])
    alone = emulate(kernel.func, inputs)
    try:
        shared = emulate(kernel.func, inputs, beside_others(2, unknown=True))
    except EmulationError:
        return
    assert any((one != other).any() for one, other in zip(alone, shared, strict=True))


def test_a_set_that_is_never_given_back_is_waited_for() -> None:
    """The emulator's second launch has another number than the first."""
    func = PROGRAMS["softmax_stats"](dtype="float32", rows=ROWS, length=331)
    kernel = row_kernel(func, LEVELS["blocks of a grid"])

    def kept(text: str) -> str:
        return beside_others(LAUNCHES - 1)(text).replace("0ull - main_unit()", "0ull")

    with pytest.raises(EmulationError, match="waits for ever"):
        emulate(kernel.func, drawn(func), kept)


@pytest.mark.parametrize(
    ("level", "length"),
    slow_but(
        [("lanes", 40), ("warps", 40), ("blocks of a grid", 16)],
        [*((level, 40) for level in LEVELS), ("blocks of a grid", 16)],
    ),
)
def test_a_reference_that_has_no_value_any_more_stands_where_a_holder_stood(level: str, length: int) -> None:
    """Lanes, warps and, of 16 positions, a segment have none; at zero, where those start, all numbers would be lost."""
    assert_right(squares_about_a_result(length, 2), LEVELS[level], inputs=at_huge_offset(length, 2))


MOVES: dict[str, tuple[str, Rule, Callable[[float], list[float]]]] = {
    "softmax_stats": ("lazy", Rule.LAZY, lambda x: [x]),
    "kurtosis": ("exact", Rule.EXACT, lambda x: [x, abs(x)]),
}
"""Programs of x, the option `reference` and the rule that their last reference moves by, and what they read of x."""


@pytest.mark.parametrize(
    ("level", "name"),
    slow_but(
        [
            ("lanes", "softmax_stats"),
            ("warps", "kurtosis"),
            ("blocks of a cluster", "kurtosis"),
            ("blocks of a grid", "softmax_stats"),
        ],
        product(LEVELS, MOVES),
    ),
)
def test_merges_of_merges_are_those_of_the_step_program(level: str, name: str) -> None:
    """Lanes, warps and segments at references far from and near each other, some of them empty."""
    reference, rule, _ = MOVES[name]
    x = np.random.default_rng(1).uniform(-40, 40, (2, 45)).astype("float32")
    kernel = row_kernel(PROGRAMS[name](dtype="float32", rows=2, length=45), LEVELS[level], reference=reference)
    program = kernel.program
    assert isinstance(program, RowProgram) and program.body.moves[-1].rule is rule
    outputs = emulate(kernel.func, [x])
    for row in range(2):
        results = {str(result): value for result, value in merged_at(LEVELS[level], name, program, x[row]).items()}
        for output, found in zip(program.row.outputs, outputs, strict=True):
            expected = np.asarray([results[output.buffer.name]])
            tolerance.assert_close(found[row : row + 1], expected, length=45, dtype="float32")


def merged_at(config: RowConfig, name: str, program: RowProgram, row: Array) -> Numbers:
    """The results of a row by the steps in float64, cut as the kernel cuts it and merged level by level."""
    numeric = NumericSteps(program.body, Float64(), {LENGTH: float(len(row))})

    def of_thread(positions: Array) -> State:
        state = EMPTY
        for x in positions:
            elements = zip(program.position_inputs, MOVES[name][-1](float(x)), strict=True)
            state = numeric.fold_in(state, [dict(elements)])
        return state

    def of_segment(positions: Array) -> State:
        threads = [of_thread(positions[k :: config.sharing]) for k in range(config.sharing)]
        return numeric.merge(*(numeric.merge(*threads[k : k + WARP]) for k in range(0, config.sharing, WARP)))

    step = -(-len(row) // config.segments)
    return numeric.finish(numeric.merge(*(of_segment(row[k * step :][:step]) for k in range(config.segments))))
