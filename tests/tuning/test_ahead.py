"""Batches that are built ahead: in order, the next one while the one before is in use, and no longer than asked for."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from tvm_cascade.driver.space import Design
from tvm_cascade.tuning import worker
from tvm_cascade.tuning.building import Built, built_ahead
from tvm_cascade.tuning.worker import TrialError

TASK: Any = None


class Noting:
    """Notes what is built, and which marks were known then."""

    batch = 2

    def __init__(self) -> None:
        self.begun = {(number,): threading.Event() for number in range(6)}
        self.known, self.closed = list[frozenset[int]](), False

    def build(self, task: object, designs: Sequence[Design], known: Collection[int] = ()) -> list[Built | TrialError]:
        for design in designs:
            self.begun[design].set()
        self.known.append(frozenset(known))
        return [Built(Path(), hash(design)) for design in designs]

    def close(self) -> None:
        self.closed = True


def test_the_next_batch_is_built_while_the_one_before_is_in_use() -> None:
    builder, known, used = Noting(), dict[int, str](), list[Design]()
    every = [(number,) for number in range(6)]
    batches = [every[start : start + 2] for start in (0, 2, 4)]
    for batch, built in built_ahead(builder, TASK, batches, known.keys()):
        following = [design for design in every if design > batch[-1]][:2]
        assert all(builder.begun[design].wait(timeout=30) for design in following)
        assert [one.mark for one in built if isinstance(one, Built)] == [hash(design) for design in batch]
        known |= {hash(design): "" for design in batch}
        used += batch
    assert used == every and not builder.closed
    assert [len(one) for one in builder.known] == [0, 0, 2]


def test_what_nobody_wants_any_more_is_not_waited_for() -> None:
    builder = Noting()
    ahead = built_ahead(builder, TASK, ([(number,)] for number in range(6)), frozenset())
    next(ahead)
    ahead.close()
    assert builder.closed and not builder.begun[3,].is_set()


def test_threads_are_not_bound_to_cores_that_we_may_not_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.os, "cpu_count", lambda: 16)
    monkeypatch.setattr(worker, "core_count", lambda: 2)
    assert worker._threads() == {"TVM_BIND_THREADS": "0"}
    monkeypatch.setattr(worker, "core_count", lambda: 16)
    assert worker._threads() == {}
