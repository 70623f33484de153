"""PyTorch's decomposed attention: 0 where all scores of a row are −∞, and a tensor without dimensions that hides some.

some = max over j of Cast(int8, score ≠ −∞)
weights = where(0 < Cast(int64, not some), 0, softmax(score))
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

import tvm_cascade

from ..tiers import slow_but
from .checked import assert_right, kernel_of
from .emulator.run import compiler

HEADS, LENGTH, DEPTH = 2, 136, 64
HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def attention(masked: bool = True, parameter: bool = False) -> tirx.PrimFunc:
    """One sequence; `parameter`: what masked scores are is the caller's."""
    q, k, v = (te.placeholder((HEADS, LENGTH, DEPTH), "float16", name) for name in "qkv")
    keep, hidden = te.placeholder((LENGTH, LENGTH), "bool", "keep"), te.placeholder((), "float32", "hidden")
    d, *axes = (te.reduce_axis((0, n), "djklm"[at]) for at, n in enumerate((DEPTH, *[LENGTH] * 4)))
    rows, whole = (HEADS, LENGTH), (HEADS, LENGTH, LENGTH)

    def wide(value: Expr) -> Expr:
        return value.astype("float32")

    def where(condition: Expr, chosen: Expr, other: Expr) -> Expr:
        return tirx.Select(tirx.LT(tirx.const(0, "int64"), condition.astype("int64")), chosen, other)

    def score(h: Expr, i: Expr, j: Expr) -> Expr:
        scaled = product[h, i, j] * tirx.const(0.125, "float32")
        lowest = hidden() if parameter else tirx.const(-np.inf, "float32")
        return where(keep[i, j], scaled, lowest) if masked else scaled

    product = te.compute(whole, lambda h, i, j: te.sum(wide(q[h, i, d]) * wide(k[h, j, d]), axis=d), "product")
    s = te.compute(whole, score, "s")
    shown = te.compute(
        whole, lambda h, i, j: tirx.Not(tirx.EQ(s[h, i, j], tirx.const(-np.inf, "float32"))).astype("int8"), "shown"
    )
    some = te.compute(rows, lambda h, i: te.max(shown[h, i, axes[0]], axis=axes[0]), "some")
    m = te.compute(rows, lambda h, i: te.max(s[h, i, axes[1]], axis=axes[1]), "m")
    e = te.compute(whole, lambda h, i, j: te.exp(s[h, i, j] - m[h, i]), "e")
    t = te.compute(rows, lambda h, i: te.sum(e[h, i, axes[2]], axis=axes[2]), "t")
    empty = te.compute(rows, lambda h, i: tirx.Not(some[h, i].astype("bool")), "empty")
    w = te.compute(
        whole,
        lambda h, i, j: where(empty[h, i], tirx.const(0, "float32"), e[h, i, j] / t[h, i]).astype("float16"),
        "w",
    )
    out = te.compute(
        (HEADS, LENGTH, DEPTH),
        lambda h, i, c: te.sum(wide(w[h, i, axes[3]]) * wide(v[h, axes[3], c]), axis=axes[3]),
        "out",
    )
    given = [q, k, v, *([keep] if masked else []), *([hidden] if parameter else [])]
    return te.create_prim_func([*given, te.compute(out.shape, lambda h, i, c: out[h, i, c].astype("float16"), "y")])


def masked_inputs(*further: np.ndarray) -> list[np.ndarray]:
    """Rows without a key, with the last keys alone, and with some."""
    rng = np.random.default_rng(0)
    keep = rng.random((LENGTH, LENGTH)) < 0.5
    keep[3], keep[70:], keep[7, :100] = False, False, False
    return [*(rng.standard_normal((HEADS, LENGTH, DEPTH)).astype("float16") for _ in "qkv"), keep, *further]


MASKED = [(False, False), (True, False), (True, True)]


@pytest.mark.parametrize(("masked", "parameter"), slow_but([(False, False), (True, True)], MASKED))
def test_it_goes_to_the_tensor_cores_as_one(masked: bool, parameter: bool) -> None:
    func = attention(masked, parameter)
    assert "the tensor-core kernel `stream`" in str(tvm_cascade.explain(func, target=HOPPER))


def test_a_tile_is_folded_in_without_its_maximum_and_the_zeros_have_no_state() -> None:
    program = kernel_of(attention()).program
    assert program.optimistic is not None
    assert [str(c.symbol) for c in program.stream.row_components] == ["some_0", "m_0", "t_0"]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_rows_without_a_key_are_zero() -> None:
    assert_right(attention(), masked_inputs(), length=LENGTH)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("hidden", [-np.inf, -1e4, np.finfo("float32").min])
def test_what_hides_scores_is_read_where_the_kernel_runs(hidden: float) -> None:
    inputs = masked_inputs(np.array(hidden, "float32"))
    assert_right(attention(parameter=True), inputs, length=LENGTH)
