"""The device headers: each compiles for Hopper into the instructions that it is there for, and computes on a GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import tvm
from tvm.script import tirx as T

from tvm_cascade import native
from tvm_cascade.native.toolkit import find_nvcc

from ..nvcc import instructions, nvcc

PROGRAMS = Path(__file__).parent / "programs"

SHUFFLES = 2 * 2 + 5 * 2 + 5 * 5
"""Of reduce.cu: distances times words, of a quad and of a warp with two words, and of a warp with five."""

INSTRUCTIONS: dict[str, dict[str, int]] = {
    "reduce": {"SHFL.BFLY": SHUFFLES, "BSSY": 0},  # merging does not branch
    # Two kernels; one loads partials after the election, the other before it and again after.
    "last_block": {"ATOMG.E.INC.STRONG.GPU": 2, "MEMBAR.SC.GPU": 4, "BAR.RED.OR.DEFER_BLOCKING": 2, "LDG.E": 1 + 2},
    "cluster": {"STAS.128": 2, "STAS": 2, "UCGABAR_WAIT": 2},
    "vector": {
        "LDG.E.128": 4,
        "STG.E.128": 4,
        "F2FP.F16.F32.PACK_AB": 4,
        "F2FP.BF16.F32.PACK_AB": 4,
        "F2FP.F16.E4M3.UNPACK_B": 8,
        "F2FP.F16.E5M2.UNPACK_B": 8,
        "F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C": 8,
        "F2FP.SATFINITE.E5M2.F32.PACK_AB_MERGE_C": 8,
    },
}
"""How often the kernels of a program hold an instruction, from nvcc 13: what the header is for, and nothing twice."""

IN_LOCAL_MEMORY = {"LDL", "STL"}


def _nvcc(*arguments: str | Path) -> str:
    return nvcc("-Werror=all-warnings", f"-I{native.include_folder()}", *arguments)


@pytest.mark.parametrize("header", sorted(path.stem for path in (native.include_folder() / "tvm_cascade").iterdir()))
def test_a_header_compiles_into_its_instructions(header: str, tmp_path: Path) -> None:
    cubin = tmp_path / f"{header}.cubin"
    messages = _nvcc("-cubin", "-Xptxas=-v", PROGRAMS / f"{header}.cu", "-o", cubin)
    assert set(re.findall(r"(\d+) bytes stack frame", messages)) == {"0"}
    found = instructions(cubin)
    assert {name: found[name] for name in INSTRUCTIONS[header]} == INSTRUCTIONS[header]
    assert not IN_LOCAL_MEMORY & {name.split(".")[0] for name in found}


@pytest.mark.parametrize("header", sorted(INSTRUCTIONS))
def test_a_header_computes_what_it_says(header: str, tmp_path: Path) -> None:
    if shutil.which("nvidia-smi") is None or subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode:
        pytest.skip("there is no GPU")
    program = tmp_path / header
    _nvcc(PROGRAMS / f"{header}.cu", "-o", program)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


_LAST_BLOCK = """
#include <tvm_cascade/last_block.cuh>
__forceinline__ __device__ bool cascade_last_block(unsigned* counter, unsigned blocks, float* partials) {
  return tvm_cascade::last_block(counter, blocks, partials);
}
"""


@T.prim_func
def _last_partial(
    x: T.Buffer((32,), "float32"),
    partials: T.Buffer((32,), "float32"),
    counter: T.Buffer((1,), "uint32"),
    out: T.Buffer((1,), "float32"),
):
    T.device_entry()
    block = T.cta_id([32])
    thread = T.thread_id([128])
    if thread == 0:
        partials[block] = x[block]
    if T.cuda.func_call(  # noqa: SIM102
        "cascade_last_block",
        T.address_of(counter[0]),
        T.uint32(32),
        T.address_of(partials[0]),
        source_code=_LAST_BLOCK,
        return_type="bool",
    ):
        if thread == 0:
            out[0] = partials[31]


def test_a_kernel_in_tirx_can_call_a_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_nvcc() is None:
        pytest.skip("there is no nvcc")
    # Where a driver is, TVM compiles the kernel itself.
    monkeypatch.setenv("TVM_CUDA_COMPILE_MODE", "nvcc")
    monkeypatch.setenv("NVCC_APPEND_FLAGS", f"-I{native.include_folder()}")
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    with target:
        built = tvm.compile(tvm.IRModule({"main": _last_partial}), target=target, tir_pipeline="tirx")
    source = tmp_path / "kernel.cu"
    source.write_text(built.mod.imports[0].inspect_source())
    assert "float* __restrict__ partials" in source.read_text()  # why the header has partials named
    _nvcc("-cubin", "-diag-suppress=177", source, "-o", tmp_path / "kernel.cubin")
    names = list(instructions(tmp_path / "kernel.cubin"))
    assert names.index("BAR.RED.OR.DEFER_BLOCKING") < names.index("LDG.E")
