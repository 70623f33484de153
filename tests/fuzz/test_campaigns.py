"""The fuzz campaigns: what a seed stands for, the first trials, and states that survive being killed."""

from __future__ import annotations

import json
import operator
from pathlib import Path

import pytest
import tvm

from campaigns.__main__ import main
from campaigns.campaign import Plan, State, run_campaign, run_trial
from campaigns.grammar import COMPARISONS_FROM, SELECTIONS_FROM, draw
from campaigns.summary import findings, unknown_share
from campaigns.term import OPERATIONS
from campaigns.trial import Record
from tvm_cascade.errors import InputError

from ..tiers import quick_but, slow_but

DRAWN = 400


def test_a_seed_is_a_case() -> None:
    assert [draw(seed) for seed in range(20)] == [draw(seed) for seed in range(20)]
    assert len({str(draw(seed)) for seed in range(20)}) == 20


def test_the_grammar_reaches_every_operation_reducer_dtype_and_depth() -> None:
    cases = [draw(seed) for first in (0, COMPARISONS_FROM) for seed in range(first, first + DRAWN)]
    steps = [step for case in cases for step in case.steps]
    parts = {part.op for step in steps for part in step.element.parts()}
    assert set(OPERATIONS) <= parts
    assert {step.reducer for step in steps} == {"sum", "prod", "max", "min", "and", "or"}
    assert {len(case.steps) for case in cases} == set(range(1, 9))
    assert {case.dtype for case in cases} == {"float16", "float32", "float64"}
    assert {1} < {case.length for case in cases}
    assert {case.segments for case in cases} >= {1, 2, 5}


def test_selections_are_drawn_from_later_seeds_alone() -> None:
    early, late = ([draw(first + k) for k in range(60)] for first in (COMPARISONS_FROM, SELECTIONS_FROM))
    assert not any(step.ranks for case in early for step in case.steps)
    assert {1, 2, 3} <= {step.ranks for case in late for step in case.steps}
    chosen = next(case for case in late if case.steps[0].ranks == 2)
    assert [r.reducer.part for r in chosen.cascade().reductions[:4]] == [0, 1, 2, 3]


TRIALS = [
    (kind, trials, first)
    for kind, trials in (("algebra", 10), ("algebra", 20), ("program", 5), ("program", 9))
    for first in (0, COMPARISONS_FROM, SELECTIONS_FROM)
]


@pytest.mark.parametrize(
    ("kind", "trials", "first"), slow_but([("algebra", 10, SELECTIONS_FROM), ("program", 5, SELECTIONS_FROM)], TRIALS)
)
def test_the_first_trials_find_nothing(kind: str, trials: int, first: int) -> None:
    records = [run_trial((kind, seed)) for seed in range(first, first + trials)]
    assert not findings(records), [str(record) for record in findings(records)]
    assert any(record.verdict == "fused" for record in records)


def test_a_plan_interleaves_its_kinds_and_counts_seeds_from_the_first() -> None:
    tasks = list(Plan(algebra=4, programs=2, jobs=1, seed=7).tasks())
    assert [seed for kind, seed in tasks if kind == "algebra"] == [7, 8, 9, 10]
    assert [seed for kind, seed in tasks if kind == "program"] == [7, 8]
    assert tasks[0][0] != tasks[-1][0] or tasks[1][0] != tasks[-1][0]


def test_a_worker_that_dies_is_a_finding_of_its_seed_and_the_campaign_goes_on() -> None:
    state = State(None)
    run_campaign(Plan(algebra=2, programs=0, jobs=1), state, target=operator.methodcaller("close"))
    assert [(r.seed, r.finding) for r in state.records.values()] == [(0, "crash"), (1, "crash")]


