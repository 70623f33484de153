"""Programs that must not be fused: each stays the very object it was, with a code and the buffer concerned."""

from __future__ import annotations

import json
import pickle
import re

import pytest
import tvm
from tvm import te, topi

import tvm_cascade
from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.codes import CODES
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_cascaded_reductions import FuseCascadedReductions
from tvm_cascade.transform.fuse_function import fuse_function

from ..analysis.programs import array, each, fold, maximum, number, program, softmax_stages
from .catalogue import CATALOGUE, rounded, softmax_of_softmax

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
MOST_NUMBERS = 24
"""That a reader is shown: of a claim on rank 6, seven positions of three quantities, and the claim's own."""


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_program_that_is_no_fold_is_refused_with_its_code_law_buffer_and_counterexample(name: str) -> None:
    entry = CATALOGUE[name]
    explanation = tvm_cascade.explain(entry.build(), force=True)
    assert pickle.loads(pickle.dumps(explanation)) == explanation
    assert not any(entry.buffer in group.buffers for group in explanation.groups if group.verdict is Verdict.FUSED)
    by_code = {group.reason.code: group for group in explanation.groups}
    assert entry.code in by_code, [str(group.reason) for group in explanation.groups]
    reason = by_code[entry.code].reason
    assert reason.verdict is entry.verdict
    assert entry.buffer in reason.detail and CODES[entry.code][1] in str(reason) and reason.hint
    assert (reason.counterexample is not None) == entry.counterexample
    if reason.counterexample is not None:
        first, second = reason.counterexample.outcomes
        assert first != second
        assert 1 <= len(NUMBER.findall(str(reason.counterexample))) <= MOST_NUMBERS
        assert reason.counterexample.claim in str(explanation)
        assert "_k" not in str(explanation)
        told = [group["reason"]["counterexample"] for group in json.loads(explanation.to_json())["groups"]]
        assert {"claim", "at", "outcomes", "data"} in [set(shown) for shown in told if shown]


def test_most_programs_of_the_catalogue_are_refused_by_proof() -> None:
    assert sum(entry.verdict is Verdict.REFUSED for entry in CATALOGUE.values()) > 0.8 * len(CATALOGUE)


@pytest.mark.parametrize("name", ["smallest square", "quantised to int8", "axes of unequal length", "sixth moment"])
def test_a_refused_function_is_the_same_object_after_the_pass(name: str) -> None:
    module = tvm.IRModule({"main": CATALOGUE[name].build()})
    before = module.script()
    assert FuseCascadedReductions(force=True)(module)["main"].same_as(module["main"])
    assert module.script() == before


def test_a_reducer_that_is_no_monoid_is_refused_with_a_counterexample() -> None:
    (decision,) = fuse_function(CATALOGUE["differences of a tuple"].build(), FuseOptions(force=True)).decisions
    assert re.search(r"identity ∘ a = a fails at a = \(.+\)", str(decision.reason)), str(decision.reason)


def test_of_a_softmax_of_a_softmax_only_the_first_is_fused() -> None:
    outcome = fuse_function(softmax_of_softmax(), FuseOptions(force=True))
    codes = {decision.reason.code: decision for decision in outcome.decisions}
    assert set(codes) == {"fold", "infinite_rank"}
    assert set(codes["fold"].candidate.names) >= {"row_max", "row_sum"}
    assert "out" in str(codes["infinite_rank"].reason)


def test_a_refusal_does_not_keep_the_rest_of_a_chain_from_fusing() -> None:
    x = array("x")
    row_max, row_sum = softmax_stages(x)
    out = fold("out", lambda i, j: te.tanh(x[i, j] - row_sum[i]))
    outcome = fuse_function(program(x, row_max, row_sum, out), FuseOptions(force=True))
    assert outcome.fused
    by_code = {d.reason.code: d.candidate.names for d in outcome.decisions}
    assert by_code["fold"] == ("row_max", "row_sum")
    assert "out" in by_code["infinite_rank"]


def test_float8_fuses_where_the_user_lists_it() -> None:
    outcome = fuse_function(
        rounded("float8_e4m3fn")(), FuseOptions(force=True, rescalable_casts=("float8_e4m3fn", "float16"))
    )
    codes = [decision.reason.code for decision in outcome.decisions]
    assert "rounding" not in codes, codes


def test_a_reduction_alone_is_no_cascade() -> None:
    x = array("x")
    func = program(x, fold("out", lambda i, j: x[i, j]))
    (decision,) = fuse_function(func, FuseOptions(force=True)).decisions
    assert decision.reason.code == "single_reduction" and "out" in str(decision.reason)


def test_two_reductions_that_share_neither_results_nor_tensors_are_no_cascade() -> None:
    x, y = array("x"), array("y")
    func = program(x, y, fold("first", lambda i, j: x[i, j]), fold("second", lambda i, j: y[i, j], maximum))
    outcome = fuse_function(func, FuseOptions(force=True))
    assert [d.reason.code for d in outcome.decisions] == ["single_reduction"]
    assert outcome.func.same_as(func)


def test_a_function_without_reductions_is_left_alone_without_a_word() -> None:
    x = array("x")
    func = program(x, each("out", lambda i, j: x[i, j] * number(2)))
    outcome = fuse_function(func, FuseOptions(force=True))
    assert outcome.decisions == () and outcome.func.same_as(func)


def test_topi_softmax_is_not_refused() -> None:
    x = array("x")
    assert fuse_function(program(x, topi.nn.softmax(x, axis=1)), FuseOptions(force=True)).fused
