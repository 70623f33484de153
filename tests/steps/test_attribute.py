"""Step programs as plain data: the same program comes back from JSON and from TVM, and no other is taken for one."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import sympy as sp
import tvm_ffi

from tvm_cascade.errors import InputError
from tvm_cascade.steps.attribute import from_attribute, to_attribute
from tvm_cascade.steps.program import StepProgram, program_of

from ..algebra.cascades import fold_of

Data = dict[str, Any]

KINDS = (
    "softmax_times_values", "scaled_softmax", "variance", "entropy", "product", "largest_where_kept",
    "largest_deviation", "rounded_probabilities", "sum_where_any_holds", "softmax_of_argmax", "log_sum_exp_pair",
    "welford",
)  # fmt: skip
"""A cascade of every kind of step, reducer and symbol; `schedule/test_roles.py` has all workloads."""


def written(name: str) -> tuple[StepProgram, Data]:
    """The program of a cascade's fold, and its data; what its elements read are its inputs."""
    fold = fold_of(name)
    results = {reduction.result for reduction in fold.cascade.reductions}
    read = set().union(*(reduction.element.free_symbols for reduction in fold.cascade.reductions))
    program = program_of(fold)
    return program, to_attribute(program, read - results)


@pytest.mark.parametrize("name", KINDS)
def test_the_same_program_comes_back(name: str) -> None:
    program, data = written(name)
    text = json.dumps(data, ensure_ascii=False)
    assert text.isascii()
    assert from_attribute(json.loads(text)) == program
    assert from_attribute(tvm_ffi.convert(data)) == program


def test_what_a_selection_combines_is_not_written_out() -> None:
    _, data = written("softmax_of_argmax")
    (step,) = (step for step in data["steps"] if step["kind"] == "tuple")
    assert set(step["reducer"]) == {"selection"}


def _step(data: Data, kind: str) -> Data:
    return next(step for step in data["steps"] if step["kind"] == kind)


EDITS: dict[str, Callable[[Data], object]] = {
    "no steps": lambda data: data.pop("steps"),
    "a step of no kind": lambda data: _step(data, "reduce").pop("kind"),
    "a step of another kind": lambda data: _step(data, "reduce").update(kind="guess"),
    "a field that is missing": lambda data: _step(data, "reduce").pop("lift"),
    "a reducer that there is none of": lambda data: _step(data, "reduce").update(reducer="mean"),
    "a text that is no expression": lambda data: _step(data, "reduce").update(lift="x +"),
    "a number for a text": lambda data: data["finish"][0].update(expression=1.5),
    "a rule that there is none of": lambda data: _step(data, "move").update(rule="sometimes"),
    "an expression for a symbol": lambda data: _step(data, "move").update(reference="a b"),
    "an input that is not there": lambda data: data["inputs"].remove("x"),
    "a component never combined": lambda data: data["steps"].remove(_step(data, "combine")),
    "a reference that moves twice": lambda data: data["steps"].append(_step(data, "move")),
    "what is read before it is there": lambda data: data["steps"].reverse(),
    "a list of symbols": lambda data: data.update(symbols=["x"]),
    "nothing at all": lambda data: data.clear(),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_what_is_no_step_program_is_refused(edit: Callable[[Data], object]) -> None:
    data = copy.deepcopy(written("softmax")[1])
    edit(data)
    with pytest.raises(InputError):
        from_attribute(data)


def test_symbols_keep_their_names_and_assumptions() -> None:
    _, data = written("softmax")
    assert {entry["name"] for entry in data["symbols"].values() if "name" in entry} == {r"\u0394c_m", "c_m'"}
    (move,) = from_attribute(data).moves
    assert move.step == sp.Symbol("Δc_m", real=True) and move.moved == sp.Symbol("c_m'", real=True)
