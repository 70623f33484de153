"""Operators as PyTorch computes them: those that TVM's importer lacks, gets wrong, or takes in another dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

import tvm_cascade  # noqa: E402
from tvm_cascade.evaluate.tolerance import assert_close, kinds  # noqa: E402
from tvm_cascade.torch.rules import rms_norm  # noqa: E402
from tvm_cascade.torch.site import Site  # noqa: E402

Formula = Callable[..., Any]
INF = float("inf")

# x, y: floats [4, 6, 8]; n: int64 [4, 6, 8]; w: floats [5, 8]; at: int64 [3].
ATTENTION: Mapping[str, Formula] = {
    "attention": lambda x, y, n, w, at: F.scaled_dot_product_attention(x, y, x),
    "scale": lambda x, y, n, w, at: F.scaled_dot_product_attention(x, y, x, scale=1.5),
    "causal, fewer queries": lambda x, y, n, w, at: F.scaled_dot_product_attention(x[:, :4], y, x, is_causal=True),
    # Of whole numbers, so that no score of some −600 is rounded, whatever the order of its sum.
    "causal, low scores": lambda x, y, n, w, at: F.scaled_dot_product_attention(
        (x - 9).round(), (y + 9).round(), x, is_causal=True
    ),
    "boolean mask": lambda x, y, n, w, at: F.scaled_dot_product_attention(x, y, x, attn_mask=n[:, :, :6] > 0),
    "a row without a key": lambda x, y, n, w, at: F.scaled_dot_product_attention(
        x, y, x, attn_mask=(n[0, :, :1] > 0).expand(6, 6)
    ),
    "float mask with -inf": lambda x, y, n, w, at: F.scaled_dot_product_attention(
        x, y, x, attn_mask=torch.where(n[:, :, :6] > 0, y[:, :, :6], -INF)
    ),
    "mask of the lowest numbers": lambda x, y, n, w, at: F.scaled_dot_product_attention(
        x, y, x, attn_mask=torch.full((6, 6), torch.finfo(x.dtype).min / 2, dtype=x.dtype)
    ),
    "grouped heads": lambda x, y, n, w, at: F.scaled_dot_product_attention(
        x.view(2, 4, 3, 8), y.view(2, 4, 3, 8)[:, :2], x.view(2, 4, 3, 8)[:, 2:], enable_gqa=True
    ),
    "shared keys": lambda x, y, n, w, at: F.scaled_dot_product_attention(x, y[:1], x[:1]),
}
PRODUCTS: Mapping[str, Formula] = {
    "linear": lambda x, y, n, w, at: F.linear(x, w, w[:, 0]),
    "linear of a vector": lambda x, y, n, w, at: F.linear(x[0, 0], w),
    "matmul": lambda x, y, n, w, at: x[:, None] @ y.mT[None],
    "matrix by vector": lambda x, y, n, w, at: x[0] @ w[0],
    "addmm": lambda x, y, n, w, at: torch.addmm(w[:, 0], x[0], w.T, beta=0.5, alpha=2),
    "baddbmm": lambda x, y, n, w, at: torch.baddbmm(y[:, :, :6], x, y.mT, alpha=0.5),
    "convolution": lambda x, y, n, w, at: F.conv1d(x, y[:, :, :3], stride=2),
}
MOVES: Mapping[str, Formula] = {
    "the last row": lambda x, y, n, w, at: x[:, -1],
    "rows counted from the end": lambda x, y, n, w, at: x[:, at - 3],
    "positions of two axes": lambda x, y, n, w, at: x[at, :, at - 3],
    "positions of neighbours": lambda x, y, n, w, at: x[:, at[:, None], at],
    "embedding": lambda x, y, n, w, at: F.embedding(n.abs() % 5, w),
    "gather": lambda x, y, n, w, at: x.gather(1, n[:, :2].abs() % 6),
    "take": lambda x, y, n, w, at: x.take(n - 20),
    "every other row from the end": lambda x, y, n, w, at: x[:, -5:-1:2],
}
REDUCTIONS: Mapping[str, Formula] = {
    "softmax": lambda x, y, n, w, at: x.softmax(1),
    "sum": lambda x, y, n, w, at: x.sum((0, 2)),
    "mean": lambda x, y, n, w, at: x.mean(-1),
    "amax": lambda x, y, n, w, at: x.amax((0, 2)),
    "amin": lambda x, y, n, w, at: x.amin(-1, keepdim=True),
    "min": lambda x, y, n, w, at: x.min(1)[0],
    "logsumexp": lambda x, y, n, w, at: x.logsumexp(-1),
    "variance": lambda x, y, n, w, at: torch.var_mean(x, -1)[0],
    "variance of all": lambda x, y, n, w, at: x.var(correction=0),
    "deviation": lambda x, y, n, w, at: x.std((1, 2)),
    "layer norm": lambda x, y, n, w, at: F.layer_norm(x, (8,), w[0]),
    "group norm": lambda x, y, n, w, at: F.group_norm(x, 3),
    "rms norm": lambda x, y, n, w, at: F.rms_norm(x, (8,)),
    "cumsum": lambda x, y, n, w, at: x.cumsum(-1),
    "product": lambda x, y, n, w, at: x.prod(-1),
    "top-k": lambda x, y, n, w, at: x.topk(3, 1)[0],
    "top-k of shares": lambda x, y, n, w, at: x.softmax(-1).topk(2)[0],
    "SELU": lambda x, y, n, w, at: F.selu(x),
    "number beside integers": lambda x, y, n, w, at: (n + 0.5).to(x.dtype) * x,
    "quotient of integers": lambda x, y, n, w, at: (n / 4).to(x.dtype),
    "remainder": lambda x, y, n, w, at: x % 0.75,
    "powers": lambda x, y, n, w, at: torch.cat([x**2, x**3, x**5, x**7.0, x.abs() ** 3.25]),
    "powers of 2": lambda x, y, n, w, at: torch.exp2(n).to(x.dtype) + 2.0**x,
    "masked_fill": lambda x, y, n, w, at: x.masked_fill(n > 0, -INF),
    "lower triangle": lambda x, y, n, w, at: torch.full((6, 6), -INF, dtype=x.dtype).triu(1) + x[:, :, :6],
    "written rows": lambda x, y, n, w, at: x.index_copy(1, at, y[:, :3]),
    "rows written from the end": lambda x, y, n, w, at: x.index_put((at - 3,), y[:3]),
    "a written row": lambda x, y, n, w, at: x.index_copy(1, at[:1], y[:, :1]),
    "scatter_add": lambda x, y, n, w, at: x.scatter_add(1, n.abs() % 6, y),
    "scatter of a part": lambda x, y, n, w, at: x.scatter(0, at[:2, None, None].expand(2, 3, 8), y),
    "added rows": lambda x, y, n, w, at: x.index_add(1, (at * at) % 3, y[:, :3]),
    "added columns": lambda x, y, n, w, at: x.index_add(2, at % 2, y[:, :, :3]),
}
EXACT: Mapping[str, Formula] = {
    "any": lambda x, y, n, w, at: (n > 3).any(-1),
    "any of all": lambda x, y, n, w, at: (n > 8).any(),
    "any of floats": lambda x, y, n, w, at: (x * (n > 5)).any(1, keepdim=True),
    "all": lambda x, y, n, w, at: (n > -5).all(1),
    "cumsum of truth values": lambda x, y, n, w, at: (n > 0).cumsum(1),
    "cumsum of int32": lambda x, y, n, w, at: n.int().cumsum(0),
    "integers against a number": lambda x, y, n, w, at: n > 0.5,
    "integers from a number on": lambda x, y, n, w, at: n.clamp(min=2),
    "floor division": lambda x, y, n, w, at: n // 4,
    "truncated division": lambda x, y, n, w, at: torch.div(n, 4, rounding_mode="trunc"),
    "modulus of a negative": lambda x, y, n, w, at: n % -4,
    "modulus of a fraction": lambda x, y, n, w, at: n % 0.75,
    "any of bytes": lambda x, y, n, w, at: n.to(torch.uint8).any(1),
    "fmod": lambda x, y, n, w, at: torch.fmod(n, 4),
    "places in order": lambda x, y, n, w, at: torch.searchsorted(w[:, 0].sort()[0], x),
    "places behind": lambda x, y, n, w, at: torch.searchsorted(n.sort(-1)[0], n.flip(1), right=True, out_int32=True),
    "stable order": lambda x, y, n, w, at: (n % 3).argsort(dim=-1, stable=True),
    "stable order from above": lambda x, y, n, w, at: (n % 3).sort(dim=1, descending=True, stable=True)[1],
    "order": lambda x, y, n, w, at: x.argsort(-1, descending=True),
    "experts": lambda x, y, n, w, at: x.softmax(-1).topk(2)[1],
    "positions": lambda x, y, n, w, at: x.topk(3, 1, largest=False)[1],
}


CONVOLUTIONS: Mapping[str, Formula] = {
    "convolution": lambda x, y, n, w, at: F.conv1d(x, y[:, :, :3], padding=1),
    "by strides": lambda x, y, n, w, at: F.conv1d(x, y[:, :, :3], w[0, :4], stride=2, padding=2, dilation=2),
    "of one position": lambda x, y, n, w, at: F.conv1d(x, y[:, :, :1], w[0, :4]),
    "of one position by strides": lambda x, y, n, w, at: F.conv1d(x, y[:, :, :1], stride=3),
    "by groups": lambda x, y, n, w, at: F.conv1d(x[:, :4], y[:, :1, :3], groups=4),
    "of two axes": lambda x, y, n, w, at: F.conv2d(x[:, None], y[:, None, :3, :3], w[0, :4], padding=(1, 0)),
    "of one pixel": lambda x, y, n, w, at: F.conv2d(x[None], y[:, :4, :1, None], w[0, :4]),
    "transposed": lambda x, y, n, w, at: F.conv_transpose1d(x, y[:, :, :3].transpose(0, 1), stride=2),
}


# z: floats [6, 3] with infinities and NaN; e: floats [0, 4]; f: floats [4, 0]; s: a float without dimensions.
SPECIAL: Mapping[str, Formula] = {
    "not itself": lambda z, e, f, s: z != z,
    "itself": lambda z, e, f, s: z.sin() == z.sin(),
    "isnan": lambda z, e, f, s: z.isnan(),
    "nan_to_num": lambda z, e, f, s: z.nan_to_num(),
    "nanmean": lambda z, e, f, s: z.nanmean(1),
    "not above": lambda z, e, f, s: (z > 1).logical_not(),
    "no bit of above": lambda z, e, f, s: ~(z > 1),
    "equal truth values": lambda z, e, f, s: (z > 0) == (z > 1),
    "both truth values": lambda z, e, f, s: (z > 0) * (z < 1) + (z == 3),
    "logaddexp": lambda z, e, f, s: torch.logaddexp(z, 2 * z),
    "0 times": lambda z, e, f, s: z * 0,
    "cosh": lambda z, e, f, s: torch.cosh(z.flatten()),
    "sinh": lambda z, e, f, s: torch.sinh(z.flatten() / 7),
    "by 0": lambda z, e, f, s: z / 0,
    "by -0": lambda z, e, f, s: z / -0.0,
    "fmax of NaN": lambda z, e, f, s: torch.fmax(z, z.flip(0)) - torch.fmin(z, s),
    "sign of -0": lambda z, e, f, s: torch.copysign(torch.ones_like(z), z.nan_to_num()),
    "signbit": lambda z, e, f, s: torch.signbit(z.nan_to_num()),
    "hypot of infinities": lambda z, e, f, s: torch.hypot(z[:2], z[3:5]),
    "lgamma of poles": lambda z, e, f, s: torch.lgamma(z.nan_to_num(neginf=-2.0)),
    "amax of -inf": lambda z, e, f, s: z[:2].amax(1),
    "max of -inf": lambda z, e, f, s: z[:2].max(1)[0],
    "amin of inf": lambda z, e, f, s: z[:2].amin(1),
    "position among -inf": lambda z, e, f, s: z[:2].argmax(1),
    "position among inf": lambda z, e, f, s: z[:2].min(1)[1],
    "variance of nothing": lambda z, e, f, s: e.var(0),
    "variance and mean of nothing": lambda z, e, f, s: torch.stack(torch.var_mean(e, 0, correction=0)),
    "deviation of nothing": lambda z, e, f, s: e.std(0),
    "mean of nothing": lambda z, e, f, s: e.mean(),
    "norm of nothing": lambda z, e, f, s: F.normalize(f).sum(1) + f.norm(dim=1),
    "cumsum of nothing": lambda z, e, f, s: e.cumsum(0),
    "top 0": lambda z, e, f, s: z[2:].topk(0)[1],
    "blocks of nothing": lambda z, e, f, s: torch.block_diag(z, torch.zeros(2, 0)),
    "nothing in another order": lambda z, e, f, s: torch.empty_permuted((1, 0, 5), (0, 2, 1)),
    "nothing before something": lambda z, e, f, s: torch.cat([torch.tensor([]), z, e[:, :3]]),
    **{
        f"{name} without axes": lambda z, e, f, s, name=name: getattr(s, name)(0)
        for name in ("amax", "amin", "sum", "softmax", "logsumexp", "cumsum", "argmax", "argmin", "mean")
    },
    "max and position without axes": lambda z, e, f, s: torch.stack([one.float() for one in s.max(0)]),
    "least without axes": lambda z, e, f, s: s.min() + s.max(),
    "norm without axes": lambda z, e, f, s: s.norm(),
    "added without axes": lambda z, e, f, s: s.index_add(0, torch.tensor(0), s),
}
POOLS: Mapping[str, Formula] = {
    "average": lambda x: F.avg_pool2d(x, 2),
    "average by a divisor": lambda x: F.avg_pool2d(x, 3, divisor_override=2),
    "average of the padded": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "average without the padding": lambda x: F.avg_pool2d(
        x, 3, (2, 3), (1, 0), ceil_mode=True, count_include_pad=False
    ),
    "average along one axis": lambda x: F.avg_pool1d(x[0], 3, 2, 1, ceil_mode=True),
    "average along three axes": lambda x: F.avg_pool3d(x, 2, 1, 1, divisor_override=5),
}


AT = torch.tensor([0, 2, 1])


def written(x: Any, places: Any, values: Any) -> Any:
    x = x.clone()
    x[places] = values
    return x


# x, y: floats [4, 6, 8]; n: int64 [4, 6, 8]; im: floats [1, 2, 8, 9].
RULED: Mapping[str, Formula] = {
    "rotation by complex numbers": lambda x, y, n, im: torch.view_as_real(
        torch.view_as_complex(x.unflatten(2, (4, 2)))
        * (torch.polar(y[:1, :, :4].abs(), x[0, :, :4]) * 2)[:, None][:, 0]
    ).flatten(2),
    "conjugate": lambda x, y, n, im: torch.view_as_real(
        torch.complex(x, y).conj() - torch.stack([torch.complex(y, x)] * 2)[1]
    ),
    "real part": lambda x, y, n, im: (torch.complex(x, y) * x).sum(-1).real,
    "fmax": lambda x, y, n, im: torch.fmax(x, y) - torch.fmin(x, 2 * y),
    "sign of another": lambda x, y, n, im: torch.copysign(x, y) + torch.copysign(y, -1.0),
    "hypot": lambda x, y, n, im: torch.hypot(x, y),
    "lgamma": lambda x, y, n, im: torch.lgamma(4 * x),
    "erfc": lambda x, y, n, im: torch.erfc(3 * x),
    "distances": lambda x, y, n, im: torch.cdist(x, y),
    "distances in sums": lambda x, y, n, im: torch.cdist(x, y[:1], p=1.0),
    "third": lambda x, y, n, im: x.kthvalue(3, 1)[0] + x.kthvalue(3, 1, keepdim=True)[0][:, 0],
    "index_add": lambda x, y, n, im: x.index_add(1, n[0, 0, :5] % 6, y[:, :5], alpha=2.0),
    "scatter": lambda x, y, n, im: x.scatter(2, torch.arange(5).expand(4, 6, 5), y),
    **{
        f"scatter {how}, {itself=}": lambda x, y, n, im, how=how, itself=itself: x.scatter_reduce(
            2, n[:, :, :5].abs() % 8, y, how, include_self=itself
        )
        for how in ("sum", "mean", "prod", "amax", "amin")
        for itself in (True, False)
    },
    "every other row": lambda x, y, n, im: written(x, (slice(None), slice(-5, None, 2)), y[:, :3]),
    "columns": lambda x, y, n, im: written(x, (..., slice(2, 5)), 7.0),
    "rows of two axes": lambda x, y, n, im: written(x, (slice(None), torch.tensor([[1], [4]]), AT), y[:, :2, :3]),
    "rows of axes apart": lambda x, y, n, im: written(x, (AT, slice(None), AT - 3), y[0, :3, :6]),
    "rows at positions of two axes": lambda x, y, n, im: written(x, (slice(None), AT.view(3, 1)), y[:, :3, None]),
    "windows put together": lambda x, y, n, im: F.fold(x.reshape(1, 12, 16), (5, 5), (2, 2)),
    "sum of products": lambda x, y, n, im: torch.addbmm(y[0, :, :6], x, y.mT, beta=0.5, alpha=2.0),
    "bilinear": lambda x, y, n, im: F.bilinear(x, y, y.mT[:3, :, :6].repeat(1, 1, 2)[:, :, :8], x[0, 0, :3]),
    "adaptive maxima": lambda x, y, n, im: F.adaptive_max_pool2d(im, (3, 4)),
    "samples of a grid": lambda x, y, n, im: F.grid_sample(
        im, torch.stack([x[0], y[0]], -1)[None], align_corners=False
    ),
    "mean of a norm": lambda x, y, n, im: torch.native_layer_norm(x, (8,), None, None, 1e-5)[1],
}
RULED_EXACT: Mapping[str, Formula] = {
    "shifts": lambda x, y, n, im: (n << 2) + (n.abs() >> 1) + torch.bitwise_left_shift(n, n.abs()),
    "stable order": lambda x, y, n, im: torch.sort(n, stable=True, dim=1)[1],
    "stable order from the end": lambda x, y, n, im: torch.argsort(n, stable=True, dim=0, descending=True),
    "numbers down": lambda x, y, n, im: torch.arange(5, -7, -2) * n[..., :6] + torch.arange(7, 1, -1),
    "places": lambda x, y, n, im: torch.searchsorted(x.sort(-1)[0], y),
    "places from the right": lambda x, y, n, im: torch.searchsorted(torch.arange(-3, 4), n, right=True, out_int32=True),
    "positions of adaptive maxima": lambda x, y, n, im: F.adaptive_max_pool2d(im, (3, 4), return_indices=True)[1],
    "positions of maxima": lambda x, y, n, im: F.max_pool2d(im, 2, return_indices=True)[1],
}


class Several(torch.nn.Module):
    def __init__(self, formulas: Mapping[str, Formula]) -> None:
        super().__init__()
        self.formulas = formulas

    def forward(self, *inputs: Any) -> dict[str, Any]:
        return {name: formula(*inputs) for name, formula in self.formulas.items()}


def inputs_of(dtype: Any) -> tuple[Any, ...]:
    torch.manual_seed(0)
    x, y, w = torch.randn(4, 6, 8), torch.randn(4, 6, 8), torch.randn(5, 8)
    n = torch.randint(-9, 9, (4, 6, 8))
    n[0, 1, 0] = -1  # a masked row
    return x.to(dtype), y.to(dtype), n, w.to(dtype), torch.tensor([0, 2, 1])


def assert_alike(name: str, *results: Any, length: int, dtype: str) -> None:
    try:
        assert_close(*(np.asarray(one, dtype=np.float64) for one in results), length=length, dtype=dtype)
    except AssertionError as error:
        raise AssertionError(f"{name}: {error}") from error


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_operators_are_those_of_pytorch(dtype: str) -> None:
    known = {**ATTENTION, **PRODUCTS, **CONVOLUTIONS, **MOVES, **REDUCTIONS, **EXACT}
    inputs = inputs_of(getattr(torch, dtype))
    found = tvm_cascade.optimize(Several(known), inputs)(*inputs)
    eager = Several(known)(*inputs)
    exact = Several(known)(*(one.double() if one.is_floating_point() else one for one in inputs))
    for name in known:
        assert found[name].dtype == eager[name].dtype, name
        if name in EXACT:
            assert torch.equal(found[name], eager[name]), name
        else:
            assert_alike(name, *(one[name].double() for one in (found, exact, eager)), length=48, dtype=dtype)


OTHERWISE = ("cumsum", "written rows", "rows written from the end")
OTHERWISE_EXACT = ("cumsum of truth values", "cumsum of int32")


def test_operators_that_gpus_have_other_kernels_for_are_those_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the form for a GPU, run by a CPU."""
    monkeypatch.setattr(Site, "on_gpu", True)
    known = {name: {**MOVES, **REDUCTIONS, **EXACT}[name] for name in (*OTHERWISE, *OTHERWISE_EXACT)}
    inputs = inputs_of(torch.float32)
    compiled, eager = tvm_cascade.optimize(Several(known), inputs), Several(known)(*inputs)
    assert "cumsum: unchanged (single_reduction)" in str(compiled.report)  # which TVM's scan is not
    found = compiled(*inputs)
    for name in known:
        if name in OTHERWISE_EXACT:
            assert torch.equal(found[name], eager[name]), name
        else:
            assert_alike(name, *(one[name].double() for one in (found, eager, eager)), length=8, dtype="float32")


