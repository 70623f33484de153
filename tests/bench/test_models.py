"""The suite `models`: every row is checked, and a row that is slower or missing is printed too."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from benchmarks import model_suite as models  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402
from benchmarks.gpu import models as gpu_models  # noqa: E402
from benchmarks.torch_models import served, sizes  # noqa: E402
from benchmarks.torch_models.table import MODELS  # noqa: E402
from tvm_cascade.cli.timing import Timing  # noqa: E402
from tvm_cascade.devices.host import host_target  # noqa: E402


@pytest.mark.slow
def test_a_model_is_checked_and_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sizes, "BENCHMARK", sizes.TINY)
    monkeypatch.setattr(
        models, "ROWS", {name: row for name, row in models.ROWS.items() if name != models.TORCH_COMPILE}
    )
    path = tmp_path / "found.json"
    arguments = ["--suite", "models", "--only", "bert", "--no-idle-gate", "--repeats", "2"]
    assert main([*arguments, "--json", str(path)]) == 0
    (found,) = json.loads(path.read_text())["models"]
    rows = {row["name"]: row for row in found["rows"]}
    assert list(rows) == list(models.ROWS)
    assert rows["ours, fused"]["timing"]["median_s"] > 0 and rows["torch"]["timing"]["median_s"] > 0
    assert any(one["verdict"] == "fused" and "attention: " in one["detail"] for one in found["decisions"])
    assert "bert" in capsys.readouterr().out


def test_served_layers_are_checked_in_halves_and_with_caches() -> None:
    small = {"layers": 1, "width": 64, "heads": 4, "shared_heads": 2, "wide": 96, "batch": 2}
    sizes = [served.Served(**small, tokens=8), served.Served(**small, tokens=1, keys=16)]
    entries = [models.Entry(str(k), asdict(one), partial(served.build, one)) for k, one in enumerate(sizes)]
    times = Timing(1e-3, 1e-3, 1e-3, 1, 1, None)
    checked: dict[str, list[str]] = {}

    def timed(label: str, calls: Mapping[str, models.Call]) -> dict[str, Timing | Exception]:
        checked[label] = [*calls]
        return {name: times if name == "torch" else RuntimeError("no clock") for name in calls}

    rows = {name: models.ROWS[name] for name in ("torch", "ours, fused")}
    place = models.Place("layers", host_target(), "bfloat16", "cpu", rows, lambda call: call, timed)
    arguments = argparse.Namespace(only=[], json=None, seed=0, suite="layers")
    assert models.measured(entries, arguments, place, {}) == 1  # a clock that fails is a row that fails
    assert checked == {"0": ["torch", "ours, fused"], "1": ["torch", "ours, fused"]}


def test_the_suite_for_a_gpu_lists_all_models_and_asks_for_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    labels = [entry.label for entry in gpu_models.entries()]
    assert labels[: len(MODELS)] == [*MODELS]
    assert labels[len(MODELS) :] == ["llama_prefill", "llama_decode_1", "llama_decode_32"]
    if not torch.cuda.is_available():
        assert main(["--suite", "gpu_models"]) == 2
        assert "a GPU that torch sees" in capsys.readouterr().err


def test_a_model_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--suite", "models", "--only", "abacus"]) == 2
    assert "models among gpt2, llama" in capsys.readouterr().err
