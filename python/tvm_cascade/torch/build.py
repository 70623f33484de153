"""From an imported Relax module to code: TVM groups its operators, and each group is fused and scheduled by us."""

from __future__ import annotations

import tvm
from tvm import relax, tirx
from tvm.target import Target

from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.lowering import fused, goal_of, lowered
from tvm_cascade.errors import ModelError
from tvm_cascade.options import FuseOptions
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.report.outcomes import explain_outcomes


def built(module: tvm.IRModule, target: Target) -> tuple[tvm.runtime.Executable, Explanation]:
    """The module's code for a target, and the report of its reductions.

    Raises
    ------
    ModelError
        When the target is no CPU.
    """
    if backend_of(target).runtime != "cpu":
        hint = "tvm_cascade.compile takes its functions one by one"
        raise ModelError("a CPU, for which whole models are built so far", target.kind.name, "target", hint)
    module = relax.get_pipeline("zero")(module)
    functions = {var.name_hint: func for var, func in module.functions_items() if isinstance(func, tirx.PrimFunc)}
    goal = goal_of(target, FuseOptions())
    outcomes = fused(functions, goal)
    ready = lowered(outcomes, goal, functions)
    for name, one in ready.items():
        module.update_func(module.get_global_var(name), one.func)
        for step, func in one.steps.items():
            module[step] = func
    kernels = {name: one.chosen for name, one in ready.items() if one.chosen is not None}
    return relax.build(module, target), explain_outcomes(functions, outcomes, kernels)
