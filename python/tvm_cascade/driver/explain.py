"""`tvm_cascade.explain`: what `compile` does with a program short of machine code, as text and formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import ir, tirx
from tvm.target import Target

from tvm_cascade.driver.functions import functions_of
from tvm_cascade.driver.lowering import fused, goal_of, lowered
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.options import FuseOptions
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.report.outcomes import explain_outcomes


def explain(
    mod_or_func: tvm.IRModule | tirx.PrimFunc, target: str | dict[str, Any] | Target | None = None, **options: object
) -> Explanation:
    """Explains what `FuseCascadedReductions` does with a program, and why, without changing it.

    Parameters
    ----------
    mod_or_func : a module or a PrimFunc. Functions of other kinds (Relax) are listed as skipped; of a function that
        is fused already, the fold that it carries is shown.
    target : as `compile` takes it, to be told as well what it lowers each function to. Left out, for this machine's
        CPU, of which that is not told.
    **options
        Fields of `FuseOptions`; unset ones come from TVM_CASCADE_* variables, then from the defaults.

    Returns
    -------
    Explanation

    Raises
    ------
    InputError
        When the argument is neither a module nor a PrimFunc, or the target is not one that we build for.
    OptionError
        When an option is unknown or outside its domain.
    """
    chosen = FuseOptions.from_environment(**options)
    return explain_functions(functions_of(mod_or_func, "explain"), chosen, target)


def explain_functions(
    functions: Mapping[str, ir.BaseFunc], options: FuseOptions, target: str | dict[str, Any] | Target | None = None
) -> Explanation:
    """The explanation of several functions by name."""
    goal = goal_of(resolve_target("auto" if target is None else target), options)
    outcomes = fused({name: func for name, func in functions.items() if isinstance(func, tirx.PrimFunc)}, goal)
    kernels = {} if target is None else {name: one.chosen for name, one in lowered(outcomes, goal).items()}
    return explain_outcomes(functions, outcomes, kernels)
