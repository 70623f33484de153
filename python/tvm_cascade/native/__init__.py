"""The optional native library (`src_cuda/runtime`): GPU properties and measurement helpers.

Nothing else in this package needs it. `python -m tvm_cascade build-native` builds it once, where nvcc and CMake are.
"""

from tvm_cascade.native.device import (
    DeviceProperties,
    Samples,
    device_count,
    device_properties,
    flush_l2,
    max_active_clusters,
    poison,
    time_function,
)
from tvm_cascade.native.library import build, library_path, load, why_absent, why_not_buildable

__all__ = [
    "DeviceProperties",
    "Samples",
    "build",
    "device_count",
    "device_properties",
    "flush_l2",
    "library_path",
    "load",
    "max_active_clusters",
    "poison",
    "time_function",
    "why_absent",
    "why_not_buildable",
]
