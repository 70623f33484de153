"""Arrays for kernels under test: amid guards, and said to be on a GPU."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi

Array = np.ndarray[Any, Any]

_GUARD = 4096
"""Bytes before and after an array; what is read there is NaN."""

_POISON = 0xFF
_ALIGNMENT = 256
_CUDA = 2
_BOOL = (6, 8)
_NARROW = {"bfloat16": (4, 16), "float8_e4m3fn": (10, 8), "float8_e5m2": (12, 8)}


class _Header(ctypes.Structure):
    """The first fields of DLPack's DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Guarded:
    """An array amid guards.

    Attributes
    ----------
    storage : all bytes.
    array : the part between the guards.
    """

    storage: Array
    array: Array

    @staticmethod
    def poisoned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Guarded:
        """An array of NaNs, or of numbers whose bits are all ones."""
        size = int(np.prod(shape)) * dtype.itemsize
        storage = np.full(size + 2 * _GUARD + _ALIGNMENT, _POISON, np.uint8)
        start = _GUARD + -(storage.ctypes.data + _GUARD) % _ALIGNMENT
        return Guarded(storage, storage[start : start + size].view(dtype).reshape(shape))

    @staticmethod
    def copy(array: Array) -> Guarded:
        """A copy of an array."""
        guarded = Guarded.poisoned(array.shape, array.dtype)
        guarded.array[...] = array
        return guarded

    def guards_hold(self) -> bool:
        """Whether nothing around the array was written."""
        start = self.array.ctypes.data - self.storage.ctypes.data
        around = self.storage[:start], self.storage[start + self.array.nbytes :]
        return all(bool((part == _POISON).all()) for part in around)

    def holds(self, array: Array) -> bool:
        """Whether the array has the bits of another."""
        return self.array.tobytes() == array.tobytes()

    def on_device(self) -> Any:
        """The array for TVM, which takes it to be on a GPU."""
        return tvm_ffi.from_dlpack(self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, 0

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self.array.view(f"u{self.array.itemsize}").__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        header = _Header.from_address(pointer(capsule, b"dltensor"))
        header.device_type = _CUDA
        header.code, header.bits = self._element()
        header.strides = None  # compact; NumPy gives empty arrays others
        return capsule

    def _element(self) -> tuple[int, int]:
        """DLPack's code and width of the elements."""
        dtype = self.array.dtype
        if dtype.name in _NARROW:
            return _NARROW[dtype.name]
        return _BOOL if dtype == np.bool_ else ({"i": 0, "u": 1, "f": 2}[dtype.kind], 8 * dtype.itemsize)
