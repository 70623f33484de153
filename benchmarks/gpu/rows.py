"""From a workload to its table on a GPU: each row is prepared and checked, and what passed is ready to be timed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.device import Call, Device
from benchmarks.gpu import check
from benchmarks.gpu.prepared import Prepare, Prepared
from benchmarks.gpu.problem import Problem, problem_class
from benchmarks.gpu.torch_peers import forget_compiled
from benchmarks.judge.check import Status, finite, judged, told
from benchmarks.judge.forms import Absent
from benchmarks.record import Report, TimedRow, own
from benchmarks.suites.entry import Entry
from tvm_cascade.evaluate.tolerance import Comparison


@dataclass
class Bench:
    """What the tables of a suite share.

    Attributes
    ----------
    device : where everything runs.
    peers : the rows.
    seed : of the inputs.
    twins : whether ours are compared with the oracle on a small shape too.
    """

    device: Device
    peers: Mapping[str, Prepare]
    seed: int = 0
    twins: bool = True
    _oracle: dict[object, Comparison] = field(default_factory=dict)

    def __call__(self, entry: Entry) -> tuple[Report, dict[str, Call]]:
        """The table of a workload without times, and the calls of the rows that passed; what fails has its reason."""
        workload, memory = entry.workload, self.device.environment.memory
        rows, calls = self._rows(entry)
        report = Report(
            label=entry.label,
            rows=tuple(rows),
            groups=entry.groups,
            source=workload.source,
            shape=dict(workload.shape),
            dtype=workload.dtype,
            flops=workload.program.flops,
            bytes=workload.program.compulsory_bytes,
            limit_s=None if memory is None else memory.seconds(workload.program),
        )
        return report, calls

    def _rows(self, entry: Entry) -> tuple[list[TimedRow], dict[str, Call]]:
        try:
            forget_compiled()
            torch, where = self.device.torch, self.device.name
            problem = problem_class(entry.workload).drawn(torch, entry.workload, where, self.seed, entry.smallest)
            exact = check.Exact(problem)
        except Exception as error:  # such as too little memory, or a device that an earlier kernel has broken
            return [TimedRow(name, Status.FAILED, f"no reference: {told(error)}") for name in self.peers], {}
        rows, calls = [], {}
        for name, prepare in self.peers.items():
            row, prepared = self._checked(name, prepare, problem, exact)
            rows.append(row)
            if prepared is not None and row.status is Status.TIMED:
                calls[name] = prepared.run
        return rows, calls

    def _checked(
        self, name: str, prepare: Prepare, problem: Problem, exact: check.Exact
    ) -> tuple[TimedRow, Prepared | None]:
        """The row of a program without its time, and the program where there is one."""
        try:
            start = time.perf_counter()
            prepared = prepare(problem)
            if isinstance(prepared, Absent):
                return TimedRow(name, Status.ABSENT, prepared.reason), None
            first = check.result(prepared)
            self.device.synchronise()
            seconds = time.perf_counter() - start + prepared.ahead_seconds
            row = replace(_judged(name, first, exact), compile_seconds=seconds)
            row = replace(row, configuration=prepared.configuration(), estimate_s=prepared.estimate())
            if own(name):
                row = self._closer(row, prepare, problem, prepared, first)
        except Exception as error:  # one program that does not build or run must not hide the others
            return TimedRow(name, Status.FAILED, told(error)), None
        return row, prepared

    def _closer(self, row: TimedRow, prepare: Prepare, problem: Problem, prepared: Prepared, first: Any) -> TimedRow:
        """A row of ours, with its further runs and the oracle's word on a small shape of the program."""
        equal = check.reruns_equal(problem, prepared, first)
        wrong = [] if row.status is Status.TIMED else [row.note]
        wrong += [] if equal else ["further runs gave other bits"]
        row = replace(row, reruns_equal=equal)
        if self.twins:
            comparison = self._against_oracle(row.name, prepare, problem)
            row = replace(row, oracle_error=finite(comparison.max_error), oracle_allowed=comparison.allowed)
            wrong += [] if comparison.ok else [f"on a small shape: {comparison.message}"]
        return replace(row, status=Status.WRONG if wrong else Status.TIMED, note="; ".join(wrong))

    def _against_oracle(self, name: str, prepare: Prepare, problem: Problem) -> Comparison:
        """Done once for workloads that come out as the same program at a small size."""
        small = check.twin(problem.workload)
        key = (name, problem.kind, *small.shape.items(), small.dtype)
        if key not in self._oracle:
            self._oracle[key] = check.against_oracle(self.device.torch, small, prepare, self.device.name, self.seed)
        return self._oracle[key]


def _judged(name: str, output: Any, exact: check.Exact) -> TimedRow:
    unwritten = int(output.isnan().sum())
    if unwritten:
        return TimedRow(name, Status.WRONG, f"{unwritten} elements are NaN, or were not written")
    return judged(TimedRow(name, Status.TIMED), exact.judge(output))
