"""`torch.compile(…, backend="tvm_cascade")`: graphs that it takes, and those that PyTorch runs, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tvm_cascade.torch  # noqa: E402, F401
from tvm_cascade.errors import ModelError  # noqa: E402
from tvm_cascade.evaluate.tolerance import assert_close  # noqa: E402
from tvm_cascade.torch.backend import MOST_KINDS, FallbackWarning  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def close(found: Any, eager: Any) -> None:
    assert_close(np.asarray(found.detach().double()), np.asarray(eager.detach().double()), length=64, dtype="float32")


class Layer(nn.Module):
    """Two graphs: what follows depends on data. It counts its calls in a buffer, and returns a view of its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        y = F.scaled_dot_product_attention(self.linear(x), x, x, is_causal=True)
        if y.sum() > 1e9:
            y = y + 1
        return y.softmax(-1), x.view(-1)


@torch.no_grad()
def test_a_model_in_two_graphs_at_several_lengths() -> None:
    assert "tvm_cascade" in torch._dynamo.list_backends()
    module = Layer().eval()
    compiled = torch.compile(module, backend="tvm_cascade")
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for k, length in enumerate((5, 5, 6, 7)):
            x = torch.randn(2, length, 8)
            found, viewed = compiled(x)
            assert module.calls.item() == 2 * k + 1
            close(found, module(x)[0])
            viewed[0] = 100.0
            assert x[0, 0, 0] == 100.0


def test_what_it_cannot_take_runs_in_pytorch_and_is_named() -> None:
    compiled = torch.compile(lambda x: torch.special.bessel_j0(x).sum(-1), backend="tvm_cascade")
    x = torch.randn(4, 8)
    with pytest.warns(FallbackWarning, match=r"(?s)aten\.special_bessel_j0\.default.*node `special"):
        found = compiled(x)
    assert torch.equal(found, torch.special.bessel_j0(x).sum(-1))


def test_gradients_are_those_of_pytorch() -> None:
    linear = nn.Linear(8, 8)
    compiled, x = torch.compile(linear, backend="tvm_cascade"), torch.randn(4, 8)
    with pytest.warns(FallbackWarning, match="gradients.*no_grad"):
        compiled(x).sum().backward()
    close(linear.weight.grad, x.sum(0).expand(8, 8))


def test_random_numbers_are_drawn_by_pytorch() -> None:
    compiled = torch.compile(lambda x: F.dropout(x, 0.5), backend="tvm_cascade")
    with pytest.warns(FallbackWarning, match="no random numbers"):
        found = compiled(torch.ones(64, 64))
    assert set(found.unique().tolist()) == {0.0, 2.0}


@torch.no_grad()
def test_shapes_without_end_run_in_pytorch_from_some_on() -> None:
    compiled = torch.compile(lambda x: x.softmax(-1), backend="tvm_cascade", dynamic=True)
    for length in range(2, 2 + MOST_KINDS):
        x = torch.randn(3, length)
        close(compiled(x), x.softmax(-1))
    with pytest.warns(FallbackWarning, match=rf"compiled for {MOST_KINDS} shapes.*dynamic="):
        assert torch.equal(compiled(torch.ones(3, 100)), torch.ones(3, 100).softmax(-1))


@torch.no_grad()
def test_numbers_are_constants_of_a_program_of_any_length() -> None:
    module = nn.LayerNorm(8).eval()
    module.share = 0.25

    def forward(x: Any) -> Any:
        return F.scaled_dot_product_attention(x, x, x, scale=module.share).clamp(max=module.share)

    compiled = torch.compile(forward, backend="tvm_cascade", dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for share, length in ((0.25, 5), (0.25, 7), (0.5, 7)):
            module.share, x = share, torch.randn(2, length, 8)
            close(compiled(x), forward(x))


@torch.no_grad()
def test_what_fails_alike_for_two_shapes_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def refused(*arguments: Any) -> Any:
        tried.append(arguments)
        raise ModelError("a model", "none", "this test")

    monkeypatch.setattr("tvm_cascade.torch.backend.exported", refused)
    compiled = torch.compile(lambda x: x.softmax(-1), backend="tvm_cascade", dynamic=True)
    with pytest.warns(FallbackWarning, match="expected a model, found none"):
        for length in range(2, 6):
            x = torch.randn(3, length)
            assert torch.equal(compiled(x), x.softmax(-1))
    assert len(tried) == 2
