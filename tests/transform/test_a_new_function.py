"""A function that programs may have is a row of the table of elementary functions, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tvm_cascade

_PROGRAM = """
import numpy as np
import tvm
from tvm import te, tirx

import tvm_cascade
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function

x = te.placeholder((4, 1000), "float32", name="x")
k, j = te.reduce_axis((0, 1000), "k"), te.reduce_axis((0, 1000), "j")
largest = te.compute((4,), lambda i: te.max(x[i, k], axis=k), name="largest")
element = lambda i: tirx.exp(x[i, j] - largest[i]) * tirx.asinh(largest[i])
func = te.create_prim_func([x, te.compute((4,), lambda i: te.sum(element(i), axis=j), name="total")])
(decision,) = fuse_function(func, FuseOptions(force=True)).decisions
if decision.reason.code != "fold":
    raise SystemExit(f"not fused: {decision.reason.code}")
given = np.random.default_rng(0).standard_normal((4, 1000)).astype("float32")
wide, found = given.astype("float64"), np.full(4, np.nan, "float32")
tensors = [tvm.runtime.tensor(array) for array in (given, found)]
tvm_cascade.compile(func, target="llvm", force=True)(*tensors)
exact = np.sum(np.exp(wide - wide.max(1, keepdims=True)), axis=1) * np.arcsinh(wide.max(1))
np.testing.assert_allclose(tensors[1].numpy(), exact, rtol=1e-5)
print("fused and right")
"""


@pytest.mark.parametrize("known", [True, False], ids=["a row", "no row"])
def test_a_function_is_one_row(tmp_path: Path, known: bool) -> None:
    copy = shutil.copytree(Path(tvm_cascade.__file__).parent, tmp_path / "tvm_cascade")
    table = copy / "symbolic" / "elementary.py"
    row = '    sp.tanh: Elementary("tanh"'
    assert table.read_text().count(row) == 1
    if known:
        table.write_text(table.read_text().replace(row, f'    sp.asinh: Elementary("asinh", rises=True),\n{row}'))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
    )
    if known:
        assert done.stdout.splitlines()[-1:] == ["fused and right"], done.stderr
    else:
        assert "not fused" in done.stderr
