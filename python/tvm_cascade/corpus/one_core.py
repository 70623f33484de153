"""Limits every numerical library of a worker process to one core."""

from __future__ import annotations

import os

_LIBRARIES = ("TVM_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")


def on_one_core() -> None:
    """Initialises a worker process."""
    os.environ.update(dict.fromkeys(_LIBRARIES, "1"))
