"""The database that is shipped with this package: by release and device, the best designs of tuning sessions."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from tvm import tirx

from tvm_cascade._versions import RELEASE
from tvm_cascade.devices.device import Device
from tvm_cascade.driver.backend import Goal
from tvm_cascade.tuning.keys import device_words
from tvm_cascade.tuning.records import Records, Trial, workload_of

ROOT = Path(__file__).with_name("shipped")
"""A folder for each release, with one for each device: designs of one release may be none, or slow, in another."""


def folder_of(device: Device | str) -> Path:
    """Where the records of this release for a device are, which may be given in words."""
    words = device if isinstance(device, str) else device_words(device)
    return ROOT / RELEASE / re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")


def trials(func: tirx.PrimFunc, goal: Goal) -> list[Trial]:
    """What is shipped of a function: the model's choice, then the best where that is another."""
    folder = folder_of(goal.device)
    return read(folder).trials(workload_of(func, goal)) if folder.is_dir() else []


@lru_cache(maxsize=8)
def read(folder: Path) -> Records:
    return Records(folder)
