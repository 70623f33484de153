"""Attention in graphs with gradients: one operator, whatever PyTorch would make of it, right wherever it runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402
from tvm import te  # noqa: E402

import tvm_cascade  # noqa: E402
from tvm_cascade.errors import ModelError  # noqa: E402
from tvm_cascade.torch import attention  # noqa: E402
from tvm_cascade.torch.backend import FallbackWarning  # noqa: E402
from tvm_cascade.torch.converters import CONVERTERS  # noqa: E402

from ..tiers import slow_but  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

attend = F.scaled_dot_product_attention
SEEN = torch.rand(10, 12, generator=torch.Generator().manual_seed(0)) < 0.7
SEEN[3] = False
ALONG_KEYS = (torch.arange(10) >= 2)[None, None, :, None].expand(2, 1, 10, 12)
Q, KV, SHARED = (2, 4, 10, 8), (2, 4, 12, 8), (2, 2, 12, 8)

CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "plain": (attend, (Q, KV, KV)),
    "causal": (lambda q, k, v: attend(q, k, v, is_causal=True), (Q, KV, KV)),
    "shared heads": (lambda q, k, v: attend(q, k, v, scale=0.5, enable_gqa=True), (Q, SHARED, SHARED)),
    "a mask": (lambda q, k, v: attend(q, k, v, SEEN), (Q, KV, KV)),
    "a bias": (attend, (Q, KV, KV, (1, 4, 10, 12))),
    "a mask along the keys": (lambda q, k, v: attend(q, k, v, ALONG_KEYS), (Q, KV, KV)),
    "a head": (attend, (Q[1:], KV[1:], KV[1:])),
    "rows": (attend, (Q[2:], KV[2:], KV[2:])),
    "narrow values": (attend, (Q, KV, (*KV[:3], 6))),
    "one query": (attend, ((2, 4, 1, 8), KV, KV)),
    "one query of one head": (attend, ((2, 1, 1, 8), (2, 1, 12, 8), (2, 1, 12, 8), (2, 1, 1, 12))),
    "one batch of keys": (attend, (Q, (1, *KV[1:]), (1, *KV[1:]))),
    "one batch of queries": (attend, ((1, *Q[1:]), KV, KV)),
    "turned": (lambda *x: attend(*(one.transpose(1, 2) for one in x)), ((2, 10, 4, 8), (2, 12, 4, 8), (2, 12, 4, 8))),
}


def given(name: str) -> list[Any]:
    drawn = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=drawn, dtype=torch.float64).requires_grad_() for shape in CASES[name][1]]


def both(call: Callable[..., Any], inputs: list[Any]) -> list[Any]:
    """The result and its gradients."""
    result = call(*inputs)
    weights = torch.linspace(-1, 1, result.numel(), dtype=result.dtype).view_as(result)
    return [result.detach(), *torch.autograd.grad((result * weights).sum(), inputs)]


def assert_near(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    "name", slow_but(["causal", "shared heads", "a mask", "a bias", "a mask along the keys", "one query"], CASES)
)
def test_compiled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, whole = list[Any](), attention.whole_attention
    monkeypatch.setitem(CONVERTERS, "attention.default", lambda site: calls.append(site) or whole(site))  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        found = both(torch.compile(CASES[name][0], backend="tvm_cascade"), given(name))
    assert calls, "attention is one operator"
    assert_near(found, both(CASES[name][0], given(name)))


@pytest.mark.parametrize("name", slow_but(["causal", "shared heads", "one batch of queries"], CASES))
def test_as_pytorch_runs_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backward operator alone, by the logarithms that our forward kernel leaves; and the other way round."""
    for operator in ("attention.default", "attention_backward.default"):
        torch._dynamo.reset()
        with monkeypatch.context() as patched:
            patched.setitem(CONVERTERS, operator, _refused)  # type: ignore[arg-type]
            with pytest.warns(FallbackWarning, match="found this one"):
                found = both(torch.compile(CASES[name][0], backend="tvm_cascade"), given(name))
        assert_near(found, both(CASES[name][0], given(name)))


def _refused(_: Any) -> Any:
    raise ModelError("an operator", "this one", "a test")


def test_rows_without_a_key_are_zero() -> None:
    found = both(torch.compile(CASES["a mask"][0], backend="tvm_cascade"), given("a mask"))
    assert not found[0][:, :, 3].any()
    assert not found[1][:, :, 3].any()
    assert all(one[:, :, 2].all() for one in found[:2]), "and the others are not"


@pytest.mark.parametrize("name", ["causal", "shared heads", "a bias"])
def test_the_operator_keeps_the_rules_of_pytorch(name: str) -> None:
    q, k, v, *bias = given(name)
    options = (name == "causal", 0.5, name == "shared heads")
    torch.library.opcheck(torch.ops.tvm_cascade.attention.default, (q, k, v, bias[0] if bias else None, *options))


def test_one_sequence_is_computed_as_several_are() -> None:
    """The products of its gradient too are in register tiles."""

    def lowered(batch: int) -> str:
        q, k, v = (te.placeholder((batch, 8, 64, 64), "float32", name=name) for name in "qkv")
        out = attention.attention_of({"scale": None, "is_causal": True, "enable_gqa": False}, [q, k, v]).result
        backward = tvm_cascade.gradient(te.create_prim_func([q, k, v, out])).backward
        told = str(tvm_cascade.explain(backward, target={"kind": "llvm", "mcpu": "sapphirerapids", "num-cores": 2}))
        return next(line for line in told.splitlines() if "lowered to" in line)

    assert lowered(1) == lowered(2) and "products, d_products_sum, d_q, d_k, d_v: a product" in lowered(1)


def test_results_lie_in_memory_as_queries_do() -> None:
    q, k, v = (torch.randn(2, 5, 3, 8).transpose(1, 2) for _ in range(3))
    given = (q, k, v, None, False, None, False)
    torch.library.opcheck(torch.ops.tvm_cascade.attention.default, given)
    found, _ = torch.ops.tvm_cascade.attention(*given)
    assert found.stride() == q.stride() and found.transpose(1, 2).is_contiguous()
    close = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(found, close)


def test_weights_that_are_dropped_run_in_pytorch() -> None:
    def dropped(q: Any, k: Any, v: Any) -> Any:
        return attend(q, k, v, dropout_p=0.5)

    with pytest.warns(FallbackWarning, match="random"):
        found = both(torch.compile(dropped, backend="tvm_cascade"), given("plain"))
    assert all(one.isfinite().all() and one.any() for one in found)
    assert not torch.equal(found[0], both(attend, given("plain"))[0])
