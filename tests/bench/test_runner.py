"""Suites on a CPU: complete tables and files, and wrong programs are named and not timed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from benchmarks import goals, peers, runner, suites
from benchmarks.__main__ import main
from benchmarks.judge import forms
from benchmarks.judge.case import Case
from benchmarks.judge.check import Status
from benchmarks.judge.forms import Absent, Runnable
from benchmarks.peers import CPU_PEERS
from benchmarks.products import __main__ as products
from benchmarks.record import Result, load
from corpus import workloads
from corpus.workload import Workload, WorkloadError
from tvm_cascade.errors import OptionError, OracleError
from tvm_cascade.evaluate import oracle

from ..tiers import slow_but
from .fakes import parse

EVERY_ROW = [peers.NUMPY, peers.TORCH, forms.TVM_DEFAULT, peers.TVM_DLIGHT, forms.OURS_UNFUSED, forms.OURS_FUSED]
CPU_SUITES = ("cpu", "smoke", "redfuser-cpu", "neptune-cpu")
ONE_WORKLOAD = ["--suite", "smoke", "--only", "variance", "--no-idle-gate", "--repeats", "2"]


def given(monkeypatch: pytest.MonkeyPatch, rows: Mapping[str, forms.Form]) -> None:
    monkeypatch.setattr(peers, "CPU_PEERS", rows)


def only(*names: str) -> dict[str, forms.Form]:
    return {name: CPU_PEERS[name] for name in names}


def stored(folder: Path) -> Result:
    (path,) = folder.glob("*/*.json")
    return load(path)


def constant(value: float, scale: float = 0.0, calls: list[int] | None = None) -> forms.Form:
    """A peer that gives value + scale·(the exact result), and notes its calls."""

    def prepare(case: Case) -> Runnable:
        outputs = [(value + scale * exact).astype(np.float32) for exact in case.exact]
        return Runnable(lambda: calls.append(1) if calls is not None else None, lambda: outputs)

    return prepare


@pytest.fixture(scope="module", params=slow_but(["attention"], ["attention", "all"]))
def smoke(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[str], Result]:
    folder = tmp_path_factory.mktemp("bench")
    only = [] if request.param == "all" else [request.param]
    words = ["--suite", "smoke", *(["--only", *only] if only else [])]
    code = runner.run(parse(*words, "--no-idle-gate", "--repeats", "2", "--seed", "3", "--results", str(folder)))
    return code, [entry.label for entry in suites.entries("smoke", only)], stored(folder)


def test_smoke_is_sound_and_complete(smoke: tuple[int, list[str], Result]) -> None:
    code, labels, found = smoke
    assert code == 0 and [report.label for report in found.reports] == labels
    for report in found.reports:
        assert [row.name for row in report.rows if row.name != forms.OURS_FORCED] == EVERY_ROW
        assert report.baseline == forms.TVM_DEFAULT
        assert report.blind_to == (), "the check has to tell zeros, a constant and a shuffle from the answer"
        assert report.decisions and (report.fuse_seconds or 0) > 0
        assert (report.flops or 0) > 0 and report.bytes > 0


def test_every_timed_row_of_smoke_was_checked(smoke: tuple[int, list[str], Result]) -> None:
    for row in (row for report in smoke[2].reports for row in report.rows):
        if row.status is not Status.TIMED:
            assert row.timing is None and row.note
            continue
        assert row.max_error is not None and row.allowed is not None and row.max_error <= row.allowed
        assert row.timing is not None and row.timing.samples == 2
        assert 0 < row.timing.p20_s <= row.timing.median_s <= row.timing.p80_s


def test_fusing_leaves_smaller_temporaries_in_what_runs(smoke: tuple[int, list[str], Result]) -> None:
    (attention,) = (one for one in smoke[2].reports if one.label.startswith("attention"))
    # At this size the cost model may decline.
    fused = attention.row(forms.OURS_FORCED) or attention.row(forms.OURS_FUSED)
    default = attention.row(forms.TVM_DEFAULT)
    assert fused is not None and default is not None
    assert (fused.temporary_bytes or 0) < (default.temporary_bytes or 0)


def test_what_is_stored_says_what_the_figures_depend_on(smoke: tuple[int, list[str], Result]) -> None:
    where, settings = smoke[2].environment, smoke[2].settings
    assert where.cpu == where.card and where.threads >= 1 and where.target.startswith("llvm") and where.date
    assert {"tvm-cascade", "apache-tvm", "apache-tvm-ffi", "torch", "numpy"} <= where.versions.keys()
    assert settings["seed"] == 3 and settings["repeats"] == 2
    assert settings["idle_gate"] is False and "tile" in settings["options"]


def test_the_tables_show_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    runner.run(parse(*ONE_WORKLOAD, "--peers", peers.NUMPY, forms.TVM_DEFAULT))
    shown = capsys.readouterr().out
    for text in ("variance 6x1009", peers.NUMPY, forms.TVM_DEFAULT, "apache-tvm", "idle gate off"):
        assert text in shown


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_a_wrong_program_is_named_and_never_timed(
    value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[int] = []
    given(monkeypatch, {**only(peers.NUMPY, forms.TVM_DEFAULT), "ours, impostor": constant(value, calls=calls)})
    assert runner.run(parse(*ONE_WORKLOAD, "--results", str(tmp_path))) == 1
    assert "WRONG" in capsys.readouterr().out
    (report,) = stored(tmp_path).reports
    impostor = report.rows[-1]
    assert (impostor.status, impostor.timing) == (Status.WRONG, None)
    assert impostor.note
    assert calls == [1], "one run for the check, none for a time"


def test_a_program_that_the_oracle_cannot_evaluate_is_not_timed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OracleError("a block", "some_packed_call", "block `kernel`")

    monkeypatch.setattr(oracle, "evaluate", refuse)
    given(monkeypatch, {"never": lambda case: pytest.fail("something ran")})
    assert runner.run(parse("--suite", "redfuser-cpu", "--only", "R1", "--no-idle-gate")) == 0
    shown = capsys.readouterr().out
    assert "`never`: there is no oracle" in shown and "some_packed_call" in shown


@pytest.mark.parametrize(("name", "code"), [("ours, broken", 1), ("broken", 0)])
def test_a_program_that_fails_hides_no_other(
    name: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(case: Case) -> Runnable:
        raise RuntimeError("no such instruction\nand a long trace")

    given(monkeypatch, {name: broken, **only(peers.NUMPY)})
    assert runner.run(parse(*ONE_WORKLOAD)) == code, "the failure of a peer is for its authors"
    shown = capsys.readouterr().out
    assert f"`{name}`: FAILED: RuntimeError: no such instruction" in shown
    assert peers.NUMPY in shown


def test_a_program_that_cannot_be_built_is_told_and_hides_no_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built = Workload.build

    def build(self: Workload, **shape_overrides: int) -> Any:
        if self.name == "variance":
            raise RuntimeError("no such block\nand a long trace")
        return built(self, **shape_overrides)

    monkeypatch.setattr(Workload, "build", build)
    words = ["--suite", "smoke", "--only", "variance", "logsumexp", "--no-idle-gate", "--repeats", "2"]
    assert runner.run(parse(*words, "--peers", peers.NUMPY, "--results", str(tmp_path))) == 1
    assert "RuntimeError: no such block and a long trace" in " ".join(capsys.readouterr().out.split())
    assert [(one.label.split()[0], one.sound) for one in stored(tmp_path).reports] == [
        ("variance", False),
        ("logsumexp", True),
    ]


def test_missing_torch_is_a_row_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    given(monkeypatch, only(peers.NUMPY, peers.TORCH))
    assert runner.run(parse(*ONE_WORKLOAD)) == 0
    shown = capsys.readouterr().out
    assert "`torch`: torch is not installed" in shown


def test_the_default_rows_can_be_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given(monkeypatch, only(peers.NUMPY, forms.TVM_DEFAULT))
    runner.run(parse(*ONE_WORKLOAD, "--skip-default"))
    assert forms.TVM_DEFAULT not in capsys.readouterr().out


def test_only_takes_names_and_labels() -> None:
    labels = [entry.label for entry in suites.entries("cpu", ["inertia"])]
    assert labels == ["inertia 1024x8192", "inertia 256x131072", "inertia 4x4096"]
    assert [entry.label for entry in suites.entries("cpu", ["inertia 1024x8192"])] == ["inertia 1024x8192"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--only", "varience"], WorkloadError),
        (["--repeats", "0"], OptionError),
        (["--peers", "abc"], OptionError),
        (["--max-seconds", "nan"], OptionError),
        (["--results", "/no/such/folder"], OptionError),
    ],
)
def test_bad_arguments_are_told_before_anything_runs(
    words: list[str], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(case: Case) -> Absent:
        pytest.fail("something ran")

    given(monkeypatch, {"never": never})
    with pytest.raises(error):
        runner.run(parse("--suite", "smoke", *words))


def test_an_unknown_suite() -> None:
    with pytest.raises(WorkloadError, match="redfuser-cpu"):
        suites.entries("gpu")


@pytest.mark.parametrize("suite", CPU_SUITES)
def test_the_labels_of_a_suite_are_distinct(suite: str) -> None:
    labels = [entry.label for entry in suites.entries(suite)]
    assert labels and len(set(labels)) == len(labels)


def test_the_papers_suites_hold_every_program() -> None:
    assert {entry.workload.family for entry in suites.entries("redfuser-cpu")} == {
        "attention", "mla", "routing", "quantised", "moments",
    }  # fmt: skip
    of_neptune = {name for name in workloads.names() if workloads.get(name).source.startswith("Neptune")}
    assert {entry.workload.name for entry in suites.entries("neptune-cpu")} == of_neptune


def test_the_suite_for_cpus_holds_every_workload() -> None:
    jobs = [entry.workload for entry in suites.entries("cpu")]
    measured = [(job.family, job.dtype, job.shape) for job in jobs]
    twins = [workloads.get(name).cpu for name in workloads.names()]
    assert not [twin.name for twin in twins if (twin.family, twin.dtype, twin.shape) not in measured]


def test_every_workload_of_cpu_has_goals() -> None:
    grouped = {group for goal in goals.GOALS["cpu"] for group in [goal.group]}
    assert all(set(entry.groups) & grouped for entry in suites.entries("cpu"))


PROGRAM = """
import tvm
from tvm import te
x = te.placeholder((4, 100), "float32", name="x")
j, k = te.reduce_axis((0, 100), "j"), te.reduce_axis((0, 100), "k")
top = te.compute((4,), lambda i: te.max(x[i, j], axis=j), name="top")
stats = te.create_prim_func([x, top, te.compute((4,), lambda i: te.sum(te.exp(x[i, k] - top[i]), axis=k), name="s")])
"""


def test_the_command_takes_a_file(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    quick = ["--no-idle-gate", "--repeats", "1", "--max-seconds", "0.1", "--results", str(tmp_path)]
    assert main([str(program), *quick, "--force"]) == 0
    (found,) = stored(tmp_path).reports
    timed = {row.name for row in found.rows if row.timing is not None}
    assert found.label == "stats" and found.flops is None and found.blind_to == ()
    assert {"tvm default", "ours, unfused", "ours, fused"} <= timed


BAD = {
    "no folder": (["--suite", "smoke", "--results", "/no/such/folder"], "--results"),
    "suite and programs": (["V1", "--suite", "smoke"], "a suite or programs"),
    "shape of a suite": (["--suite", "smoke", "--shape", "rows=3"], "with a program"),
    "option of a GPU's suite": (["--suite", "smoke", "--rounds", "9"], "a suite for `cuda`"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_a_message(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: expected") and message in printed.err and printed.out == ""


def test_an_unknown_suite_is_told_in_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--suite", "none"])
    assert stopped.value.code == 2
    error, remedy = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ") and remedy == "  what to do: python -m benchmarks --help"


def test_random_programs_with_products_need_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert products.main(["0"]) == 2
    assert "expected 1 or more" in capsys.readouterr().err
    if not tvm.cuda(0).exist:
        assert products.main(["3"]) == 2
        told = capsys.readouterr().err
        assert "a GPU that torch sees" in told or "expected torch" in told
