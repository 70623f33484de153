"""Top-k of a softmax in Relax modules: one function with the softmax, right, with positions that exist."""

from __future__ import annotations

from functools import cache
from typing import ClassVar

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from tvm_cascade.evaluate import tolerance
from tvm_cascade.relax import FuseCascades, get_pipeline
from tvm_cascade.relax.rewrites import RANKS, RewriteOperators

from ..tiers import slow_but

EXPERTS = 64


class Router(nn.Module):
    """The best experts of each token, and their shares of all experts; of the logits themselves, or of a softmax."""

    def __init__(self, ranks: int, of_softmax: bool = True, whole: bool = False) -> None:
        self.ranks, self.of_softmax, self.whole = ranks, of_softmax, whole

    def forward(self, x: nn.Tensor) -> tuple[nn.Tensor, ...]:
        shares = op.softmax(x, axis=-1) if self.of_softmax else x * 2.0
        values, experts = op.topk(shares, self.ranks, axis=-1)
        return (values, experts, shares) if self.whole else (values, experts)


def router(*args: object, rows: int | str = "n", dtype: str = "float32") -> tvm.IRModule:
    spec = {"forward": {"x": nn.spec.Tensor([rows, EXPERTS], dtype)}}
    return Router(*args).export_tvm(spec=spec)[0]


class OfTokens(nn.Module):
    """A router of the tokens of several sequences, whose rows are a product of two lengths."""

    def forward(self, x: nn.Tensor, w: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        rows = op.reshape(x, [x.shape[0] * x.shape[1], x.shape[2]])
        return op.topk(op.softmax(op.matmul(rows, w), axis=-1), 2, axis=-1)


def names_of(mod: tvm.IRModule) -> list[str]:
    merged = FuseCascades()(relax.transform.LegalizeOps()(RewriteOperators()(mod)))
    return [var.name_hint for var in merged.get_global_vars() if var.name_hint.startswith("cascade_")]


def built(mod: tvm.IRModule) -> tuple[object, object]:
    """The module built, and what is told of it."""
    pipeline = get_pipeline()
    return relax.build(mod, pipeline.target, relax_pipeline=pipeline), pipeline.report


@cache
def built_router(ranks: int) -> tuple[object, object]:
    return built(router(ranks))


def run(made: tuple[object, object], x: np.ndarray) -> tuple[list[np.ndarray], object]:
    executable, report = made
    found = relax.VirtualMachine(executable, tvm.cpu())["forward"](tvm.runtime.tensor(x))
    return [one.numpy() for one in found], report


def softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(np.float64(x) - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


class TestRouter:
    DATA: ClassVar = np.random.default_rng(3).standard_normal((37, EXPERTS)).astype("float32") * 3

    @pytest.mark.parametrize("ranks", slow_but([2], [1, 2]))
    def test_softmax_and_top_k_are_one_function_and_right(self, ranks: int) -> None:
        assert names_of(router(ranks)) == ["cascade_softmax_topk"]
        (values, experts), report = run(built_router(ranks), self.DATA)
        exact = softmax(self.DATA)
        best = np.argsort(-exact, axis=-1, kind="stable")[:, :ranks]
        np.testing.assert_array_equal(experts, best)
        tolerance.assert_close(values, np.take_along_axis(exact, best, -1), length=EXPERTS, dtype="float32")
        assert [one.status for one in report.functions if one.name == "cascade_softmax_topk"] == ["fused"]

    def test_shares_that_are_read_elsewhere_stay_a_result(self) -> None:
        (values, experts, shares), _ = run(built(router(2, True, True)), self.DATA)
        tolerance.assert_close(shares, softmax(self.DATA), length=EXPERTS, dtype="float32")
        np.testing.assert_array_equal(np.take_along_axis(shares, experts, -1), values)

    def test_rows_of_nan_give_positions_that_exist(self) -> None:
        x = self.DATA[:4].copy()
        x[1, 5], x[2] = np.nan, -np.inf
        (values, experts), _ = run(built_router(2), x)
        assert np.isnan(values[1:3]).all() and np.isfinite(values[[0, 3]]).all()
        assert ((experts >= 0) & (experts < EXPERTS)).all()

    def test_shares_that_are_rounded_are_selected_as_they_are(self) -> None:
        class Rounded(nn.Module):
            def forward(self, x: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
                return op.topk(op.softmax(x, axis=-1).astype("float16").astype("float32"), 2, axis=-1)

        mod, _ = Rounded().export_tvm(spec={"forward": {"x": nn.spec.Tensor(self.DATA.shape, "float32")}})
        assert names_of(mod) == []
        (values, experts), _ = run(built(mod), self.DATA)
        shares = softmax(self.DATA).astype("float16")
        assert np.abs(values - -np.sort(-shares, axis=-1)[:, :2]).max() <= 2**-11
        tied = np.take_along_axis(shares, experts, -1)
        assert (experts[:, 0] < experts[:, 1])[tied[:, 0] == tied[:, 1]].all()

    def test_rows_of_two_symbolic_lengths(self) -> None:
        spec = {"x": nn.spec.Tensor(["b", "n", 16], "float32"), "w": nn.spec.Tensor([16, EXPERTS], "float32")}
        mod, _ = OfTokens().export_tvm(spec={"forward": spec})
        assert names_of(mod) == ["cascade_matmul_softmax_topk"]
        pipeline = get_pipeline()
        executable = relax.build(mod, pipeline.target, relax_pipeline=pipeline)
        run = relax.VirtualMachine(executable, tvm.cpu())["forward"]
        w = np.random.default_rng(4).standard_normal((16, EXPERTS)).astype("float32")
        for shape in ((1, 1), (3, 7), (2, 33)):
            x = np.random.default_rng(5).standard_normal((*shape, 16)).astype("float32")
            values, experts = (one.numpy() for one in run(tvm.runtime.tensor(x), tvm.runtime.tensor(w)))
            exact = softmax(np.float64(x).reshape(-1, 16) @ np.float64(w))
            tolerance.assert_close(values, -np.sort(-exact, axis=-1)[:, :2], length=EXPERTS, dtype="float32")
            tolerance.assert_close(np.take_along_axis(exact, experts, -1), values, length=EXPERTS, dtype="float32")

    @pytest.mark.parametrize("args", [(RANKS + 1,), (2, False)])
    def test_other_top_k_stays_a_sort(self, args: tuple[object, ...]) -> None:
        mod = router(*args)
        rewritten = RewriteOperators()(mod)
        assert "R.topk" in rewritten["forward"].script() and names_of(mod) == []
