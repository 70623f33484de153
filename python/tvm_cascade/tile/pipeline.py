"""TVM's lowering of modules with S-TIR and TIRx functions, each by its own passes."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.tirx import compilation_pipeline

from tvm_cascade.tile.aliasing import true_aliasing
from tvm_cascade.tile.dependent import is_dependent, with_dependence
from tvm_cascade.tile.fast_math import is_fast, marked_fast
from tvm_cascade.tile.literals import exact_literals

MIXED = "tvm_cascade"
"""The pipeline's name, as `tvm.compile(…, tir_pipeline=MIXED)` takes it."""


def register_mixed_pipeline() -> str:
    """Registers the pipeline with TVM and returns its name; idempotent."""
    compilation_pipeline.register_tir_pipeline(MIXED, _mixed)
    return MIXED


def _mixed() -> tuple[Any, Any, Any]:
    s_tir, _, _ = compilation_pipeline.get_tir_pipeline("s_tir")
    tirx, finish_host, finish_device = compilation_pipeline.get_tir_pipeline("tirx")

    @tvm.transform.module_pass(opt_level=0, name="tvm_cascade.MixedPipeline")
    def lower(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        lowered = tvm.IRModule({}, attrs=mod.attrs)
        for name, func in mod.functions.items():
            pipeline = s_tir if func.attrs is not None and func.attrs.get("s_tir", False) else tirx
            alone = pipeline(tvm.IRModule({name: func}, attrs=mod.attrs))
            alone = with_dependence(alone, func) if is_dependent(func) else alone
            lowered.update(marked_fast(alone) if is_fast(func) else alone)
        return lowered

    def finish_exactly() -> tvm.transform.Pass:
        return tvm.ir.transform.Sequential([finish_device(), exact_literals, true_aliasing])

    return lower, finish_host, finish_exactly