def test_operators_that_rules_make_of_others_are_those_of_pytorch() -> None:
    x, y, n, _, _ = inputs_of(torch.float32)
    inputs, known = (x, y, n, torch.randn(1, 2, 8, 9)), {**RULED, **RULED_EXACT}
    found, eager = tvm_cascade.optimize(Several(known), inputs)(*inputs), Several(known)(*inputs)
    exact = Several(RULED)(*(one.double() if one.is_floating_point() else one for one in inputs))
    for name in known:
        assert found[name].dtype == eager[name].dtype, name
        if name in RULED_EXACT:
            assert torch.equal(found[name], eager[name]), name
        else:
            assert_alike(name, *(one[name].double() for one in (found, exact, eager)), length=8, dtype="float32")


def test_all_that_is_added_at_one_place_counts() -> None:
    module = Several({"added": lambda x, at, v: x.index_put((at, at % 3), v, accumulate=True)})
    given = torch.zeros(4, 3), torch.arange(20_000) % 4, torch.ones(20_000)
    optimized = tvm_cascade.optimize(module, given)
    for _ in range(5):
        assert torch.equal(optimized(*given)["added"], module(*given)["added"])


def test_of_rows_written_to_one_place_the_last_one_counts() -> None:
    module = Several({"written": lambda x, at, v: x.index_put((at,), v)})
    given = torch.zeros(5, 3), torch.tensor([1, 4, -1, 1]), torch.arange(12.0).view(4, 3)
    found = tvm_cascade.optimize(module, given)(*given)["written"]
    assert torch.equal(found[[1, 4]], given[2][[3, 2]]) and not found[[0, 2, 3]].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("eps", [None, 1e-3])
