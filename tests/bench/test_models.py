"""The suite `models`: every row is checked, and a row that is slower or missing is printed too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from benchmarks import model_suite as models  # noqa: E402
from benchmarks import runner, suites  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402
from benchmarks.device import Call  # noqa: E402
from benchmarks.judge.check import Status  # noqa: E402
from benchmarks.record import load  # noqa: E402
from benchmarks.suites.entry import Model  # noqa: E402
from benchmarks.timing import Timing  # noqa: E402
from benchmarks.torch_models import served, sizes  # noqa: E402
from benchmarks.torch_models.table import MODELS  # noqa: E402

from .fakes import fake_device  # noqa: E402


@pytest.mark.slow
def test_a_model_is_checked_and_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sizes, "BENCHMARK", sizes.TINY)
    wanted = [name for name in models.MODEL_PEERS if name != models.TORCH_COMPILE]
    arguments = ["--suite", "models", "--only", "bert", "--no-idle-gate", "--repeats", "2", "--peers", *wanted]
    assert main([*arguments, "--results", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*/models.json")
    (found,) = load(path).reports
    assert [row.name for row in found.rows] == wanted
    assert found.seconds("ours, fused") and found.seconds("torch")
    assert any(one.verdict == "fused" and "attention: " in one.detail for one in found.decisions)
    assert "bert" in capsys.readouterr().out


def test_served_layers_are_checked_with_caches() -> None:
    small = {"layers": 1, "width": 64, "heads": 4, "shared_heads": 2, "wide": 96, "batch": 2}
    times = Timing(1e-3, 1e-3, 1e-3, 1, 1, None)
    rows = {name: models.MODEL_PEERS[name] for name in ("torch", "ours, fused")}

    def time(_: str, calls: Mapping[str, Call]) -> dict[str, Timing | Exception]:
        return {name: times if name == "torch" else RuntimeError("no clock") for name in calls}

    place = replace(fake_device(torch), time=time)
    for one in (served.Served(**small, tokens=8), served.Served(**small, tokens=1, keys=16)):
        entry = Model("layer", asdict(one), partial(served.build, one))
        report = runner.report_of(entry, models.ModelBench(place, rows), place, rows)
        assert [row.status for row in report.rows] == [Status.TIMED, Status.FAILED]
        assert report.rows[1].note == "while timed: RuntimeError: no clock" and not report.sound
        assert all(row.max_error is not None and row.max_error <= (row.allowed or 0) for row in report.rows)


def test_the_suite_for_a_gpu_lists_all_models_and_asks_for_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    labels = [entry.label for entry in suites.models(gpu=True)]
    assert labels[: len(MODELS)] == [*MODELS]
    assert labels[len(MODELS) :] == ["llama_prefill", "llama_decode_1", "llama_decode_32"]
    if not torch.cuda.is_available():
        assert main(["--suite", "models", "--device", "cuda"]) == 2
        assert "a GPU that torch sees" in capsys.readouterr().err


def test_a_model_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--suite", "models", "--only", "abacus"]) == 2
    assert "among gpt2, llama" in capsys.readouterr().err
