"""Cascades across operators of Relax modules: merged where they fold as one, right, and nothing lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm_ffi import structural_equal

import tvm_cascade.relax
from tvm_cascade.errors import InputError, OptionError
from tvm_cascade.evaluate import tolerance
from tvm_cascade.relax import FuseCascades, get_pipeline, grouping
from tvm_cascade.relax.pipeline import Pipeline
from tvm_cascade.tile.launch.dependent import is_dependent

Forward = Callable[..., object]


def module_of(forward: Forward, *shapes: list[int | str], dtype: str = "float32") -> tvm.IRModule:
    """A function of tensors as a module: the exporter takes the names of a method's parameters."""

    class Two(nn.Module):
        def forward(self, a: nn.Tensor, b: nn.Tensor) -> object:
            return forward(a, b)

    class Three(nn.Module):
        def forward(self, a: nn.Tensor, b: nn.Tensor, c: nn.Tensor) -> object:
            return forward(a, b, c)

    spec = {name: nn.spec.Tensor(shape, dtype) for name, shape in zip("abc", shapes, strict=False)}
    return (Two if len(shapes) == 2 else Three)().export_tvm(spec={"forward": spec})[0]


def attention(q: nn.Tensor, k: nn.Tensor, v: nn.Tensor) -> nn.Tensor:
    return op.matmul(op.softmax(op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])) * 0.125, axis=-1), v)


def causal(q: nn.Tensor, k: nn.Tensor, v: nn.Tensor) -> nn.Tensor:
    n = q.shape[2]
    mask = op.triu(op.full([n, n], nn.Tensor.from_scalar(-1e9, "float32"), "float32"), 1)
    scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])) * 0.125 + mask
    return op.matmul(op.softmax(scores, axis=-1), v)


def with_weights(q: nn.Tensor, k: nn.Tensor, v: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
    weights = op.softmax(op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])), axis=-1)
    return op.matmul(weights, v), weights


def capped(q: nn.Tensor, k: nn.Tensor, v: nn.Tensor) -> nn.Tensor:
    scores = op.tanh(op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])) * 0.02) * 30.0
    return op.matmul(op.softmax(scores, axis=-1), v)


def exact(inputs: Sequence[np.ndarray], scale: float = 0.125, cap: float = 0.0, causal: bool = False) -> np.ndarray:
    """Attention in float64."""
    q, k, v = (np.float64(one) for one in inputs)
    scores = q @ np.swapaxes(k, -1, -2) * scale
    if cap:
        scores = np.tanh(scores * cap) / cap * 0.6
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


HEADS = [1, 2, 64, 32]