def test_rms_norm_is_that_of_pytorch(dtype: torch.dtype, eps: float | None) -> None:
    x, weight = torch.randn(3, 4, 8).to(dtype), torch.randn(4, 8).to(dtype)
    for given in (weight, None):
        found, expected = (norm(x, (4, 8), given, eps) for norm in (rms_norm, F.rms_norm))
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected)


def test_what_is_no_number_or_no_element_is_as_in_pytorch() -> None:
    z = torch.tensor([[-INF] * 3, [INF] * 3, [1.0, math.nan, 2.0], [0.0, INF, -1.0], [-0.0, 3.0, -INF], [math.nan] * 3])
    inputs = z, torch.empty(0, 4), torch.empty(4, 0), torch.tensor(2.0)
    found, eager = (call(*inputs) for call in (tvm_cascade.optimize(Several(SPECIAL), inputs), Several(SPECIAL)))
    for name in SPECIAL:
        assert found[name].dtype == eager[name].dtype and found[name].shape == eager[name].shape, name
        np.testing.assert_array_equal(kinds(found[name]), kinds(eager[name]), name)
        finite = [np.where(kinds(one), 0.0, np.asarray(one.double())) for one in (found[name], eager[name])]
        assert_alike(name, *finite, length=3, dtype="float32")


def test_powers_and_written_parts_are_compiled_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    x = torch.randn(4, 8)
    columns = (slice(None), slice(1, 3))
    formulas = {"whole": lambda x: x**5, "more": lambda x: x.abs() ** 3.5, "written": lambda x: written(x, columns, 0)}
    found = tvm_cascade.optimize(Several(formulas), x)(x)
    assert "Warning" not in capfd.readouterr().err
    assert torch.equal(found["written"], written(x, columns, 0))
    assert_close(np.asarray(found["more"]), np.asarray(x.double().abs() ** 3.5), length=8, dtype="float32")


def test_pools_are_those_of_pytorch() -> None:
    x = torch.randn(1, 3, 9, 8)
    found = tvm_cascade.optimize(Several(POOLS), x)(x)
    for name, formula in POOLS.items():
        assert_close(
            np.asarray(found[name]), np.asarray(formula(x.double())), np.asarray(formula(x)), length=9, dtype="float32"
        )
