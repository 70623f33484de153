"""The table of backends, a row for each kind of target."""

from __future__ import annotations

from tvm.target import Target

from tvm_cascade.driver.backend import Backend
from tvm_cascade.driver.cuda import CUDA
from tvm_cascade.driver.llvm import LLVM
from tvm_cascade.driver.rocm import ROCM

BACKENDS: dict[str, Backend] = {backend.kind: backend for backend in (LLVM, CUDA, ROCM)}
"""By kind of target."""


def backend_of(target: Target) -> Backend:
    return BACKENDS[target.kind.name]
