"""What `compile` does with a program short of machine code, as text and formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, tirx
from tvm.target import Target

from tvm_cascade.driver.lowering import Designs, designed, fused, goal_of, lowered
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.options import FuseOptions
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.report.outcomes import explain_outcomes


def explain_functions(
    functions: Mapping[str, ir.BaseFunc],
    options: FuseOptions,
    target: str | dict[str, Any] | Target | None = None,
    designs: Designs | None = None,
) -> Explanation:
    """The explanation of several functions by name.

    Parameters
    ----------
    target : what they are lowered to is told of, where it is named.
    designs : what is known to be the best design of a function; the model's choice by default.
    """
    goal = goal_of(resolve_target("auto" if target is None else target), options)
    funcs = {name: func for name, func in functions.items() if isinstance(func, tirx.PrimFunc)}
    known, origins = designed(funcs, goal, designs) if designs is not None else ({}, {})
    outcomes = fused({name: func for name, func in funcs.items() if name not in known}, goal)
    made = ({} if target is None else lowered(outcomes, goal, funcs)) | known
    outcomes |= {name: outcome for name, (outcome, _) in made.items()}
    kernels = {name: one.chosen for name, (_, one) in made.items()}
    return explain_outcomes(functions, outcomes, kernels, origins)
