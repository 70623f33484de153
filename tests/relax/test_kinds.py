"""What operators do, as it is read off their functions."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from tvm_cascade.evaluate.tolerance import assert_close
from tvm_cascade.relax import get_pipeline
from tvm_cascade.relax.graph import bytes_of

ROWS, LENGTH, TAKEN = 40, 24, 64


def gathered() -> tvm.IRModule:
    """table, indices, scale -> exp(the rows of table·scale at the indices)·2."""
    builder = relax.BlockBuilder()
    table, scale = (relax.Var(name, relax.TensorType([ROWS, LENGTH], "float32")) for name in ("table", "scale"))
    indices = relax.Var("indices", relax.TensorType([TAKEN], "int64"))
    with builder.function("main", [table, scale, indices]):
        with builder.dataflow():
            scaled = builder.emit(relax.op.multiply(table, scale))
            rows = builder.emit(relax.op.take(scaled, indices, axis=0))
            out = builder.emit_output(relax.op.multiply(relax.op.exp(rows), relax.const(2.0, "float32")))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("target", ["llvm", {"kind": "cuda", "arch": "sm_90a"}], ids=["cpu", "gpu"])
def test_a_gather_is_merged_with_what_is_around_it(target: str | dict[str, str]) -> None:
    functions = get_pipeline(target).grouped(gathered())
    called = [var.name_hint for var in functions.get_global_vars() if var.name_hint != "main"]
    assert len(called) == 1


def test_a_merged_gather_is_right() -> None:
    rng = np.random.default_rng(7)
    table, scale = (rng.standard_normal((ROWS, LENGTH)).astype("float32") for _ in range(2))
    indices = rng.integers(0, ROWS, TAKEN)
    machine = relax.VirtualMachine(get_pipeline("llvm").build(gathered()), tvm.cpu())
    found = machine["main"](*map(tvm.runtime.tensor, (table, scale, indices))).numpy()
    exact = 2 * np.exp((table * scale).astype(np.float64)[indices])
    assert_close(found, exact, length=1, dtype="float32")


def test_bytes_of_a_tensor_count_long_extents_and_of_no_shape_are_endless() -> None:
    n = tirx.Var("n", "int64")
    assert bytes_of(relax.Var("x", relax.TensorType((4, 8), "bfloat16"))) == 64
    assert bytes_of(relax.Var("x", relax.TensorType((n, 8), "float32"))) > bytes_of(
        relax.Var("y", relax.TensorType((n, 8), "float16"))
    )
    assert bytes_of(relax.Var("x", relax.TensorType(dtype="float32", ndim=2))) == float("inf")
