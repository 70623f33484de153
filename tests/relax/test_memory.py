"""Operators around a large tensor: one function where nobody needs all of the tensor at once, and apart elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from tvm_cascade.relax import get_pipeline

from .test_fuse_cascades import Forward, module_of

GPU = "nvidia/nvidia-h100"
TOKENS, CLASSES, WIDTH = 4096, 65536, 4096
X, W, Y = [TOKENS, WIDTH], [CLASSES, WIDTH], [TOKENS, 1]


def of_logits(x: nn.Tensor, w: nn.Tensor, y: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
    """What a loss asks of a row of logits."""
    logits = op.matmul(x, op.permute_dims(w), out_dtype="float32")
    highest = op.max(logits, axis=-1, keepdims=True)
    return highest, op.log(op.sum(op.exp(logits - highest), axis=-1, keepdims=True)) * y.astype("float32")


def gradients(x: nn.Tensor, w: nn.Tensor, y: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
    """Those of a row of logits and of the weights, with the logits computed again."""
    logits = op.matmul(x, op.permute_dims(w), out_dtype="float32")
    d = op.exp(logits - y.astype("float32")).astype("bfloat16")
    sums = op.matmul(d, w, out_dtype="float32"), op.matmul(op.permute_dims(d), x, out_dtype="float32")
    return sums[0].astype("bfloat16"), sums[1].astype("bfloat16")


def normalised(x: nn.Tensor, w: nn.Tensor, y: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
    """Every row is divided by its sum, and then each of its elements is asked for: all of it is needed at once."""
    logits = op.matmul(x, op.permute_dims(w), out_dtype="float32")
    weights = op.exp(logits - y.astype("float32"))
    d = (weights / op.sum(weights, axis=-1, keepdims=True)).astype("bfloat16")
    return d, op.matmul(op.permute_dims(d), x, out_dtype="float32").astype("bfloat16")


def lowered(forward: Forward, shapes: Sequence[list[int]] = (X, W, Y), limit: int | None = None) -> dict[str, str]:
    """What the functions of a module are lowered to, by name."""
    pipeline = get_pipeline(GPU, cache=False, temporaries=limit)
    pipeline.scheduled(pipeline.grouped(module_of(forward, *shapes, dtype="bfloat16")))
    assert pipeline.report is not None
    return {one.name: one.lowering for one in pipeline.report.functions}


def test_a_product_and_what_folds_its_rows_are_one_kernel() -> None:
    (told,) = [told for name, told in lowered(of_logits).items() if "matmul" in name]
    assert "`folded`" in told


def test_a_product_and_the_products_of_its_map_are_one_function_in_chunks() -> None:
    found = lowered(gradients)
    (told,) = [told for name, told in found.items() if name.count("matmul") == 3]
    assert told.startswith("chunks of") and "in place of 512.0 MiB of temporaries" in told
    assert not [name for name in found if name.count("matmul") in (1, 2)]


def test_what_needs_all_of_a_tensor_is_left_as_it_was() -> None:
    found = lowered(normalised)
    assert not any("chunks" in told for told in found.values())
    assert not [name for name in found if name.count("matmul") > 1]


def test_small_tensors_are_left_as_they_were() -> None:
    found = lowered(gradients, [[64, WIDTH], [1024, WIDTH], [64, 1]])
    assert len([name for name in found if name.count("matmul") == 1]) == 3


@pytest.mark.parametrize("temporaries", [64, 1024])
def test_how_much_is_large_may_be_said(temporaries: int) -> None:
    found = lowered(gradients, limit=temporaries)
    assert any(told.startswith("chunks of") for told in found.values()) == (temporaries == 64)
