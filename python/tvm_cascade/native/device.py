"""The functions of the native library, typed.

What they put on a device goes on the caller's stream: torch's current one where a torch tensor is an argument,
otherwise the one that `tvm_ffi.use_torch_stream` or `tvm_ffi.use_raw_stream` set, by default CUDA's default stream.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi

from tvm_cascade.errors import DeviceError, InputError
from tvm_cascade.native.library import native_function

_BITS_PER_BYTE = 8
_TRANSFERS_PER_CLOCK = 2  # double data rate, which every memory of a GPU has


class _CudaFailure(RuntimeError):
    """A failed call of CUDA as it comes out of the library."""


tvm_ffi.register_error("TvmCascadeCudaError", _CudaFailure)


@dataclass(frozen=True)
class DeviceProperties:
    """What a GPU is.

    Attributes
    ----------
    name : the vendor's.
    arch : as compilers name it, with the suffix of architecture-specific instructions from 9.0 on: "sm_90a".
    multiprocessors : their number.
    l2_bytes, global_bytes : sizes of the L2 cache and of the memory.
    shared_bytes_per_block : that a block may have once its kernel asks for it.
    shared_bytes_per_multiprocessor : that blocks on one multiprocessor share.
    memory_clock_khz, memory_bus_bits : from which the memory's bandwidth follows.
    clock_khz : of the multiprocessors, at most.
    driver_version, runtime_version : 1000·major + 10·minor of the CUDA that the driver supports, and of this library's.
    """

    name: str
    arch: str
    multiprocessors: int
    l2_bytes: int
    shared_bytes_per_block: int
    shared_bytes_per_multiprocessor: int
    global_bytes: int
    memory_clock_khz: int
    memory_bus_bits: int
    clock_khz: int
    driver_version: int
    runtime_version: int

    @property
    def memory_bytes_per_second(self) -> float:
        """The memory's bandwidth on paper."""
        return self.memory_clock_khz * 1e3 * _TRANSFERS_PER_CLOCK * self.memory_bus_bits / _BITS_PER_BYTE


@dataclass(frozen=True)
class Samples:
    """Seconds that each run took on the device, in the order of the runs."""

    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return float(np.median(self.seconds))

    @property
    def spread_s(self) -> tuple[float, float]:
        """The 20th and the 80th percentile."""
        low, high = np.percentile(self.seconds, (20, 80))
        return float(low), float(high)


def device_count() -> int:
    """The number of GPUs.

    Raises
    ------
    NativeLibraryError
        Where there is no native library; so do all functions below.
    DeviceError
        Where a call of CUDA fails, as without a driver; so do all functions below.
    """
    return int(_call("device_count"))


def device_properties(device: int = 0) -> DeviceProperties:
    found = _call("device_properties", device)
    names = [field.name for field in dataclasses.fields(DeviceProperties)]
    return DeviceProperties(**{name: found[name] for name in names})


def max_active_clusters(cluster_blocks: int, shared_bytes: int, threads: int = 128, device: int = 0) -> int:
    """The largest number of clusters that a GPU holds at once.

    Parameters
    ----------
    cluster_blocks : blocks of a cluster; more than eight are asked for as not portable.
    shared_bytes : dynamic shared memory of a block.
    threads : of a block. Registers are not counted.
    """
    return int(_call("max_active_clusters", device, cluster_blocks, shared_bytes, threads))


def flush_l2(device: int = 0) -> None:
    """Evict everything from the L2 cache: writes four times its size, on the caller's stream."""
    _call("flush_l2", device)


def poison(tensor: Any) -> None:
    """Fill a tensor with bytes 0xFF, on the caller's stream: NaN in every float dtype, −1 in signed integers.

    Raises
    ------
    InputError
        When it is no contiguous tensor of a CUDA device.
    """
    try:
        _call("poison", tensor)
    except (TypeError, ValueError) as error:
        raise InputError(
            "a contiguous tensor of a CUDA device", f"{type(tensor).__name__}: {error}", "tensor"
        ) from error


def time_function(func: Callable[..., Any], *args: Any, device: int = 0, runs: int = 20, warmups: int = 3) -> Samples:
    """Times of func(*args) on the device, between two events each, with the L2 cache flushed before each run.

    Parameters
    ----------
    func : a function of tvm-ffi (a compiled kernel) or of Python; tensors reach either as tvm-ffi's.
    args : its arguments; func must launch on the caller's stream.
    runs, warmups : how often it is run, timed and untimed.

    Raises
    ------
    InputError
        When there is nothing to run.
    """
    if runs < 1 or warmups < 0:
        raise InputError("runs >= 1 and warmups >= 0", f"runs={runs}, warmups={warmups}", "time_function")
    milliseconds = _call("time", func, device, runs, warmups, *args)
    return Samples(tuple(float(value) * 1e-3 for value in milliseconds))


def _call(name: str, *args: Any) -> Any:
    function = native_function(name)
    try:
        return function(*args)
    except _CudaFailure as error:
        hint = "check the driver with `nvidia-smi`, and the device's index"
        raise DeviceError("CUDA to succeed", str(error), f"tvm_cascade.native, {name}", hint) from error
