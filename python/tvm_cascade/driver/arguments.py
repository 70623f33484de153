"""Arguments of compiled functions: arrays of any DLPack library, as TVM tensors.

Compiled code takes an alignment for granted, without looking, and TVM refuses a tensor that is not compact. What cannot
be shared as it is, is copied, and an output is copied back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

try:
    from numpy.lib.array_utils import byte_bounds
except ImportError:  # NumPy 1
    from numpy import byte_bounds  # type: ignore[no-redef, attr-defined]

from tvm_cascade.analysis.opaque import Memory, taken
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.statements import statements_of
from tvm_cascade.analysis.tir import dtype_of, within
from tvm_cascade.errors import CascadeError, DeviceError, InputError


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function.

    Attributes
    ----------
    name : in the program.
    dtype : of the elements, or of the number.
    shape : extents, symbolic ones by their text; None of a number.
    written : the function writes it.
    exposed : the function gives its address away, so that it may be written.
    replaced : the function writes it before it reads any of it, so that a call may leave it out.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None
    written: bool
    exposed: bool
    replaced: bool

    def __str__(self) -> str:
        return f"`{self.name}`" + (" (output)" if self.written else "")

    @cached_property
    def size(self) -> int | None:
        """Bytes of the array, where its extents are known."""
        shape = self.shape or ()
        return None if any(isinstance(extent, str) for extent in shape) else self.size_of(shape)

    def size_of(self, shape: Iterable[Any]) -> int:
        """Bytes of the array at a shape."""
        return math.prod(shape) * on_cpus(self.dtype)


def parameters_of(func: tirx.PrimFunc) -> tuple[Parameter, ...]:
    """The parameters of a function before it is scheduled, in order."""
    stored: list[ir.Var] = []
    callbacks = [
        (tirx.BufferStore, lambda store: stored.append(store.buffer)),
        (s_tir.SBlock, lambda block: stored.extend(region.source for region in block.writes)),
    ]
    tvm_ffi.structural_walk(func.body, callbacks)
    memory = Memory(func.body)
    written, exposed = memory.behind(stored), memory.behind(taken(func.body))
    kept = [*exposed, *_read_before_written(func, memory)]

    def described(param: ir.Var) -> Parameter:
        if not tirx.is_buffer_var(param):
            dtype = str(getattr(param.ty, "dtype", "handle"))  # a pointer has no dtype of its own
            return Parameter(param.name, dtype, None, False, False, False)
        is_written, is_exposed, is_kept = (among(param, names) for names in (written, exposed, kept))
        shape = tuple(int(e) if isinstance(e, (int, tirx.IntImm)) else str(e) for e in param.ty.shape)
        return Parameter(param.name, str(param.ty.dtype), shape, is_written, is_exposed, is_written and not is_kept)

    return tuple(described(param) for param in func.params)


def _read_before_written(func: tirx.PrimFunc, memory: Memory) -> list[ir.Var]:
    """Buffers of which a nest reads what none before it has written; blocks tell what they read of others."""
    found, written = list[ir.Var](), list[ir.Var]()
    body = func.body
    for nest in statements_of(body.block if isinstance(body, s_tir.SBlockRealize) else body):
        blocks = within(nest, s_tir.SBlock)
        reads = [region.source for block in blocks for region in block.reads]
        if not blocks:
            reads = [load.source for load in within(nest, ir.TensorLoad)]
        found += [name for name in memory.behind(reads) if not among(name, written)]
        written += memory.behind(store.buffer for store in within(nest, tirx.BufferStore))
    return found


Passed = tuple[Any, Callable[[], object] | None]
"""What a function is given for an argument, and how the argument gets what was written to it, where it must."""


def as_tensor(parameter: Parameter, argument: Any, alignment: int, device: tvm.runtime.Device) -> Passed:
    if parameter.shape is None or not hasattr(argument, "__dlpack__"):
        return argument, None  # TVM rejects by name what it does not take
    if parameter.written:
        _check_writable(parameter, argument)
    if isinstance(argument, np.ndarray) and argument.size:
        return _numpy_tensor(parameter, argument, device)
    if _is_shared(argument, alignment):
        return argument, None  # a tensor of torch itself, so that the call is put on torch's current stream
    if 0 in getattr(argument, "shape", ()) and not isinstance(argument, tvm.runtime.Tensor):
        # Libraries give an empty array whatever strides and address they like.
        return tvm.runtime.empty(tuple(argument.shape), dtype_name(argument), device), None
    tensor: Any = tvm_ffi.from_dlpack(argument)
    if not tensor.is_contiguous() and hasattr(argument, "contiguous") and hasattr(argument, "copy_"):
        whole = argument.detach().contiguous()
        inner, copy_back = as_tensor(parameter, whole, alignment, device)

        def scatter() -> None:
            if copy_back is not None:
                copy_back()
            argument.copy_(whole)

        return inner, scatter if parameter.written or parameter.exposed else None
    if tensor.data_ptr() % alignment == 0:
        return tensor, None
    aligned = tensor.copyto(tensor.device)
    return aligned, (lambda: aligned.copyto(tensor)) if parameter.written or parameter.exposed else None


def _is_shared(argument: Any, alignment: int) -> bool:
    """Whether compiled code reads a tensor of TVM or torch as it is."""
    if isinstance(argument, tvm.runtime.Tensor):
        return bool(argument.data_ptr() % alignment == 0)
    if not hasattr(argument, "is_contiguous") or not hasattr(argument, "numel"):
        return False
    return bool(argument.numel() and argument.is_contiguous() and argument.data_ptr() % alignment == 0)


def is_cpu(device: tvm.runtime.Device) -> bool:
    return bool(device.dlpack_device_type() == tvm.cpu().dlpack_device_type())


def _numpy_tensor(parameter: Parameter, array: np.ndarray[Any, Any], device: tvm.runtime.Device) -> Passed:
    is_plain = array.dtype.isbuiltin == 1 and array.dtype.kind in "biuf"  # float8_e5m2 of ml_dtypes says that it is "f"
    shareable = array.flags.c_contiguous and array.flags.writeable and is_plain
    if is_cpu(device) and shareable and array.flags.aligned:
        return tvm_ffi.from_dlpack(array), None
    tensor = tvm.runtime.tensor(array, device=device)

    def copy_back() -> None:
        array[...] = tensor.numpy()

    return tensor, copy_back if (parameter.written or parameter.exposed) and array.flags.writeable else None


def _check_writable(parameter: Parameter, argument: Any) -> None:
    where = f"parameter {parameter}"
    if isinstance(argument, np.ndarray) and not argument.flags.writeable:
        raise InputError("an array that can be written", "a read-only array", where, "pass a copy: array.copy()")
    if getattr(argument, "requires_grad", False):
        hint = "pass tensor.detach(): what a compiled function does is not recorded for gradients"
        raise InputError("a tensor that requires no gradient", "one that does", where, hint)


def memory_of(array: Any, itemsize: int) -> np.ndarray[Any, Any]:
    """An array for NumPy, which is not to look at its elements: they may be a GPU's."""
    if isinstance(array, np.ndarray):
        return array
    tensor: Any = array if hasattr(array, "data_ptr") else tvm_ffi.from_dlpack(array)
    strides = tensor.stride() if hasattr(tensor, "stride") else tensor.strides
    described = {"version": 3, "typestr": f"|V{itemsize}", "data": (tensor.data_ptr(), False)}
    described |= {"shape": tuple(tensor.shape), "strides": tuple(stride * itemsize for stride in strides)}
    return np.asarray(SimpleNamespace(__array_interface__=described))


