"""`torch.compile(…, backend="tvm_cascade")`: graphs that it takes, and those that PyTorch runs, with a warning."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import tvm_cascade.torch  # noqa: E402
from tvm_cascade.errors import ModelError  # noqa: E402
from tvm_cascade.evaluate.tolerance import assert_close  # noqa: E402
from tvm_cascade.torch import (  # noqa: E402
    backend,
    compilation,
    tensors,
)
from tvm_cascade.torch.backend import MOST_KINDS, FallbackWarning  # noqa: E402
from tvm_cascade.torch.converters import CONVERTERS  # noqa: E402
from tvm_cascade.torch.cutting import cut  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all lengths; test_sizes_that_change_have_one_program has one for each bucket."""
    monkeypatch.setenv("TVM_CASCADE_BUCKETS", "1")


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


@pytest.mark.usefixtures("one_kernel")
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


def test_random_numbers_are_drawn_by_pytorch() -> None:
    compiled = torch.compile(lambda x: F.dropout(x, 0.5), backend="tvm_cascade")
    with pytest.warns(FallbackWarning, match="no random numbers"):
        found = compiled(torch.ones(64, 64))
    assert set(found.unique().tolist()) == {0.0, 2.0}


@pytest.mark.usefixtures("one_kernel")
@torch.no_grad()
def test_what_is_for_one_size_alone_runs_in_pytorch_from_some_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def static(site: Any) -> Any:
        if not isinstance(site.node.meta["val"].shape[-1], int):
            raise ModelError("a static axis", "one that changes", "this test")
        return convert(site)

    convert = CONVERTERS["cosh.default"]
    monkeypatch.setitem(CONVERTERS, "cosh.default", static)  # type: ignore[arg-type]
    compiled = torch.compile(torch.cosh, backend="tvm_cascade", dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for length in range(2, 2 + MOST_KINDS):
            close(compiled(x := torch.randn(3, length)), x.cosh())
    with pytest.warns(FallbackWarning, match=rf"compiled for {MOST_KINDS} shapes.*dynamic="):
        assert torch.equal(compiled(torch.ones(3, 100)), torch.ones(3, 100).cosh())


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [pytest.param(None, marks=pytest.mark.slow), True])
def test_sizes_that_change_have_one_program(dynamic: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    made, compile_ = list[Any](), compilation.compiled
    monkeypatch.setattr(backend, "compiled", lambda *given, **named: made.append(1) or compile_(*given, **named))

    def forward(x: Any, cache: Any, scale: int) -> Any:
        seen = torch.cat([cache, x], 1)
        attended = F.scaled_dot_product_attention(x, seen, seen).transpose(0, 1) * (scale + seen.shape[1])
        return attended, seen.shape[1] + 1, seen

    compiled = torch.compile(forward, backend="tvm_cascade", dynamic=dynamic)
    cache = torch.randn(2, 3, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for length in (4, 5, 7, 3, 90, 33):
            x = torch.randn(2, length, 8)
            found, expected = compiled(x, cache, 3), forward(x, cache, 3)
            close(found[0], expected[0])
            assert found[1] == expected[1]
            cache = found[2]
    assert len(made) == (1 if dynamic else 2)


class Rare(nn.Module):
    """Attention, an operator without a converter, attention; it counts its calls, and writes to an argument."""

    def __init__(self, rare: Any = torch.special.bessel_j0) -> None:
        super().__init__()
        self.linear, self.rare = nn.Linear(8, 8), rare
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any, cache: Any) -> Any:
        self.calls += 1
        for k in range(2):
            x = F.scaled_dot_product_attention(self.linear(x), x, x, is_causal=True).relu()
            cache[k] = x.mean()
            x = self.rare(x) if k == 0 else x
        first, second = x.softmax(-1).chunk(2, -1)
        return first, second, cache[:1]


def rare_is_right(compiled: Any, module: Any, length: int) -> None:
    x, calls = torch.randn(2, length, 8), module.calls.item()
    found, (cache, expected) = None, (torch.zeros(3), torch.zeros(3))
    found = compiled(x, cache)
    assert module.calls.item() == calls + 1
    for one, eager in zip((*found, cache), (*copy.deepcopy(module)(x, expected), expected), strict=True):
        close(one, eager)
    found[2][0] = 7.0
    assert cache[0] == 7.0


@pytest.mark.usefixtures("one_kernel")
@torch.no_grad()
def test_one_rare_operator_runs_in_pytorch_and_the_rest_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    module, tried, made = Rare().eval(), [], []
    compile_ = compilation.compiled

    def counted(*given: Any, by_name: bool) -> Any:
        tried.append(given)
        made.append(compile_(*given, by_name=by_name))
        return made[-1]

    monkeypatch.setattr(backend, "compiled", counted)
    compiled = torch.compile(module, backend="tvm_cascade", dynamic=True)
    with pytest.warns(
        FallbackWarning, match=r"(?s)^aten\.special_bessel_j0\.default run in PyTorch, and the parts"
    ) as told:
        rare_is_right(compiled, module, 5)
    assert len(told) == 1
    assert (len(tried), len(made)) == (3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for length in (5, 6):
            rare_is_right(compiled, module, length)
    assert (len(tried), len(made)) == (3, 2), "the parts are for any length"


@torch.no_grad()
def test_dropout_between_compiled_parts_is_drawn_by_pytorch() -> None:
    module = Rare(lambda x: F.dropout(torch.ones_like(x), 0.5, training=True)).eval()
    compiled = torch.compile(module, backend="tvm_cascade")
    x = torch.randn(2, 64, 8)
    with pytest.warns(FallbackWarning, match="run in PyTorch, and the parts.*no random numbers"):
        torch.manual_seed(3)
        found = compiled(x, torch.zeros(3))
    torch.manual_seed(3)
    close(found[0], module(x, torch.zeros(3))[0])


@torch.no_grad()
def test_what_is_refused_at_any_shape_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, compile_ = list[Any](), compilation.compiled
    monkeypatch.setattr(backend, "compiled", lambda *given, **named: tried.append(1) or compile_(*given, **named))
    compiled = torch.compile(lambda x: torch.special.bessel_j0(x).sum(-1), backend="tvm_cascade", dynamic=True)
    with pytest.warns(FallbackWarning, match="a graph runs in PyTorch"):
        compiled(torch.ones(3, 4))
    for length in (5, 6, 7):
        compiled(torch.ones(3, length))
    assert len(tried) == 1


class View(nn.Module):
    """Views of an argument, of a result, and of what no result is; copies of an argument that is written to."""

    def forward(self, x: Any, w: Any) -> Any:
        y, before = x @ w.mT, x.clone()
        x.add_(1)
        both = (y + 1).mT.relu()
        return y.view(-1), y.mT[1:], w.mT, x[0], before, both, both.softmax(-1).chunk(2, -1), w, (x * 2)[:, :1]


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [False, True])
def test_results_that_are_views_are_views(dynamic: bool) -> None:
    found, expected = ([torch.arange(12.0).view(4, 3) / 7, torch.arange(15.0).view(5, 3) / 9] for _ in range(2))
    compiled = torch.compile(View(), backend="tvm_cascade", dynamic=dynamic)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        found += pytree.tree_leaves(compiled(*found))
    expected += pytree.tree_leaves(View()(*expected))
    assert [one.stride() for one in found[2:-1]] == [one.stride() for one in expected[2:-1]], (
        "but of a part of a result"
    )
    for k, one in enumerate(found):
        for ours, eager in zip(found, expected, strict=True):
            close(ours, eager)
        one.fill_(k)
        expected[k].fill_(k)


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_has_its_axes_in_another_order_in_memory_is_not_copied(
    dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forward(x: Any, w: Any) -> Any:
        return (x @ w).permute(2, 0, 1).relu(), (x + 1).relu()

    x, w = torch.randn(2, 8, 5).mT, torch.randn(8, 3)
    compiled, expected = torch.compile(forward, backend="tvm_cascade", dynamic=dynamic), forward(x, w)
    compiled(x, w)
    copied, known = list[Any](), tensors.is_compact
    monkeypatch.setattr(tensors, "is_compact", lambda one: known(one) or copied.append(one))
    found = compiled(x, w)
    assert not copied and [one.stride() for one in found] == [one.stride() for one in expected]
    for one, other in zip(found, expected, strict=True):
        close(one, other)


@torch.no_grad()
def test_optimize_refuses_a_rare_operator_unless_it_may_cut(tmp_path: Path) -> None:
    module, example = Rare().eval(), (torch.randn(2, 5, 8), torch.zeros(3))
    with pytest.raises(ModelError, match=r"(?s)special_bessel_j0.*cut=True"):
        tvm_cascade.optimize(module, example)
    with pytest.warns(FallbackWarning, match="special_bessel_j0"):
        optimized = tvm_cascade.optimize(module, example, cut=True)
    assert module.calls.item() == 0 and not example[1].any()
    assert len(optimized.report.functions) > 1 and optimized.target.kind.name == "llvm"
    x, cache, expected = torch.randn(2, 5, 8), torch.zeros(3), torch.zeros(3)
    for one in (optimized, copy.deepcopy(optimized)):
        close(one(x, cache)[0], module(x, expected)[0])
        close(cache, expected)
    assert module.calls.item() == 3
    with pytest.raises(ModelError, match=r"(?s)compiled whole.*one that is cut"):
        tvm_cascade.save(optimized, tmp_path / "model")
    with pytest.raises(ModelError, match=r"float32 \[2, 5, 8\]"):
        optimized(torch.randn(2, 6, 8), cache)


@pytest.mark.usefixtures("one_kernel")
@torch.no_grad()
def test_a_graph_with_constants_has_one_program_for_all_sizes() -> None:
    def forward(x: Any) -> Any:
        return (x * torch.tensor([1.0, 2.0])).softmax(0) + torch.tensor(3.0)

    compiled = torch.compile(forward, backend="tvm_cascade", dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for length in range(3, 5 + MOST_KINDS):
            x = torch.randn(length, 2)
            close(compiled(x), forward(x))


@pytest.mark.usefixtures("one_kernel")
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

    def refused(*arguments: Any, **_: Any) -> Any:
        tried.append(arguments)
        raise ModelError("a model", "none", "this test")

    monkeypatch.setattr(backend, "compiled", refused)
    compiled = torch.compile(lambda x: x.softmax(-1), backend="tvm_cascade", dynamic=True)
    with pytest.warns(FallbackWarning, match="expected a model, found none"):
        for length in range(2, 6):
            x = torch.randn(3, length)
            assert torch.equal(compiled(x), x.softmax(-1))
    assert len(tried) == 3, "for any length, and for two"


def test_what_waits_for_no_refused_operator_is_one_part() -> None:
    def forward(x: Any, w: Any) -> Any:
        y = torch.tanh(x @ w)
        z = torch.special.bessel_j0(y)
        return (y @ w.T).relu().sum(-1) * 2, z.exp().cos().sum(-1) + w.T.sum()

    x, w = torch.randn(4, 8), torch.randn(8, 8)
    graph, inside = make_fx(forward, tracing_mode="fake")(x, w), list[set[str]]()

    def part(inner: torch.fx.GraphModule) -> Any:
        inside.append({str(node.target) for node in inner.graph.nodes if node.op == "call_function"})
        return inner.forward

    found = cut(graph, [torch.ops.aten.special_bessel_j0.default], part)
    assert found is not None and len(inside) == 2
    assert {"aten.mm.default", "aten.tanh.default", "aten.relu.default", "aten.mul.Tensor"} <= inside[0]
    assert {"aten.exp.default", "aten.cos.default"} <= inside[1] and "aten.relu.default" not in inside[1]
    for one, other in zip(found(x, w), forward(x, w), strict=True):
        close(one, other)
