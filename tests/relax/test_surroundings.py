"""Lone reductions and the maps around them: one function for a GPU where one kernel takes one pass, and no other."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from tvm_cascade.driver import gpu
from tvm_cascade.evaluate import tolerance
from tvm_cascade.relax import FuseCascades, get_pipeline

from .test_fuse_cascades import Forward, called, module_of, run

GPU = {"kind": "cuda", "arch": "sm_90a"}
ROWS, LENGTH = 16, 256


def rms_norm(x: nn.Tensor, gain: nn.Tensor) -> nn.Tensor:
    """With its square written as a product of what is read twice."""
    wide = x * 3.0
    mean = op.sum(wide * wide, axis=-1, keepdims=True) / float(LENGTH)
    return wide / op.sqrt(mean + 1e-5) * gain


def with_squares(x: nn.Tensor, gain: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
    squares = x * x
    return op.sum(squares, axis=-1, keepdims=True) * gain, squares


def projected(x: nn.Tensor, weight: nn.Tensor) -> nn.Tensor:
    return op.matmul(x * 2.0, weight) + 1.0


def of_cast_gain(x: nn.Tensor, gain: nn.Tensor) -> nn.Tensor:
    wide = x.astype("float32")
    mean = op.sum(wide * wide, axis=-1, keepdims=True) / float(LENGTH)
    return (wide / op.sqrt(mean + 1e-5) * gain.astype("float32")).astype("float16")


def with_what_is_saved(x: nn.Tensor, gain: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
    """A norm, and what its gradient reads of it."""
    wide = x.astype("float32")
    mean = op.sum(wide * wide, axis=-1, keepdims=True) / float(LENGTH)
    inverse = (mean + 1e-5) / ((mean + 1e-5) * op.sqrt(mean + 1e-5))
    return (wide * inverse * gain.astype("float32")).astype("float16"), inverse


def with_two_casts(x: nn.Tensor, y: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
    """A tensor that is computed, and read in a wider dtype by a sum along rows and by one along columns."""
    wide = (x * y).astype("float32")
    return op.sum(wide * 2.0, axis=-1), op.sum(wide * 3.0, axis=0)


def of_heads_last(q: nn.Tensor, k: nn.Tensor, v: nn.Tensor) -> nn.Tensor:
    """Attention of tensors and to a tensor whose rows have all heads."""
    q, k, v = (op.permute_dims(one, [0, 2, 1, 3]) for one in (q, k, v))
    scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2]), out_dtype="float32") * 0.125
    weights = op.softmax(scores, axis=-1).astype("float16")
    return op.permute_dims(op.matmul(weights, v, out_dtype="float32").astype("float16"), [0, 2, 1, 3])


def of_rows(x: nn.Tensor, weight: nn.Tensor) -> nn.Tensor:
    """x·Wᵀ of a weight [out, in]."""
    return op.matmul(x, op.permute_dims(weight), out_dtype="float32").astype("float16")


def of_two_layers(x: nn.Tensor, weight: nn.Tensor, other: nn.Tensor) -> nn.Tensor:
    """Squares of a product, rounded, into another product; the variance of its rows."""
    wide = op.matmul(x, op.permute_dims(weight), out_dtype="float32")
    hidden = (wide * wide).astype("float16")
    y = op.matmul(hidden, op.permute_dims(other), out_dtype="float32")
    centred = y - op.sum(y, axis=-1, keepdims=True) / LENGTH
    return op.sum(centred * centred, axis=-1)


def of_picked(logits: nn.Tensor, targets: nn.Tensor) -> tuple[nn.Tensor, ...]:
    """Logarithms of a softmax at one element of each row, and what the gradient reads of the row; then that."""
    wide = op.reshape(logits.astype("float32"), [2 * ROWS, LENGTH])
    highest = op.max(wide, axis=-1, keepdims=True)
    total = op.log(op.sum(op.exp(wide - highest), axis=-1, keepdims=True))
    of_all = wide + op.negative(highest) - total
    at = op.reshape(targets, [2 * ROWS, 1])
    picked = nn.wrap_nested(relax.op.gather_elements(of_all._expr, at._expr, axis=1), "picked")
    shares = op.reshape(op.exp(wide - highest - total), [2, ROWS, LENGTH])
    return picked, highest, total, shares.astype("float16")


def merged(forward: Forward, *shapes: list[int | str], target: object = GPU, dtype: str = "float32") -> tvm.IRModule:
    return FuseCascades(target)(relax.transform.LegalizeOps()(module_of(forward, *shapes, dtype=dtype)))


def calls_of(mod: tvm.IRModule) -> list[str]:
    (block,) = mod["forward"].body.blocks
    calls = [binding.value for binding in block.bindings if isinstance(binding.value, relax.Call)]
    return [call.args[0].name_hint for call in calls if call.op == tvm.ir.Op.get("relax.call_tir")]


def test_what_was_planned_when_it_was_merged_is_not_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = get_pipeline(GPU)
    grouped = pipeline.grouped(module_of(rms_norm, [ROWS, LENGTH], [LENGTH]))
    anew = get_pipeline(GPU)
    lowered = anew.scheduled(grouped)
    monkeypatch.setattr(gpu, "find_plan", lambda *_: pytest.fail("a plan was looked for"))
    assert str(pipeline.scheduled(grouped)) == str(lowered)
    assert str(pipeline.report) == str(anew.report) and "kernel `row`" in str(pipeline.report)


def test_a_norm_is_one_function_and_right() -> None:
    mod = merged(rms_norm, [ROWS, LENGTH], [LENGTH])
    (name,) = calls_of(mod)
    assert name.startswith("cascade_sum")
    rng = np.random.default_rng(2)
    x, gain = rng.standard_normal((ROWS, LENGTH)).astype("float32"), rng.standard_normal(LENGTH).astype("float32")
    plain = module_of(rms_norm, [ROWS, LENGTH], [LENGTH])
    (found,), (rounded,) = (called(relax.build(one, "llvm"), [x, gain]) for one in (mod, plain))
    wide = 3.0 * np.float64(x)
    exact = wide / np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + 1e-5) * gain
    tolerance.assert_close(found, exact, rounded, length=LENGTH, dtype="float32")


@pytest.mark.parametrize(
    ("forward", "shapes"),
    [
        (of_cast_gain, [[ROWS, LENGTH], [LENGTH]]),
        (of_rows, [[ROWS, LENGTH], [LENGTH, LENGTH]]),
        (of_heads_last, [[2, 128, 2, 64]] * 3),
    ],
    ids=["casts of what all rows share", "transposes of weights", "transposes around a cascade"],
)
def test_moves_and_casts_are_taken_in(forward: Forward, shapes: list[list[int | str]]) -> None:
    mod = merged(forward, *shapes, dtype="float16")
    (name,) = calls_of(mod)
    assert name.startswith("cascade_")
    rng = np.random.default_rng(5)
    given = [rng.standard_normal(shape).astype("float16") for shape in shapes]
    plain = relax.transform.LegalizeOps()(module_of(forward, *shapes, dtype="float16"))
    (found,), (expected,) = (called(relax.build(one, "llvm"), given) for one in (mod, plain))
    np.testing.assert_array_equal(found, expected)


def test_results_that_are_saved_leave_a_norm_one_function() -> None:
    mod = merged(with_what_is_saved, [ROWS, LENGTH], [LENGTH], dtype="float16")
    (name,) = calls_of(mod)
    assert name.startswith("cascade_sum")
    rng = np.random.default_rng(3)
    x, gain = (rng.standard_normal(shape).astype("float16") for shape in ((ROWS, LENGTH), LENGTH))
    plain = relax.transform.LegalizeOps()(module_of(with_what_is_saved, [ROWS, LENGTH], [LENGTH], dtype="float16"))
    found, unfused = (called(relax.build(one, "llvm"), [x, gain]) for one in (mod, plain))
    inverse = 1.0 / np.sqrt((np.float64(x) ** 2).mean(axis=-1, keepdims=True) + 1e-5)
    exact = [np.float64(x) * inverse * np.float64(gain), inverse]
    for one, wanted, usual in zip(found, exact, unfused, strict=True):
        tolerance.assert_close(one, wanted, usual, length=LENGTH, dtype=str(one.dtype))


@pytest.mark.parametrize("target", ["llvm", GPU], ids=["a CPU", "a GPU"])
def test_a_cast_that_several_read_is_no_tensor_in_memory(target: object) -> None:
    mod = module_of(with_two_casts, [ROWS, LENGTH], [ROWS, LENGTH], dtype="float16")
    grouped = get_pipeline(target).grouped(mod)
    (block,) = grouped["forward"].body.blocks
    tensors = [b.var.ty for b in block.bindings if isinstance(b.var.ty, relax.TensorType)]
    assert [str(one.dtype.dtype) for one in tensors if len(one.shape) == 2] == ["float16"]
    rng = np.random.default_rng(4)
    x, y = (rng.standard_normal((ROWS, LENGTH)).astype("float16") for _ in range(2))
    plain = relax.build(relax.transform.LegalizeOps()(mod), "llvm")
    found, unfused = run(mod, get_pipeline("llvm"), [x, y]), called(plain, [x, y])
    wide = np.float64(x * y)
    for one, exact, usual in zip(found, (2 * wide.sum(-1), 3 * wide.sum(0)), unfused, strict=True):
        tolerance.assert_close(one, exact, usual, length=LENGTH, dtype="float32")


def test_what_is_picked_of_a_row_is_computed_where_it_is_picked() -> None:
    """A loss stores nothing of its logits' size but its result, in the dtype that is asked for."""
    mod = get_pipeline(GPU).grouped(loss_module())
    (block,) = mod["forward"].body.blocks
    made = [ty for b in block.bindings for ty in getattr(b.var.ty, "fields", [b.var.ty])]
    large = [one for one in made if isinstance(one, relax.TensorType) and np.prod([*map(int, one.shape)]) > 2 * ROWS]
    assert {str(one.dtype.dtype) for one in large} == {"float16"}
    statistics = [name for name in calls_of(mod) if name == "cascade_max_sum"]
    assert len(statistics) == 1, "both are read elsewhere, and found in one pass"