def overlap(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], most_work: int | None = None) -> bool:
    """Whether two arrays have a byte in common; also where NumPy needs more work than that to find out."""
    try:
        return np.shares_memory(one, other, max_work=most_work)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _memory(parameter: Parameter, array: Any) -> np.ndarray[Any, Any]:
    return memory_of(array, on_cpus(parameter.dtype))


def check_apart(name: str, parameters: Sequence[Parameter], arguments: Sequence[Any], passed: Sequence[Passed]) -> None:
    """Raises where an output shares memory with another argument, which may be read after that was written.

    Inputs that were copied share none.
    """
    spans: list[tuple[Parameter, Any, int, int]] = []
    for parameter, argument, (tensor, copy_back) in zip(parameters, arguments, passed, strict=True):
        if copy_back is not None:
            spans.append((parameter, argument, *byte_bounds(_memory(parameter, argument))))
        elif parameter.shape is not None and hasattr(tensor, "data_ptr"):
            start = tensor.data_ptr()
            spans.append((parameter, argument, start, start + (parameter.size or parameter.size_of(tensor.shape))))
    for one, output, first, end in spans if len(spans) > 1 else ():
        for other, argument, start, to in spans if one.written and first < end else ():
            if start < end and first < to and start < to and other is not one:
                if not overlap(_memory(one, output), _memory(other, argument)):
                    continue  # columns beside each other
                places = f"{other} at {start:#x} to {to:#x} and {one} at {first:#x} to {end:#x}"
                hint = "pass memory of its own for each output: a copy of the input, if it is to be written over"
                raise InputError("outputs that share no memory with other arguments", places, f"call of `{name}`", hint)


