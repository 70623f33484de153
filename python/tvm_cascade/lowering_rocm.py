"""A function for an AMD GPU: an S-TIR schedule for waves of 64 lanes, and TVM's lowering of it to a code object.

What TVM 0.27 would get wrong on the way, and what is done about it:

- A view of shared memory becomes a pointer to global memory, and the GPU reads elsewhere. Views come of
  `StorageRewrite`, where one array takes the room of another: it is left out.
- s_barrier alone does not wait for what the wave has written to LDS, which gfx90a and gfx942 let pass. Without their
  feature `back-off-barrier`, LLVM waits before every barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tvm
import tvm_ffi
from tvm.target import Target
from tvm.tirx import compilation_pipeline

_PIPELINE = "tvm_cascade_rocm"
_WAIT_BEFORE_BARRIERS = "-back-off-barrier"
_LINK, _BITCODE = "tvm_callback_rocm_link", "tvm_callback_rocm_bitcode_path"


def rocm_target(target: Target) -> Target:
    """The target with what keeps the code that LLVM generates for it right."""
    described = target.export()
    features = [str(feature) for feature in described.get("mattr", ())]
    if _WAIT_BEFORE_BARRIERS not in features:
        features.append(_WAIT_BEFORE_BARRIERS)
    return Target({**described, "mattr": features}, host=target.host)


def register_rocm_pipeline() -> str:
    """Registers TVM's lowering for AMD GPUs with TVM and gives its name; again is no harm."""
    compilation_pipeline.register_tir_pipeline(_PIPELINE, _without_views)
    return _PIPELINE


def _without_views() -> tuple[Any, Any, Any]:
    s_tir, finish_host, finish_device = compilation_pipeline.get_tir_pipeline("s_tir")

    @tvm.transform.module_pass(opt_level=0, name="tvm_cascade.RocmPipeline")
    def lower(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        with tvm.transform.PassContext(config={"tirx.disable_storage_rewrite": True}):
            return s_tir(mod)

    return lower, finish_host, finish_device


@contextmanager
def rocm_tools(link: Callable[[bytes], bytes]) -> Iterator[None]:
    """TVM's code generation for AMD GPUs without ROCm: no device libraries, and this linker."""
    ours: dict[str, Callable[..., Any]] = {_LINK: lambda objects: link(bytes(objects)), _BITCODE: lambda *_: []}
    before: dict[str, Callable[..., Any]] = {name: tvm_ffi.get_global_func(name) for name in ours}
    for name, function in ours.items():
        tvm_ffi.register_global_func(name, function, override=True)
    try:
        yield
    finally:
        for name, function in before.items():
            tvm_ffi.register_global_func(name, function, override=True)
