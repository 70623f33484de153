"""A backend: how programs for one kind of target are scheduled, lowered, compiled and run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx
from tvm.target import Target

from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.statements import is_serial
from tvm_cascade.analysis.tir import within
from tvm_cascade.devices.device import Device, Gpu
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.plan import Plan
from tvm_cascade.report.outcomes import Lowering
from tvm_cascade.tile.skeleton import Setting
from tvm_cascade.transform.fuse_function import Outcome, read_function


@dataclass(frozen=True)
class Goal:
    """The target, device and options that functions are lowered for.

    Attributes
    ----------
    target, device : the whole target, and the machine that it describes.
    options : as the backend has completed them.
    fuse : whether fusing is asked for; kernels of skeletons fuse by themselves.
    finish : see `Backend`.
    taken : names that functions beside those of the module must not have.
    planned : plans that are known already, by name of the function.
    """

    target: Target
    device: Device
    options: FuseOptions
    fuse: bool = True
    finish: Callable[[Lowered, str], Lowered] = lambda lowered, _name: lowered
    taken: frozenset[str] = frozenset()
    planned: Mapping[str, Plan] = field(default_factory=dict)

    @property
    def setting(self) -> Setting | None:
        """Of kernels of skeletons, which are for GPUs."""
        return Setting(self.device, self.options) if isinstance(self.device, Gpu) else None


@dataclass(frozen=True)
class Lowered:
    """A function that is ready for code generation.

    Attributes
    ----------
    func : the function, scheduled.
    chosen : its kernel, its plan, its schedule, or its kernels by lengths, or why it has none; None of a function that
        is left as it was.
    replaced : functions of its arithmetic that are computed by vectorised polynomials.
    steps : functions that it calls, by name.
    """

    func: tirx.PrimFunc
    chosen: Lowering | None = None
    replaced: tuple[str, ...] = ()
    steps: Mapping[str, tirx.PrimFunc] = field(default_factory=dict)


def joined(host: tirx.PrimFunc, chosen: Lowering, parts: Mapping[str, Lowered]) -> Lowered:
    """A function that calls others, by name, with those and what they call."""
    steps, replaced = dict[str, tirx.PrimFunc](), dict[str, None]()
    for name, part in parts.items():
        steps |= {step: func.with_attr("global_symbol", step) for step, func in {name: part.func, **part.steps}.items()}
        replaced |= dict.fromkeys(part.replaced)
    return Lowered(host, chosen, tuple(replaced), steps)


@dataclass(frozen=True)
class Backend:
    """The backend of one kind of target: schedules, lowering, code generation and runtime.

    Attributes
    ----------
    kind : TVM's name of the kind of target.
    example : a target of it, as users write one.
    runtime : TVM's name of the device that the code runs on.
    resolve : (target, what of it the user stated) -> the whole target; InputError where something is missing.
    options : the options of the pass for this backend.
    lower : (what the pass made of a function, its name, goal) -> the function, scheduled.
    finish : (a GPU's lowered function, its name) -> the same in arithmetic that the GPU supports.
    plain : (what the pass made of a function, the function) -> the function as it was written, for code generation.
    generate : (lowered module, target) -> code that runs here.
    export : (what `generate` made, lowered module, target, path): writes a library.
    """

    kind: str
    example: str
    runtime: str
    resolve: Callable[[Target, Mapping[str, Any]], Target]
    options: Callable[[FuseOptions], FuseOptions]
    lower: Callable[[Outcome, str, Goal], Lowered]
    plain: Callable[[Outcome, tirx.PrimFunc], tirx.PrimFunc]
    generate: Callable[[tvm.IRModule, Target], tvm.runtime.Executable]
    export: Callable[[tvm.runtime.Executable, tvm.IRModule, Target, Path], None]
    finish: Callable[[Lowered, str], Lowered] = lambda lowered, _name: lowered

    @property
    def first_device(self) -> tvm.runtime.Device:
        """The device of this machine that runs the code; it may not exist."""
        return tvm.device(self.runtime, 0)


def as_it_is(func: tirx.PrimFunc) -> Outcome:
    program = read_function(func)
    return Outcome(func, (), program if isinstance(program, Program) and not program.opaque else None)


def is_scheduled(func: tirx.PrimFunc) -> bool:
    """Whether a function is scheduled already: some loop of it is not serial."""
    return not all(map(is_serial, within(func.body, tirx.For)))


_NEEDED = """
extern "C" int TVMBackendParallelLaunch(void*, void*, int);
extern "C" int (*tvm_cascade_needs)(void*, void*, int) = &TVMBackendParallelLaunch;
"""
"""What a library takes from TVM's runtime. Code calls that by pointers, which the runtime sets when it loads a library,
and which are null where only `tvm_ffi` is there: by name, the library is refused in place of the call."""


def export_library(built: tvm.runtime.Executable, _mod: tvm.IRModule, _target: Target, path: Path) -> None:
    """See `Backend.export`: a shared library of what was built, which loads where TVM's runtime is."""
    with tempfile.TemporaryDirectory() as folder:
        needed = Path(folder) / "needed.cc"
        needed.write_text(_NEEDED)
        built.export_library(str(path), addons=[str(needed)])
