"""`tvm_cascade.compile`: from an unfused program to one that runs. Named so that it does not hide the built-in."""

from __future__ import annotations

import importlib.util
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.target import Target

from tvm_cascade.analysis.program import Program
from tvm_cascade.arguments import parameters_of
from tvm_cascade.compiled import Compiled
from tvm_cascade.devices.host import host_target
from tvm_cascade.devices.read import device_of
from tvm_cascade.driver.backend import Goal
from tvm_cascade.driver.backends import BACKENDS, backend_of
from tvm_cascade.driver.generation import generate
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import InputError, OptionError
from tvm_cascade.options import FuseOptions
from tvm_cascade.report.explain import explain_outcomes, functions_of
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.schedule.loop_guards import hoist_guards
from tvm_cascade.schedule.tile_skip import skip_dead_tiles
from tvm_cascade.schedule.vector_math import ULP_BOUNDS, vectorise_math
from tvm_cascade.tile.skeleton import Kernel
from tvm_cascade.transform.fuse_function import AsItIs, Outcome, fuse_function, read_function

__all__ = ["Compiled", "compile", "compile_unfused", "host_target", "resolve_target"]

_TUNER_NEEDS = ("xgboost", "psutil", "cloudpickle")  # the extra `tune`
_TRIALS_PER_ITERATION = 32


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
    target : "auto" for the CPU of this machine, an LLVM target, "cuda" for its first GPU, or a CUDA target, such as
        {"kind": "cuda", "arch": "sm_90a"}, which needs no GPU to compile for.
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
    """
    chosen, tuning, resolved = (
        FuseOptions.from_environment(**options),
        _Tuning(tune_trials, database),
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
    """As `compile`, but without fusing: what is gained by fusing alone is measured against this.

    Raises
    ------
    InputError, OptionError
        As `compile`.
    """
    chosen = FuseOptions.from_environment(**options)
    return _build(mod_or_func, resolve_target(target), chosen, _Tuning(0, None), fuse=False)


@dataclass(frozen=True)
class _Tuning:
    trials: int
    database: str | Path | s_tir.meta_schedule.database.Database | None

    def __post_init__(self) -> None:
        if not isinstance(self.trials, int) or isinstance(self.trials, bool) or self.trials < 0:
            raise OptionError("a number of trials, 0 or more", repr(self.trials), "tune_trials")
        kinds = (str, Path, s_tir.meta_schedule.database.Database)
        if self.database is not None and not isinstance(self.database, kinds):
            raise InputError("a MetaSchedule database or a folder", type(self.database).__name__, "database")

    def check_packages(self) -> None:
        """Raises OptionError where the tuner lacks a package: after whatever makes tuning impossible anyway."""
        missing = [name for name in _TUNER_NEEDS if importlib.util.find_spec(name) is None]
        if self.trials and missing:
            hint = "run: python -m pip install 'tvm-cascade[tune]'"
            raise OptionError("the packages of the extra `tune`", f"no {', '.join(missing)}", "tune_trials", hint)

    @property
    def wanted(self) -> bool:
        return self.trials > 0 or self.database is not None

    def best(self, func: tirx.PrimFunc, target: Target, vector_math: bool) -> tirx.PrimFunc | None:
        """The function under the best schedule that is known or found; None where there is none."""
        from tvm.s_tir import meta_schedule  # loads the tuner's needs

        mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        with tempfile.TemporaryDirectory() as scratch:
            database = self.database
            if not isinstance(database, meta_schedule.database.Database):
                folder = Path(database or scratch)
                folder.mkdir(parents=True, exist_ok=True)
                database = meta_schedule.database.JSONDatabase(work_dir=str(folder))
            with target:  # MetaSchedule hands it to no rule of ours
                if self.trials:
                    build = _build_vectorised if vector_math else None
                    meta_schedule.tune_tir(
                        mod,
                        target,
                        scratch,
                        self.trials,
                        num_trials_per_iter=min(self.trials, _TRIALS_PER_ITERATION),
                        builder=meta_schedule.builder.LocalBuilder(f_build=build),
                        database=database,
                        num_tuning_cores="logical",
                    )
                schedule = meta_schedule.tir_integration.compile_tir(database, mod, target)
        if schedule is None:
            return None
        return schedule.mod["main"].with_attr("global_symbol", func.attrs["global_symbol"])


def _build_vectorised(mod: tvm.IRModule, target: Target, params: dict[str, tvm.runtime.Tensor] | None) -> Any:
    """How a tuning worker builds a candidate: with the arithmetic that it will have in the end."""
    from tvm.s_tir.meta_schedule.builder.local_builder import default_build

    vectorised = {
        variable: vectorise_math(skip_dead_tiles(hoist_guards(func)))[0] for variable, func in mod.functions_items()
    }
    return default_build(tvm.IRModule(vectorised), target, params)


def _build(mod_or_func: object, target: Target, options: FuseOptions, tuning: _Tuning, *, fuse: bool) -> Compiled:
    functions = functions_of(mod_or_func, "compile")
    foreign = {name: type(func).__name__ for name, func in functions.items() if not isinstance(func, tirx.PrimFunc)}
    if foreign or not functions:
        found = ", ".join(f"{name}: {kind}" for name, kind in foreign.items()) or "no function"
        hint = "in a Relax pipeline, put tvm.s_tir.transform.FuseCascadedReductions() after LegalizeOps and FuseTIR"
        raise InputError("a module of PrimFuncs", found, "compile", hint)
    # A module's functions go by their names in it: TVM exports symbols, which may differ, and even clash.
    named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    backend, device = backend_of(target), device_of(target)
    options = backend.options(options)
    tuned = partial(tuning.best, target=target, vector_math=options.vector_math) if tuning.wanted else None
    goal = Goal(target, device, options, fuse, tuned)
    outcomes = {name: fuse_function(func, options, device) if fuse else _as_it_is(func) for name, func in named.items()}
    lowered = {name: backend.lower(outcome, name, goal) for name, outcome in outcomes.items()}
    mod = mod_or_func.clone() if isinstance(mod_or_func, tvm.IRModule) else tvm.IRModule(named)
    for name, one in lowered.items():
        mod.update_func(mod.get_global_var(name), one.func)
    kernels = {name: one.chosen for name, one in lowered.items() if one.chosen is not None}
    fast_math = any(isinstance(kernel, Kernel) and kernel.fast_math for kernel in kernels.values())
    plain = {name: backend.plain(outcomes[name], func) for name, func in named.items()}
    built, failed = _generated(mod, plain, target, fast_math)
    kernels |= failed
    explained = partial(explain_outcomes, named, outcomes, kernels) if fuse else Explanation
    names = sorted({function for name, one in lowered.items() if name not in failed for function in one.replaced})
    exported = partial(backend.export, built, mod, target, fast_math)
    parameters = {name: parameters_of(func) for name, func in named.items()}
    return Compiled(built, mod, parameters, explained, exported, target, {name: ULP_BOUNDS[name] for name in names})


def _generated(
    mod: tvm.IRModule, plain: dict[str, tirx.PrimFunc], target: Target, fast_math: bool
) -> tuple[tvm.runtime.Executable, dict[str, AsItIs]]:
    """The module's code, and the functions that TVM generates no code for as they were lowered.

    In the module, these become their `plain` forms.

    Raises
    ------
    Exception
        TVM's own, where it builds the program as it was written no more.
    """
    try:
        return generate(mod, target, fast_math), {}
    except Exception:  # of one function or more: each is tried alone, and what is nobody's is raised again
        failed: dict[str, AsItIs] = {}
        for name, func in plain.items():
            try:
                generate(tvm.IRModule({name: mod[name]}), target, fast_math)
            except Exception as error:
                failed[name] = AsItIs.after("TVM generates no code for it as it was lowered", error)
                mod.update_func(mod.get_global_var(name), func)
        if not failed:
            raise
        return generate(mod, target, fast_math), failed


def _as_it_is(func: tirx.PrimFunc) -> Outcome:
    program = read_function(func)
    return Outcome(func, (), program if isinstance(program, Program) and not program.opaque else None)
