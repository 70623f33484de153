"""`tvm_cascade.explain`: what `compile` does with a program, and why, by the best designs that are known."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.target import Target

from tvm_cascade.driver.explain import explain_functions
from tvm_cascade.driver.functions import functions_of
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.options import FuseOptions
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.tuning.known import LookUp, known_designs
from tvm_cascade.tuning.records import check_database


def explain(
    mod_or_func: tvm.IRModule | tirx.PrimFunc,
    target: str | dict[str, Any] | Target | None = None,
    database: LookUp = None,
    **options: object,
) -> Explanation:
    """Explains what `FuseCascadedReductions` does with a program, and why, without changing it.

    Parameters
    ----------
    mod_or_func : a module or a PrimFunc. Functions of other kinds (Relax) are listed as skipped; of a function that
        is fused already, the fold that it carries is shown.
    target : as `compile` takes it, to be told as well what it lowers each function to. Left out, for this machine's
        CPU, of which that is not told.
    database : as `compile` takes it; where it or a target is named, the explanation says where designs come from.
    **options
        Fields of `FuseOptions`; unset ones come from TVM_CASCADE_* variables, then from the defaults.

    Returns
    -------
    Explanation

    Raises
    ------
    InputError
        When the argument is neither a module nor a PrimFunc, the target is not one that we build for, or the database
        is none.
    OptionError
        When an option is unknown or outside its domain.
    """
    chosen = FuseOptions.from_environment(**options)
    check_database(database)
    functions = functions_of(mod_or_func, "explain")
    looked_up = target is not None or database is not None
    designs = known_designs(database, resolve_target("auto" if target is None else target)) if looked_up else None
    return explain_functions(functions, chosen, target, designs)
