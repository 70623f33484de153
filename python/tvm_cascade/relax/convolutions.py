"""Convolutions as products: of windows of images with their channels last, and of single positions.

    conv2d(x: [n, c, h, w], W)     →  conv2d(x: [n, h, w, c], W: [o, i, j, c]), and so what is between convolutions
    conv2d(x: [n, c, h, w], W), of windows of one position, with the channels first     →  W·x over h·w columns

Kernels of products read windows in place where channels are the last axis and are copied whole by bulk copies: an image
is turned once then, where each window of it would be stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import tvm
from tvm import ir, relax
from tvm.ir import transform

from tvm_cascade.analysis.tir import Extent, extent_of, more_than_one
from tvm_cascade.devices.device import Device, Gpu
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.machine.table import MULTIPLYING
from tvm_cascade.tile.operand import COPY_ALIGNMENT, MATRIX_DTYPES

_CONVOLUTIONS = tuple(ir.Op.get(f"relax.nn.conv{axes}d") for axes in (1, 2, 3))
_OF_IMAGES = _CONVOLUTIONS[1]
_FIRST, _LAST = ["NCHW", "OIHW", "NCHW"], ["NHWC", "OHWI", "NHWC"]


def channels_last(options: FuseOptions, device: Device) -> list[transform.Pass]:
    """The pass that puts channels last; none for devices whose products read no windows."""
    taken = isinstance(device, Gpu) and options.tensor_cores and not MULTIPLYING.isdisjoint(device.instructions)
    return [ChannelsLast()] if taken else []


@transform.module_pass(opt_level=0, name="ChannelsLast")
class ChannelsLast:
    """Convolutions of images without groups, and what is between them, with channels last; where that pays for any."""

    def transform_module(self, mod: tvm.IRModule, _: transform.PassContext) -> tvm.IRModule:
        if not any(map(_has_windows, _calls(mod))):
            return mod
        return relax.transform.ConvertLayout({}, _layouts)(mod)


def _calls(mod: tvm.IRModule) -> Iterator[relax.Call]:
    for _, func in mod.functions_items():
        if isinstance(func, relax.Function) and isinstance(func.body, relax.SeqExpr):
            values = (binding.value for block in func.body.blocks for binding in block.bindings)
            yield from (value for value in values if isinstance(value, relax.Call))


def _layouts(call: relax.Call) -> dict[str, list[str]]:
    """Those of a convolution's image, weight and result, transposed ones as they are; none of other calls."""
    if not hasattr(call.attrs, "kernel_layout"):
        return {}
    kept = [call.attrs.data_layout, call.attrs.kernel_layout, call.attrs.out_layout]
    turned = call.op == _OF_IMAGES and kept == _FIRST and call.attrs.groups == 1
    return {call.op.name: _LAST if turned else kept}


def _has_windows(call: relax.Call) -> bool:
    """Whether a product reads its windows in place with channels last."""
    if call.op != _OF_IMAGES or call.attrs.groups != 1 or call.attrs.data_layout != _FIRST[0]:
        return False
    image, weight = map(_extents, call.args)
    kind = MATRIX_DTYPES.get(str(call.args[0].ty.dtype.dtype))
    known = bool(image and weight) and all(isinstance(n, int) for n in (*image[1:], *weight))
    if kind is None or not kind.implied or not known:
        return False
    return weight[1] * kind.size % COPY_ALIGNMENT == 0 and any(map(more_than_one, weight[2:]))


def _extents(tensor: relax.Expr) -> list[Extent]:
    """The extents of a tensor; none of one of unknown rank."""
    shape = tensor.ty.shape
    return [*map(extent_of, shape.values)] if isinstance(shape, relax.ShapeExpr) else []


def as_product(call: relax.Call, builder: relax.BlockBuilder) -> relax.Expr | None:
    """W·x over positions in a row, of a convolution of windows of one position with channels first; None of others."""
    if call.op not in _CONVOLUTIONS:
        return None
    (x, weight), attrs = call.args, call.attrs
    positions, sizes = _extents(x), _extents(weight)
    if not positions or not sizes or attrs.data_layout[1] != "C" or attrs.kernel_layout[:2] != "OI":
        return None
    (batch, channels, *along), (made, _, *window) = positions, sizes
    steps = map(extent_of, (*attrs.strides, attrs.groups))
    if any(map(more_than_one, (*window, *steps))) or any(map(int, attrs.padding)):
        return None
    matrix = builder.emit(relax.op.reshape(weight, (made, channels)))
    rows = builder.emit(relax.op.reshape(x, (batch, channels, math.prod(along))))
    product = builder.emit(relax.op.matmul(matrix, rows, out_dtype=str(call.ty.dtype.dtype)))
    return relax.op.reshape(product, (batch, made, *along))
