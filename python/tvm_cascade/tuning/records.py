"""Trials in MetaSchedule's JSON database: the unfused function as workload, a design as a trace that annotates it.

The annotation of the root block has the values of knobs in words, by which a design is replayed: places among values
may move from release to release. The workload carries what it was tuned for, since the database looks at no target.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import tvm
from tvm import s_tir, tirx
from tvm_ffi import structural_equal, structural_hash

from tvm_cascade._versions import RELEASE
from tvm_cascade.driver.backend import Goal
from tvm_cascade.driver.space import NOISE
from tvm_cascade.errors import InputError
from tvm_cascade.tuning import files
from tvm_cascade.tuning.keys import device_words, tuned_for

Database: TypeAlias = s_tir.meta_schedule.database.Database

_TRIAL, _TUNED_FOR = "tvm_cascade.trial", "tvm_cascade.tuned_for"


@dataclass(frozen=True)
class Trial:
    """One design that was tried.

    Attributes
    ----------
    words : the values of its knobs.
    seconds : measured; None where it failed.
    estimate : of the model; 0 where it knows none.
    failed : the stage that it failed in (build, limit, crash, run, check); empty where it did not.
    reason : why it failed.
    in_turns : it was measured once more, in turns with the best.
    same : it gives the program of a trial before it, whose outcome it has; it counts for no trial.
    kind : of the function, see `keys`; empty where functions of other lengths take nothing over.
    sizes : of symbolic extents, by name, that it was measured at.
    when, device, release : the day, the device and the release of this package that it was measured with; empty where
        it is not on record.
    """

    words: dict[str, str]
    seconds: float | None = None
    estimate: float = 0.0
    failed: str = ""
    reason: str = ""
    in_turns: bool = False
    same: bool = False
    kind: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    when: str = field(default="", compare=False)
    device: str = field(default="", compare=False)
    release: str = field(default="", compare=False)

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(self.words.items()))


class Records:
    """The trials of a database: of a folder, of MetaSchedule's own object, or of nothing that lasts."""

    def __init__(self, database: str | Path | Database | None, *, write: bool = False) -> None:
        self._writes: Database | None = None
        self._found: list[Any] = []
        if isinstance(database, (str, Path)):
            folder = Path(database)
            self._found, damaged = files.read(folder)
            if damaged:
                kept = f"; the files as they were end in {files.set_aside(folder, self._found)}" if write else ""
                told = f"{folder}: {len(damaged)} lines are damaged and left out ({damaged[0]}){kept}"
                warnings.warn(told, stacklevel=3)
            if write:
                folder.mkdir(parents=True, exist_ok=True)
                self._writes = s_tir.meta_schedule.database.JSONDatabase(work_dir=str(folder))
        elif database:
            self._found, self._writes = list(database.get_all_tuning_records()), database

    def trials(self, workload: tvm.IRModule) -> list[Trial]:
        """What was tried of a workload, in order."""
        same = self._by_workload.get(structural_hash(workload), [])
        return [trial for record, trial in same if structural_equal(record.workload.mod, workload)]

    @cached_property
    def _by_workload(self) -> dict[int, list[tuple[Any, Trial]]]:
        """The records with their trials, in order, by the hashes of their workloads."""
        found: dict[int, list[tuple[Any, Trial]]] = {}
        for record in self._found:
            if (trial := _trial(record)) is not None:
                found.setdefault(structural_hash(record.workload.mod), []).append((record, trial))
        return found

    def alike(self, kind: str) -> list[tuple[tirx.PrimFunc, list[Trial]]]:
        """Functions of a kind, and what was tried of each, in order."""
        own = [[(record, trial) for record, trial in group if trial.kind == kind] for group in self.groups()]
        return [(group[0][0].workload.mod["main"], [trial for _, trial in group]) for group in own if group]

    def add(self, workload: tvm.IRModule, trial: Trial, goal: Goal) -> None:
        """Writes a trial at once."""
        if self._writes is None:
            return
        kept = self._writes.commit_workload(workload)
        today = datetime.date.today().isoformat()
        trial = dataclasses.replace(trial, when=today, device=device_words(goal.device), release=RELEASE)
        seconds = None if trial.seconds is None else [trial.seconds]
        shapes = None
        if not trial.sizes:  # MetaSchedule knows no symbolic ones
            shapes = s_tir.meta_schedule.arg_info.ArgInfo.from_entry_func(workload, remove_preproc=True)
        trace = _trace(workload, trial)
        made = s_tir.meta_schedule.database.TuningRecord(trace, kept, seconds, goal.target, shapes)
        self._writes.commit_tuning_record(made)

    def groups(self) -> list[list[tuple[Any, Trial]]]:
        """The records of each workload with their trials."""
        return list(self._by_workload.values())

    def absorb(self, other: Records) -> int:
        """Writes what another database has and this one has not; returns how many records that are."""
        assert self._writes is not None
        known = {files.identity(record) for record in self._found}
        fresh = [record for record in other._found if files.identity(record) not in known]
        for record in fresh:
            files.commit(self._writes, record)
        self._found += fresh
        self.__dict__.pop("_by_workload", None)
        return len(fresh)


