"""Operators as Relax's LegalizeOps writes them, fused: transposes, reshapes, casts and several axes included."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_cascade.evaluate import oracle

from ..analysis.test_relax_programs import PROGRAMS, legalized
from .running import numpy_dtype, read


@pytest.mark.parametrize(
    "name",
    [
        "softmax of a middle axis",
        "log_softmax",
        "variance over two axes",
        "layer_norm of float16",
        "layer_norm over two axes",
        "attention of float16",
        "causal attention",
        "attention with a bias",
        "attention with as many keys as features",
    ],
)
def test_a_legalized_operator_is_right_once_fused(name: str) -> None:
    assert name in PROGRAMS
    unfused = read(legalized(name))
    rng = np.random.default_rng(0)
    inputs = [
        rng.standard_normal([int(extent) for extent in param.ty.shape]).astype(numpy_dtype(str(param.ty.dtype)))
        for param in oracle.signature(unfused.func).inputs
    ]
    unfused.check(inputs, tile=3, segments=2)
