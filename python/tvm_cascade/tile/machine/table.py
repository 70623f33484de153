"""The table of instruction families."""

from __future__ import annotations

from tvm_cascade.devices.device import Gpu, Instructions
from tvm_cascade.tile.machine.family import Family
from tvm_cascade.tile.machine.mma import MMA
from tvm_cascade.tile.machine.wgmma import WGMMA

FAMILIES: tuple[Family, ...] = (WGMMA, MMA)
"""The fastest first."""

MULTIPLYING: frozenset[Instructions] = frozenset(family.instructions for family in FAMILIES)
"""Any of them is enough for kernels that ask their family for everything."""


def family_of(gpu: Gpu) -> Family:
    """The fastest family that a card has; where it has none, no kernel of any is taken."""
    return next((family for family in FAMILIES if family.instructions in gpu.instructions), WGMMA)
