"""Products of quantised activations in torch: as users compute them, and in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corpus.programs.quantised import BLOCK, SMALLEST_ABSMAX, Quantised
from tvm_cascade.symbolic.rounding import FORMATS

Named = Mapping[str, Any]


def quantise(torch: Any, form: Quantised, x: Any) -> tuple[Any, Any]:
    """(x in float8, the scale of every token, or of every block of it), [token, k] and [token, 1 or block]."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(1, (-1, BLOCK if form.blocks else x.shape[1]))
    scale = wide.abs().amax(-1, keepdim=True).clamp(min=SMALLEST_ABSMAX) / FORMATS[form.dtype].largest
    return (wide / scale).to(getattr(torch, form.dtype)).flatten(1), scale[..., 0]


def multiply_exact(form: Quantised, named: Named) -> Any:
    """The product without any rounding: in float64, where the tensors are."""
    weight = named["weight"]
    if form.columns:
        weight = weight * named["weight_scale"][:, None]
    if form.blocks:
        weight = weight * named["weight_scale"].repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return named["x"] @ weight.t()


def multiply_quantised(torch: Any, form: Quantised, dtype: Any, named: Named) -> Any:
    """The product with its scales undone: by the library's float8 products where weights are float8.

    Those of rows with scales give bfloat16 alone, and sum as narrowly as kernels under `narrow_sums` may.
    """
    x, weight = named["x"], named["weight"]
    narrow, scale = quantise(torch, form, x)
    if weight.dtype.itemsize > 1 or form.blocks:
        return _widened(torch, form, narrow, scale, weight, named.get("weight_scale"), dtype)
    own = named["weight_scale"][None] if form.columns else torch.ones(1, len(weight), device=x.device)
    multiplied = torch._scaled_mm(narrow, weight.t(), scale, own, out_dtype=torch.bfloat16, use_fast_accum=True)
    return multiplied.to(dtype)


def _widened(torch: Any, form: Quantised, narrow: Any, scale: Any, weight: Any, own: Any, dtype: Any) -> Any:
    """By products of what float8 values and their scales are in the output's dtype, or in float64."""
    wide = weight.dtype if weight.dtype.itemsize > 1 else dtype
    if not form.blocks:
        return narrow.to(wide) @ weight.t() * (scale if own is None else scale * own)
    exact = torch.promote_types(wide, torch.float32)
    left = (narrow.to(exact).unflatten(1, (-1, BLOCK)) * scale[..., None]).flatten(1)
    own = own.to(exact).repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return left.to(wide) @ (weight.to(exact) * own).to(wide).t()
