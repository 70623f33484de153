"""`tvm_cascade.explain`: what `compile` does with a program, and why, by the best designs that are known."""

from __future__ import annotations

import dataclasses
from typing import Any

import tvm
from tvm import tirx
from tvm.target import Target
from typing_extensions import Unpack

from tvm_cascade.driver.lowering import Designed, designed, fused, goal_of, lowered
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.options import FuseOptions, Options, takes_options
from tvm_cascade.relax.pipeline import Merged, merged
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.report.group import OnRanks
from tvm_cascade.report.outcomes import explain_outcomes
from tvm_cascade.tuning.known import LookUp, known_designs
from tvm_cascade.tuning.records import check_database


@takes_options
def explain(
    mod_or_func: tvm.IRModule | tirx.PrimFunc | OnRanks,
    target: str | dict[str, Any] | Target | None = None,
    database: LookUp = None,
    **options: Unpack[Options],
) -> Explanation:
    """Explains what `FuseCascadedReductions` does with a program, and why, without changing it.

    Parameters
    ----------
    mod_or_func : a module or a PrimFunc. Of functions of Relax, it explains those that `tvm_cascade.relax.get_pipeline`
        merges their operators into, and lists operators that stay functions of their own; functions of other kinds
        are listed as skipped. Of a function that is fused already, the fold that it carries is shown. Or what
        `tvm_cascade.distributed.shard` gives: it explains the functions that ranks call, after a table of exchanges.
    target : as `compile` takes it, to see as well what it lowers each function to. Without
        one, decisions are those for this machine's CPU, and nothing is lowered.
    database : as `compile` takes it; where it or a target is named, the explanation says where designs come from.
    **options : fields of `tvm_cascade.FuseOptions`, as keywords; unset ones come from TVM_CASCADE_* variables.

    Returns
    -------
    Explanation

    Raises
    ------
    InputError
        When the argument is neither a module nor a PrimFunc, TVM does not legalise an operator of Relax, the target is
        not one that we build for, or the database is none.
    OptionError
        When an option is unknown or outside its domain.
    """
    chosen = FuseOptions.from_environment(**options)
    check_database(database)
    resolved = None if target is None else resolve_target(target)
    given = mod_or_func.module if isinstance(mod_or_func, OnRanks) else mod_or_func
    program = merged(given, resolved or resolve_target("auto"), chosen, "explain")
    found = explained(program, chosen, resolved, database)
    return dataclasses.replace(found, exchanges=mod_or_func.exchanges) if isinstance(mod_or_func, OnRanks) else found


def explained(program: Merged, options: FuseOptions, target: Target | None, database: LookUp) -> Explanation:
    """As `explain`, of functions that were read."""
    resolved = target or resolve_target("auto")
    goal, known, origins = goal_of(resolved, options), dict[str, Designed](), dict[str, str]()
    funcs = {name: func for name, func in program.functions.items() if isinstance(func, tirx.PrimFunc)}
    looked_up = target is not None or database is not None
    if looked_up and (designs := known_designs(database, resolved)) is not None:
        known, origins = designed(funcs, goal, designs)
    outcomes = fused({name: func for name, func in funcs.items() if name not in known}, goal)
    made = ({} if target is None else lowered(outcomes, goal, funcs)) | known
    outcomes |= {name: outcome for name, (outcome, _) in made.items()}
    kernels = {name: one.chosen for name, (_, one) in made.items()}
    found = explain_outcomes(program.functions, outcomes, kernels, origins, goal.setting)
    return dataclasses.replace(found, apart=program.apart)
