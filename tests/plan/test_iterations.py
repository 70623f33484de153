"""Products and what is between them in one loop over axes that all nests run over: which axes, and right results."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.target import Target

from tvm_cascade.analysis.tir import within
from tvm_cascade.devices.device import Cpu
from tvm_cascade.driver.llvm import LLVM
from tvm_cascade.driver.lowering import fused, goal_of
from tvm_cascade.evaluate import tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.iterations import iterations_of

CORES = Cpu("", 2, 64, 32, l2_bytes=2**20)
SLOPE = 0.25


def products(shape: tuple[int, int, int, int], between: bool = False, own: bool = True) -> tirx.PrimFunc:
    """o[b, h, j, d] = Σ_i exp((h + 1)·slope·Σ_d q·k)·q of B × H heads of n positions.

    Parameters
    ----------
    between : heads are between positions and features.
    own : each batch has its keys.
    """
    batch, heads, n, dim = shape

    def at(tensor: te.Tensor, b: te.Var, h: te.Var, i: te.Var, d: te.Var) -> te.Tensor:
        return tensor(b, i, h, d) if between else tensor(b, h, i, d)

    layout = (batch, n, heads, dim) if between else (batch, heads, n, dim)
    q = te.placeholder(layout, name="q", dtype="float32")
    k = te.placeholder(layout if own else (1, *layout[1:]), name="k", dtype="float32")
    c, r = te.reduce_axis((0, dim), "c"), te.reduce_axis((0, n), "r")
    scores = te.compute(
        (batch, heads, n, n),
        lambda b, h, i, j: te.sum(at(q, b, h, i, c) * at(k, b if own else 0, h, j, c), [c]),
        name="scores",
    )
    weights = te.compute(
        scores.shape, lambda b, h, i, j: te.exp(scores[b, h, i, j] * (h + 1).astype("float32") * SLOPE), name="weights"
    )
    out = te.compute(
        (batch, heads, n, dim), lambda b, h, j, d: te.sum(weights[b, h, r, j] * at(q, b, h, r, d), [r]), name="out"
    )
    return te.create_prim_func([q, k, out])


def total(batch: int, n: int) -> tirx.PrimFunc:
    """t[i, j] = Σ_b exp(Σ_c x·x): a sum over the batch."""
    x = te.placeholder((batch, n, 16), name="x", dtype="float32")
    c, b = te.reduce_axis((0, 16), "c"), te.reduce_axis((0, batch), "b")
    scores = te.compute((batch, n, n), lambda b, i, j: te.sum(x[b, i, c] * x[b, j, c], [c]), name="scores")
    return te.create_prim_func([x, te.compute((n, n), lambda i, j: te.sum(te.exp(scores[b, i, j]), [b]), name="t")])


@pytest.mark.parametrize(
    ("func", "extents"),
    [
        (products((2, 8, 256, 16)), (2, 8)),
        (products((2, 8, 256, 16), between=True), (2, 8)),
        (products((1, 16, 256, 16)), (16,)),
        (products((16, 2, 128, 16)), (16,)),  # a cache holds both heads
        (products((2, 2, 128, 16)), None),  # and here all
        (products((1, 3, 512, 16)), None),  # two cores take as long for three as for four
        (products((16, 1, 128, 16), own=False), None),  # keys are packed and read once for the whole batch
        (total(16, 256), None),
    ],
    ids=["heads", "between", "one batch", "batch", "held", "three", "shared", "sum"],
)
def test_iterations_are_positions_of_axes_that_all_nests_run_over(
    func: tirx.PrimFunc, extents: tuple[int, ...] | None
) -> None:
    found = iterations_of(func, CORES)
    assert (found and found.extents) == extents


@pytest.mark.parametrize("between", [False, True])
def test_a_function_in_iterations_is_right(between: bool) -> None:
    func, draw = products((2, 4, 331, 24), between), np.random.default_rng(0)
    q, k = (draw.normal(0, 0.3, [int(e) for e in p.ty.shape]).astype("float32") for p in func.params[:2])
    goal = goal_of(Target({"kind": "llvm", "num-cores": 2}), FuseOptions(), fuse=False)
    lowered = LLVM.lower(fused({"main": func}, goal)["main"], "main", goal)
    assert "one loop over 8 iterations of all nests" in str(lowered.chosen)
    kinds = [loop.kind for loop in within(lowered.func.body, tirx.For)]
    assert kinds.count(tirx.ForKind.PARALLEL) == 1
    assert tirx.ForKind.VECTORIZED in kinds
    out = tvm.runtime.tensor(np.full((2, 4, 331, 24), np.nan, "float32"))
    tvm.compile(lowered.func, target=goal.target)["main"](*(tvm.runtime.tensor(x) for x in (q, k)), out)
    rows, keys = (x.astype("float64").swapaxes(1, 2) if between else x.astype("float64") for x in (q, k))
    slopes = SLOPE * np.arange(1, 5).reshape(1, 4, 1, 1)
    weights = np.exp(slopes * np.einsum("bhic,bhjc->bhij", rows, keys))
    tolerance.assert_close(out.numpy(), np.einsum("bhij,bhid->bhjd", weights, rows), length=331, dtype="float32")
