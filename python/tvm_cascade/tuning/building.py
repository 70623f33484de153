"""Builds designs to libraries, several at a time, each in a worker with a time limit."""

from __future__ import annotations

import queue
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import tvm
import tvm_ffi

from tvm_cascade.devices.device import Gpu
from tvm_cascade.devices.host import core_count
from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.generation import generate
from tvm_cascade.driver.space import Design, Space
from tvm_cascade.tuning.cold import with_cold
from tvm_cascade.tuning.task import Task, space_for
from tvm_cascade.tuning.worker import TrialError, Worker

_MOST_WORKERS = 6


class Built:
    """A design's library; designs with the same mark are the same program."""

    def __init__(self, library: Path, mark: int) -> None:
        self.library, self.mark = library, mark


class Builder(Protocol):
    """What builds designs."""

    batch: int
    """How many it builds at a time."""

    def build(self, task: Task, designs: Sequence[Design], known: Collection[int] = ()) -> list[Built | TrialError]:
        """Each design's library, or why there is none.

        Parameters
        ----------
        known : marks of programs that need no library: they have one, or failed.
        """
        ...

    def close(self) -> None: ...


class LocalBuilder:
    """Builds in processes of this machine.

    Attributes
    ----------
    builds : what a worker calls, as `build`.

    Parameters
    ----------
    seconds : that one design may take.
    """

    builds = f"{__name__}:build"

    def __init__(self, seconds: float = 120.0, batch: int | None = None) -> None:
        self.batch = batch or max(1, min(_MOST_WORKERS, core_count() // 2))
        self.seconds = seconds
        self._workers = [Worker("build") for _ in range(self.batch)]
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._free.put(worker)

    def build(self, task: Task, designs: Sequence[Design], known: Collection[int] = ()) -> list[Built | TrialError]:
        with ThreadPoolExecutor(self.batch) as pool:
            try:
                return list(pool.map(lambda design: self._one(task, design, frozenset(known)), designs))
            except BaseException:  # an interrupt: nobody waits for what is being built
                self.close()
                raise

    def _one(self, task: Task, design: Design, known: frozenset[int]) -> Built | TrialError:
        worker = self._free.get()
        path = task.folder / f"design_{'_'.join(map(str, design)) or 'only'}.so"
        try:
            return Built(path, worker.call(self.builds, task, design, path, known, seconds=self.seconds))
        except TrialError as error:
            return error
        finally:
            self._free.put(worker)

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()


def build(task: Task, design: Design, path: Path, known: frozenset[int]) -> int:
    """Writes a design's library, in a worker, unless its program is known; returns the mark of its program."""
    return written(space_for(task), task, design, path, known)


def written(space: Space, task: Task, design: Design, path: Path, known: frozenset[int]) -> int:
    """As `build`, of a design of a space of the task's."""
    _, lowered = space.lower(design)
    mod = tvm.IRModule({task.name: lowered.func, **lowered.steps})
    target, mark = task.goal.target, int(tvm_ffi.structural_hash(mod))
    if mark not in known:
        if isinstance(gpu := task.goal.device, Gpu):
            mod = with_cold(mod, task.name, gpu)
        backend_of(target).export(generate(mod, target), mod, target, path)
    return mark
