"""Functions that copy a tensor as it lies in memory: reshapes, and transposes of axes of length one."""

from __future__ import annotations

import tvm
from tvm import relax, tirx
from tvm.ir import transform

from tvm_cascade.analysis.tir import as_index, extent_of, product, same_extent
from tvm_cascade.schedule.inlining import inline_maps


def keeps_order(func: tirx.PrimFunc) -> bool:
    """Whether a function copies its one tensor to another one, element by element in the order of memory."""
    if len(func.params) != 2 or not all(map(tirx.is_buffer_var, func.params)):
        return False
    counts = [product(extent_of(as_index(extent, "int64")) for extent in param.ty.shape) for param in func.params]
    return same_extent(*counts) and relax.analysis.has_reshape_pattern(inline_maps(func))


@transform.module_pass(opt_level=0, name="InlineViews")
class InlineViews:
    """Such functions of several maps as one map, which `RewriteDataflowReshape` knows for a reshape."""

    def transform_module(self, mod: tvm.IRModule, _: transform.PassContext) -> tvm.IRModule:
        for var, func in mod.functions_items():
            if isinstance(func, tirx.PrimFunc) and keeps_order(func):
                mod.update_func(var, inline_maps(func))
        return mod
