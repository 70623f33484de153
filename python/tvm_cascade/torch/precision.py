"""PyTorch's rule for halves: an operator computes on float32 values and rounds its result once.

TVM's own converters compute in the dtype of their operands: a softmax of float16 is summed in float16, and bfloat16 is
sorted by its bits. So operands of halves are converted before an operator, and its result after it; TVM fuses both
conversions into what stands around them. Operators that compute nothing are left alone, and products round by
themselves (`products`, `attention`).
"""

from __future__ import annotations

import operator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import fx

from tvm_cascade.torch.site import HALVES, Site, dtype_name, type_name

_MOVES = """
    alias as_strided broadcast_to cat chunk clone contiguous copy detach diagonal embedding empty expand expand_as
    flatten flip full full_like gather index index_put index_select lift_fresh_copy narrow new_zeros new_ones ones
    ones_like permute repeat reshape roll scatter select select_scatter slice slice_scatter split split_with_sizes
    squeeze stack t tile transpose tril triu unbind unflatten unfold unsqueeze view where zeros zeros_like
    _to_copy scalar_tensor constant_pad_nd
"""
_PRODUCTS = """
    matmul mm bmm mv addmm baddbmm linear convolution scaled_dot_product_attention _grouped_mm
    transformers::grouped_mm_fallback
    tvm_cascade::attention tvm_cascade::attention_backward
"""

PRODUCTS = frozenset(_PRODUCTS.split())
"""Operators that multiply and sum."""

AS_THEY_ARE = frozenset((*_MOVES.split(), *PRODUCTS))
"""Operators whose halves are not converted: they compute nothing, or round by themselves."""


def computes_on_halves(node: fx.Node) -> bool:
    """Whether the operands of a node are to be converted."""
    if node.target is operator.getitem or not hasattr(node.target, "_schema"):
        return False
    if node.target._schema.name.removeprefix("aten::") in AS_THEY_ARE:
        return False
    return any(_is_half(operand) for operand in node.all_input_nodes)


def _is_half(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and dtype_name(value.dtype) in HALVES


def operands_in_float32(site: Site) -> AbstractContextManager[None]:
    """While this lasts, operands that are halves are their values in float32."""
    return site.operands(_is_half, lambda value: site.cast(value, "float32"))


def rounded(site: Site, value: Any) -> Any:
    """The value in the dtype that PyTorch gives, where that is a half and the value is float32."""
    found = site.node.meta.get("val")
    if isinstance(found, torch.Tensor) and dtype_name(found.dtype) in HALVES and type_name(value) == "float32":
        return site.cast(value, dtype_name(found.dtype))
    return value