def called(executable: object, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    found = relax.VirtualMachine(executable, tvm.cpu())["forward"](*map(tvm.runtime.tensor, inputs))
    return [one.numpy() for one in (found if isinstance(found, (tuple, tvm.ir.Array)) else [found])]


def run(mod: tvm.IRModule, pipeline: Pipeline, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    return called(relax.build(mod, pipeline.target, relax_pipeline=pipeline), inputs)


def assert_right(
    mod: tvm.IRModule, inputs: Sequence[np.ndarray], expected: Sequence[np.ndarray], pipeline: Pipeline
) -> None:
    """The results, by the project's tolerance, beside TVM's own pipeline."""
    found, plain = run(mod, pipeline, inputs), called(relax.build(mod, "llvm"), inputs)
    for own, exact_one, usual in zip(found, expected, plain, strict=True):
        tolerance.assert_close(own, exact_one, usual, length=64, dtype="float32")


def names_of(mod: tvm.IRModule, **options: object) -> list[str]:
    merged = FuseCascades(**options)(relax.transform.LegalizeOps()(mod))
    return [var.name_hint for var in merged.get_global_vars() if var.name_hint.startswith("cascade_")]


def test_the_package_has_the_pass_and_the_pipeline() -> None:
    assert tvm_cascade.relax.FuseCascades is FuseCascades


@pytest.mark.parametrize(
    ("forward", "variant"),
    [
        pytest.param(attention, {}, marks=pytest.mark.slow),  # of any length, below
        (causal, {"causal": True}),
        (capped, {"scale": 1.0, "cap": 0.02}),
    ],
)
def test_attention_written_out_is_one_function_and_right(forward: Forward, variant: dict[str, float]) -> None:
    mod = module_of(forward, HEADS, HEADS, HEADS)
    (name,) = names_of(mod)
    assert name.count("matmul") == 2 and "softmax" in name
    pipeline, inputs = get_pipeline(), np.random.default_rng(0).standard_normal((3, *HEADS)).astype("float32")
    assert_right(mod, inputs, [exact(inputs, **variant)], pipeline)
    (function,) = [one for one in pipeline.report.functions if one.name == name]
    assert function.status == "fused"


def test_operators_that_are_left_apart_are_listed() -> None:
    def norm_and_shares(x: nn.Tensor, w: nn.Tensor) -> object:
        shares = op.softmax(op.rms_norm(x, w, axes=[-1]), axis=-1)
        return shares, op.log(op.sum(shares, axis=-1))

    pipeline = get_pipeline()
    pipeline.build(module_of(norm_and_shares, [8, 64], [64]))
    apart = {one.operators: one.why for one in pipeline.report.apart}
    assert apart["rms_norm", "softmax"].startswith("[infinite_rank]")
    assert "softmax and sum: not merged" in str(pipeline.report) and '"apart"' in pipeline.report.to_json()


def test_on_a_cpu_operators_with_symbolic_extents_are_merged_where_it_gains_at_nominal_ones() -> None:
    """A norm into a linear layer computes the product several times: 67 ms of a layer that takes 24 without."""

    def norm_and_product(x: nn.Tensor, gain: nn.Tensor, w: nn.Tensor) -> nn.Tensor:
        return op.matmul(op.layer_norm(x, [256], gain, gain), w)

    pipeline = get_pipeline({"kind": "llvm", "num-cores": 1})
    pipeline(module_of(norm_and_product, ["n", 256], [256], [256, 768]))
    apart = {one.operators: one.why for one in pipeline.report.apart}
    assert apart["layer_norm", "matmul"].startswith("[cost]")
    heads = [1, 4, "n", 64]
    pipeline(module_of(attention, heads, heads, heads))
    assert [one.status for one in pipeline.report.functions if one.name.startswith("cascade")] == ["fused"]


def test_a_call_whose_results_are_read_as_one_is_listed() -> None:
    x, builder = relax.Var("x", relax.TensorType((8, 64), "float32")), relax.BlockBuilder()
    with builder.function("forward", [x]):
        with builder.dataflow():
            halves = builder.emit_output(relax.op.split(x, 2))
        builder.emit_func_output(halves)
    pipeline = get_pipeline()
    pipeline.build(builder.get())
    assert [str(one) for one in pipeline.report.apart] == [
        "split: not merged\n  why  its results are read as one tuple, and such calls are not merged"
    ]


def test_what_is_read_elsewhere_is_not_lost() -> None:
    mod = module_of(with_weights, HEADS, HEADS, HEADS)
    inputs = np.random.default_rng(1).standard_normal((3, *HEADS)).astype("float32")
    identity = np.broadcast_to(np.eye(64), (1, 2, 64, 64))
    assert_right(mod, inputs, [exact(inputs, 1.0), exact((*inputs[:2], identity), 1.0)], get_pipeline())


def test_a_projection_that_all_rows_share_stays_a_function() -> None:
    def projected(x: nn.Tensor, w: nn.Tensor, v: nn.Tensor) -> nn.Tensor:
        k = op.matmul(x, w)
        return op.matmul(op.softmax(op.matmul(x, op.permute_dims(k, [1, 0])), axis=-1), v)

    mod = module_of(projected, [64, 32], [32, 32], [64, 32])
    (name,) = names_of(mod)
    assert name.count("matmul") == 2
    inputs = [
        np.random.default_rng(2).standard_normal(shape).astype("float32") for shape in ((64, 32), (32, 32), (64, 32))
    ]
    x, w, v = inputs
    assert_right(mod, inputs, [exact((x, np.float64(x) @ w, v), 1.0)], get_pipeline())


def test_equal_layers_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []
    fuse = grouping.fuse_function
    monkeypatch.setattr(grouping, "fuse_function", lambda *args: (tried.append(args), fuse(*args))[1])

    def layers(count: int) -> int:
        tried.clear()

        def forward(q: nn.Tensor, k: nn.Tensor, v: nn.Tensor) -> nn.Tensor:
            for _ in range(count):
                q = attention(q, k, v)
            return q

        assert len(names_of(module_of(forward, HEADS, HEADS, HEADS))) >= 1
        return len(tried)

    assert layers(3) <= layers(1) + 4  # and what joins one layer to the next, which is refused


def test_symbolic_lengths_fold_at_any_length() -> None:
    mod = module_of(attention, *[[1, 2, "n", 32]] * 3)
    pipeline = get_pipeline()
    executable = relax.build(mod, pipeline.target, relax_pipeline=pipeline)
    assert any(one.name.startswith("cascade_") for one in pipeline.report.functions)
    for n in (1, 17, 64):
        inputs = np.random.default_rng(n).standard_normal((3, 1, 2, n, 32)).astype("float32")
        (found,) = called(executable, inputs)
        tolerance.assert_close(found, exact(inputs), length=64, dtype="float32")


def test_modules_without_cascades_are_not_changed() -> None:
    mod = relax.transform.LegalizeOps()(module_of(lambda x, w: op.matmul(x, w), [8, 16], [16, 4]))
    assert structural_equal(FuseCascades()(mod), mod)


def test_bad_options_and_targets_are_told() -> None:
    with pytest.raises(OptionError, match="tile"):
        FuseCascades(tile=-1)
    with pytest.raises(InputError):
        get_pipeline("opencl")


def test_kernels_of_a_module_are_launched_while_those_before_them_end() -> None:
    mod = relax.transform.LegalizeOps()(module_of(attention, *[HEADS] * 3))
    for target, expected in (({"kind": "cuda", "arch": "sm_90a"}, True), ({"kind": "cuda", "arch": "sm_80"}, False)):
        found = get_pipeline(target).scheduled(mod)
        kernels = [func for func in found.functions.values() if isinstance(func, tvm.tirx.PrimFunc)]
        assert kernels and {is_dependent(func) for func in kernels} == {expected}


def moved(array: np.ndarray, offset: int) -> object:
    """A tensor of TVM with the array's values, so many bytes behind an address that is aligned to 64."""
    memory = np.empty(array.nbytes + 128, "uint8")
    start = -memory.ctypes.data % 64 + offset
    placed = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return tvm_ffi.from_dlpack(placed)


@cache
def of_heads() -> object:
    pipeline = get_pipeline()
    return relax.build(module_of(attention, HEADS, HEADS, HEADS), pipeline.target, relax_pipeline=pipeline)


@pytest.mark.parametrize("offset", [4, 16, 32])
def test_tensors_may_lie_anywhere(offset: int) -> None:
    """TVM's virtual machine passes addresses on as they are: an aligned load would end the process."""
    executable, inputs = of_heads(), np.random.default_rng(3).standard_normal((3, *HEADS)).astype("float32")
    found = relax.VirtualMachine(executable, tvm.cpu())["forward"](*(moved(one, offset) for one in inputs))
    np.testing.assert_array_equal(found.numpy(), called(executable, inputs)[0])
