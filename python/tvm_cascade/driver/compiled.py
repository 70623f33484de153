"""A compiled program, with a report of what was done to it."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import tvm
from tvm.target import Target

from tvm_cascade.driver.arguments import Parameter
from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.bundle import LIBRARY, Files, library_of, loaded, with_library
from tvm_cascade.driver.entry import Entry
from tvm_cascade.driver.generation import generate
from tvm_cascade.driver.targets import check_runs_here
from tvm_cascade.errors import InputError
from tvm_cascade.report.explanation import Explanation


@dataclass(frozen=True)
class Compiled:
    """A compiled program; calling it runs its only function, or `main`, on arrays.

    It can be pickled, and saved by `tvm_cascade.save`; its copies are itself, since nothing in it changes.

    Attributes
    ----------
    runtime_module : what TVM built; `runtime_module["name"]` is one of its functions.
    mod : the module that went into code generation: fused and scheduled.
    parameters : by function, what it takes, in order.
    explained : makes `report`.
    target : what it was built for.
    replaced_math : functions computed by vectorised polynomials, with the bound of their error in ulp.
    """

    runtime_module: tvm.runtime.Executable
    mod: tvm.IRModule
    parameters: dict[str, tuple[Parameter, ...]]
    explained: Callable[[], Explanation] = field(repr=False)
    target: Target
    replaced_math: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        functions = [f"{name}({', '.join(map(str, taken))})" for name, taken in self.parameters.items()]
        return f"<Compiled for {self.target.kind.name}: {'; '.join(functions).replace('`', '')}>"

    @cached_property
    def report(self) -> Explanation:
        """The explanation of what was fused and why the rest was not; computed lazily."""
        return self.explained()

    def export_library(self, path: str | Path) -> None:
        """Write everything as a shared library, with kernels as machine code, whether this machine has a GPU or not.

        `tvm_ffi.load_module(path)` loads it, where TVM's runtime is (`import tvm`); no compiler is needed there.

        Parameters
        ----------
        path : of a file that ends with .so, in a folder that exists.

        Raises
        ------
        InputError
            When the path is not of that kind.
        CompilerError
            When a compiler is missing or fails: a C compiler; for a GPU, nvcc with its toolkit.
        """
        path = Path(path)
        if path.suffix != ".so" or not path.parent.is_dir():
            raise InputError("a path that ends in .so, in a folder that exists", str(path), "export_library")
        backend_of(self.target).export(self.runtime_module, self.mod, self.target, path)

    def bundle(self) -> Files:
        """The parts of a bundle of it."""
        record = self.mod, self.parameters, self.report, self.target, self.replaced_math
        return {LIBRARY: self._library(), _RECORD: pickle.dumps(record)}

    def _library(self) -> bytes:
        if backend_of(self.target).first_device.exist:
            return library_of(self.runtime_module)
        with tempfile.TemporaryDirectory() as folder:  # machine code of kernels needs a process of its own then
            self.export_library(Path(folder) / LIBRARY)
            return (Path(folder) / LIBRARY).read_bytes()

    def __reduce__(self) -> tuple[Callable[[Files], Any], tuple[Files]]:
        return load, (self.bundle(),)

    def __copy__(self) -> Compiled:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Compiled:
        return self

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """The function of that name; arguments as for a call of the whole."""
        if name not in self.parameters:
            raise InputError(f"a function among {', '.join(self.parameters)}", repr(name), "compiled module")
        if name not in self._entries:
            device = backend_of(self.target).first_device
            self._entries[name] = Entry(self.runtime_module[name], name, self.parameters[name], device)
        return self._entries[name]

    @cached_property
    def _entries(self) -> dict[str, Callable[..., Any]]:
        """The functions that were asked for, by name: TVM looks one up in ten times what a call takes."""
        return {}

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the entry function: `out = compiled(x, y)`, or `compiled(x, y, out)` to fill arrays that are there.

        Parameters
        ----------
        *arguments, **named : its tensors, by position or by the names of its parameters: `tvm.runtime.Tensor`, NumPy
            arrays, or whatever else speaks DLPack, such as torch tensors. Outputs may be left out, or passed by name;
            by position, they are all passed, or none is. They are used where they are, without a copy, if they are
            contiguous and, on a GPU, aligned to 64 bytes. Others (of libraries without `contiguous`: contiguous ones
            only) are copied, and outputs copied back, as are NumPy arrays for a GPU, and those of bfloat16 and float8.
            What the function does is not recorded for gradients. Calls that one thread makes on several streams of a
            GPU must not run at the same time where a function is a plan of kernels: they have temporaries in common.

        Returns
        -------
        The outputs, in the order of parameters, where any was left out: one array, or a tuple. They are arrays of the
        library of the first array that was passed, NumPy or torch, and else of TVM.

        Raises
        ------
        InputError
            When there are several functions and none is called `main`; arguments are missing, too many, or of unknown
            names; a dtype, a shape or a device is not what the function takes; an output is read-only, requires a
            gradient, or shares memory with another argument; or one that is left out has an extent of no input.
        DeviceError
            When it was compiled for a GPU and there is none.
        """
        return self["main" if len(self.parameters) > 1 else next(iter(self.parameters))](*arguments, **named)


class _Loaded(tvm.runtime.Executable):
    """The code of a library that is loaded; sources are made again of the lowered module where they are asked for."""

    def __init__(self, library: tvm.runtime.Module, lowered: tvm.IRModule, target: Target) -> None:
        self._jitted_mod, self._lowered, self._target = library, lowered, target

    @cached_property
    def mod(self) -> tvm.runtime.Module:
        return generate(self._lowered, self._target).mod


_RECORD = "compiled.pickle"


def load(files: Files) -> Compiled:
    """The compiled program of a bundle.

    Raises
    ------
    DeviceError
        When this machine cannot run it.
    """
    lowered, parameters, report, target, replaced = pickle.loads(files[_RECORD])
    check_runs_here(target)
    built = with_library(_Loaded(loaded(files[LIBRARY]), lowered, target), files[LIBRARY])
    return Compiled(built, lowered, parameters, lambda: report, target, replaced)
