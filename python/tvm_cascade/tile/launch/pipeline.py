"""TVM's lowering of modules with S-TIR and TIRx functions, each by its own passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import tvm
from tvm import ir
from tvm.target import Target
from tvm.tirx import compilation_pipeline

from tvm_cascade.devices.host import core_count
from tvm_cascade.tile.launch.aliasing import true_aliasing
from tvm_cascade.tile.launch.dependent import is_dependent, with_dependence
from tvm_cascade.tile.launch.fast_math import is_fast, marked_fast
from tvm_cascade.tile.launch.literals import exact_literals

R = TypeVar("R")

MIXED = "tvm_cascade"
"""The pipeline's name, as `tvm.compile(…, tir_pipeline=MIXED)` takes it."""

_CORES_APIECE = 2
"""Of a thread that lowers functions: they wait for each other where passes are written in Python."""


def register_mixed_pipeline() -> str:
    """Registers the pipeline with TVM and returns its name; idempotent."""
    compilation_pipeline.register_tir_pipeline(MIXED, _mixed)
    return MIXED


def for_a_thread(work: Callable[..., R], target: Target) -> Callable[..., R]:
    """What another thread does with a target and this one's pass context: a thread has its own."""
    context = tvm.transform.PassContext.current()

    def inside(*given: Any) -> R:
        with context, target:
            return work(*given)

    return inside


def _mixed() -> tuple[Any, Any, Any]:
    s_tir, _, _ = compilation_pipeline.get_tir_pipeline("s_tir")
    tirx, finish_host, finish_device = compilation_pipeline.get_tir_pipeline("tirx")

    @tvm.transform.module_pass(opt_level=0, name="tvm_cascade.MixedPipeline")
    def lower(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        def alone(name: ir.GlobalVar) -> tvm.IRModule:
            func = mod[name]
            pipeline = s_tir if func.attrs is not None and func.attrs.get("s_tir", False) else tirx
            found = pipeline(tvm.IRModule({name: func}, attrs=mod.attrs))
            found = with_dependence(found, func) if is_dependent(func) else found
            return marked_fast(found) if is_fast(func) else found

        lowered, threads = tvm.IRModule({}, attrs=mod.attrs), core_count() // _CORES_APIECE
        target = next((func.attrs["target"] for func in mod.functions.values()), None)
        if threads < 2 or context.instruments or target is None:  # instruments are entered once, by this thread
            found: Iterator[tvm.IRModule] = map(alone, mod.functions)
        else:
            with ThreadPoolExecutor(threads) as pool:
                found = pool.map(for_a_thread(alone, target), mod.functions)
        for one in found:
            lowered.update(one)
        return lowered

    def finish_exactly() -> tvm.transform.Pass:
        return tvm.ir.transform.Sequential([finish_device(), exact_literals, true_aliasing])

    return lower, finish_host, finish_exactly
