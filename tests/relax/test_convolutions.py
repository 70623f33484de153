"""Convolutions with channels last where kernels read their windows in place, and as products where those are places."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import tvm
from tvm import relax

from tvm_cascade.evaluate.tolerance import assert_close
from tvm_cascade.relax import get_pipeline
from tvm_cascade.relax.convolutions import ChannelsLast
from tvm_cascade.relax.rewrites import RewriteOperators

from ..plan.run import plan_of, skeletons

SHAPE = [2, 64, 10, 9]

GPU = {"kind": "cuda", "arch": "sm_90a"}


def module(
    side: int = 3,
    groups: int = 1,
    stride: int = 1,
    dtype: str = "float16",
    images: object = 2,
    width: object = SHAPE[-1],
) -> tvm.IRModule:
    """Two convolutions of images of 64 channels; behind the first one a normalisation by batches and relu."""
    builder, edge = relax.BlockBuilder(), side // 2
    x = relax.Var("x", relax.TensorType([images, *SHAPE[1:-1], width], dtype))
    weights = [relax.Var(name, relax.TensorType([64, 64 // groups, side, side], dtype)) for name in ("v", "w")]
    scales = [relax.Var(name, relax.TensorType([64], "float32")) for name in ("gain", "bias", "mean", "variance")]

    def convolved(image: relax.Expr, weight: relax.Expr, step: int) -> relax.Expr:
        wide = relax.op.nn.conv2d(image, weight, (step, step), (edge, edge), groups=groups, out_dtype="float32")
        return builder.emit(wide)

    with builder.function("forward", [x, *weights, *scales]):
        with builder.dataflow():
            normed = builder.emit(relax.op.nn.batch_norm(convolved(x, weights[0], 1), *scales, axis=1, training=False))
            first = builder.emit(relax.op.nn.relu(builder.emit(relax.TupleGetItem(normed, 0))))
            second = convolved(builder.emit(relax.op.astype(first, dtype)), weights[1], stride)
            out = builder.emit_output(relax.op.astype(second, dtype))
        builder.emit_func_output(out)
    return builder.get()


def operators(mod: tvm.IRModule) -> Counter[str]:
    bindings = [binding for block in mod["forward"].body.blocks for binding in block.bindings]
    calls = [one.value for one in bindings if isinstance(one.value, relax.Call)]
    return Counter(call.op.name.removeprefix("relax.") for call in calls)


def kernels(mod: tvm.IRModule) -> list[str]:
    """The skeletons of all functions of a module on an H200, sorted."""
    pipeline = get_pipeline(GPU)
    functions = pipeline.functions(pipeline.grouped(mod)).values()
    return sorted(name for func in functions for name in skeletons(plan_of(func)))


@pytest.mark.parametrize("images", [2, tvm.tirx.Var("images", "int64")], ids=["two", "as many as a call has"])
def test_an_image_and_weights_are_turned_once_and_windows_are_read_in_place(images: object) -> None:
    """The normalisation is computed by the product before it; what is no product turns x, weights and the result."""
    assert kernels(module(images=images)) == ["", "", "", "product", "product"]


@pytest.mark.parametrize("stride", [1, 2])
def test_channels_last_change_nothing(stride: int) -> None:
    mod, rng = module(stride=stride), np.random.default_rng(3)
    turned = ChannelsLast()(mod)
    assert operators(turned)["permute_dims"] == 4
    shapes = [SHAPE, (64, 64, 3, 3), (64, 64, 3, 3)]
    inputs = [rng.normal(size=shape, scale=0.25).astype("float16") for shape in shapes]
    inputs += [rng.uniform(0.5, 1.5, 64).astype("float32") for _ in range(4)]
    found, expected = (
        relax.VirtualMachine(get_pipeline("llvm").build(one), tvm.cpu())["forward"](*map(tvm.runtime.tensor, inputs))
        for one in (turned, mod)
    )
    assert_close(found.numpy(), expected.numpy(), length=64 * 9, dtype="float16")


@pytest.mark.parametrize(
    "mod",
    [
        module(groups=64),
        module(side=1),
        module(dtype="float32"),
        module(width=tvm.tirx.Var("width", "int64")),
    ],
    ids=["of each channel", "of one position", "float32", "a width that the launch alone knows"],
)
def test_channels_stay_where_nothing_would_be_read_in_place(mod: tvm.IRModule) -> None:
    assert not operators(ChannelsLast()(mod))["permute_dims"]


def test_layouts_are_those_of_gpus_whose_products_read_windows() -> None:
    grouped = get_pipeline("llvm").grouped(module())
    assert not any("transpose" in name.name_hint for name in grouped.get_global_vars())


def test_windows_of_one_position_are_products() -> None:
    rewritten = operators(RewriteOperators()(module(side=1)))
    assert (rewritten["matmul"], rewritten["nn.conv2d"]) == (2, 0)
    assert operators(RewriteOperators()(module(side=1, stride=2)))["nn.conv2d"] == 1


def test_layouts_of_transposed_convolutions_stay() -> None:
    """TVM has functions for those with channels first alone."""
    builder = relax.BlockBuilder()
    x, w = (
        relax.Var(name, relax.TensorType(shape, "float16")) for name, shape in (("x", SHAPE), ("w", [64, 64, 3, 3]))
    )
    with builder.function("forward", [x, w]):
        with builder.dataflow():
            first = builder.emit(relax.op.nn.conv2d(x, w, padding=(1, 1)))
            wider = builder.emit(relax.op.nn.conv2d_transpose(first, w, strides=(2, 2)))
            out = builder.emit_output(relax.op.nn.conv2d(wider, w))
        builder.emit_func_output(out)
    turned = ChannelsLast()(builder.get())
    assert operators(turned)["permute_dims"] > 1
    legal = relax.transform.LegalizeOps()(turned)
    assert not any(name.startswith("nn.") for name in operators(legal))
