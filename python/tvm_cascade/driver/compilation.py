"""`tvm_cascade.compile`: from an unfused program to a runnable one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.target import Target

from tvm_cascade.driver.arguments import parameters_of
from tvm_cascade.driver.backends import BACKENDS, backend_of
from tvm_cascade.driver.compiled import Compiled
from tvm_cascade.driver.functions import functions_of
from tvm_cascade.driver.generation import generate
from tvm_cascade.driver.lowering import fused, goal_of, lowered
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.driver.tuning import Tuning
from tvm_cascade.errors import InputError
from tvm_cascade.options import FuseOptions
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.report.outcomes import explain_outcomes
from tvm_cascade.schedule.vector_math import ULP_BOUNDS
from tvm_cascade.transform.fuse_function import AsItIs


def compile(
    mod_or_func: tvm.IRModule | tirx.PrimFunc,
    target: str | dict[str, Any] | Target = "auto",
    tune_trials: int = 0,
    database: str | Path | s_tir.meta_schedule.database.Database | None = None,
    **options: object,
) -> Compiled:
    """Fuse, schedule and build a program. The caller's program is not changed.

    Parameters
    ----------
    mod_or_func : S-TIR functions, not scheduled yet. Functions that are scheduled, or cannot be read, are built as
        they are.
    target : "auto" for the CPU of this machine, an LLVM target, "cuda" for its first GPU, or a CUDA or ROCm target,
        such as {"kind": "cuda", "arch": "sm_90a"} or {"kind": "rocm", "mcpu": "gfx942"}, which need no GPU to compile
        for; code for AMD GPUs is linked by LLD.
    tune_trials : candidates that MetaSchedule measures for each fused function; 0 takes our own schedule.
    database : MetaSchedule's records, or the folder where they are kept; read first, and written when tuning.
    **options
        Fields of `FuseOptions`; unset ones come from TVM_CASCADE_* variables, then from the defaults.

    Returns
    -------
    Compiled

    Raises
    ------
    InputError
        When the program is no module of PrimFuncs or is empty, the target is not one that we schedule for, or a
        buffer has 2^31 elements or more and indices of 32 bits.
    OptionError
        When an option is unknown or outside its domain, or tuning lacks packages.
    CompilerError
        When a ROCm target has no LLD to link by, or it fails.
    """
    chosen, tuning, resolved = (
        FuseOptions.from_environment(**options),
        Tuning(tune_trials, database),
        resolve_target(target),
    )
    if tuning.wanted and not backend_of(resolved).tunable:
        kinds = " or ".join(kind for kind, backend in BACKENDS.items() if backend.tunable)
        hint = "leave out tune_trials and database"
        raise InputError(f"a target of kind {kinds}, for tuning", resolved.kind.name, "tune_trials", hint)
    if tuning.trials and "num-cores" not in resolved.attrs:
        raise InputError("a target with num-cores, for tuning", str(resolved), "target", 'pass "auto"')
    tuning.check_packages()
    return _build(mod_or_func, resolved, chosen, tuning, fuse=True)


def compile_unfused(
    mod_or_func: tvm.IRModule | tirx.PrimFunc, target: str | dict[str, Any] | Target = "auto", **options: object
) -> Compiled:
    """As `compile`, but without fusing: the baseline for what fusing alone gains.

    Raises
    ------
    InputError, OptionError
        As `compile`.
    """
    chosen = FuseOptions.from_environment(**options)
    return _build(mod_or_func, resolve_target(target), chosen, Tuning(0, None), fuse=False)


def _build(mod_or_func: object, target: Target, options: FuseOptions, tuning: Tuning, *, fuse: bool) -> Compiled:
    functions = functions_of(mod_or_func, "compile")
    foreign = {name: type(func).__name__ for name, func in functions.items() if not isinstance(func, tirx.PrimFunc)}
    if foreign or not functions:
        found = ", ".join(f"{name}: {kind}" for name, kind in foreign.items()) or "no function"
        hint = "in a Relax pipeline, put tvm.s_tir.transform.FuseCascadedReductions() after LegalizeOps and FuseTIR"
        raise InputError("a module of PrimFuncs", found, "compile", hint)
    # A module's functions go by their names in it: TVM exports symbols, which may differ, and even clash.
    named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    tuned = partial(tuning.best, target=target, vector_math=options.vector_math) if tuning.wanted else None
    backend, goal = backend_of(target), goal_of(target, options, fuse, tuned)
    outcomes = fused(named, goal)
    ready = lowered(outcomes, goal)
    mod = mod_or_func.clone() if isinstance(mod_or_func, tvm.IRModule) else tvm.IRModule(named)
    for name, one in ready.items():
        mod.update_func(mod.get_global_var(name), one.func)
        for step, func in one.steps.items():
            mod[step] = func
    kernels = {name: one.chosen for name, one in ready.items() if one.chosen is not None}
    plain = {name: backend.plain(outcomes[name], func) for name, func in named.items()}
    called = {name: tuple(one.steps) for name, one in ready.items()}
    built, failed = _generated(mod, plain, called, target)
    kernels |= failed
    explained = partial(explain_outcomes, named, outcomes, kernels) if fuse else Explanation
    names = sorted({function for name, one in ready.items() if name not in failed for function in one.replaced})
    exported = partial(backend.export, built, mod, target)
    parameters = {name: parameters_of(func) for name, func in named.items()}
    return Compiled(built, mod, parameters, explained, exported, target, {name: ULP_BOUNDS[name] for name in names})


def _generated(
    mod: tvm.IRModule,
    plain: dict[str, tirx.PrimFunc],
    called: dict[str, tuple[str, ...]],
    target: Target,
) -> tuple[tvm.runtime.Executable, dict[str, AsItIs]]:
    """The module's code, and the functions that TVM generates no code for as they were lowered.

    In the module, these become their `plain` forms, and the functions `called` by them alone are gone.

    Raises
    ------
    Exception
        TVM's own, where it builds the program as it was written no more.
    """
    try:
        return generate(mod, target), {}
    except Exception:  # of one function or more: each is tried alone, and what is nobody's is raised again
        failed: dict[str, AsItIs] = {}
        for name, func in plain.items():
            try:
                generate(tvm.IRModule({one: mod[one] for one in (name, *called[name])}), target)
            except Exception as error:
                failed[name] = AsItIs.after("TVM generates no code for it as it was lowered", error)
                mod.update_func(mod.get_global_var(name), func)
                for step in called[name]:
                    del mod[step]
        if not failed:
            raise
        return generate(mod, target), failed
