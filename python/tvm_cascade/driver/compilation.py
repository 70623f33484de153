"""From an unfused program to a runnable one, by the model's choices or by given designs."""

from __future__ import annotations

from functools import partial
from typing import Any

import tvm
from tvm import tirx
from tvm.target import Target
from typing_extensions import Unpack

from tvm_cascade.driver.arguments import parameters_of
from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.cache import kept, key_of, texts_of
from tvm_cascade.driver.compiled import Compiled, load
from tvm_cascade.driver.functions import functions_of
from tvm_cascade.driver.generation import generate
from tvm_cascade.driver.lowering import Designs, designed, fused, goal_of, lowered
from tvm_cascade.driver.progress import compiling
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import InputError
from tvm_cascade.options import FuseOptions, Options, takes_options
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.report.outcomes import explain_outcomes
from tvm_cascade.schedule.vector_math import ULP_BOUNDS
from tvm_cascade.transform.fuse_function import AsItIs


@takes_options
def compile_unfused(
    mod_or_func: tvm.IRModule | tirx.PrimFunc,
    target: str | dict[str, Any] | Target = "auto",
    **options: Unpack[Options],
) -> Compiled:
    """As `compile`, but without fusing: the baseline for what fusing alone gains.

    Parameters
    ----------
    mod_or_func, target : as `compile` takes them.
    **options : fields of `tvm_cascade.FuseOptions`, as keywords; unset ones come from TVM_CASCADE_* variables.

    Raises
    ------
    InputError, OptionError
        As `compile`.
    """
    chosen = FuseOptions.from_environment(**options)
    return compile_for(mod_or_func, resolve_target(target), chosen, records="", fuse=False)


def compile_for(
    mod_or_func: object,
    target: Target,
    options: FuseOptions,
    designs: Designs | None = None,
    records: str | None = None,
    *,
    fuse: bool = True,
) -> Compiled:
    """Fuse, schedule and build a program for a whole target.

    Parameters
    ----------
    designs : what is known to be the best design of a function; the model's choice by default.
    records : a text that tells these designs from others, where the code may be kept on disk.

    Raises
    ------
    InputError, CompilerError
        As `tvm_cascade.compile`.
    """
    functions = functions_of(mod_or_func, "compile")
    foreign = {name: type(func).__name__ for name, func in functions.items() if not isinstance(func, tirx.PrimFunc)}
    if foreign or not functions:
        found = ", ".join(f"`{name}`, a {kind}" for name, kind in foreign.items()) or "no function"
        hint = "of a module of Relax, tvm_cascade.relax.get_pipeline(target).build(mod) makes code" if foreign else ""
        raise InputError("a module of PrimFuncs", found, "compile", hint)
    # A module's functions go by their names in it: TVM exports symbols, which may differ, and even clash.
    named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    mod = mod_or_func.clone() if isinstance(mod_or_func, tvm.IRModule) else tvm.IRModule(named)
    told = None if records is None else (*named, records, f"fuse={fuse}")
    key = key_of(target, options, lambda: told and (*texts_of(mod), *told))

    def made() -> Compiled:
        with compiling(options):
            return _built(mod, named, target, options, designs, fuse)

    return kept(key, made, Compiled.bundle, load)


def _built(
    mod: tvm.IRModule,
    named: dict[str, tirx.PrimFunc],
    target: Target,
    options: FuseOptions,
    designs: Designs | None,
    fuse: bool,
) -> Compiled:
    """The code of a module, which is changed, whose functions go by these names."""
    backend, goal = backend_of(target), goal_of(target, options, fuse)
    known, origins = designed(named, goal, designs) if designs is not None else ({}, {})
    outcomes = fused({name: func for name, func in named.items() if name not in known}, goal)
    made = lowered(outcomes, goal, named) | known
    outcomes = {name: outcome for name, (outcome, _) in made.items()}
    ready = {name: one for name, (_, one) in made.items()}
    for name, one in ready.items():
        mod.update_func(mod.get_global_var(name), one.func)
        for step, func in one.steps.items():
            mod[step] = func
    kernels = {name: one.chosen for name, one in ready.items() if one.chosen is not None}
    plain = {name: backend.plain(outcomes[name], func) for name, func in named.items()}
    called = {name: tuple(one.steps) for name, one in ready.items()}
    built, failed = _generated(mod, plain, called, target)
    kernels |= failed
    origins = {name: origin for name, origin in origins.items() if name not in failed}
    explained = partial(explain_outcomes, named, outcomes, kernels, origins, goal.setting) if fuse else Explanation
    names = sorted({function for name, one in ready.items() if name not in failed for function in one.replaced})
    parameters = {name: parameters_of(func) for name, func in named.items()}
    return Compiled(built, mod, parameters, explained, target, {name: ULP_BOUNDS[name] for name in names})


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
