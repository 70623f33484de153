"""`python -m benchmarks.ship FOLDER…`: enters the best designs of tuning sessions into what the package ships."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tvm_ffi import structural_hash

from benchmarks.commands import command
from tvm_cascade._versions import RELEASE
from tvm_cascade.errors import InputError
from tvm_cascade.tuning import files
from tvm_cascade.tuning.records import Records, Trial, best
from tvm_cascade.tuning.shipping import folder_of, read


def ship(sessions: Sequence[Path]) -> dict[Path, int]:
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
                    place = folder_of(told.device), structural_hash(one[0][0].workload.mod)
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="of databases of sessions")


def run(args: argparse.Namespace) -> int:
    """Write what is shipped; returns the exit code, 1 where no session of this release gave a time."""
    if missing := [str(folder) for folder in args.folders if not folder.is_dir()]:
        raise InputError("folders of databases", ", ".join(missing), "benchmarks.ship")
    written = ship(args.folders)
    for folder, count in written.items():
        print(f"{folder} knows {count} functions")
    if not written:
        print("nothing: no session of this release gave a time")
    return 0 if written else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    told = "enter the best designs of tuning sessions into what the package ships, in its sources"
    return command("benchmarks.ship", told, add_arguments, run, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
