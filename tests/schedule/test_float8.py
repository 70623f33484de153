"""float8 in buffers: every one of its values is read and written as ml_dtypes has it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import te

import tvm_cascade

KINDS = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}


@pytest.mark.parametrize("dtype", KINDS)
def test_every_value_is_read_and_written_as_it_is(dtype: str) -> None:
    stored = np.arange(256, dtype="uint8").view(KINDS[dtype])
    x, w = te.placeholder((256,), dtype, name="x"), te.placeholder((256,), "float32", name="w")
    wide = te.compute((256,), lambda i: x[i].astype("float32"), name="wide")
    narrow = te.compute((256,), lambda i: w[i].astype(dtype), name="narrow")
    compiled = tvm_cascade.compile(te.create_prim_func([x, w, wide, narrow]))
    outputs = [tvm.runtime.tensor(np.ones(256, kind)) for kind in ("float32", KINDS[dtype])]
    compiled(tvm.runtime.tensor(stored), stored.astype("float32"), *outputs)
    np.testing.assert_array_equal(outputs[0].numpy(), stored.astype("float32"))
    np.testing.assert_array_equal(outputs[1].numpy().astype("float32"), stored.astype("float32"))
    numbers = ~np.isnan(stored.astype("float32"))
    np.testing.assert_array_equal(outputs[1].numpy().view("uint8")[numbers], np.arange(256)[numbers])


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("dtype", KINDS)
def test_a_value_that_only_passes_through_is_rounded(dtype: str, apart: bool) -> None:
    """In one expression, or by way of a buffer of the function's own, which TVM keeps in float32."""
    w = te.placeholder((256,), "float32", name="w")
    narrow = te.compute((256,), lambda i: w[i].astype(dtype), name="narrow")
    passed = te.compute((256,), lambda i: (narrow[i] if apart else w[i].astype(dtype)).astype("float32") * w[i])
    compiled = tvm_cascade.compile(te.create_prim_func([w, passed]))
    values = (np.random.default_rng(0).standard_normal(256) * 10.0 ** np.arange(-3, 1).repeat(64)).astype("float32")
    found = np.full(256, np.nan, "float32")
    compiled(values, found)
    np.testing.assert_array_equal(found, values.astype(KINDS[dtype]).astype("float32") * values)
