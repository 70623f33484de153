"""From an imported Relax module to code, by the pipeline of `tvm_cascade.relax`."""

from __future__ import annotations

import tvm
from tvm.target import Target

from tvm_cascade.relax import get_pipeline
from tvm_cascade.report.explanation import Explanation


def built(module: tvm.IRModule, target: Target) -> tuple[tvm.runtime.Executable, Explanation]:
    """The module's code for a target, and the report of its reductions."""
    pipeline = get_pipeline(target)
    executable = pipeline.build(module)
    assert pipeline.report is not None, "of the module that was built"
    return executable, pipeline.report
