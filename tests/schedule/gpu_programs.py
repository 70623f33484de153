"""Functions under the GPU schedule, without a GPU: as CUDA source, as a cubin, and as loops that a CPU runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import s_tir, tirx

from tvm_cascade.devices.read import card_of
from tvm_cascade.evaluate import oracle
from tvm_cascade.options import FuseOptions
from tvm_cascade.schedule.gpu import launch_serial, schedule_gpu
from tvm_cascade.schedule.gpu_vectors import with_vectors
from tvm_cascade.transform.fuse_function import Outcome, fuse_function
from tvm_cascade.tvm_faults.float8 import round_float8

TARGET = tvm.target.Target({"kind": "cuda", "arch": "sm_90a", "host": {"kind": "llvm", "opt-level": 0}})
NVCC = shutil.which("nvcc")


def fused(func: tirx.PrimFunc, **options: object) -> Outcome:
    """The function fused for the GPU, whatever the cost model says."""
    return fuse_function(func, FuseOptions.from_environment(force=True, **options), card_of(TARGET))


def scheduled(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function under the GPU schedule."""
    vectors = with_vectors(round_float8(func), card_of(TARGET))
    own = tvm.ir.load_json(tvm.ir.save_json(tvm.IRModule({"main": vectors})))
    schedule = s_tir.Schedule(own)
    schedule_gpu(schedule, card_of(TARGET))
    return launch_serial(schedule.mod["main"])


def cuda_source(func: tirx.PrimFunc) -> str:
    """Of a scheduled function."""
    built = tvm.compile(tvm.IRModule({"main": func}), target=TARGET)
    return str(built.mod.imports[0].inspect_source())


def kernels(source: str) -> list[str]:
    """Names of the kernels in CUDA source."""
    return sorted(set(re.findall(r"__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(", source)))


def ptxas_report(source: str, folder: Path) -> str:
    """What ptxas says of the source's kernels: registers, spills, local memory."""
    path = folder / "kernel.cu"
    path.write_text(source)
    command = [NVCC, "--cubin", "-O3", "-gencode", "arch=compute_90a,code=sm_90a", "--use_fast_math"]
    command += ["--ptxas-options=-v,--warn-on-local-memory-usage", "-o", str(folder / "kernel.cubin"), str(path)]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def in_turn(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The scheduled function with its threads one after another, nest by nest: what its structure computes."""

    def serial(loop: tirx.For, mutator: object) -> tirx.For:
        loop = mutator.default_mutate(loop)  # type: ignore[attr-defined]
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return func.with_body(tvm_ffi.structural_mutate(func.body, (tirx.For, serial)))


def run_in_turn(func: tirx.PrimFunc, inputs: list[NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
    """Outputs of a scheduled function by name; floats start as NaN. Symbolic extents come from the inputs."""
    outputs = {param.name for param in oracle.signature(func).outputs}
    given = [param for param in func.params if param.name not in outputs]
    known: dict[str, int] = {}
    for param, array in zip(given, inputs, strict=True):
        known |= {str(extent): size for extent, size in zip(param.ty.shape, array.shape, strict=True)}
    values = iter(inputs)
    tensors = []
    for param in func.params:
        shape = [known[str(e)] if isinstance(e, tirx.Var) else int(e) for e in param.ty.shape]
        dtype = str(param.ty.dtype)
        fresh = np.full(shape, np.nan if "float" in dtype else 1, dtype)
        tensors.append(tvm.runtime.tensor(fresh if param.name in outputs else next(values)))
    built = tvm.compile(tvm.IRModule({"main": in_turn(func)}), target={"kind": "llvm", "opt-level": 0})
    built["main"](*tensors)
    return {p.name: t.numpy() for p, t in zip(func.params, tensors, strict=True) if p.name in outputs}
