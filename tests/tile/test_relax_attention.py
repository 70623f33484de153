"""Relax's own attention: heads are reshaped into the batch and back, and causal scores are zeros at first."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.script import relax as R

import tvm_cascade
from tvm_cascade.tile.product.lines import inverted

from ..tiers import slow_but
from .checked import assert_right, kernel_of
from .emulator.run import compiler

BATCH, LENGTH, HEADS, DEPTH = 2, 136, 3, 64
HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def attention(causal: bool) -> tirx.PrimFunc:
    """What Relax makes of its operator, in one function."""
    q, k, v = (relax.Var(name, R.Tensor((BATCH, LENGTH, HEADS, DEPTH), "float16")) for name in "qkv")
    builder = relax.BlockBuilder()
    with builder.function("main", [q, k, v]):
        with builder.dataflow():
            found = builder.emit(relax.op.nn.attention(q, k, v, causal_mask="TopLeft" if causal else None))
            out = builder.emit_output(found)
        builder.emit_func_output(out)
    (func,) = (f for f in relax.transform.LegalizeOps()(builder.get()).functions.values() if type(f) is tirx.PrimFunc)
    return func


@pytest.mark.parametrize("causal", [False, True])
def test_it_goes_to_the_tensor_cores_and_outputs_go_back_to_where_they_belong(causal: bool) -> None:
    explanation = str(tvm_cascade.explain(attention(causal), target=HOPPER))
    assert "the tensor-core kernel `stream`" in explanation


def test_zeros_above_the_diagonal_are_not_visited_although_the_maximum_is_over_them_too() -> None:
    """It is only a reference: where it does not follow dead positions, nothing else changes."""
    program = kernel_of(attention(causal=True)).program
    assert program.uneven and program.optimistic is not None


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("causal", slow_but([True], [False, True]))
def test_it_is_right(causal: bool) -> None:
    rng = np.random.default_rng(7)
    inputs = [rng.standard_normal((BATCH, LENGTH, HEADS, DEPTH)).astype("float16") for _ in range(3)]
    assert_right(attention(causal), inputs, length=LENGTH)


def test_indices_are_inverted_where_they_name_each_element_once() -> None:
    b, h, n = (tirx.Var(name, "int64") for name in "bhn")
    extents = {b: 2, h: 3}
    found = inverted([b * 3 + h], [n], extents)
    assert found is not None
    assert {var.name: str(value) for var, value in found.items()} == {"b": "n // T.int64(3)", "h": "n % T.int64(3)"}
    assert inverted([b * 2 + h], [n], extents) is None  # (0, 2) and (1, 0) are one place
    assert inverted([b * 3], [n], extents) is None  # not all are named
