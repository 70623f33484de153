"""The suite `models`: every row is checked, and a row that is slower or missing is printed too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tvm_cascade.bench import models
from tvm_cascade.cli import main
from tvm_cascade.testing.models import sizes


@pytest.mark.slow
def test_a_model_is_checked_and_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sizes, "BENCHMARK", sizes.TINY)
    monkeypatch.setattr(
        models, "ROWS", {name: row for name, row in models.ROWS.items() if name != models.TORCH_COMPILE}
    )
    path = tmp_path / "found.json"
    arguments = ["bench", "--suite", "models", "--only", "bert", "--no-idle-gate", "--repeats", "2"]
    assert main([*arguments, "--json", str(path)]) == 0
    (found,) = json.loads(path.read_text())["models"]
    rows = {row["name"]: row for row in found["rows"]}
    assert list(rows) == list(models.ROWS)
    assert rows["ours, fused"]["timing"]["median_s"] > 0 and rows["torch"]["timing"]["median_s"] > 0
    assert any(one["verdict"] == "fused" and "attention: " in one["detail"] for one in found["decisions"])
    assert "bert" in capsys.readouterr().out


def test_a_model_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--suite", "models", "--only", "abacus"]) == 2
    assert "models among gpt2, llama" in capsys.readouterr().err
