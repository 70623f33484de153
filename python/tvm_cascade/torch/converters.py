"""The table of our converters: what TVM's importer lacks, gets wrong, or gives in a form that does not fuse."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax, tirx

from tvm_cascade.errors import ModelError
from tvm_cascade.torch import (
    arithmetic,
    attention,
    constants,
    experts,
    flex,
    indices,
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
_OF_EACH = (arithmetic.cosh, arithmetic.sinh, arithmetic.expm1, arithmetic.log1p)
_EXTREMA = (("max", True), ("min", False))
_COMPARISONS = {
    "eq": relax.op.equal,
    "ne": relax.op.not_equal,
    "lt": relax.op.less,
    "le": relax.op.less_equal,
    "gt": relax.op.greater,
    "ge": relax.op.greater_equal,
}


def _refused(expected: str, hint: str) -> Converter:
    """Of what rules leave of an operator, as its arguments are not such as they take."""

    def convert(site: Site) -> Any:
        found = ", ".join(f"{one.name} {site.given(one.name)}" for one in site.node.target._schema.arguments)
        raise ModelError(expected, found, str(site.node.target), hint)

    return convert


CONVERTERS: Mapping[str, Converter] = {
    "scaled_dot_product_attention.default": attention.scaled_dot_product_attention,
    "attention.default": attention.whole_attention,
    "attention_backward.default": attention.whole_attention_backward,
    "flex_attention": flex.flex_attention,
    "flex_attention_backward": flex.flex_attention_backward,
    "matmul.default": products.matmul,
    "mm.default": products.mm,
    "bmm.default": products.mm,
    "addmm.default": products.addmm,
    "linear.default": products.linear,
    "convolution.default": products.convolution,
    **dict.fromkeys(("_grouped_mm.default", "grouped_mm_fallback.default"), experts.grouped_mm),
    **{f"sym_{name}": arithmetic.of_sizes(combine) for name, combine in _OF_SIZES.items()},
    "sort.stable": reductions.stable_sort,
    **{f"{a}{name}.default": reductions.extremum(largest=largest) for name, largest in _EXTREMA for a in ("", "a")},
    **{f"{name}.dim": reductions.extremum_with_position(largest=largest) for name, largest in _EXTREMA},
    **{f"arg{name}.default": reductions.position(largest=largest) for name, largest in _EXTREMA},
    **dict.fromkeys(("any.default", "any.dim", "any.dims"), reductions.any_true),
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
    "arange.start_step": constants.arange,
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
    "gather.default": indices.gather,
    "index_put.default": _refused("positions, and no mask", "use torch.where"),
    "histc.default": _refused("bounds of a histogram", "pass min and max, such as 0 and the number of bins less 1"),
    "scatter.src": scatters.scatter(scatters.UPDATE),
    "scatter_add.default": scatters.scatter("add"),
    "scatter_reduce.two": scatters.scatter_reduce,
    **{f"{name}.{form}": arithmetic.arithmetic(op) for name, op in _ARITHMETIC.items() for form in _FORMS},
    **dict.fromkeys(("div.Tensor_mode", "div.Scalar_mode"), arithmetic.division),
    **{f"{name}.{form}": arithmetic.comparison(op) for name, op in _COMPARISONS.items() for form in _FORMS},
    **dict.fromkeys(("clamp.default", "clamp.Tensor"), arithmetic.clamp),
    **{
        f"{name}.{form}": arithmetic.arithmetic(op)
        for name, op in _SHIFTS.items()
        for form in (*_FORMS, "Tensor_Scalar")
    },
    "logical_not.default": arithmetic.logical_not,
    "pow.Tensor_Scalar": arithmetic.power,
    **{f"{value.__name__}.default": arithmetic.of_each(value) for value in _OF_EACH},
}
"""Converters by the operator's name in a graph, as TVM's importer spells it."""
