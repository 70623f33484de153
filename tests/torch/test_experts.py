"""Layers of mixtures of experts: whatever the distribution of tokens, in one function of which none of it is a part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tvm  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from tvm import te, tirx  # noqa: E402

import tvm_cascade  # noqa: E402
from tvm_cascade.errors import ModelError  # noqa: E402
from tvm_cascade.evaluate.tolerance import assert_close  # noqa: E402
from tvm_cascade.relax.pipeline import get_pipeline  # noqa: E402
from tvm_cascade.torch.experts import tiles_of  # noqa: E402
from tvm_cascade.torch.importer import import_program  # noqa: E402
from tvm_cascade.torch.site import Site  # noqa: E402

from ..tiers import slow_but  # noqa: E402

EXPERTS, CHOSEN, WIDTH, INNER = 4, 2, 32, 40
DISTRIBUTIONS = {
    "mixed": [[0, 1], [2, 0], [3, 1], [1, 2], [0, 3], [3, 2], [1, 0], [2, 3], [0, 1], [3, 0], [1, 3]],
    "an expert without a token": [
        [0, 1],
        [1, 0],
        [3, 1],
        [1, 3],
        [0, 3],
        [3, 0],
        [1, 0],
        [0, 3],
        [0, 1],
        [3, 0],
        [1, 3],
    ],
    "all of one": [[2, 2]] * 11,
    "tokens of no expert here": [
        [0, 4],
        [4, 4],
        [3, 1],
        [4, 0],
        [1, 4],
        [2, 4],
        [4, 3],
        [4, 4],
        [0, 1],
        [2, 4],
        [4, 4],
    ],
}

if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):  # as transformers declares it

    def _fallback(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        found, start = input.new_zeros(input.shape[0], weight.shape[2]), 0
        for expert, end in enumerate(offs.tolist()):
            found[start:end] = input[start:end] @ weight[expert]
            start = end
        return found

    torch.library.custom_op(
        "transformers::grouped_mm_fallback",
        _fallback,
        mutates_args=(),
        schema="(Tensor input, Tensor weight, Tensor offs) -> Tensor",
    ).register_fake(lambda input, weight, offs: input.new_empty(input.shape[0], weight.shape[2]))


class Experts(torch.nn.Module):
    """Gated experts: rows sorted by expert, two grouped products, the weighted sum of each token's rows."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inward = torch.nn.Parameter((torch.randn(EXPERTS, 2 * INNER, WIDTH) / WIDTH**0.5).to(dtype))
        self.outward = torch.nn.Parameter((torch.randn(EXPERTS, INNER, WIDTH) / INNER**0.5).to(dtype))

    def grouped(self, x: Any, w: Any, ends: Any) -> Any:
        if x.dtype == torch.bfloat16:
            return torch._grouped_mm(x, w, offs=ends)
        return torch.ops.transformers.grouped_mm_fallback(x, w, ends)

    def forward(self, x: Any, chosen: Any, shares: Any) -> Any:
        expert, order = torch.sort(chosen.reshape(-1))
        counts = torch.histc(expert.float(), bins=EXPERTS, min=0, max=EXPERTS - 1)
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        past = (expert >= EXPERTS).unsqueeze(-1)
        both = self.grouped(x[order // CHOSEN], self.inward.mT, ends).masked_fill(past, 0)
        gate, up = both.chunk(2, -1)
        rows = self.grouped(F.silu(gate) * up, self.outward, ends).masked_fill(past, 0)
        rows = rows * shares.reshape(-1)[order].unsqueeze(-1)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0])
        return rows[back].view(-1, CHOSEN, WIDTH).sum(1)

    def one_by_one(self, x: Any, chosen: Any, shares: Any, dtype: torch.dtype) -> Any:
        """The layer's definition, a row after another."""
        found = torch.zeros(x.shape, dtype=dtype)
        for token, place in np.ndindex(*chosen.shape):
            if (expert := int(chosen[token, place])) < EXPERTS:
                gate, up = (self.inward[expert].to(dtype) @ x[token].to(dtype)).chunk(2)
                row = (F.silu(gate) * up) @ self.outward[expert].to(dtype)
                found[token] += row * shares[token, place].to(dtype)
        return found


def inputs_of(name: str, dtype: torch.dtype) -> tuple[Any, Any, Any]:
    torch.manual_seed(1)
    chosen = torch.tensor(DISTRIBUTIONS[name])
    return torch.randn(len(chosen), WIDTH).to(dtype), chosen, torch.rand(len(chosen), CHOSEN).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_layer_is_right_for_every_distribution(dtype: torch.dtype) -> None:
    layer = Experts(dtype)
    optimized = tvm_cascade.optimize(layer, inputs_of("mixed", dtype))
    assert str(optimized.report).count("tiles of rows that pick the same matrix") == 2
    for name in DISTRIBUTIONS:
        with torch.no_grad():
            x, chosen, shares = inputs_of(name, dtype)
            found = optimized(x, chosen, shares)
            exact, own = (layer.one_by_one(x, chosen, shares, kind) for kind in (torch.float64, dtype))
        assert found.dtype == dtype
        results = (np.asarray(one.double()) for one in (found, exact, own))
        assert_close(*results, length=WIDTH, dtype=str(dtype).removeprefix("torch."))


