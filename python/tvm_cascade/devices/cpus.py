"""The table of CPUs by the names that LLVM has for them; one is added by adding its row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tvm_cascade.devices.device import Cpu

_KIB = 1024


@dataclass(frozen=True)
class Caches:
    """What a core has of memory; see `Cpu`."""

    l1_bytes: int = Cpu.l1_bytes
    l2_bytes: int = Cpu.l2_bytes
    levels: tuple[tuple[float, float], ...] = Cpu.levels


CACHES: Mapping[str, Caches] = {
    "znver4": Caches(32 * _KIB, 1024 * _KIB, ((1e6, 128.0), (32e6, 60.0), (math.inf, 20.0))),
}
"""Of Zen 4, the third level is that of eight cores; sums over 8 and 32 MiB read 60 and 24 bytes a ns (measured)."""
