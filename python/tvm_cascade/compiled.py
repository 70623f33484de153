"""A program that runs, with what was done to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm.target import Target

from tvm_cascade.errors import InputError
from tvm_cascade.report.explanation import Explanation

_ALIGNMENT = 64  # bytes: what TVM's generated code takes for granted of every argument, without looking


@dataclass(frozen=True)
class Compiled:
    """A program that runs; calling it calls its only function, or `main`, on tensors: inputs, then outputs to fill.

    Attributes
    ----------
    runtime_module : what TVM built; `runtime_module["name"]` is one of its functions.
    mod : the module that went into code generation: fused and scheduled.
    explained : makes `report`.
    exported : writes the library of `export_library`.
    target : what it was built for.
    replaced_math : functions computed by vectorised polynomials, with the bound of their error in ulp.
    """

    runtime_module: tvm.runtime.Executable
    mod: tvm.IRModule
    explained: Callable[[], Explanation] = field(repr=False)
    exported: Callable[[Path], None] = field(repr=False)
    target: Target
    replaced_math: dict[str, float] = field(default_factory=dict)

    @cached_property
    def report(self) -> Explanation:
        """What was fused, and why the rest was not; worked out when it is first asked for."""
        return self.explained()

    def export_library(self, path: str | Path) -> None:
        """Write everything as a shared library, with kernels as machine code, whether this machine has a GPU or not.

        `tvm_ffi.load_module(path)` loads it, where TVM's runtime is; no compiler is needed there.

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
            raise InputError("a path of a .so file in a folder that exists", str(path), "export_library")
        self.exported(path)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """The function of that name; arguments as for a call of the whole."""
        names = [variable.name_hint for variable in self.mod.get_global_vars()]
        if name not in names:
            raise InputError(f"a function among {', '.join(names)}", repr(name), "compiled module")
        return partial(_call, self.runtime_module[name], self._device())

    def _device(self) -> tvm.runtime.Device:
        return tvm.cuda(0) if self.target.kind.name == "cuda" else tvm.cpu()

    def __call__(self, *arguments: Any) -> Any:
        """Run the entry function.

        Parameters
        ----------
        *arguments : its tensors, in the order of its parameters: `tvm.runtime.Tensor`, NumPy arrays, or whatever
            else speaks DLPack, such as torch tensors. NumPy arrays that are not contiguous, aligned to 64 bytes and
            writeable are copied there and back.

        Raises
        ------
        InputError
            When there are several functions and none is called `main`, or a tensor is not aligned to 64 bytes.
        """
        names = [variable.name_hint for variable in self.mod.get_global_vars()]
        return self[names[0] if len(names) == 1 else "main"](*arguments)


def _call(function: Callable[..., Any], device: tvm.runtime.Device, *arguments: Any) -> Any:
    tensors = [_aligned(argument, device) for argument in arguments]
    returned = function(*tensors)
    for argument, tensor in zip(arguments, tensors, strict=True):
        if isinstance(argument, np.ndarray) and argument.flags.writeable and tensor.data_ptr() != argument.ctypes.data:
            argument[...] = tensor.numpy()
    return returned


def _aligned(argument: Any, device: tvm.runtime.Device) -> Any:
    """The argument as a tensor that generated code can read: on an address that is not aligned it would crash."""
    if isinstance(argument, np.ndarray) and device.dlpack_device_type() != tvm.cpu().dlpack_device_type():
        return tvm.runtime.tensor(argument, device=device)
    if isinstance(argument, np.ndarray):
        flags = argument.flags
        shareable = flags.c_contiguous and flags.writeable and argument.dtype.kind in "biuf"
        if not shareable or argument.ctypes.data % _ALIGNMENT:
            return tvm.runtime.tensor(argument)
    if not hasattr(argument, "__dlpack__"):
        return argument  # a scalar, or something that TVM will reject by name
    tensor = tvm_ffi.from_dlpack(argument)
    if tensor.data_ptr() % _ALIGNMENT:
        hint = "pass a copy, such as tvm.runtime.tensor(array)"
        raise InputError(f"tensors aligned to {_ALIGNMENT} bytes", f"address {tensor.data_ptr():#x}", "arguments", hint)
    return tensor
