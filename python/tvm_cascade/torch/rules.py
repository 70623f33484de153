"""What operators are made of that neither TVM nor we convert, where torch has no rule that ends in those we do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tvm_cascade.torch.site import of_each_axis
from tvm_cascade.torch.writes import WRITES

_ATEN = torch.ops.aten


def _fmax(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x.isnan(), y, torch.where(y.isnan(), x, torch.maximum(x, y)))


def _fmin(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x.isnan(), y, torch.where(y.isnan(), x, torch.minimum(x, y)))


def _signbit(x: Tensor) -> Tensor:
    return (x < 0) | (x.reciprocal() < 0) if x.is_floating_point() else x < 0  # 1/−0 is −∞


def _hypot(x: Tensor, y: Tensor) -> Tensor:
    """√(x² + y²), of which the squares may be out of range."""
    large, small = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    share = torch.where((large == 0) | large.isinf(), torch.zeros_like(small), small / large)
    return large * torch.sqrt(1 + share * share)


def _promoted(combine: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    """Of operands in one dtype: TVM's converters take a number in the dtype of the tensor beside it."""

    def combined(left: Any, right: Any) -> Tensor:
        dtype = torch.result_type(left, right)
        given = [one.to(dtype) if isinstance(one, Tensor) else one for one in (left, right)]
        return NotImplemented if given[0] is left and given[1] is right else combine(*given)

    return combined


_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
_SHIFT = 8


def _lgamma(x: Tensor) -> Tensor:
    """ln|Γ(x)|: Stirling's series at x + 8, below ½ by reflection; in float64, since near 1 and 2 its parts cancel."""
    wide = x.double()
    at = torch.where(wide < 0.5, 1 - wide, wide)
    far, product = at + _SHIFT, at
    for k in range(1, _SHIFT):
        product = product * (at + k)
    inverse = 1 / far
    series = sum(c * inverse ** (2 * k + 1) for k, c in enumerate(_STIRLING))
    above = (far - 0.5) * far.log() - far + 0.5 * math.log(2 * math.pi) + series - product.log()
    above = torch.where(at.isinf(), at, above)
    turned = math.log(math.pi) - torch.sin(math.pi * (wide - wide.floor())).abs().log() - above
    return torch.where(wide < 0.5, turned, above).to(x.dtype if x.is_floating_point() else torch.get_default_dtype())


_ERFC = (-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587)
_ERFC_END = (-0.82215223, 0.17087277)


def _erfc(x: Tensor) -> Tensor:
    """1 − erf(x), to 1.2e-7 of itself however small: Chebyshev's fit of Numerical Recipes, §6.2."""
    size = x.abs().to(torch.float64)
    t, exponent = 1 / (1 + 0.5 * size), torch.zeros_like(size)
    for coefficient in reversed(_ERFC + _ERFC_END):
        exponent = exponent * t + coefficient
    above = t * torch.exp(-size * size + exponent)
    return torch.where(x < 0, 2 - above, above).to(x.dtype)


def _cdist(x: Tensor, y: Tensor, p: float, compute_mode: int | None = None) -> Tensor:
    apart = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs()
    if p == 0:
        return (apart != 0).to(x.dtype).sum(-1)
    if math.isinf(p):
        return apart.amax(-1)
    return apart.sum(-1) if p == 1 else (apart * apart).sum(-1).sqrt() if p == 2 else (apart**p).sum(-1) ** (1 / p)


