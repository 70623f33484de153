"""Constants of half precision are folded before kernels for GPUs are built."""

from __future__ import annotations

import re

import numpy as np
from tvm import te, tirx
from tvm.ir import prim

import tvm_cascade
from tvm_cascade.tvm_faults.half_constants import fold_half_constants

from ..analysis.programs import array, number, program

TARGET = {"kind": "cuda", "arch": "sm_90a"}


def by_a_third(dtype: str) -> tirx.PrimFunc:
    """x -> x/((1/3)/7) and, transposed, x·((1/3)/7)."""
    x = array("x", 4, 64, dtype=dtype)
    third = prim.Div(prim.Div(number(1, dtype), number(3, dtype)), number(7, dtype))
    above = te.compute((4, 64), lambda i, j: x[i, j] / third, name="above")
    return program(x, above, te.compute((64, 4), lambda j, i: x[i, j] * third, name="below"))


def test_no_kernel_takes_a_half_by_value() -> None:
    compiled = tvm_cascade.compile(by_a_third("float16"), TARGET)
    source = str(compiled.runtime_module.mod.imports[0].inspect_source("cuda"))
    signatures = re.findall(r"__global__[^;{]*[;{]", source)
    assert len(signatures) > 1
    assert not [one for one in signatures if re.search(r"half \w", one)]


def test_they_are_rounded_as_at_run_time() -> None:
    one, three, seven = (np.float16(c) for c in (1, 3, 7))
    assert f"T.float16({float(one / three / seven)!r})" in fold_half_constants(by_a_third("float16")).script()
