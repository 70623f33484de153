"""The ROCm backend: S-TIR schedules for waves of 64 lanes, as a code object for the architecture of a card."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.target import Target
from tvm.tirx import compilation_pipeline

from tvm_cascade.devices.cards import CARDS
from tvm_cascade.devices.host import host_target
from tvm_cascade.driver.backend import Backend, Lowered, export_library
from tvm_cascade.driver.gpu import gpu_options, lower_gpu, plain_gpu
from tvm_cascade.driver.toolkit import link_code_object, required_lld
from tvm_cascade.errors import CascadeError, CompilerError, InputError, RewriteError
from tvm_cascade.schedule.amdgpu_math import lower_amdgpu_math
from tvm_cascade.transform.fuse_function import Outcome
from tvm_cascade.tvm_faults.bfloat16 import lower_bfloat16
from tvm_cascade.tvm_faults.float8 import round_float8

_PIPELINE = "tvm_cascade_rocm"
_LINK, _BITCODE = "tvm_callback_rocm_link", "tvm_callback_rocm_bitcode_path"
_WAIT_BEFORE_BARRIERS = "-back-off-barrier"
_CAST = re.compile(r"addrspacecast\W+ptr addrspace\([35]\).*?\bto ptr addrspace\(1\)")
"""Of a pointer to LDS or to a thread's own memory to one to global memory."""


def generate_rocm(mod: tvm.IRModule, target: Target) -> tvm.runtime.Executable:
    """TVM's code for a lowered module, its kernels as one code object.

    Raises
    ------
    CompilerError
        When there is no LLD, or it fails.
    InputError
        When a block of a kernel has more shared memory or threads than it may.
    RewriteError
        When TVM takes a pointer to one memory for one to another.
    """
    required_lld()
    failures: list[CascadeError] = []  # TVM makes others of the errors that it passes on

    def link(relocatable: bytes) -> bytes:
        try:
            return link_code_object(relocatable)
        except CompilerError as failure:
            failures.append(failure)
            raise

    try:
        with target, rocm_tools(link):
            built = tvm.compile(mod, target=target, tir_pipeline=register_rocm_pipeline(failures))
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


def register_rocm_pipeline(failures: list[CascadeError] | None = None) -> str:
    """Registers TVM's lowering without views of shared memory, and returns its name; idempotent.

    Parameters
    ----------
    failures : where errors are noted that end it.
    """
    noted = [] if failures is None else failures
    compilation_pipeline.register_tir_pipeline(_PIPELINE, lambda: _without_views(noted))
    return _PIPELINE


def _without_views(failures: list[CascadeError]) -> tuple[Any, Any, Any]:
    s_tir, finish_host, finish_device = compilation_pipeline.get_tir_pipeline("s_tir")

    @tvm.transform.module_pass(opt_level=0, name="tvm_cascade.RocmPipeline")
    def lower(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        with tvm.transform.PassContext(config={**context.config, "tirx.disable_storage_rewrite": True}):
            return s_tir(mod)

    @tirx.transform.prim_func_pass(opt_level=0, name="tvm_cascade.CheckBlocks")
    def check(func: tirx.PrimFunc, _mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tirx.PrimFunc:
        for attribute, (what, taken) in _LIMITS.items():
            most, found = int(func.attrs["target"].attrs[attribute]), taken(func)
            if found > most:
                where, hint = (
                    f"kernel `{func.attrs['global_symbol']}`",
                    "cut it for smaller blocks, or do not schedule it",
                )
                failures.append(InputError(f"at most {most} {what} of a block", str(found), where, hint))
                raise failures[-1]
        return func

    def finish() -> tvm.transform.Pass:
        return tvm.ir.transform.Sequential([check, finish_device()])

    return lower, finish_host, finish


def _shared_bytes(kernel: tirx.PrimFunc) -> int:
    made: list[tirx.AllocBuffer] = []
    tvm_ffi.structural_walk(kernel.body, (tirx.AllocBuffer, made.append))
    shared = [statement.buffer for statement in made if statement.buffer.scope().startswith("shared")]
    return sum(
        math.prod(int(extent) for extent in buffer.ty.shape) * tvm.DataType(str(buffer.ty.dtype)).itemsize
        for buffer in shared
    )


def _threads(kernel: tirx.PrimFunc) -> int:
    found: dict[str, int] = {}

    def note(statement: tirx.AttrStmt) -> None:
        if statement.attr_key == "thread_extent" and statement.node.thread_tag.startswith("threadIdx"):
            found[str(statement.node.thread_tag)] = int(statement.value)

    tvm_ffi.structural_walk(kernel.body, (tirx.AttrStmt, note))
    return math.prod(found.values())


_LIMITS: dict[str, tuple[str, Callable[[tirx.PrimFunc], int]]] = {
    "max_shared_memory_per_block": ("bytes of shared memory", _shared_bytes),  # LLVM would end the process
    "max_num_threads": ("threads", _threads),  # that the code object is made for
}
"""By attribute of the target, what a kernel may have so much of, and how much it has."""


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


_PREFIX = "gfx"
_EXAMPLE = '{"kind": "rocm", "mcpu": "gfx942"}'


def rocm_target(target: Target, stated: Mapping[str, Any]) -> Target:
    """A ROCm target with the architecture of a card that is known, and this machine's CPU as its host.

    Where it states no architecture, that is what TVM finds for this machine's first GPU.

    Raises
    ------
    InputError
        When the architecture is that of no card that has a row, or none is stated and there is no GPU.
    """
    known = [card.arch for card in CARDS if card.arch.startswith(_PREFIX)]
    hint = f"pass {_EXAMPLE}"
    if "mcpu" not in stated and not tvm.rocm(0).exist:
        raise InputError("a GPU, or the architecture to compile for", "no ROCm device here", "target", hint)
    if str(target.attrs["mcpu"]) not in known:
        found = repr(str(target.attrs["mcpu"]))
        raise InputError(f"the architecture of a card, {' or '.join(known)}", found, "target", hint)
    described = {key: value for key, value in target.export().items() if key not in ("tag", "host", "keys")}
    return with_waits(Target(described, host=host_target()))


def finish_rocm(lowered: Lowered, name: str) -> Lowered:
    """A lowered function in arithmetic that the GPU supports.

    Raises
    ------
    InputError
        When it calls an elementary function that the GPU does not compute.
    """
    func, replaced = _without_libraries(lowered.func, name)
    return dataclasses.replace(lowered, func=func, replaced=replaced)


def plain_rocm(outcome: Outcome, func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function as written, in one thread, in arithmetic that the GPU supports."""
    return _without_libraries(round_float8(plain_gpu(outcome, func)), str(func.attrs["global_symbol"]))[0]


def _without_libraries(func: tirx.PrimFunc, name: str) -> tuple[tirx.PrimFunc, tuple[str, ...]]:
    return lower_amdgpu_math(lower_bfloat16(func) or func, name)


ROCM = Backend(
    kind="rocm",
    example=_EXAMPLE,
    runtime="rocm",
    resolve=rocm_target,
    options=gpu_options,
    lower=lower_gpu,
    finish=finish_rocm,
    plain=plain_rocm,
    generate=generate_rocm,
    export=export_library,
)
