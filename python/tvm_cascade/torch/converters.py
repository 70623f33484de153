"""The table of our converters: what TVM's importer lacks, gets wrong, or gives in a form that does not fuse."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax, tirx

from tvm_cascade.torch import (
    arithmetic,
    attention,
    constants,
    experts,
    flex,
    indices,
    pools,
    products,
    reductions,
    scatters,
)
from tvm_cascade.torch.site import Site

Converter = Callable[[Site], Any]

_FORMS = ("Tensor", "Scalar")
_ARITHMETIC = {"add": relax.op.add, "sub": relax.op.subtract, "mul": relax.op.multiply, "div": relax.op.divide}
_OF_SIZES = {"sum": operator.add, "max": tirx.max, "min": tirx.min}
_SHIFTS = {
    "__lshift__": relax.op.left_shift,
    "__rshift__": relax.op.right_shift,
    "bitwise_left_shift": relax.op.left_shift,
    "bitwise_right_shift": relax.op.right_shift,
}
_EXTREMA = (("max", True), ("min", False))
_COMPARISONS = {
    "eq": relax.op.equal,
    "ne": relax.op.not_equal,
    "lt": relax.op.less,
    "le": relax.op.less_equal,
    "gt": relax.op.greater,
    "ge": relax.op.greater_equal,
}

CONVERTERS: Mapping[str, Converter] = {
    "scaled_dot_product_attention.default": attention.scaled_dot_product_attention,
    "attention.default": attention.whole_attention,
    "attention_backward.default": attention.whole_attention_backward,
    "flex_attention": flex.flex_attention,
    "flex_attention_backward": flex.flex_attention_backward,
    "matmul.default": products.matmul,
    "mm.default": products.mm,
    "bmm.default": products.mm,
    "mv.default": products.mv,
    "addmm.default": products.addmm,
    "baddbmm.default": products.baddbmm,
    "linear.default": products.linear,
    "convolution.default": products.convolution,
    **dict.fromkeys(("_grouped_mm.default", "grouped_mm_fallback.default"), experts.grouped_mm),
    **{f"sym_{name}": arithmetic.of_sizes(combine) for name, combine in _OF_SIZES.items()},
    "histc.default": experts.histc,
    "sort.stable": reductions.stable_sort,
    **{f"{a}{name}.default": reductions.extremum(largest=largest) for name, largest in _EXTREMA for a in ("", "a")},
    **{f"{name}.dim": reductions.extremum_with_position(largest=largest) for name, largest in _EXTREMA},
    **{f"arg{name}.default": reductions.position(largest=largest) for name, largest in _EXTREMA},
    **dict.fromkeys(("any.default", "any.dim", "any.dims"), reductions.any_true),
    **dict.fromkeys(("all.default", "all.dim", "all.dims"), reductions.all_true),
    **dict.fromkeys(("mean.default", "mean.dim"), reductions.mean),
    "var.correction": reductions.variance,
    "var_mean.correction": reductions.variance_and_mean,
    "cumsum.default": reductions.sums_of_integers(relax.op.cumsum),
    "cumprod.default": reductions.sums_of_integers(relax.op.cumprod),
    "prod.default": reductions.product,
    "prod.dim_int": reductions.product,
    "topk.default": reductions.top_k,
    "full.default": constants.full,
    "full_like.default": constants.full_like,
    "empty_permuted.default": constants.empty,
    **dict.fromkeys(("arange.default", "arange.start", "arange.start_step"), constants.arange),
    "_to_copy.default": constants.to_copy,
    "scalar_tensor.default": constants.scalar_tensor,
    "where.self": constants.where,
    "cat.default": indices.cat,
    "as_strided.default": indices.as_strided,
    "slice.Tensor": indices.slice_,
    "slice_scatter.default": indices.slice_scatter,
    "select.int": indices.select,
    "index.Tensor": indices.index,
    "index_select.default": indices.index_select,
    "embedding.default": indices.embedding,
    "take.default": indices.take,
    "gather.default": indices.gather,
    "index_put.default": scatters.index_put,
    **dict.fromkeys(("scatter.src", "scatter.value"), scatters.scatter("update")),
    "scatter_add.default": scatters.scatter("add"),
    "scatter_reduce.two": scatters.scatter_reduce,
    "embedding_dense_backward.default": scatters.embedding_backward,
    "max_pool2d_with_indices_backward.default": scatters.maxima_backward,
    **{f"avg_pool{axes}d.default": pools.average(axes) for axes in (1, 2, 3)},
    **{f"{name}.{form}": arithmetic.arithmetic(op) for name, op in _ARITHMETIC.items() for form in _FORMS},
    **dict.fromkeys(("rsub.Tensor", "rsub.Scalar"), arithmetic.arithmetic(relax.op.subtract, reflected=True)),
    **dict.fromkeys(("div.Tensor_mode", "div.Scalar_mode", "floor_divide.default"), arithmetic.division),
    **dict.fromkeys(("remainder.Tensor", "remainder.Scalar"), arithmetic.remainder(tirx.floormod, tirx.floor)),
    **dict.fromkeys(("fmod.Tensor", "fmod.Scalar"), arithmetic.remainder(tirx.truncmod, tirx.trunc)),
    **{f"{name}.{form}": arithmetic.comparison(op) for name, op in _COMPARISONS.items() for form in _FORMS},
    **dict.fromkeys(("clamp.default", "clamp.Tensor", "clamp_min.default", "clamp_max.default"), arithmetic.clamp),
    **{
        f"{name}.{form}": arithmetic.arithmetic(op)
        for name, op in _SHIFTS.items()
        for form in (*_FORMS, "Tensor_Scalar")
    },
    "logical_not.default": arithmetic.logical_not,
    "pow.Tensor_Scalar": arithmetic.power,
    "cosh.default": arithmetic.cosh,
    "expm1.default": arithmetic.expm1,
    "log1p.default": arithmetic.log1p,
    "sinh.default": arithmetic.sinh,
    "exp2.default": arithmetic.exp2,
}
"""Converters by the operator's name in a graph, as TVM's importer spells it."""
