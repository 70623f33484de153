"""From an imported Relax module to code."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.target import Target


def built(module: tvm.IRModule, target: Target) -> tuple[tvm.runtime.Executable, None]:
    """The module's code for a target, and the report of its reductions."""
    return relax.build(relax.get_pipeline("zero")(module), target), None
