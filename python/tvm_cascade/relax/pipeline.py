"""A pipeline for Relax modules in place of TVM's own: cascades merged and fused, every PrimFunc scheduled."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax, tirx
from tvm.ir import transform
from tvm.relax import vm_build
from tvm.target import Target
from typing_extensions import Unpack

from tvm_cascade.devices.device import Cpu, Device, Gpu
from tvm_cascade.devices.read import device_of
from tvm_cascade.driver.backend import Lowered
from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.bundle import LIBRARY, Files, library_of, loaded, with_library
from tvm_cascade.driver.cache import kept, key_of, texts_of
from tvm_cascade.driver.functions import functions_of
from tvm_cascade.driver.generation import generate
from tvm_cascade.driver.lowering import fused, goal_of, lowered
from tvm_cascade.driver.progress import compiling, tell
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import InputError
from tvm_cascade.options import FuseOptions, Options, takes_options
from tvm_cascade.plan.buckets import Buckets
from tvm_cascade.plan.chunked import Chunks
from tvm_cascade.plan.plan import Plan
from tvm_cascade.relax.convolutions import channels_last
from tvm_cascade.relax.fuse_cascades import cascades_fused, plans_for
from tvm_cascade.relax.graph import CALL_TIR, AnnotateGathers, is_tensor
from tvm_cascade.relax.narrowing import narrowed
from tvm_cascade.relax.rewrites import ComputeWhereRead, RewriteOperators, WriteExtentsAlike
from tvm_cascade.relax.surroundings import Plans
from tvm_cascade.relax.views import InlineViews
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.report.group import Apart
from tvm_cascade.report.outcomes import explain_outcomes
from tvm_cascade.tile.launch.dependent import GIVEN, SHORT, STARTS, WAITS
from tvm_cascade.tile.skeleton import Kernel

_DISPATCHED = (
    relax.transform.EliminateCommonSubexpr(),
    relax.backend.DispatchSampling(),
    relax.backend.DispatchSortScan(),
    relax.transform.LegalizeOps(),
    WriteExtentsAlike(),
    relax.transform.CanonicalizeBindings(),  # a part of a tuple is what it was made of
)

_GROUPED = (
    ComputeWhereRead(),
    relax.transform.AnnotateTIROpPattern(),
    AnnotateGathers(),
    relax.transform.FoldConstant(),
    relax.transform.FuseOps(),
    relax.transform.FuseTIR(),
    InlineViews(),
    relax.transform.RewriteDataflowReshape(),
    relax.transform.DeadCodeElimination(),
)

_BUILT = (
    relax.transform.ToNonDataflow(),
    relax.transform.RemovePurityChecking(),
    relax.transform.CallTIRRewrite(),
    relax.transform.StaticPlanBlockMemory(),
    relax.transform.RewriteCUDAGraph(),
    relax.transform.LowerAllocTensor(),
    relax.transform.KillAfterLastUse(),
    relax.transform.LowerRuntimeBuiltin(),
    relax.transform.ComputePrimValue(),
    relax.transform.VMShapeLower(),
    relax.transform.AttachGlobalSymbol(),
)

"""As `default_build` of TVM, without what `_GROUPED` did: looking for reshapes, it refuses functions of GPUs, which
have no root block once they are scheduled."""


class Pipeline:
    """The passes, as one pass; and the report of the module that it was last run on.

    Attributes
    ----------
    report : what became of each reduction of the module; None before it was run.
    """

    def __init__(self, target: Target, options: FuseOptions) -> None:
        self.target, self.options = target, options
        self.report: Explanation | None = None
        self._apart: list[Apart] = []
        self._plans: Plans | None = None

    def __call__(self, mod: tvm.IRModule, context: transform.PassContext | None = None) -> tvm.IRModule:
        """The module, with code generation left to do."""
        return tvm.transform.Sequential(_BUILT)(self.scheduled(self.grouped(mod)))

    def grouped(self, mod: tvm.IRModule) -> tvm.IRModule:
        """The module with its operators as PrimFuncs, those of a cascade merged into one, nothing fused yet."""
        tell("looking for cascades")
        options, device = backend_of(self.target).options(self.options), device_of(self.target)
        self._apart, self._plans = [], plans_for(options, device)
        cascades = cascades_fused(options, device, self._apart, self._plans)
        layouts, operators = channels_last(options, device), RewriteOperators(turned=isinstance(device, Cpu))
        with self.target, _called_rightly():  # the functions that constants are folded by
            return tvm.transform.Sequential([*layouts, operators, *_DISPATCHED, cascades, *_GROUPED])(mod)

    def build(self, mod: tvm.IRModule) -> relax.VMExecutable:
        """A module's code, for `relax.VirtualMachine`.

        As `relax.build(mod, pipeline.target, relax_pipeline=pipeline)`, which does for CPUs; kernels of GPUs are
        compiled as by `tvm_cascade.compile`, each with the mathematics that it is exact with. The code is kept on disk.
        """
        key = key_of(self.target, self.options, lambda: texts_of(mod))
        executable, report = kept(key, lambda: self.made(mod), saved, load)
        self.report, self._apart = report, [*report.apart]
        return executable

    def made(self, mod: tvm.IRModule) -> tuple[relax.VMExecutable, Explanation]:
        """A module's code, and its report, without a look at the disk."""
        with compiling(self.options):
            executable = self._built(mod)
        assert self.report is not None, "of the module that was built"
        return executable, self.report

    def _built(self, mod: tvm.IRModule) -> relax.VMExecutable:
        with self.target:
            lowered = self(mod)
        attributes = dict(lowered.attrs) if lowered.attrs else {}
        builder = relax.ExecBuilder()
        rest = vm_build._vmcodegen(builder, lowered)
        functions = vm_build._filter_tir(rest)
        library = None if functions is None else generate(functions, self.target).mod
        constants = dict(attributes.get("const_name_to_constant", {}))
        linked = vm_build._ffi_api.VMLink(builder, self.target, library, [], constants)
        return relax.VMExecutable(linked)

    @property
    def apart(self) -> tuple[Apart, ...]:
        """Operators of the module that was grouped last that were looked at together and not merged."""
        return tuple(dict.fromkeys(self._apart))

    @staticmethod
    def functions(mod: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
        """The functions of a grouped module that are to be fused and scheduled, without what nobody reads."""
        functions = {
            var.name_hint: narrowed(func)
            for var, func in mod.functions_items()
            if isinstance(func, tirx.PrimFunc) and not (func.attrs and "tirx.is_scheduled" in func.attrs)
        }
        given = {name: places for name, places in given_operands(mod).items() if name in functions}
        return functions | {name: functions[name].with_attr(GIVEN, places) for name, places in given.items()}

    def scheduled(self, mod: tvm.IRModule) -> tvm.IRModule:
        """The module with every PrimFunc fused and scheduled.

        All kernels follow each other on one stream, also the first of one function and the last of the one before: each
        is launched while the one before it ends, and waits for it, where the GPU has such launches.
        """
        functions, goal = self.functions(mod), goal_of(self.target, self.options)
        known = {} if self._plans is None else self._plans.of(functions)
        self._plans = None  # of one module
        goal = dataclasses.replace(goal, planned={name: search.plan for name, search in known.items()})
        seen = fused({name: func for name, func in functions.items() if name not in known}, goal)
        seen |= {name: dataclasses.replace(one.outcome, given=functions[name]) for name, one in known.items()}
        made = lowered({name: seen[name] for name in functions}, goal, [v.name_hint for v in mod.get_global_vars()])
        outcomes = {name: outcome for name, (outcome, _) in made.items()}
        ready = {name: one for name, (_, one) in made.items()}
        found = _overlapping(mod, ready, goal.device)
        kernels = {name: one.chosen for name, one in ready.items() if one.chosen is not None}
        explained = explain_outcomes(functions, outcomes, kernels, setting=goal.setting)
        self.report = dataclasses.replace(explained, apart=self.apart)
        return found


_REPORT = "report.pickle"


def saved(made: tuple[relax.VMExecutable, Explanation]) -> Files:
    """The parts of a bundle of code and report."""
    executable, report = made
    return {LIBRARY: library_of(executable), _REPORT: pickle.dumps(report)}


def load(files: Files) -> tuple[relax.VMExecutable, Explanation]:
    """The code and the report of a bundle."""
    executable = relax.VMExecutable(loaded(files[LIBRARY]))
    return with_library(executable, files[LIBRARY]), pickle.loads(files[_REPORT])


def _overlapping(mod: tvm.IRModule, ready: Mapping[str, Lowered], device: Device) -> tvm.IRModule:
    """The module with lowered functions, whose kernels overlap with those before and behind them where a GPU lets them.

    They let the next one start once all have waited, if they are one wave of blocks.
    """
    found = mod.clone()
    for name, one in ready.items():
        found.update_func(found.get_global_var(name), _dependent(one.func, one, device))
        for step, func in one.steps.items():
            found[step] = _dependent(func, one, device)
    return found


def _dependent(func: tirx.PrimFunc, lowered: Lowered, device: Device) -> tirx.PrimFunc:
    """A function with what `tile.launch.dependent` makes of its kernels, where the device has such launches."""
    if not isinstance(device, Gpu) or not device.has_clusters:
        return func
    chosen = lowered.chosen
    parts = [each.chosen for each in chosen.each] if isinstance(chosen, (Buckets, Chunks)) else [chosen]
    short = not any(isinstance(each, (Kernel, Plan)) and each.seconds > SHORT for each in parts)
    return func.with_attr(WAITS, True).with_attr(STARTS, device.processors if short else 0)


def unfused(mod: tvm.IRModule, target: Target) -> relax.VMExecutable:
    """The code of a module as TVM lowers its operators, each by itself and not scheduled.

    Its functions look at no argument: what `main` is called with has to be what it takes.
    """
    with target, _called_rightly():
        passes = tvm.transform.Sequential([*_DISPATCHED, *_BUILT])
        return relax.build(mod, target, relax_pipeline=passes)


def _called_rightly() -> transform.PassContext:
    """The current pass context, for functions that need not check their arguments: those checks are most of them.

    One with instruments is as it is: they would be entered a second time.
    """
    now = transform.PassContext.current()
    if now.instruments:
        return now
    config = {**dict(now.config.items()), "tirx.disable_assert": True}
    return transform.PassContext(now.opt_level, now.required_pass, now.disabled_pass, config=config)


@takes_options
def get_pipeline(target: str | dict[str, Any] | Target = "auto", **options: Unpack[Options]) -> Pipeline:
    """What `tvm.compile(mod, target, relax_pipeline=…)` takes.

    Parameters
    ----------
    target : as `tvm_cascade.compile` takes it.
    **options : fields of `tvm_cascade.FuseOptions`, as keywords; unset ones come from TVM_CASCADE_* variables.

    Raises
    ------
    OptionError
        When an option is unknown or has a value outside its domain.
    InputError
        When the target is not one that we schedule for.
    """
    return Pipeline(resolve_target(target), FuseOptions.from_environment(**options))


# Tensors that no kernel of a function writes, such as weights.


_RESHAPE = ir.Op.get("relax.reshape")


def given_operands(mod: tvm.IRModule) -> dict[str, tuple[int, ...]]:
    """The PrimFuncs of a module with operands that are given in all calls, by the operands' places among parameters."""
    found: dict[str, set[int]] = {}
    for _, func in mod.functions_items():
        if isinstance(func, relax.Function):
            for name, places in _calls(func):
                found[name] = found[name] & places if name in found else places
    return {name: tuple(sorted(places)) for name, places in found.items() if places}


def _calls(func: relax.Function) -> list[tuple[str, set[int]]]:
    """The calls of PrimFuncs, each with its given operands; none are given where blocks may run in another order."""
    calls: list[tuple[str, set[int]]] = []
    if not isinstance(func.body, relax.SeqExpr):
        return calls
    given, straight = set(func.params), True
    for binding in (binding for block in func.body.blocks for binding in block.bindings):
        value = binding.value
        straight &= not isinstance(value, relax.If)
        if not isinstance(value, relax.Call):
            continue
        if value.op == _RESHAPE and value.args[0] in given:
            given.add(binding.var)
        elif value.op == CALL_TIR:
            arguments = value.args[1].fields if isinstance(value.args[1], relax.Tuple) else []
            tensors = [(k, one) for k, one in enumerate(arguments) if is_tensor(one)]
            places = {k for k, one in tensors if not relax.analysis.all_vars(one) or one in given}
            calls.append((value.args[0].name_hint, places if calls and straight else set()))
        elif isinstance(value.op, ir.Op) and "inplace" in value.op.name:
            given.clear()  # a view of what is written may have another name
    return calls


# The functions of a program as `get_pipeline` fuses them: those of Relax in the PrimFuncs of their operators.


@dataclass(frozen=True)
class Merged:
    """The functions of a program.

    Attributes
    ----------
    functions : by name.
    apart : operators of Relax that were looked at together and not merged.
    """

    functions: dict[str, ir.BaseFunc]
    apart: tuple[Apart, ...] = ()


def merged(mod_or_func: object, target: Target, options: FuseOptions, where: str) -> Merged:
    """The functions of a module, or the one PrimFunc; in place of those of Relax, what their operators are merged into.

    Raises
    ------
    InputError
        When it is neither a module nor a PrimFunc, or TVM does not legalise an operator; the message names `where`.
    """
    functions = functions_of(mod_or_func, where)
    if not isinstance(mod_or_func, tvm.IRModule) or not _of_relax(functions):
        return Merged(functions)
    pipeline = Pipeline(target, options)
    try:
        found = pipeline.functions(pipeline.grouped(mod_or_func))
    except Exception as error:  # whatever TVM's passes run into
        first = next(iter(str(error).strip().splitlines()), "")
        told = f"{type(error).__name__}: {first}"
        raise InputError("a module of Relax whose operators TVM legalises", told, where) from error
    return Merged(found, pipeline.apart)


def _of_relax(functions: dict[str, ir.BaseFunc]) -> bool:
    return any(isinstance(func, relax.Function) for func in functions.values())