def loss_module() -> tvm.IRModule:
    spec = {"logits": nn.spec.Tensor([2, ROWS, LENGTH], "float16"), "targets": nn.spec.Tensor([2, ROWS], "int64")}

    class Loss(nn.Module):
        def forward(self, logits: nn.Tensor, targets: nn.Tensor) -> tuple[nn.Tensor, ...]:
            return of_picked(logits, targets)

    return Loss().export_tvm(spec={"forward": spec})[0]


def test_a_loss_with_what_is_saved_is_right() -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, ROWS, LENGTH)).astype("float16")
    at = rng.integers(0, LENGTH, (2, ROWS))
    plain = relax.build(relax.transform.LegalizeOps()(loss_module()), "llvm")
    found, unfused = run(loss_module(), get_pipeline("llvm"), [x, at]), called(plain, [x, at])
    rows = np.float64(x).reshape(2 * ROWS, LENGTH)
    highest = rows.max(-1, keepdims=True)
    total = np.log(np.exp(rows - highest).sum(-1, keepdims=True))
    of_all = rows - highest - total
    exact = np.take_along_axis(of_all, at.reshape(-1, 1), 1), highest, total, np.exp(of_all).reshape(x.shape)
    for one, wanted, usual in zip(found, exact, unfused, strict=True):
        tolerance.assert_close(one, wanted, usual, length=LENGTH, dtype=str(one.dtype))


