"""The database that is shipped with this package: by release and device, the best designs of tuning sessions."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from tvm import tirx
from tvm_ffi import structural_hash

from tvm_cascade._versions import RELEASE
from tvm_cascade.devices.device import Device
from tvm_cascade.driver.backend import Goal
from tvm_cascade.tuning import files
from tvm_cascade.tuning.keys import device_words
from tvm_cascade.tuning.records import Records, Trial, best, workload_of

ROOT = Path(__file__).with_name("shipped")
"""A folder for each release, with one for each device: designs of one release may be none, or slow, in another."""


def folder_of(device: Device | str, root: Path | None = None) -> Path:
    """Where the records of this release for a device are, which may be given in words."""
    words = device if isinstance(device, str) else device_words(device)
    return (root or ROOT) / RELEASE / re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")


def trials(func: tirx.PrimFunc, goal: Goal, root: Path | None = None) -> list[Trial]:
    """What is shipped of a function: the model's choice, then the best where that is another."""
    folder = folder_of(goal.device, root)
    return read(folder).trials(workload_of(func, goal)) if folder.is_dir() else []


@lru_cache(maxsize=8)
def read(folder: Path) -> Records:
    return Records(folder)


def ship(sessions: Sequence[Path], root: Path | None = None) -> dict[Path, int]:
    """Writes the best designs of sessions with this release, beside the times of the model's choices.

    What is shipped of a function gives way to what a session found, and an earlier session to a later one. Left out are
    functions that the model chooses best for, and those whose best design did not take less both times: by itself, and
    in turns with the model's choice.

    Returns
    -------
    dict of Path to int
        How many functions each folder that was written knows.
    """
    chosen: dict[Path, dict[int, list[Any]]] = {}
    for session in sessions:
        found: dict[tuple[Path, int], list[Any]] = {}
        for own in map(_own, Records(session).groups()):
            for one in _by_sizes(own):
                if (told := best([trial for _, trial in one])) is not None:
                    place = folder_of(told.device, root), structural_hash(one[0][0].workload.mod)
                    found.setdefault(place, []).extend(_kept(one, told))
        for (folder, workload), kept in found.items():
            chosen.setdefault(folder, {})[workload] = kept
    return {folder: _write(folder, groups) for folder, groups in chosen.items()}


_Group: TypeAlias = list[tuple[Any, Trial]]
"""Records of a workload, with their trials."""


def _own(group: _Group) -> _Group:
    return [(record, trial) for record, trial in group if trial.release == RELEASE and trial.device]


def _by_sizes(group: _Group) -> list[_Group]:
    """The sessions of a workload, one for each choice of sizes of its symbolic extents."""
    parts: dict[tuple[tuple[str, int], ...], _Group] = {}
    for record, trial in group:
        parts.setdefault(tuple(sorted(trial.sizes.items())), []).append((record, trial))
    return list(parts.values())


def _kept(group: _Group, found: Trial) -> list[Any]:
    """The records of the model's choice and of the best design; none where that did not take less both times."""
    last = {trial.key: record for record, trial in group if trial.seconds is not None}
    default = group[0][1].key
    alone = {trial.key: trial.seconds for _, trial in group if trial.seconds is not None and not trial.in_turns}
    better = found.in_turns and alone.get(found.key, math.inf) < alone.get(default, 0.0)
    return [last[default], last[found.key]] if better else []


def _write(folder: Path, groups: dict[int, list[Any]]) -> int:
    before = {
        structural_hash(group[0][0].workload.mod): [record for record, _ in group]
        for group in (Records(folder).groups() if folder.is_dir() else [])
    }
    groups = {workload: records for workload, records in {**before, **groups}.items() if records}
    folder.mkdir(parents=True, exist_ok=True)
    files.write(folder, [record for records in groups.values() for record in records])
    read.cache_clear()
    return len(groups)
