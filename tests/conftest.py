"""Settings of the whole test run: the same draws every time, and no options left over from the user's shell."""

from __future__ import annotations

import gc
import os

import hypothesis
import pytest

# Derandomised: a failure seen once is seen again. No deadline: the first example of a test often compiles.
hypothesis.settings.register_profile("tvm-cascade", derandomize=True, deadline=None)
hypothesis.settings.load_profile("tvm-cascade")


def pytest_collection_finish() -> None:
    """Collects garbage rarely: what imports and SymPy's caches hold is long-lived."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(autouse=True)
def _no_preset_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("TVM_CASCADE_"):
            monkeypatch.delenv(name)
