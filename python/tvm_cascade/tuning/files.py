"""MetaSchedule's database files: sound lines are read, damaged ones are told of, and none is lost."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tvm import s_tir
from tvm_ffi import structural_hash

_WORKLOADS, _RECORDS = "database_workload.json", "database_tuning_record.json"


def read(folder: Path) -> tuple[list[Any], list[str]]:
    """The sound records of a folder, and what is wrong with other lines."""
    database, damaged = s_tir.meta_schedule.database, list[str]()
    workloads: dict[int, Any] = {}
    for number, line in _lines(folder / _WORKLOADS):
        try:
            workloads[number] = database.Workload.from_json(json.loads(line))
        except Exception as error:  # whatever is in a file
            damaged.append(f"{_WORKLOADS}:{number + 1}: {_first(error)}")
    records = []
    for number, line in _lines(folder / _RECORDS):
        try:
            place, told = json.loads(line)
            records.append(database.TuningRecord.from_json(told, workloads[place]))
        except Exception as error:
            damaged.append(f"{_RECORDS}:{number + 1}: {_first(error)}")
    return records, damaged


def _first(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"[:120]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8", errors="replace") as file:
        yield from ((number, line) for number, line in enumerate(file) if line.strip())


def set_aside(folder: Path, records: Sequence[Any]) -> str:
    """Moves a folder's files aside and writes the sound records anew; returns what the moved ones end in."""
    suffix = next(one for k in range(1, 1000) if not (folder / f"{_RECORDS}{(one := f'.damaged-{k}')}").exists())
    for name in (_WORKLOADS, _RECORDS):
        with contextlib.suppress(FileNotFoundError):
            os.replace(folder / name, folder / f"{name}{suffix}")
    write(folder, records)
    return suffix


def write(folder: Path, records: Sequence[Any]) -> None:
    """Writes records in place of what a folder has, file by file."""
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        database = s_tir.meta_schedule.database.JSONDatabase(work_dir=fresh)
        for record in records:
            commit(database, record)
        for name in (_WORKLOADS, _RECORDS):
            os.replace(Path(fresh) / name, folder / name)


def commit(database: Any, record: Any) -> None:
    kept = database.commit_workload(record.workload.mod)
    made = s_tir.meta_schedule.database.TuningRecord(
        record.trace, kept, record.run_secs or None, record.target, record.args_info
    )
    database.commit_tuning_record(made)


def identity(record: Any) -> tuple[int, str]:
    """What copies of one measurement have in common."""
    return structural_hash(record.workload.mod), str(record.as_json())