def test_a_state_goes_on_after_the_line_that_was_being_written(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    first = State(path)
    first.add(Record("algebra", 0, "fused", "fold", 0.1))
    first.close()
    path.write_text(path.read_text() + '{"kind": "algebra", "se')
    second = State(path)
    assert list(second.records) == [("algebra", 0)]
    second.add(Record("algebra", 1, "refused", "infinite_rank", 0.2))
    second.close()
    assert [json.loads(line)["seed"] for line in path.read_text().splitlines()] == [0, 1]


def test_a_file_that_is_no_state_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    path.write_text("hello\nworld\n")
    with pytest.raises(InputError, match="one record of a trial"):
        State(path)


def test_findings_are_no_unknowns() -> None:
    records = [Record("algebra", 0, "unknown", "reducer"), Record("algebra", 1, finding="crash"), Record("algebra", 2)]
    assert unknown_share(records) == 0.5
    assert [record.seed for record in findings(records)] == [1]


def test_the_command_resumes_and_its_exit_code_tells_of_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "state.jsonl"
    arguments = ["--algebra", "2", "--jobs", "1", "--state", str(path)]
    assert main(arguments) == 0
    written = path.read_text()
    assert main(arguments) == 0
    assert path.read_text() == written
    assert "findings: 0" in capsys.readouterr().out
    path.write_text(written + json.dumps(Record("program", 0, finding="crash").to_json()) + "\n")
    assert main(["--state", str(path)]) == 1


def test_a_replay_shows_the_case_and_both_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--replay", "3"]) == 0
    out = capsys.readouterr().out
    assert "seed 3" in out and "algebra: ok" in out and "program: ok" in out


@pytest.mark.parametrize("arguments", [["--jobs", "0"], ["--algebra", "-1"], []])
def test_a_campaign_without_sense_is_bad_input(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("error: expected")


@pytest.mark.skipif(tvm.cuda(0).exist, reason="there is a GPU")
def test_without_a_gpu_its_trials_do_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--gpu", "3"]) == 2
    assert "no CUDA device" in capsys.readouterr().err


FOUND = {
    1000005075: "a condition that keeps a logarithm of what may be 0",
    1000258: "results that are numbers carry no loop",
    1002319: "a ragged loop under the CPU schedule",
    1002147: "a result that underflows and whose logarithm is read",
    1000081: "the last place of an input decides",
    77005157: "nothing kept, of a sum of an exponential and a product",
    77008999: "a quotient of squares, which has a sign",
    77009527: "a product of exponentials about a far result, at a scale of N",
    78003849: "exponentials that leave float16 one by one, not together",
    78004839: "a condition beside an exponential that overflows",
    78006959: "float64 beside an exponent of 500, where an oracle of the same digits is off",
    79001111: "a centre in one choice, and far off in the other",
    79005746: "a sum in which a result meets its own maximum",
    79009388: "a product with elements that underflow",
    84000675: "a mean of what is rounded, which tells where nothing lies",
    82000293: "a comparison with an extremum of the same element",
    82005159: "nothing kept, of a cubic times an exponential",
    81001997: "differences that read one variable at two scales",
    90001838: "a reference far from several parts of data half way",
    991000331: "a power of a constant that holds a logarithm",
    795413035: "a scale that is a running sum under an exponential",
    93500925: "a product of exponentials of falling data",
    1830130161: "keys that are one number, of what an earlier selection keeps",
    1790101717: "a selection whose positions nobody reads, in segments",
}


SHOWN_ELSEWHERE = {
    82005159,  # nothing kept: 77005157
    79009388,  # products out of range: tests/transform/test_powers_in_range.py
    81001997,  # two scales: tests/transform/test_kept_digits.py
    82000293,  # comparisons with an extremum: tests/transform/test_coincidence.py
    93500925,  # products of exponentials: tests/transform/test_products.py
}


@pytest.mark.parametrize("seed", quick_but(SHOWN_ELSEWHERE, FOUND), ids=FOUND.values())
def test_a_program_that_was_a_finding_is_none_any_more(seed: int) -> None:
    record = run_trial(("program", seed))
    assert not record.finding, record.detail
    assert record.verdict == "fused"


FOUND_IN_THE_ALGEBRA = {
    84019250: "a threshold that reads N",
    84028112: "a choice by results inside one by elements",
    84033215: "a reference from a result of known sign",
    84051925: "a convex choice, which is not convex at its threshold",
    77059686: "a cast of products with one sum, at a scale that is no reference at 0",
    77096914: "a choice of equal sides",
    80002225: "a comparison of logarithms that SymPy turns round for ever",
    80006162: "states that start anew wherever an extremum moves, at references that are none",
    80013441: "a choice by the position alone under a minimum",
    80014986: "how many maxima of log √x, whose lift is log(x)/2",
    80015575: "a factor that vanishes with its invariant at 1",
    80018088: "a maximum of something undefined on the way",
    80026197: "a comparison with an extremum that rounds otherwise than its definition",
    795416806: "a logarithm of something undefined, which SymPy takes out twice",
    1790100450: "keys that differ, whose image is one number at all digits",
    1790100861: "the same of the smallest one",
}


@pytest.mark.parametrize("seed", FOUND_IN_THE_ALGEBRA, ids=FOUND_IN_THE_ALGEBRA.values())
def test_a_cascade_that_was_a_finding_is_none_any_more(seed: int) -> None:
    record = run_trial(("algebra", seed))
    assert not record.finding, record.detail
