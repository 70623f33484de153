"""Code objects for AMD GPUs without ROCm: TVM's lowering and LLVM's code, linked by LLD.

What TVM 0.27 would get wrong on the way, and what is done about it:

- A view of shared memory becomes a pointer to global memory, and the GPU reads elsewhere. Views come of
  `StorageRewrite`, where one array takes the room of another: it is left out.
- s_barrier alone does not wait for what a wave has written to LDS, which gfx90a and gfx942 let pass. Without their
  feature `back-off-barrier`, LLVM waits before every barrier.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tvm
import tvm_ffi
from tvm.target import Target
from tvm.tirx import compilation_pipeline

from tvm_cascade.errors import CompilerError, RewriteError
from tvm_cascade.native.linker import link_code_object, required_lld

_PIPELINE = "tvm_cascade_rocm"
_LINK, _BITCODE = "tvm_callback_rocm_link", "tvm_callback_rocm_bitcode_path"
_WAIT_BEFORE_BARRIERS = "-back-off-barrier"
_CAST = re.compile(r"addrspacecast\W+ptr addrspace\([35]\).*?\bto ptr addrspace\(1\)")
"""Of a pointer to LDS or to a thread's own memory to one to global memory."""


def generate_rocm(mod: tvm.IRModule, target: Target, _fast_math: bool) -> tvm.runtime.Executable:
    """TVM's code for a lowered module, its kernels as one code object.

    Raises
    ------
    CompilerError
        When there is no LLD, or it fails.
    RewriteError
        When TVM takes a pointer to one memory for one to another.
    """
    required_lld()
    failures: list[CompilerError] = []

    def link(relocatable: bytes) -> bytes:
        try:
            return link_code_object(relocatable)
        except CompilerError as failure:  # TVM makes a RuntimeError of it
            failures.append(failure)
            raise

    try:
        with target, rocm_tools(link):
            built = tvm.compile(mod, target=target, tir_pipeline=register_rocm_pipeline())
    except Exception as error:
        if failures:
            raise failures[0] from error
        raise
    for kernels in built.mod.imports:
        if misplaced := _CAST.search(str(kernels.inspect_source("llvm"))):
            raise RewriteError("pointers to the memory that they are of", misplaced[0], "LLVM IR of the kernels")
    return built


def with_waits(target: Target) -> Target:
    """A ROCm target for which LLVM waits before barriers, with its host."""
    described = target.export()
    features = dict.fromkeys([*(str(feature) for feature in described.get("mattr", ())), _WAIT_BEFORE_BARRIERS])
    return Target({**described, "mattr": list(features)}, host=target.host)


def register_rocm_pipeline() -> str:
    """Registers TVM's lowering without views of shared memory with TVM, and gives its name; again is no harm."""
    compilation_pipeline.register_tir_pipeline(_PIPELINE, _without_views)
    return _PIPELINE


def _without_views() -> tuple[Any, Any, Any]:
    s_tir, finish_host, finish_device = compilation_pipeline.get_tir_pipeline("s_tir")

    @tvm.transform.module_pass(opt_level=0, name="tvm_cascade.RocmPipeline")
    def lower(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        with tvm.transform.PassContext(config={**context.config, "tirx.disable_storage_rewrite": True}):
            return s_tir(mod)

    return lower, finish_host, finish_device


@contextmanager
def rocm_tools(link: Callable[[bytes], bytes]) -> Iterator[None]:
    """TVM's code generation for AMD GPUs with this linker, and without ROCm's device libraries."""
    ours: dict[str, Callable[..., Any]] = {_LINK: lambda relocatable: link(bytes(relocatable)), _BITCODE: lambda *_: []}
    before = {name: tvm_ffi.get_global_func(name) for name in ours}
    for name, function in ours.items():
        tvm_ffi.register_global_func(name, function, override=True)
    try:
        yield
    finally:
        for name, function in before.items():
            tvm_ffi.register_global_func(name, function, override=True)
