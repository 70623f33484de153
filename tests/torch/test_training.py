"""Training by `torch.compile(…, backend="tvm_cascade")`: losses and gradients are those of PyTorch, from our graphs."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tvm_cascade.torch import backend, compilation  # noqa: E402
from tvm_cascade.torch.backend import FallbackWarning  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

VOCABULARY, WIDTH, HEADS, LENGTH = 40, 32, 4, 12
STEPS = 20


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that are compiled."""
    found, compile_ = list[Any](), compilation.compiled

    def counted(program: Any, *given: Any, **named: Any) -> Any:
        code = compile_(program, *given, **named)
        found.append(program.graph)
        return code

    monkeypatch.setattr(backend, "compiled", counted)
    return found


class Block(nn.Module):
    """Attention and a feed-forward layer: of GPT-2 with its biases, layer norms and tanh, or of Llama.

    Parameters
    ----------
    between : what becomes of the result of attention.
    """

    def __init__(self, gated: bool, between: Callable[[Any], Any] = lambda x: x) -> None:
        super().__init__()
        self.gated, self.between = gated, between
        self.inward, self.outward = nn.Linear(WIDTH, 3 * WIDTH, not gated), nn.Linear(WIDTH, WIDTH, not gated)
        self.norms = nn.ModuleList((nn.RMSNorm if gated else nn.LayerNorm)(WIDTH) for _ in range(2))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, not gated), nn.Linear(2 * WIDTH if gated else 4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        parts = self.inward(self.norms[0](x)).chunk(3, -1)
        q, k, v = (one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.between(self.outward(mixed))
        inner = self.up(self.norms[1](x))
        if not self.gated:
            return x + self.down(F.gelu(inner, approximate="tanh"))
        gate, up = inner.chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    """A decoder that gives its loss."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.blocks = nn.Sequential(*blocks)

    def forward(self, tokens: Any) -> Any:
        scores = self.head(self.blocks(self.embedding(tokens[:, :-1])))
        return F.cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten())


def gradients(model: Any, call: Any, tokens: Any) -> list[Any]:
    model.zero_grad()
    call(tokens).backward()
    return [one.grad.double() for one in model.parameters()]


def error(found: list[Any], exact: list[Any]) -> float:
    """The largest error, over the largest element of its tensor."""
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, exact, strict=True))


def assert_as_good_as_eager(model: Any, compiled: Any, tokens: Any) -> None:
    """Gradients within twice eager's own error against float64."""
    exact = copy.deepcopy(model).double()
    wanted, eager = gradients(exact, exact, tokens), gradients(model, model, tokens)
    found = gradients(model, compiled, tokens)
    assert error(found, wanted) <= 2 * error(eager, wanted)
    assert error([0 * one for one in found], wanted) > 20 * error(eager, wanted), "zeros are no gradients"


def curve(model: Any, call: Any, tokens: Any) -> list[float]:
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.5), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = call(tokens)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize(
    ("gated", "dtype"),
    [
        pytest.param(False, "float32", id="gpt2-float32"),
        pytest.param(True, "bfloat16", id="llama-bfloat16", marks=pytest.mark.slow),
        pytest.param(True, "float32", id="llama-float32", marks=pytest.mark.slow),
        pytest.param(False, "bfloat16", id="gpt2-bfloat16", marks=pytest.mark.slow),
    ],
)
def test_a_model_is_trained_as_by_pytorch(gated: bool, dtype: str, made: list[Any]) -> None:
    model, tokens = Model(Block(gated)).to(getattr(torch, dtype)), torch.randint(VOCABULARY, (2, LENGTH + 1))
    other, exact, compiled = copy.deepcopy(model), copy.deepcopy(model).double(), None
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        compiled = torch.compile(model, backend="tvm_cascade")
        assert_as_good_as_eager(model, compiled, tokens)
        found = curve(model, compiled, tokens)
    assert len(made) == 2, "a forward graph and a backward one"
    eager, wanted = curve(other, other, tokens), curve(exact, exact, tokens)
    apart = [max(abs(a - b) for a, b in zip(one, wanted, strict=True)) for one in (found, eager)]
    assert apart[0] <= 2 * apart[1]
    assert found[-1] < found[0] / 2


def test_what_is_refused_amid_a_model_that_is_trained(made: list[Any]) -> None:
    model, tokens = Model(Block(False, F.dropout)), torch.randint(VOCABULARY, (2, LENGTH + 1))
    other, compiled = copy.deepcopy(model), torch.compile(model, backend="tvm_cascade")
    with pytest.warns(FallbackWarning) as told:
        torch.manual_seed(1)
        found = gradients(model, compiled, tokens)
    assert [str(one.message).partition(":")[0] for one in told] == [
        "aten.native_dropout.default run in PyTorch, and the parts of the graph between them in tvm-cascade"
    ]
    assert len(made) == 3, "two parts of the forward graph, and the backward one"
    torch.manual_seed(1)
    assert error(found, gradients(other, other, tokens)) < 1e-5


@pytest.mark.slow
def test_lengths_that_change_have_one_program(made: list[Any]) -> None:
    block = Block(False)
    compiled, other = torch.compile(block, backend="tvm_cascade", dynamic=True), copy.deepcopy(block)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for length in (6, 9):
            x, found = torch.randn(2, length, WIDTH), []
            for call, model in ((compiled, block), (other, other)):
                model.zero_grad()
                call(x).square().sum().backward()
                found.append([one.grad for one in model.parameters()])
            assert error(*found) < 1e-5
    assert len(made) == 2, "a forward graph and a backward one, for any length"


def test_attention_backward_under_masks() -> None:
    """Heads that share keys, more keys than queries, a scale, and a row that sees nothing, whose gradient is 0."""
    q, k, v = (torch.randn(1, heads, length, 8, requires_grad=True) for heads, length in ((4, 5), (2, 7), (2, 7)))
    seen = torch.rand(1, 1, 5, 7) < 0.6
    seen[..., 2, :] = False

    def forward(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, seen, scale=0.5, enable_gqa=True)

    weights = torch.randn(1, 4, 5, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        found = torch.autograd.grad((torch.compile(forward, backend="tvm_cascade")(q, k, v) * weights).sum(), (q, k, v))
    assert error([*found], [*torch.autograd.grad((forward(q, k, v) * weights).sum(), (q, k, v))]) < 1e-5
    assert not found[0][:, :, 2].any()