def problem(
    name: str, parameters: Sequence[Parameter], device: tvm.runtime.Device, arguments: Sequence[Any]
) -> CascadeError | None:
    """The problem of a failed call, where its arguments show one."""
    if unfit := misfit(name, parameters, arguments):
        return unfit
    kind = device.dlpack_device_type()
    if not is_cpu(device) and not device.exist:
        hint = "run it where there is one: export_library(path) here, tvm_ffi.load_module(path) there"
        return DeviceError("a GPU", f"no {device.type.upper()} device here", f"call of `{name}`", hint)
    for parameter, argument in zip(parameters, arguments, strict=True):
        if parameter.shape is not None and not isinstance(argument, np.ndarray):
            tensor = tvm_ffi.from_dlpack(argument)
            where = f"parameter {parameter} of `{name}`"
            if tensor.device.dlpack_device_type() != kind:
                return InputError(f"a tensor on {device}", f"one on {tensor.device}", where, "copy it there")
            if not tensor.is_contiguous():
                return InputError("a compact tensor", f"strides {tuple(tensor.strides)}", where, "pass a copy")
    return None


def misfit(name: str, parameters: Iterable[Parameter], arguments: Iterable[Any]) -> InputError | None:
    """The first argument of another dtype or shape than its parameter's."""
    extents: dict[str, int] = {}
    for parameter, argument in zip(parameters, arguments, strict=True):
        if parameter.shape is not None and (told := _mismatch(parameter, argument, extents)):
            return InputError(told[0], told[1], f"parameter {parameter} of `{name}`", told[2])
    return None


def _mismatch(parameter: Parameter, argument: Any, extents: dict[str, int]) -> tuple[str, str, str] | None:
    """(expected, found, remedy) of dtype and shape; symbolic extents are those that were seen first."""
    if not hasattr(argument, "__dlpack__"):
        return f"a {parameter.dtype} tensor", type(argument).__name__, "pass an array of NumPy, torch or TVM"
    array = argument if hasattr(argument, "dtype") else tvm_ffi.from_dlpack(argument)
    if (found := dtype_name(array)) != parameter.dtype:
        return f"a {parameter.dtype} tensor", found, f"convert it to {parameter.dtype}, or write the program in {found}"
    expected, shape = parameter.shape or (), tuple(int(extent) for extent in array.shape)
    if len(shape) == len(expected):
        known = [extents.setdefault(e, n) if isinstance(e, str) else e for e, n in zip(expected, shape, strict=True)]
        if all(a == b for a, b in zip(known, shape, strict=True)):
            return None
        expected = tuple(f"{e} = {n}" if isinstance(e, str) else e for e, n in zip(expected, known, strict=True))
    hint = "compile the program for this shape, or with extents that are variables: tvm.tirx.Var('n', 'int64')"
    return f"shape {_text(expected)}", _text(shape), hint


def _text(shape: Sequence[int | str]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype of that name as NumPy has it, bfloat16 and the float8 types by way of ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, name, name))


def dtype_name(array: Any) -> str:
    """The dtype of an array in TVM's words, which are NumPy's; torch writes torch.float32."""
    return str(array.dtype).removeprefix("torch.")


# What compiled code takes for granted of a tensor's address: on CPUs, that its elements are aligned.
#
# TVM takes each parameter for aligned to 64 bytes, without looking, and an aligned load of one that is not ends the
# process. Arrays of NumPy are aligned to 16 bytes, slices to an element. Loads that allow for any address take the same
# time where data are aligned. Kernels of GPUs read 16 bytes at a time, or by TMA, and need the alignment.


ON_GPUS = 64
"""Bytes that kernels of GPUs take tensors to be aligned to."""


def on_cpus(dtype: str) -> int:
    """Bytes that code for CPUs takes tensors of a dtype to be aligned to."""
    return max(1, tvm_ffi.dtype(dtype).itemsize)


def of_any_address(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with parameters of which no more is taken for granted than that whole elements are aligned.

    Buffers that are declared over their memory, or match a part of it, are no better aligned.
    """
    given = [param for param in func.params if tirx.is_buffer_var(param)]
    views = (name for name, owners in Memory(func.body).owners.items() if any(among(param, owners) for param in given))
    placed = {buffer: _of_elements(buffer) for buffer in (*given, *views) if tirx.is_buffer_var(buffer)}
    params = [placed.get(param, param) for param in func.params]
    body = tvm_ffi.structural_map(func.body, (ir.Var, lambda var: placed.get(var, var)))
    return tirx.PrimFunc(params, body, func.ret_type, attrs=func.attrs)


def _of_elements(buffer: ir.Var) -> ir.Var:
    kind, dtype = buffer.ty, dtype_of(buffer)
    return tirx.decl_buffer(
        kind.shape,
        dtype,
        name=buffer.name,
        strides=kind.strides or None,
        elem_offset=kind.elem_offset,
        scope=kind.storage_scope,
        data_alignment=on_cpus(dtype),
        offset_factor=kind.offset_factor,
        layout=kind.layout,
    )