def _kth(x: Tensor, k: Any, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    found = (one.narrow(dim, k - 1, 1) if x.dim() else one for one in torch.sort(x, dim))
    values, positions = (one if keepdim or not x.dim() else one.squeeze(dim) for one in found)
    return values, positions


def _adaptive_max_pool2d(x: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    """Along rows, then along columns: positions count row by row, of equal values the first."""
    (rows, columns), width = output_size, x.shape[-1]
    found = [(part.max(-1), start) for part, start in _windows(x, -1, columns)]
    values = torch.stack([one.values for one, _ in found], -1)
    places = torch.stack([one.indices + start for one, start in found], -1)
    tops = [(part.max(-2, keepdim=True), start) for part, start in _windows(values, -2, rows)]
    at = torch.cat([one.indices + start for one, start in tops], -2)
    return torch.cat([one.values for one, _ in tops], -2), at * width + places.gather(-2, at)


def _windows(x: Tensor, dim: int, count: int) -> list[tuple[Tensor, int]]:
    """The parts of an axis that an adaptive pool reads for each of its results, and where they start."""
    extent = x.shape[dim]
    ends = [(k * extent // count, -((k + 1) * extent // -count)) for k in range(count)]
    return [(x.narrow(dim, start, end - start), start) for start, end in ends]


def _searchsorted(
    places: Tensor,
    x: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """How many of the sorted are below, counted: one reduction, of which nothing between is stored."""
    places = (places if sorter is None else places.gather(-1, sorter)).unsqueeze(-2)
    below = places <= x.unsqueeze(-1) if right or side == "right" else places < x.unsqueeze(-1)
    return below.sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def _addbmm(x: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    summed = (left @ right).sum(0)
    summed = summed if alpha == 1 else alpha * summed
    return summed if beta == 0 else (x if beta == 1 else beta * x) + summed


def _trilinear(
    x: Tensor,
    weight: Tensor,
    y: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    factors = []
    for one, axes in ((x, expand1), (weight, expand2), (y, expand3)):
        for axis in axes:
            one = one.unsqueeze(axis)
        factors.append(one)
    return (factors[0] * factors[1] * factors[2]).sum(list(sumdim))


def _histogram(x: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    """Between fixed bounds: how many elements are in each of equally wide bins, the last of which has its end."""
    if not min < max:
        return NotImplemented
    flat = x.reshape(-1, 1).to(torch.promote_types(x.dtype, torch.float32))
    place = ((flat - min) * bins / (max - min)).floor().clamp(max=bins - 1)
    here = (place == torch.arange(bins, device=x.device)) & (flat >= min) & (flat <= max)
    return here.sum(0).to(x.dtype)


def _average(
    pool: Callable[..., Tensor],
    x: Tensor,
    size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Of the positions in the data, by how many of them and of the padding there are, or by the divisor.

    TVM ignores the divisor, and counts what is beyond the padding in windows of `ceil_mode`.
    """
    if divisor_override is None and not (ceil_mode and count_include_pad):
        return NotImplemented
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    found = pool(wide, size, stride, padding, ceil_mode, False)
    axes = len(size)
    given = (of_each_axis(one, axes) for one in (size, stride or size, padding))
    for axis, (width, step, more) in enumerate(zip(*given, strict=True), -axes):
        extent = x.shape[axis]
        first = torch.arange(found.shape[axis], device=x.device) * step - more
        share = (first + width).clamp(max=extent) - first.clamp(min=0)
        if divisor_override is None:
            share = share / ((first + width).clamp(max=extent + more) - first)
        found = found * share.reshape(-1, *[1] * (-1 - axis))
    return (found if divisor_override is None else found / divisor_override).to(x.dtype)


def _split_with_sizes(x: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    """Slices, each of which what reads it reads in place; TVM's operator makes tensors of all of them at once."""
    return [x.narrow(dim, end - size, size) for size, end in zip(sizes, accumulate(sizes), strict=True)]


RULES: Mapping[Any, Callable[..., Any]] = {
    **WRITES,
    torch.ops.prims.where.default: torch.where,
    torch.ops.prims.convert_element_type.default: torch.Tensor.to,
    _ATEN.remainder.Scalar: _promoted(torch.remainder),
    _ATEN.remainder.Tensor: _promoted(torch.remainder),
    _ATEN.fmod.Scalar: _promoted(torch.fmod),
    _ATEN.fmod.Tensor: _promoted(torch.fmod),
    _ATEN.pow.Scalar: _promoted(torch.pow),
    _ATEN.fmax.default: _fmax,
    _ATEN.fmin.default: _fmin,
    _ATEN.signbit.default: _signbit,
    torch.ops.prims.signbit.default: _signbit,
    _ATEN.hypot.default: _hypot,
    _ATEN.lgamma.default: _lgamma,
    _ATEN.erfc.default: _erfc,
    _ATEN._cdist_forward.default: _cdist,
    _ATEN.adaptive_max_pool2d.default: _adaptive_max_pool2d,
    _ATEN.kthvalue.default: _kth,
    _ATEN.searchsorted.Tensor: _searchsorted,
    _ATEN.split_with_sizes.default: _split_with_sizes,
    _ATEN.addbmm.default: _addbmm,
    _ATEN._trilinear.default: _trilinear,
    _ATEN.exp2.default: lambda x: torch.pow(2.0, x),
    _ATEN.histc.default: _histogram,
    _ATEN.avg_pool2d.default: partial(_average, F.avg_pool2d),
    _ATEN.avg_pool3d.default: partial(_average, F.avg_pool3d),
}


# Normalisations that TVM's converters take in part, or that torch decomposes otherwise on each device.


def group_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    batch: int,
    channels: int,
    _: int,
    groups: int,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    """aten.native_group_norm as a layer's normalisation of each group, scaled and moved by channel."""
    grouped = x.reshape(batch, groups, -1)
    y, mean, rstd = torch.native_layer_norm(grouped, grouped.shape[-1:], None, None, eps)
    y, each = y.reshape(x.shape), (1, channels, *(1,) * (x.dim() - 2))
    y = y if weight is None else y * weight.reshape(each)
    y = y if bias is None else y + bias.reshape(each)
    return y, mean.reshape(batch, groups), rstd.reshape(batch, groups)


def rms_norm(
    x: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """aten.rms_norm by elementwise operators and a mean, in float32 where its input is narrower.

    x·weight/sqrt(mean(x²) + eps), the mean over the last axes, of the shape that is given; eps is by default the
    resolution of the dtype that is computed in.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    y = x.to(wide)
    axes = list(range(-len(normalized_shape), 0))
    y = y * torch.rsqrt((y * y).mean(axes, keepdim=True) + (torch.finfo(wide).eps if eps is None else eps))
    return (y if weight is None else y * weight).to(x.dtype)


def log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    """aten._log_softmax as (x − m) − log Σ exp(x − m), m the highest of a row.

    The first difference is written as a sum: common to both, it would be a tensor between a row's sum and its results.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    highest = wide.amax(dim, keepdim=True)
    logarithm = (wide - highest).exp().sum(dim, keepdim=True).log()
    found = (wide + -highest) - logarithm
    return found if half_to_float else found.to(x.dtype)


def of_float64(decompose: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition for float64 alone, which TVM's own normalisations do not take."""

    def decomposed(x: torch.Tensor, *given: Any, **by_name: Any) -> Any:
        return decompose(x, *given, **by_name) if x.dtype == torch.float64 else NotImplemented

    return decomposed
