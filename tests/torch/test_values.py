"""Converted operators are run beside PyTorch's when a model is compiled: one that gives other values is refused."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from tvm import relax  # noqa: E402

import tvm_cascade  # noqa: E402
from tvm_cascade.errors import ModelError  # noqa: E402
from tvm_cascade.evaluate.tolerance import assert_close  # noqa: E402
from tvm_cascade.torch import values  # noqa: E402
from tvm_cascade.torch.backend import FallbackWarning  # noqa: E402
from tvm_cascade.torch.converters import CONVERTERS  # noqa: E402
from tvm_cascade.torch.reductions import stable_sort  # noqa: E402


class Function(nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *args: Any) -> Any:
        return self.call(*args)


def close(found: Any, eager: Any) -> None:
    assert_close(np.asarray(found.detach().double()), np.asarray(eager.detach().double()), length=64, dtype="float32")


def _without_order(site: Any) -> Any:
    both = stable_sort(site)
    values, order = (site.emit(relax.TupleGetItem(both, k)) for k in range(2))
    return site.emit(relax.Tuple([values, site.emit(relax.op.multiply(order, relax.const(0, "int64")))]))


X = torch.randn(4, 8)
WRONG: dict[str, tuple[str, Callable[[Any], Any], Callable[..., Any], str]] = {
    "another operator": (
        "sin.default",
        lambda site: site.emit(relax.op.cos(site["self"])),
        lambda x: x.sin() + 1,
        r"result 0 of aten\.sin\.default.*test_values\.py",
    ),
    "an argument that is ignored": (
        "argmax.default",
        lambda site: site.emit(relax.op.argmax(site["self"], site["dim"], keepdims=False)),
        lambda x: x.argmax(1, keepdim=True),
        r"aten\.argmax\.default",
    ),
    "the second of two results": (
        "sort.stable",
        _without_order,
        lambda x: x.sort(dim=1, stable=True),
        r"result 1 of aten\.sort\.stable",
    ),
    "zeros of a half": (
        "sin.default",
        lambda site: site.emit(relax.op.zeros(site.node.meta["val"].shape, site.dtype)),
        lambda x: x.bfloat16().sin(),
        r"result 0 of aten\.sin\.default",
    ),
    "positions one too far": (
        "argmax.default",
        lambda site: site.emit(relax.op.add(site.emit(relax.op.argmax(site["self"], 1)), relax.const(1, "int64"))),
        lambda x: x.argmax(1),
        r"aten\.argmax\.default",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_conversion_that_is_wrong_is_refused_and_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, converter, call, message = WRONG[name]
    optimized = tvm_cascade.optimize(Function(call), X)
    for found, expected in zip(_several(optimized(X)), _several(call(X)), strict=True):
        assert torch.equal(found, expected) or found.is_floating_point()
    monkeypatch.setitem(CONVERTERS, operator, converter)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=f"(?s){message}"):
        tvm_cascade.optimize(Function(call), X)


def _in_float32(site: Any) -> Any:
    return site.emit(relax.op.sum(site["self"], site["dim"], keepdims=False))


def _untold(site: Any) -> Any:
    raise ValueError("not by this converter")


@pytest.mark.parametrize("converter", [_in_float32, _untold])
def test_a_use_that_is_not_converted_is_taken_apart_by_torchs_rule(
    converter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONVERTERS, "sum.dim_IntList", converter)
    found = tvm_cascade.optimize(Function(call := lambda x: x.sum(0, dtype=torch.float64)), X)(X)
    assert found.dtype == torch.float64
    assert_close(found.numpy(), call(X).numpy(), length=4, dtype="float64")


def _several(results: Any) -> list[Any]:
    return [*results] if isinstance(results, tuple) else [results]


def test_an_operator_that_tvm_cannot_compile_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unfinished(site: Any) -> Any:
        return site.emit(relax.op.call_dps_packed("no_such_function", [site["self"]], out_ty=site["self"].ty))

    monkeypatch.setitem(CONVERTERS, "sin.default", unfinished)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"(?s)aten\.sin\.default.*found \S+.*test_values\.py"):
        tvm_cascade.optimize(Function(lambda x: x.cos() + x.sin()), X)


def test_each_use_is_run_once_and_large_ones_are_left_out() -> None:
    def trials(call: Callable[..., Any], *arguments: Any) -> list[str]:
        program = torch.export.export(Function(call), arguments).run_decompositions()
        return [str(one.node.target) for one in values._trials(program.graph)]

    large = torch.empty(values.MOST_ELEMENTS // 2 + 1, device="meta")
    assert trials(lambda x: x.sin() + x.sin().sin(), X) == ["aten.sin.default", "aten.add.Tensor"]
    assert trials(lambda x: x.sin()[:4].sin(), large) == ["aten.slice.Tensor", "aten.sin.default"]
    square = torch.empty(512, 512, device="meta")
    assert trials(lambda x: (x @ x)[:8] @ x[:, :8], square).count("aten.mm.default") == 1


@torch.no_grad()
def test_statistics_of_training_are_those_of_pytorch() -> None:
    x = torch.randn(3, 16, 8) * 2 + 3
    for kind in (nn.BatchNorm1d, nn.InstanceNorm1d):
        ours, theirs, compiled = (kind(16, momentum=0.3, track_running_stats=True).train() for _ in range(3))
        close(tvm_cascade.optimize(ours, x)(x), expected := theirs(x))
        with warnings.catch_warnings():
            warnings.simplefilter("error", FallbackWarning)
            close(torch.compile(compiled, backend="tvm_cascade")(x), expected)
        for (name, wanted), buffer, other in zip(
            theirs.named_buffers(), ours.buffers(), compiled.buffers(), strict=True
        ):
            assert name == "num_batches_tracked" or wanted.abs().min() > 1e-3
            close(buffer, wanted)
            close(other, wanted)


@torch.no_grad()
def test_positions_by_their_logarithm() -> None:
    def buckets(now: Any) -> Any:  # of T5
        back = (now - torch.arange(12)).clamp(min=0)
        far = 4 + (torch.log(back.float() / 4) / 3.0 * 4).long()
        return torch.where(back < 4, back, torch.min(far, torch.full_like(far, 7)))

    now = torch.tensor(11)
    assert torch.equal(tvm_cascade.optimize(Function(buckets), now)(now), buckets(now))


@torch.no_grad()
def test_normalisation_over_a_batch_without_statistics() -> None:
    module, x = nn.BatchNorm2d(4, track_running_stats=False).train(), torch.randn(3, 4, 5, 5) + 1
    close(tvm_cascade.optimize(module, x)(x), module(x))


@torch.no_grad()
@pytest.mark.parametrize("module", [nn.GroupNorm(2, 6), nn.InstanceNorm1d(6)], ids=["group", "instance"])
def test_normalisation_of_data_that_are_far_from_zero(module: nn.Module) -> None:
    x = torch.randn(2, 6, 50, generator=torch.Generator().manual_seed(0)) + 1000
    exact, eager = copy.deepcopy(module).double()(x.double()), module(x)
    error = (tvm_cascade.optimize(module, x)(x) - exact).abs().max()
    assert error <= 8 * (eager - exact).abs().max() < 1e-2


@torch.no_grad()
def test_normalisation_in_float64() -> None:
    x = torch.randn(4, 8, dtype=torch.float64)
    for module in (nn.LayerNorm(8).double(), nn.GroupNorm(2, 8).double()):
        found, expected = tvm_cascade.optimize(module, x)(x), module(x)
        assert_close(found.numpy(), expected.numpy(), length=8, dtype="float64")
