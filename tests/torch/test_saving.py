"""Optimised models on disk: found by later processes whatever their weights; saved, pickled and copied by users."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tvm_cascade  # noqa: E402
from tvm_cascade.driver import cache  # noqa: E402
from tvm_cascade.errors import ModelError  # noqa: E402
from tvm_cascade.evaluate.tolerance import assert_close  # noqa: E402
from tvm_cascade.torch import compilation  # noqa: E402


def close(found: Any, eager: Any) -> None:
    assert_close(np.asarray(found.detach().double()), np.asarray(eager.detach().double()), length=64, dtype="float32")


class Counting(nn.Module):
    """Tied layers, a constant, and a buffer that counts calls."""

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.register_buffer("calls", torch.zeros(1))
        self.scale = torch.tensor([scale, 1.0])

    def forward(self, x: Any, negated: bool = False) -> Any:
        self.calls += 1
        y = self.second(self.first(x)).softmax(-1) * self.scale[0]
        return {"y": -y if negated else y, "calls": self.calls.clone(), "rows": 2 * x.shape[0] + 1}


@pytest.fixture(scope="module")
def counting() -> tuple[Any, Any]:
    module = Counting().eval()
    length = torch.export.Dim("length", min=2, max=9)
    return tvm_cascade.optimize(module, torch.randn(4, 8), dynamic={"x": {0: length}}), module


def files_of(folder: Path) -> list[Path]:
    return [*(folder / "tvm-cascade" / "code").iterdir()]


@torch.no_grad()
def test_code_is_found_for_other_weights_and_not_for_other_constants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(cache.VARIABLE)
    x = torch.randn(4, 8)
    tvm_cascade.optimize(Counting().eval(), x)
    assert len(files_of(tmp_path)) == 1
    for module in (Counting(3.0), Counting()):
        optimized = tvm_cascade.optimize(module.eval(), x)
        close(optimized(x)["y"], module(x)["y"])
        assert len(files_of(tmp_path)) == 2
        assert optimized.report.functions
        monkeypatch.setattr(compilation, "import_program", lambda *_: pytest.fail("it compiles again"))


class Layers(nn.Module):
    """Two equal layers, with a graph break between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("x", torch.zeros(8))
        self.register_buffer("other", torch.zeros(8))

    def forward(self, x: Any) -> Any:
        x = self.first(x).softmax(-1)
        self.x += x.sum((0, 1))
        torch._dynamo.graph_break()
        x = self.second(x).softmax(-1)
        self.other += x.sum((0, 1))
        return x


@torch.no_grad()
def test_graphs_of_equal_layers_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(cache.VARIABLE)
    imported, import_program = [], compilation.import_program
    monkeypatch.setattr(compilation, "import_program", lambda *given: imported.append(given) or import_program(*given))
    module, x = Layers().eval(), torch.randn(2, 5, 8)
    torch._dynamo.reset()
    found, compiled = torch.compile(module, backend="tvm_cascade")(x), (module.x.clone(), module.other.clone())
    assert len(imported) == len(files_of(tmp_path)) == 1
    module.x.zero_(), module.other.zero_()
    close(found, module(x))
    close(compiled[0], module.x)
    close(compiled[1], module.other)


@torch.no_grad()
def test_a_model_is_saved_pickled_and_copied(tmp_path: Path, counting: tuple[Any, Any]) -> None:
    optimized, module = counting
    tvm_cascade.save(optimized, tmp_path / "model")
    before = module.calls.item()
    pickled = pickle.dumps(optimized)
    for again in (tvm_cascade.load(tmp_path / "model"), pickle.loads(pickled), copy.deepcopy(optimized)):
        for k, length in enumerate((4, 7)):
            x = torch.randn(length, 8)
            found = again(x=x)
            assert (found["calls"].item(), found["rows"]) == (before + k + 1, 2 * length + 1)
            close(found["y"], Counting.forward(copy.deepcopy(module), x)["y"])
        assert {*again.state_dict()} == {*module.state_dict()} and again.eval() is again
        assert {name for name, _ in again.named_parameters()} == {name for name, _ in module.named_parameters()}
        assert again.report == optimized.report and str(again.target) == str(optimized.target)
        with pytest.raises(ModelError, match="length is from 2 to 9"):
            again(torch.randn(10, 8))
        with pytest.raises(ModelError, match=r"\(…\)"):
            again(torch.randn(4, 8), torch.randn(4, 8))
        pickle.dumps(again)
    assert module.calls.item() == before


@torch.no_grad()
def test_copies_have_weights_of_their_own_or_of_the_copied_module(counting: tuple[Any, Any]) -> None:
    optimized, module = counting
    x, before = torch.randn(4, 8), counting[0](torch.ones(4, 8))["y"]
    alone, (together, copied) = copy.deepcopy(optimized), copy.deepcopy((optimized, module))
    same = copy.copy(optimized)
    copied.first.weight.mul_(3.0)
    close(together(x)["y"], copied(x)["y"])
    for one in (optimized, alone, same):
        close(one(torch.ones(4, 8))["y"], before)
    copied.second.weight = nn.Parameter(torch.zeros(8, 8))
    with pytest.raises(ModelError, match="one tensor as"):
        together(x)


class Pair(NamedTuple):
    one: Any
    other: Any


class OfPairs(nn.Module):
    def forward(self, x: Any) -> Any:
        return Pair(x.softmax(-1), x)


def test_results_that_nobody_can_write_down_are_told_of() -> None:
    optimized = tvm_cascade.optimize(OfPairs(), torch.randn(4, 8))
    with pytest.raises(ModelError, match=r"(?s)classes that can be written down.*Pair.*register"):
        pickle.dumps(optimized)
