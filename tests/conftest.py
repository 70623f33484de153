"""Settings of the whole test run: the same draws every time, no options from the user's shell, no code from disk."""

from __future__ import annotations

import gc
import importlib.util
import inspect
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# Derandomised: a failure seen once is seen again. No deadline: the first example of a test often compiles.
hypothesis.settings.register_profile("tvm-cascade", derandomize=True, deadline=None)
hypothesis.settings.load_profile("tvm-cascade")


NO_CACHE = {"TVM_CASCADE_CACHE_MIB": "0"}
"""Compiled code is neither read from disk nor kept there: tests are of the code as it is, and of what they changed."""

os.environ.update(NO_CACHE)


XDIST = importlib.util.find_spec("xdist")
if XDIST is not None and XDIST.origin:  # a worker runs this file, which `inspect` would search for at each PrimFunc
    inspect.modulesbyfile.setdefault(str(Path(XDIST.origin).with_name("remote.py")), "xdist.remote")


def pytest_collection_finish() -> None:
    """Collects garbage rarely: what imports and SymPy's caches hold is long-lived."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(autouse=True)
def _no_preset_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("TVM_CASCADE_") and name not in NO_CACHE:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _plain_logger() -> Iterator[None]:
    """A tuning run of MetaSchedule leaves its logger apart from the root's, and pytest then adds handlers to it.

    They have no names, which the next run in the process stumbles over.
    """
    yield
    logger = logging.getLogger("tvm.s_tir.meta_schedule")
    logger.propagate = True
    logger.handlers.clear()
