"""Where references go, and what empty states do: one rule, for numbers and for TIR."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import sympy as sp
import tvm
from tvm import tirx

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.algebra.policy import LAZY_DISTANCE
from tvm_cascade.algebra.policy import Move as Rule
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.obligations.definition import definition
from tvm_cascade.obligations.derive import derive
from tvm_cascade.steps.arithmetic import Float64
from tvm_cascade.steps.move import departure, destination, displacement
from tvm_cascade.steps.numbers import EMPTY, NumericSteps, State
from tvm_cascade.steps.program import Combine, Finish, Move, Reduce, Shift, StepProgram, program_of
from tvm_cascade.transform.values import SMALLEST_SCALE, TirValues

from ..algebra.cascades import FUSABLE, fold_of, x

c, moved, step = sp.symbols("c c' Δc", real=True)
EXACT = Move(c, moved, step, sp.Symbol("t"), guarded=False, scale=False, rule=Rule.EXACT, decay=None)
GUARDED = dataclasses.replace(EXACT, guarded=True)
SCALE = dataclasses.replace(GUARDED, scale=True)
LAZY = dataclasses.replace(EXACT, rule=Rule.LAZY)
LOWEST = float(np.finfo("float32").min)

CASES = [
    (EXACT, 7.0, 3.0, False, 7.0),
    (EXACT, math.inf, 3.0, False, math.inf),
    (GUARDED, math.inf, 3.0, False, 3.0),
    (GUARDED, math.nan, 3.0, False, 3.0),
    (GUARDED, 0.0, 3.0, False, 0.0),
    (SCALE, 0.0, 3.0, False, 3.0),
    (SCALE, -2.0, 3.0, False, -2.0),
    (LAZY, 3.0 + LAZY_DISTANCE, 3.0, False, 3.0),
    (LAZY, 3.5 + LAZY_DISTANCE, 3.0, False, 3.5 + LAZY_DISTANCE),
    (LAZY, 3.0 - LAZY_DISTANCE, 3.0, False, 3.0),
    (LAZY, 4.0, 3.0, True, 4.0),
]


@pytest.mark.parametrize(("move", "value", "stay", "empty", "expected"), CASES)
def test_destinations_in_numbers(move: Move, value: float, stay: float, empty: bool, expected: float) -> None:
    assert destination(move, value, stay, empty, Float64()) == expected


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_destinations_in_tir_are_those_in_numbers(dtype: str) -> None:
    """Each case with the state's emptiness known when the program is written, and not."""
    cases = [*CASES, (SCALE, SMALLEST_SCALE[dtype] / 10, 3.0, False, 3.0)]
    if dtype == "float32":
        cases += [(GUARDED, LOWEST, 3.0, False, 3.0)]  # what a maximum of no position is
    kind = TirValues(dtype)
    given = tirx.decl_buffer((len(cases), 3), dtype, name="given")
    found = tirx.decl_buffer((len(cases), 2), dtype, name="found")
    stores: list[tirx.Stmt] = []
    for k, (move, _, _, empty, _) in enumerate(cases):
        value, stay = (tirx.BufferLoad(given, [k, j]) for j in range(2))
        later = tirx.BufferLoad(given, [k, 2]) > tirx.const(0, dtype)
        for j, condition in enumerate((empty, later)):
            stores.append(tirx.BufferStore(found, destination(move, value, stay, condition, kind), [k, j]))
    func = tirx.PrimFunc([given, found], tirx.SeqStmt(stores)).with_attr("global_symbol", "main")
    rows = np.array([[value, stay, float(empty)] for _, value, stay, empty, _ in cases], dtype)
    out = tvm.runtime.tensor(np.full((len(cases), 2), -99.0, dtype))
    tvm.compile(tvm.IRModule({"main": func}), target="llvm")["main"](tvm.runtime.tensor(rows), out)
    expected = np.array([case[-1] for case in cases], dtype)
    for column in out.numpy().T:
        np.testing.assert_array_equal(column, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_step_under_a_decay_goes_no_further_than_where_that_vanishes(dtype: str) -> None:
    """Of the highest and the lowest number the difference is infinite, and so is its exponential: 0·inf is NaN."""
    highest, decay = float(np.finfo(dtype).max), 0.5
    pairs = [(5.0, 3.0), (highest, -highest), (-highest, highest), (1e6, 0.0)]
    given, found = (tirx.decl_buffer((len(pairs), n), dtype, name=name) for n, name in ((2, "given"), (1, "found")))
    move, kind = dataclasses.replace(EXACT, decay=decay), TirValues(dtype)
    stores = [
        tirx.BufferStore(found, displacement(move, *(tirx.BufferLoad(given, [k, j]) for j in range(2)), kind), [k, 0])
        for k in range(len(pairs))
    ]
    func = tirx.PrimFunc([given, found], tirx.SeqStmt(stores)).with_attr("global_symbol", "main")
    out = tvm.runtime.tensor(np.full((len(pairs), 1), np.nan, dtype))
    tvm.compile(tvm.IRModule({"main": func}), target="llvm")["main"](tvm.runtime.tensor(np.array(pairs, dtype)), out)
    near, far, back, further = out.numpy()[:, 0]
    assert near == 2 and far == further == -back
    with np.errstate(over="ignore"):
        assert np.isfinite(far) and np.exp(-decay * far.astype(dtype)) * np.dtype(dtype).type(highest) < 1e-30


def test_an_empty_state_stands_wherever_it_moves_to() -> None:
    kind = Float64()
    assert departure(5.0, 0.0, True, kind) == 5.0
    assert displacement(EXACT, 5.0, departure(5.0, 0.0, True, kind), kind) == 0.0
    assert displacement(EXACT, 5.0, departure(5.0, 2.0, False, kind), kind) == 3.0
    assert displacement(EXACT, 5.0, 2.0, kind, empty=True) == 0.0


def weighted_mean() -> NumericSteps:
    """Σ w and Σ w·x, at a guarded reference w_0·x/w_0; and Σ exp(x − c) there."""
    w, value = sp.symbols("w x", real=True)
    total, first, mass = sp.symbols("total first mass", real=True)
    move = dataclasses.replace(GUARDED, value=first / total)
    steps = (
        Reduce(total, SUM, w),
        Shift(total, total),
        Combine((total,), (SUM,)),
        Reduce(first, SUM, w * value),
        Shift(first, first),
        Combine((first,), (SUM,)),
        move,
        Reduce(mass, SUM, sp.exp(value - c)),
        Shift(mass, mass * sp.exp(-step)),
        Combine((mass,), (SUM,)),
    )
    finish = (Finish(sp.Symbol("log"), sp.log(mass) + c),)
    return NumericSteps(StepProgram(steps, finish), Float64(), {LENGTH: 4.0})


def test_where_the_merged_value_is_unusable_the_least_of_the_holders_stands() -> None:
    """Weights that cancel: at the start, 0, exp(x) of x near 1000 would overflow; where a holder stands it does not."""
    numeric = weighted_mean()
    w, value = sp.symbols("w x", real=True)
    left, right = (numeric.fold_in(EMPTY, [{w: sign, value: at}]) for sign, at in ((1.0, 1003.0), (-1.0, 1001.0)))
    both = numeric.merge(left, EMPTY, right)
    assert both.values[c] == 1001.0
    assert both == numeric.merge(right, left)
    expected = 1003 + math.log1p(math.exp(-2))
    assert numeric.finish(both)[sp.Symbol("log")] == pytest.approx(expected, rel=1e-15)
    third = numeric.fold_in(EMPTY, [{w: 2.0, value: 1002.0}])
    whole = numeric.merge(both, third)
    assert whole.values[c] == 1003.0  # (1003 − 1001 + 2004) / 2
    assert numeric.finish(whole)[sp.Symbol("log")] == pytest.approx(expected + math.log1p(
        math.exp(1002 - expected)), rel=1e-15)  # fmt: skip


def test_a_reference_that_was_never_usable_stands_at_its_start() -> None:
    numeric = weighted_mean()
    w, value = sp.symbols("w x", real=True)
    state = numeric.fold_in(EMPTY, [{w: 0.0, value: 1.0}])
    assert state.values[c] == 0.0
    assert numeric.fold_in(state, [{w: 1.0, value: 2.0}]).values[c] == 2.0


ROWS = [{x: value} for value in (1.0, 30.0, -4.0, 30.5, 2.0, 45.0, 44.0)]


@pytest.mark.parametrize("rule", ["exact", "lazy", "power_of_two"])
def test_every_grouping_gives_the_definition_whatever_the_rule(rule: str) -> None:
    source = FUSABLE["softmax"]()
    fold = derive(source, move=rule)
    numeric = NumericSteps(program_of(fold), Float64(), {LENGTH: float(len(ROWS))})
    expected = definition(source, ROWS)
    for width in (1, 2, 3, 7):
        segments = [_folded(numeric, ROWS[at : at + width]) for at in range(0, len(ROWS), width)]
        at_once = numeric.merge(EMPTY, *segments, EMPTY)
        in_pairs = EMPTY
        for segment in segments:
            in_pairs = numeric.merge(numeric.merge(EMPTY, in_pairs), segment)
        for state in (at_once, in_pairs):
            assert state.count == len(ROWS)
            assert numeric.finish(state) == pytest.approx(expected, rel=1e-14)


def _folded(numeric: NumericSteps, rows: list[dict[sp.Symbol, float]]) -> State:
    state = EMPTY
    for row in rows:
        state = numeric.fold_in(state, [row])
    return state


def test_lazy_references_stay_until_they_are_far() -> None:
    fold = derive(FUSABLE["softmax"](), move="lazy")
    numeric = NumericSteps(program_of(fold), Float64(), {LENGTH: 3.0})
    reference = fold.references[0].symbol
    near, far = 1.0 + LAZY_DISTANCE, 1.5 + LAZY_DISTANCE
    state = numeric.fold_in(EMPTY, [{x: 1.0}])
    assert numeric.fold_in(state, [{x: near}]).values[reference] == 1.0
    assert numeric.fold_in(state, [{x: far}]).values[reference] == far
    other = numeric.fold_in(EMPTY, [{x: near}])
    assert numeric.merge(state, other).values[reference] == 1.0  # the least of where they stand is near enough


@pytest.mark.parametrize("name", ["softmax", "variance", "entropy", "argmin_of_negated", "scaled_softmax"])
def test_merging_is_commutative_to_the_bit_and_empty_is_its_identity(name: str) -> None:
    fold = fold_of(name)
    source = np.random.default_rng(2)
    elements = fold.cascade.elements
    rows = [{e: float(source.uniform(0.5, 2)) for e in elements} for _ in range(6)]
    numeric = NumericSteps(program_of(fold), Float64(), {LENGTH: 6.0})
    states = [numeric.fold_in(EMPTY, rows[k : k + 2]) for k in range(0, 6, 2)]
    for left, right in itertools.combinations(states, 2):
        assert numeric.merge(left, right) == numeric.merge(right, left)
    assert numeric.merge() == numeric.merge(EMPTY, EMPTY) == EMPTY
    for state in states:
        assert numeric.merge(state, EMPTY).values == pytest.approx(state.values, rel=1e-15)
