"""Row kernels as text and as machine code: what is printed, and that no thread's values go to memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tvm
from tvm import tirx

from benchmarks import suites
from tvm_cascade.tile.launch.pipeline import register_mixed_pipeline
from tvm_cascade.tile.row.config import RowConfig
from tvm_cascade.tile.skeleton import Kernel

from ..golden.compare import assert_golden
from ..nvcc import instructions, nvcc
from ..tiers import slow_but
from .column_programs import COLUMNS
from .row_programs import PROGRAMS
from .test_row_kernels import row_kernel

TARGET = {"kind": "cuda", "arch": "sm_90a"}


def cuda_text(kernel: Kernel) -> str:
    """The CUDA text of a row kernel."""
    target = tvm.target.Target(TARGET, host="llvm")
    with target:
        built = tvm.compile(kernel.func, target=target, tir_pipeline=register_mixed_pipeline())
    return str(built.mod.imports[0].inspect_source("cuda"))


@pytest.mark.parametrize("name", ["variance", "softmax", "weighted_slope"])
def test_the_program_of_a_row(name: str) -> None:
    assert_golden(f"row_{name}", str(row_kernel(PROGRAMS[name]()).program))


def program_of(suite: str, label: str) -> tirx.PrimFunc:
    """A program of the benchmarks."""
    (entry,) = suites.entries(suite, [label])
    return entry.workload.build()


@pytest.mark.parametrize(
    ("suite", "label"),
    slow_but(
        [("inertia", "I8"), ("row", "softmax 131072 float32")],
        [
            ("inertia", "I8"),
            ("row", "softmax 32768 float32"),
            ("row", "softmax 131072 float32"),
            ("row", "softmax_gradient 32768 float16"),
            ("row", "layer_norm_gradient 131072 float32"),
            ("row", "layer_norm 50257 float32"),
            ("row", "layer_norm 5003 float16"),
        ],
    ),
)
def test_registers_hold_what_they_are_meant_to(suite: str, label: str, tmp_path: Path) -> None:
    assert_in_registers(row_kernel(program_of(suite, label)), 128, tmp_path)


@pytest.mark.parametrize(
    ("name", "dtype", "rows", "bits"),
    slow_but(
        [("softmax", "float32", 4096, 128)],
        [("variance", "float16", 8192, 64), ("softmax", "float32", 4096, 128), ("slope", "float16", 8192, 64)],
    ),
)
def test_registers_hold_the_states_of_neighbouring_rows(
    name: str, dtype: str, rows: int, bits: int, tmp_path: Path
) -> None:
    assert_in_registers(row_kernel(COLUMNS[name](dtype=dtype, rows=rows, length=1024)), bits, tmp_path)


def assert_in_registers(kernel: Kernel, bits: int, folder: Path) -> None:
    """The kernel compiles for Hopper without spills, and loads so many bits at once."""
    source, cubin = folder / "kernel.cu", folder / "kernel.cubin"
    source.write_text(cuda_text(kernel))
    math = ["--use_fast_math"] if kernel.fast_math else []
    messages = nvcc("-cubin", "-O3", *math, "-diag-suppress=177", "-Xptxas=-v", source, "-o", cubin)
    assert set(re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", messages)) == {"0"}
    is_staged = isinstance(kernel.config, RowConfig) and kernel.config.staged
    # Bulk copies have no registers: what they bring is read from shared memory.
    loads = [name for name in instructions(cubin) if name.startswith("LDS" if is_staged else "LDG")]
    widths = {int(width) for name in loads for width in re.findall(r"\.(\d+)", name)}
    assert max(widths, default=32) >= bits, f"no load of {bits} bits among {loads}"  # ptxas may join neighbouring ones
