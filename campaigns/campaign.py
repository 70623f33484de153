"""A fuzzing campaign: many trials over worker processes, each record written at once.

The state is a file of JSON lines, one a trial; a campaign that was stopped goes on where it was, and loses at most the
trials that were running. A worker that dies or hangs is a finding of the seed it was at, and is replaced.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

from campaigns.algebra_trial import algebra_trial
from campaigns.gpu_trial import gpu_trial
from campaigns.grammar import draw
from campaigns.ledger_trial import ledger_trial
from campaigns.program_trial import program_trial
from campaigns.trial import Record
from tvm_cascade.errors import InputError

TRIAL_SECONDS = 120.0
"""A trial that takes longer has hung."""

TRIALS_PER_WORKER = 400
"""Workers are replaced now and then: computer algebra keeps what it has computed."""

_WORKER_ENVIRONMENT = {"TVM_NUM_THREADS": "1", "SYMPY_CACHE_SIZE": "20000"}
"""Each worker is one of many on this machine; and SymPy's own cache of 1000 is too small for a derivation (measured:
a tenth of its time)."""

_COLLECT_AFTER = 20_000
"""Objects between two collections of garbage: terms are many, small and rarely in cycles (measured: a twelfth)."""

Task = tuple[str, int]


@dataclass(frozen=True)
class Plan:
    """What a campaign does.

    Attributes
    ----------
    algebra, programs, gpu : trials of each kind; their seeds are `seed`, `seed` + 1, ….
    jobs : worker processes.
    budget : seconds after which no further trial starts; None for no limit.
    """

    algebra: int
    programs: int
    jobs: int
    seed: int = 0
    budget: float | None = None
    gpu: int = 0

    def tasks(self) -> Iterator[Task]:
        """The trials, kinds in turn, so that a campaign that stops early has seen both."""
        counts = {"algebra": self.algebra, "program": self.programs, "gpu": self.gpu}
        for position in range(max(counts.values())):
            for kind, count in counts.items():
                if position * count // max(counts.values()) != (position + 1) * count // max(counts.values()):
                    yield kind, self.seed + position * count // max(counts.values())


class Work(Protocol):
    """What `run_campaign` needs to know of a plan."""

    @property
    def jobs(self) -> int:
        """Worker processes."""

    @property
    def budget(self) -> float | None:
        """Seconds after which no further trial starts; None for no limit."""

    def tasks(self) -> Iterator[Task]:
        """The trials, in order."""


class State:
    """The records of a campaign, in memory and in a file; without a file in memory alone.

    Raises
    ------
    InputError
        When the file holds something else.
    """

    def __init__(self, path: Path | None) -> None:
        self.records: dict[Task, Record] = {}
        self._file = None
        if path is not None:
            if path.exists():
                self._load(path)
            self._file = path.open("a", encoding="utf-8")

    def _load(self, path: Path) -> None:
        lines = path.read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines):
            try:
                record = Record.from_json(json.loads(line))
            except (ValueError, TypeError) as error:
                if number == len(lines) - 1:  # empty, or the line that was being written when the campaign was killed
                    path.write_text("".join(f"{kept}\n" for kept in lines[:-1]), encoding="utf-8")
                    return
                raise InputError("one record of a trial on each line", f"line {number + 1}", str(path)) from error
            self.records[record.kind, record.seed] = record

    def add(self, record: Record) -> None:
        """Keeps a record."""
        self.records[record.kind, record.seed] = record
        if self._file is not None:
            self._file.write(json.dumps(record.to_json()) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()


def run_trial(task: Task) -> Record:
    """One trial, in this process."""
    kind, seed = task
    trials = {"algebra": algebra_trial, "program": program_trial, "gpu": gpu_trial, "ledger": ledger_trial}
    return trials[kind](draw(seed))


def work(tasks: Connection) -> None:
    """What a worker process does: trials, until there is none."""
    gc.set_threshold(_COLLECT_AFTER)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started the campaign ends it, and says so once
    while (task := tasks.recv()) is not None:
        tasks.send(run_trial(task))


class _Worker:
    """A process, the task it is at and since when."""

    def __init__(self, target: Callable[[Connection], None]) -> None:
        # A fresh interpreter: TVM's threads and compilers do not survive a fork.
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process: BaseProcess = context.Process(target=target, args=(other,), daemon=True)
        self.process.start()
        other.close()
        self.task: Task | None = None
        self.since, self.done = 0.0, 0

    def start(self, task: Task) -> None:
        self.task, self.since = task, time.monotonic()
        self.pipe.send(task)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def run_campaign(
    plan: Work,
    state: State,
    progress: Callable[[State, int], None] | None = None,
    target: Callable[[Connection], None] = work,
) -> None:
    """Runs the plan's trials that the state does not have yet.

    Parameters
    ----------
    progress : called after each record, with the state and the number of trials that remain.
    target : what worker processes run.
    """
    os.environ.update(_WORKER_ENVIRONMENT)
    pending = deque(task for task in plan.tasks() if task not in state.records)
    until = time.monotonic() + plan.budget if plan.budget is not None else None
    workers: list[_Worker] = []
    try:
        while True:
            if until is not None and time.monotonic() > until:
                pending.clear()
            while pending and len(workers) < plan.jobs:
                workers.append(_Worker(target))
                workers[-1].start(pending.popleft())
            if not workers:
                return
            for record in _collected(workers):
                state.add(record)
                if progress is not None:
                    progress(state, len(pending))
            workers = _kept_busy(workers, pending)
    finally:
        for worker in workers:
            worker.stop()


def _collected(workers: list[_Worker]) -> Iterator[Record]:
    """Records of trials that ended, one way or the other, in the last moment."""
    wait([worker.pipe for worker in workers], timeout=1.0)
    for worker in workers:
        task = worker.task
        assert task is not None
        try:
            if worker.pipe.poll():
                record: Record = worker.pipe.recv()
                worker.task, worker.done = None, worker.done + 1
                yield record
            elif time.monotonic() - worker.since > TRIAL_SECONDS:
                worker.task, worker.done = None, TRIALS_PER_WORKER
                yield Record(*task, finding="timeout", detail=f"no end within {TRIAL_SECONDS:.0f} s")
        except (EOFError, ConnectionResetError):
            worker.process.join()
            worker.task, worker.done = None, TRIALS_PER_WORKER
            yield Record(*task, finding="crash", detail=f"the process ended with {worker.process.exitcode}")


def _kept_busy(workers: list[_Worker], pending: deque[Task]) -> list[_Worker]:
    """Gives idle workers a task; those that have done enough, or have none to do, are ended."""
    kept = []
    for worker in workers:
        if worker.task is None and (worker.done >= TRIALS_PER_WORKER or not pending):
            worker.stop()
            continue
        if worker.task is None:
            worker.start(pending.popleft())
        kept.append(worker)
    return kept