def test_who_computes_a_narrow_tensor_narrows_it() -> None:
    mod = merged(of_two_layers, [ROWS, LENGTH], [LENGTH, LENGTH], [LENGTH, LENGTH], dtype="float16")
    (block,) = mod["forward"].body.blocks
    last = next(b.value for b in reversed(block.bindings) if isinstance(b.value, relax.Call))
    assert last.args[0].name_hint.startswith("cascade_matmul")
    assert [argument.ty.dtype for argument in last.args[1].fields] == ["float16", "float16"]


@pytest.mark.parametrize(
    ("forward", "shapes", "target"),
    [
        (rms_norm, [[ROWS, LENGTH], [LENGTH]], "llvm"),
        (with_squares, [[ROWS, LENGTH], [ROWS, 1]], GPU),
        (projected, [[ROWS, LENGTH], [LENGTH, LENGTH]], GPU),
    ],
    ids=["loops of CPUs", "what is read elsewhere", "what a product reads often"],
)
def test_what_is_left_alone(forward: Forward, shapes: list[list[int | str]], target: object) -> None:
    assert not [name for name in calls_of(merged(forward, *shapes, target=target)) if name.startswith("cascade_")]


def test_symbolic_rows_are_taken_in() -> None:
    (name,) = calls_of(merged(rms_norm, ["n", LENGTH], [LENGTH]))
    assert name.startswith("cascade_sum")


def test_rows_of_other_symbolic_lengths_are_left_alone() -> None:
    def apart(x: nn.Tensor, y: nn.Tensor) -> nn.Tensor:
        return op.sum(op.matmul(x * 2.0, op.permute_dims(y, [1, 0])), axis=-1)

    mod = merged(apart, ["n", LENGTH], ["m", LENGTH])
    assert not [name for name in calls_of(mod) if "multiply" in name and "matmul" in name]
