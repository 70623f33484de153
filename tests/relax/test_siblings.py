"""Products of one tensor by several weights: one function for a GPU where one kernel computes them, and no other."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from tvm_cascade.evaluate import tolerance
from tvm_cascade.relax import get_pipeline

from .test_fuse_cascades import Forward, called, module_of
from .test_surroundings import GPU, calls_of, merged

ROWS, WIDTH, INNER = 128, 256, 512
X, WEIGHT = [ROWS, WIDTH], [INNER, WIDTH]


def product(x: nn.Tensor, weight: nn.Tensor) -> nn.Tensor:
    return op.matmul(x, op.permute_dims(weight), out_dtype="float32")


def gated(x: nn.Tensor, gate: nn.Tensor, up: nn.Tensor) -> nn.Tensor:
    return (op.silu(product(x, gate)) * product(x, up)).astype("float16")


def side_by_side(x: nn.Tensor, keys: nn.Tensor, values: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
    return product(x, keys).astype("float16"), product(x, values).astype("float16")


def one_after_the_other(x: nn.Tensor, weight: nn.Tensor) -> nn.Tensor:
    return op.matmul(op.matmul(x, weight, out_dtype="float32").astype("float16"), weight, out_dtype="float32")


def of_two_tensors(x: nn.Tensor, y: nn.Tensor, weight: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
    return product(x, weight), product(y, weight)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


EXACT = {
    gated: lambda x, g, u: [(x @ g.T) * sigmoid(x @ g.T) * (x @ u.T)],
    side_by_side: lambda x, k, v: [x @ k.T, x @ v.T],
}


@pytest.mark.parametrize("forward", EXACT)
def test_products_of_one_tensor_are_one_kernel_and_right(forward: Forward) -> None:
    mod = merged(forward, X, WEIGHT, WEIGHT, dtype="float16")
    (name,) = calls_of(mod)
    assert name.startswith("cascade_matmul")
    rng = np.random.default_rng(6)
    given = [(rng.standard_normal(shape) / 8).astype("float16") for shape in (X, WEIGHT, WEIGHT)]
    plain = relax.transform.LegalizeOps()(module_of(forward, X, WEIGHT, WEIGHT, dtype="float16"))
    found, rounded = (called(relax.build(one, "llvm"), given) for one in (mod, plain))
    for own, exact, other in zip(found, EXACT[forward](*map(np.float64, given)), rounded, strict=True):
        tolerance.assert_close(own, exact, other, length=WIDTH, dtype="float16")
    pipeline = get_pipeline(GPU)
    pipeline(module_of(forward, X, WEIGHT, WEIGHT, dtype="float16"))
    assert str(pipeline.report).count("lowered to") == 1 and "kernel `product`" in str(pipeline.report)


@pytest.mark.parametrize(
    ("forward", "shapes", "target"),
    [
        (side_by_side, [X, WEIGHT, [INNER // 2, WIDTH]], GPU),
        (one_after_the_other, [X, [WIDTH, WIDTH]], GPU),
        (of_two_tensors, [X, X, WEIGHT], GPU),
        (gated, [X, WEIGHT, WEIGHT], "llvm"),
    ],
    ids=["results of other shapes", "one reads the other", "of two tensors", "loops of CPUs"],
)
def test_what_stays_apart(forward: Forward, shapes: list[list[int | str]], target: object) -> None:
    found = merged(forward, *shapes, dtype="float16", target=target)
    assert sum("matmul" in name for name in calls_of(found)) > 1


def test_equal_pairs_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm_cascade.relax import surroundings

    sought: list[tvm.tirx.PrimFunc] = []
    monkeypatch.setattr(
        surroundings, "Search", lambda *args, search=surroundings.Search: sought.append(args[0]) or search(*args)
    )

    def layers(count: int) -> int:
        def stack(x: nn.Tensor, gate: nn.Tensor, up: nn.Tensor) -> nn.Tensor:
            for _ in range(count):
                x = gated(x, gate, up)
            return x

        sought.clear()
        merged(stack, [ROWS, WIDTH], [WIDTH, WIDTH], [WIDTH, WIDTH], dtype="float16")
        return len(sought)

    assert layers(4) == layers(2)


def norm_backward(dy: nn.Tensor, x: nn.Tensor, gain: nn.Tensor) -> nn.Tensor:
    """The gradient of a layer's normalisation of x, whose sums read no tensor of numbers as wide as theirs."""
    scaled, centred = dy.astype("float32") * gain.astype("float32"), x.astype("float32") * 0.5
    whole, along = (op.sum(one, axis=-1, keepdims=True) * (1 / WIDTH) for one in (scaled, scaled * centred))
    return (scaled - whole - centred * along).astype("float16")


def test_sums_of_what_each_computes_by_itself_are_one_pass_and_right() -> None:
    mod = merged(norm_backward, X, X, [WIDTH], dtype="float16")
    (name,) = calls_of(mod)
    assert name.startswith("cascade_sum")
    rng = np.random.default_rng(7)
    given = [rng.standard_normal(shape).astype("float16") for shape in (X, X, [WIDTH])]
    dy, x, gain = (one.astype("float64") for one in given)
    scaled, centred = dy * gain, x * 0.5
    exact = scaled - scaled.mean(-1, keepdims=True) - centred * (scaled * centred).mean(-1, keepdims=True)
    found = called(relax.build(mod, "llvm"), given)[0].astype("float64")
    assert np.abs(found - exact).max() < 2.0**-9 * np.abs(exact).max()
