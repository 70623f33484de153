"""What is stored of suites, and what is told of it: means, goals, losses by name, quotes, and what became slower."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path

import pytest

from benchmarks import goals, page, peers, suites
from benchmarks.goals import ALL, BEST
from benchmarks.judge import forms
from benchmarks.judge.check import Status
from benchmarks.model_suite import MODEL_PEERS
from benchmarks.record import OURS, Report, Result, TimedRow, load, own, slower, stored
from benchmarks.timing import Timing
from tvm_cascade.errors import InputError

from .. import nightly
from .fakes import HERE, timed

REPORTS = (
    timed("x", {"cudnn": 4e-3, "flash": 8e-3, "ours-cuda-cores": 1e-4, OURS: 2e-3}, "long", estimate=5e-3),
    timed("y", {"cudnn": None, "flash": 1e-3, OURS: 2e-3}, estimate=1.1e-3),
    timed("z", {"cudnn": 3e-3, "flash": None, OURS: None}, "long"),
    timed("w", {"flash": 1.8e-3, OURS: 2e-3}, "late"),
)
RESULT = Result("mha", "python -m benchmarks --suite mha", HERE, {"rounds": 5}, REPORTS, ("v",))


def test_what_is_stored_is_read_again(tmp_path: Path) -> None:
    RESULT.save(tmp_path)
    path = tmp_path / "test" / "mha.json"
    assert load(path) == RESULT and list(stored(tmp_path)) == [RESULT]
    found = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found["workloads"][0]["best_peer"] == "cudnn" and found["workloads"][0]["best_ratio"] == 2.0
    assert found["workloads"][0]["misjudged"] == 2.5 and "best_ratio" not in found["workloads"][2]


def test_means_are_over_what_both_have_a_time_for() -> None:
    reports = REPORTS[:3]
    assert reports[0].best_peer == "cudnn" and reports[1].best_peer == "flash"
    found = {(mean.group, mean.peer): (round(mean.geomean, 9), mean.count) for mean in goals.means(reports)}
    assert found["all", BEST] == (1.0, 2)  # 2 and 1/2
    assert found["all", "cudnn"] == (2.0, 1) and found["all", "flash"] == (round(2**0.5, 9), 2)
    assert found["long", BEST] == (2.0, 1)
    assert not any(peer == "ours-cuda-cores" for _, peer in found)


def compiled(seconds: float) -> tuple[Report, ...]:
    return tuple(
        dataclasses.replace(one, rows=tuple(dataclasses.replace(row, compile_seconds=seconds) for row in one.rows))
        for one in REPORTS
    )


@pytest.mark.parametrize(
    ("goal", "reports", "met", "figure"),
    [
        (goals.ratio("long", BEST, at_least=2.0), REPORTS, True, "2.000× of 1"),
        (goals.ratio(ALL, BEST, at_least=1.0, each=True), REPORTS, False, "0.500× (y) of 3"),
        (goals.ratio(ALL, "flex", "flash", at_least=1.2), REPORTS[:2], True, "1.414× of 2"),
        (goals.ratio(ALL, "flex", at_least=1.0), REPORTS, None, "no time"),
        (goals.rate("x", 0.4), REPORTS, True, "0 TF/s (x) of 1"),
        (goals.rate("x", 0.6), REPORTS, False, "0 TF/s (x) of 1"),
        (goals.share("long", 0.9), [dataclasses.replace(REPORTS[0], limit_s=1.9e-3)], True, "95% (x) of 1"),
        (goals.share("long", 0.9), [dataclasses.replace(REPORTS[0], limit_s=1.7e-3)], False, "85% (x) of 1"),
        (goals.compiled(10.0), compiled(9.9), True, "9.9 s"),
        (goals.compiled(10.0), compiled(10.1), False, "10.1 s"),
        (goals.fused("x", 2.0), [dataclasses.replace(REPORTS[0], fuse_seconds=2.1)], False, "2.10 s (x) of 1"),
    ],
)
def test_goals_are_judged_by_their_figures(
    goal: goals.Goal, reports: tuple[Report, ...], met: bool | None, figure: str
) -> None:
    outcome = goal.outcome(reports)
    assert outcome is not None and outcome.met is met and outcome.figure.startswith(figure)


def test_goals_of_workloads_that_were_not_measured_are_left_out() -> None:
    assert goals.ratio("other", BEST, at_least=1.0).outcome(REPORTS) is None


def test_every_goal_is_about_what_there_is() -> None:
    for suite, several in goals.GOALS.items():
        entries = suites.entries(suite)
        labels, groups = {one.label for one in entries}, {group for one in entries for group in one.groups}
        rows = peers.CPU_PEERS if suite in suites.ON_CPU else peers.of_suite(suite)
        for goal in several:
            assert set(goal.labels) <= labels if goal.labels else goal.group in {ALL} | labels | groups
            assert "over" not in goal.text or goal.text.split("over ")[1] in {BEST, *rows}


def on_a_cpu(rows: dict[str, float | None]) -> Report:
    return timed("job", rows)


def test_on_a_cpu_ours_is_what_users_get() -> None:
    fused, unfused, forced = forms.OURS_FUSED, forms.OURS_UNFUSED, forms.OURS_FORCED
    assert on_a_cpu({"torch": 3.0, unfused: 1.0, fused: 9.0}).best_ratio == 3.0 / 9.0
    declined = on_a_cpu({"torch": 3.0, unfused: 1.5, fused: None, forced: 9.0})
    assert declined.ours == unfused and declined.best_ratio == 2.0, "whatever a forced one would take"
    rows = (
        TimedRow(unfused, Status.TIMED, timing=Timing(1, 1, 1, 9, 1, True)),
        TimedRow(fused, Status.WRONG),
    )
    wrong = dataclasses.replace(declined, rows=rows)
    assert wrong.ours == fused and wrong.best_ratio is None and not wrong.sound


def test_rows_of_ours_are_told_by_their_names() -> None:
    known = {*peers.CPU_PEERS, *MODEL_PEERS, *(name for suite in suites.KERNELS for name in peers.of_suite(suite))}
    assert {name for name in known if own(name)} == {name for name in known if "ours" in name} > {OURS}


def test_the_page_names_every_loss_and_every_estimate_that_is_off() -> None:
    text = page.page([RESULT])
    mean = statistics.geometric_mean([2.0, 0.5, 0.9])
    assert (
        f"| mha | 3 | {mean:.3f} | 0.500 | 2.000 | abc123 | 2026-11-21 | `python -m benchmarks --suite mha` |" in text
    )
    assert "- mha: y 0.500, w 0.900\n" in text, "the worst first"
    assert "- mha: x 2.5×\n" in text
    assert "- mha: 1 not measured\n" in text


def test_what_became_slower_is_told() -> None:
    times = {"x": 2.1e-3, "y": 2.05e-3, "w": 2.5e-3, "new": 9.0}
    now = dataclasses.replace(RESULT, reports=tuple(timed(label, {OURS: s}) for label, s in times.items()))
    assert [(label, round(share, 3)) for label, share in slower(RESULT, now)] == [("w", 1.25), ("x", 1.05)]


QUOTES = {
    "{mha/x: ours ms}": "2.00",
    "{mha/x: cudnn us}": "4000",
    "{mha/x: ours TF/s}": "0",
    "{mha/x: over cudnn} of {mha/all: count over best peer}": "2.00 of 3",
    "{mha/all: least over best peer}": "0.50",
    "{mha/long: most over best peer}": "2.00",
}


@pytest.mark.parametrize("template", QUOTES)
def test_a_quote_is_filled(template: str) -> None:
    text = f"a <!-- quote test: {template} -->9.99<!-- end of quote --> b"
    filled = page.quoted(text, [RESULT])
    assert filled == f"a <!-- quote test: {template} -->{QUOTES[template]}<!-- end of quote --> b"
    assert page.quoted(filled, [RESULT]) == filled


@pytest.mark.parametrize("key", ["mha/x: cudnn furlongs", "mha/v: ours ms", "mha/z: ours ms", "row/x: ours ms"])
def test_a_quote_of_what_is_not_stored_is_told(key: str) -> None:
    with pytest.raises(InputError, match="a figure that is stored"):
        page.quoted(f"<!-- quote test: {{{key}}} --><!-- end of quote -->", [RESULT])


def test_the_pages_are_those_of_what_is_stored() -> None:
    results = list(stored())
    assert page.PAGE.read_text(encoding="utf-8") == page.page(results), "python -m benchmarks.page writes it anew"
    for path in page.pages():
        text = path.read_text(encoding="utf-8")
        assert text.count("<!-- quote ") == text.count("<!-- end of quote -->") == len(page.QUOTE.findall(text))
        assert text == page.quoted(text, results), f"{path.name}: python -m benchmarks.page fills its quotes"


def test_a_night_tells_what_became_slower_on_the_same_card(tmp_path: Path) -> None:
    found, before = tmp_path / "found", tmp_path / "stored"
    RESULT.save(before)
    dataclasses.replace(RESULT, reports=(timed("x", {OURS: 2.5e-3}),)).save(found)
    dataclasses.replace(RESULT, suite="row").save(found)  # of which nothing is stored
    assert list(nightly.became_slower(found, before)) == ["test mha: x takes 1.250 of the stored time"]