def workload_of(func: tirx.PrimFunc, goal: Goal) -> tvm.IRModule:
    """The unfused function as the database knows it: with the device and the options that it is tuned for."""
    return tvm.IRModule({"main": func.with_attr("global_symbol", "main").with_attr(_TUNED_FOR, tuned_for(goal))})


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Sizes of symbolic extents in words: n = 64, m = 1024."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


def best(trials: Sequence[Trial], default: dict[str, str] | None = None) -> Trial | None:
    """The design of the least time, by the last measurement of each; the default where it takes hardly more.

    Of a function with symbolic extents, at the sizes that were tuned last.

    Parameters
    ----------
    default : its words, where it is known; by default the first that was tried.
    """
    trials = [trial for trial in trials if trial.sizes == trials[-1].sizes]
    last = {trial.key: trial for trial in trials}
    right = [trial for trial in last.values() if trial.seconds is not None and math.isfinite(trial.seconds)]
    if not right:
        return None
    in_turns = [trial for trial in right if trial.in_turns]
    least = min(in_turns or right, key=lambda trial: trial.seconds or 0.0)
    first = trials[0].key if default is None else tuple(sorted(default.items()))
    same = next((trial for trial in in_turns or right if trial.key == first), None)
    if same is not None and (same.seconds or 0.0) <= NOISE * (least.seconds or 0.0):
        return same
    return least


def _trace(workload: tvm.IRModule, trial: Trial) -> Any:
    schedule = s_tir.Schedule(workload, debug_mask="none")
    told = {name: value for name, value in vars(trial).items() if name == "words" or (value and name != "seconds")}
    # As hexadecimal digits: a trace is written without escapes.
    schedule.annotate(schedule.get_sblock("root"), _TRIAL, json.dumps(told).encode().hex())
    return schedule.trace


def _trial(record: Any) -> Trial | None:
    """The trial of a record; None for those of plain MetaSchedule, which are schedules."""
    for instruction in record.trace.insts:
        if instruction.kind.name == "Annotate" and str(instruction.attrs[0]) == _TRIAL:
            told = json.loads(bytes.fromhex(str(instruction.inputs[1])))
            seconds = [float(one) for one in record.run_secs or ()]
            return Trial(seconds=seconds[0] if seconds else None, **told)
    return None


def check_database(database: object) -> None:
    """Refuse what is no database.

    Raises
    ------
    InputError
        When it is neither a folder nor MetaSchedule's database.
    """
    kinds = (str, Path, s_tir.meta_schedule.database.Database)
    if database is not None and database is not False and not isinstance(database, kinds):
        raise InputError("a MetaSchedule database or a folder", type(database).__name__, "database")