@pytest.mark.parametrize("ends", [[3, 3, 9, 15], [0, 0, 0, 0], [0, 0, 20, 20], [1, 2, 3, 20], [8, 16, 17, 20]], ids=str)
@pytest.mark.parametrize(("rows", "height"), [(20, 4), (20, 8), (3, 4)])
def test_every_row_has_a_place_in_a_tile_of_its_group(ends: list[int], rows: int, height: int) -> None:
    given, bounds = te.placeholder((4,), "int32"), np.minimum(ends, rows).astype("int32")
    count = min(rows, rows // height + 4)
    parts = [np.full(length, -9, "int32") for length in (count, count, rows)]
    arrays = [tvm.runtime.tensor(one) for one in (bounds, *parts)]
    function = te.create_prim_func([given, *tiles_of(given, tirx.const(rows, "int64"), height)])
    tvm.compile(function, target="llvm")(*arrays)
    group, first, place = (one.numpy() for one in arrays[1:])
    own = np.searchsorted(bounds, np.arange(rows), side="right")
    assert ((place >= 0) == (own < 4)).all()
    tile, within = np.divmod(place[own < 4], height)
    assert (group[tile] == own[own < 4]).all()
    assert (first[tile] + within == np.flatnonzero(own < 4)).all()
    assert (first >= 0).all() and (first + height <= max(rows, height)).all()
    assert len({*place[own < 4]}) == (own < 4).sum()
    used = -(-np.diff(bounds, prepend=0) // height)
    assert (group == np.repeat(np.arange(5), [*used, count - used.sum()])).all()  # tiles left over have none


@pytest.mark.parametrize("dtype", slow_but([torch.bfloat16], [torch.float32, torch.bfloat16]), ids=str)
def test_rows_in_tiles_are_multiplied_on_tensor_cores(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer as for a GPU: right where a CPU runs it, and compiled for one."""
    monkeypatch.setattr(Site, "on_gpu", True)
    layer, given = Experts(dtype), inputs_of("tokens of no expert here", dtype)
    with torch.no_grad():
        found = tvm_cascade.optimize(layer, given)(*given)
        exact, own = (layer.one_by_one(*given, kind) for kind in (torch.float64, dtype))
    results = (np.asarray(one.double()) for one in (found, exact, own))
    assert_close(*results, length=WIDTH, dtype=str(dtype).removeprefix("torch."))
    module, _ = import_program(torch.export.export(layer, given), torch.device("cpu"))
    pipeline = get_pipeline({"kind": "cuda", "arch": "sm_90a"})
    pipeline.build(module)
    kernel = "the tensor-core kernel `product`" if dtype == torch.bfloat16 else "the CUDA-core kernel `cores`"
    assert str(pipeline.report).count(kernel) == 2


def test_how_many_tokens_there_are_may_change() -> None:
    layer, tokens = Experts(torch.float32), torch.export.Dim("tokens", min=2, max=64)
    optimized = tvm_cascade.optimize(
        layer, inputs_of("mixed", torch.float32), dynamic={name: {0: tokens} for name in ("x", "chosen", "shares")}
    )
    x, chosen, shares = inputs_of("mixed", torch.float32)
    for count in (3, 11):
        given = x[:count], chosen[:count], shares[:count]
        with torch.no_grad():
            found, exact = optimized(*given), layer.one_by_one(*given, torch.float64)
        assert_close(np.asarray(found.double()), np.asarray(exact), length=WIDTH, dtype="float32")


class Applied(torch.nn.Module):
    def __init__(self, formula: Any) -> None:
        super().__init__()
        self.formula = formula

    def forward(self, *inputs: Any) -> Any:
        return self.formula(*inputs)


def test_histograms_are_those_of_pytorch() -> None:
    def histograms(x: Any) -> Any:
        return x.histc(7, -1, 2), x.histc(3, 0, 1), (x * 2).round().histc(5, 0, 4)

    x = torch.cat([torch.randn(50), torch.tensor([-1.0, 2.0, 1.0, 0.0, float("nan"), 9.0])])
    for found, expected in zip(tvm_cascade.optimize(Applied(histograms), x)(x), histograms(x), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("formula", "told"),
    [
        (lambda x, w, ends: x.histc(4), "bounds of a histogram"),
        (lambda x, w, ends: torch._grouped_mm(x.bfloat16(), w[0].bfloat16(), offs=ends), "rows .* by matrices"),
    ],
)
def test_what_is_not_converted_is_told_of(formula: Any, told: str) -> None:
    example = torch.randn(16, 16), torch.randn(2, 16, 16), torch.tensor([8, 16], dtype=torch.int32)
    with pytest.raises(ModelError, match=told):
        tvm_cascade.optimize(Applied(formula), example)
