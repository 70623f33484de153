"""MetaSchedule without what it loads for other targets."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest


@pytest.fixture(autouse=True)
def no_tensor_intrinsics(monkeypatch: pytest.MonkeyPatch) -> None:
    """TVM parses every intrinsic of every target, for a minute, before it looks at a CPU's space, which uses none."""
    name = "tvm.s_tir.tensor_intrin"
    if name not in sys.modules:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
