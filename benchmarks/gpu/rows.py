"""From a workload to its table on a GPU: each row is prepared, checked, and timed if it passed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.gpu import check
from benchmarks.gpu.entry import GpuEntry
from benchmarks.gpu.memory import Memory
from benchmarks.gpu.peers import OWN
from benchmarks.gpu.prepared import Prepare, Prepared
from benchmarks.gpu.problems import AnyProblem, problem_class
from benchmarks.gpu.record import GpuReport, GpuRow
from benchmarks.gpu.timing import Clock, GpuPlan, measure
from benchmarks.gpu.torch_peers import forget_compiled
from tvm_cascade.corpus.check import Status, finite, judged, told
from tvm_cascade.corpus.forms import Absent
from tvm_cascade.evaluate.tolerance import Comparison


@dataclass
class Bench:
    """What the tables of a suite share.

    Attributes
    ----------
    torch, device : where everything runs.
    peers : the rows.
    clock, plan : how they are timed.
    seed : of the inputs.
    memory : the card's bandwidths; None where they do not matter.
    """

    torch: Any
    device: str
    peers: Mapping[str, Prepare]
    clock: Clock
    plan: GpuPlan = field(default_factory=GpuPlan)
    seed: int = 0
    memory: Memory | None = None
    _oracle: dict[object, Comparison] = field(default_factory=dict)

    def report(self, entry: GpuEntry) -> GpuReport:
        """The table of a workload; what fails is a row with its reason."""
        workload, limit = entry.workload, None
        try:
            program = workload.program
            flops, moved = program.flops, program.compulsory_bytes
            limit = None if self.memory is None else self.memory.seconds(program)
            rows = self._rows(entry)
        except Exception as error:  # one program that cannot be built must not hide the others
            flops = moved = 0
            rows = [GpuRow(name, Status.FAILED, f"no program: {told(error)}") for name in self.peers]
        return GpuReport(
            label=entry.label,
            groups=entry.groups,
            source=workload.source,
            shape=dict(workload.shape),
            dtype=workload.dtype,
            flops=flops,
            bytes=moved,
            rows=tuple(rows),
            limit_s=limit,
        )

    def _rows(self, entry: GpuEntry) -> list[GpuRow]:
        try:
            forget_compiled()
            problem = problem_class(entry.workload).drawn(
                self.torch, entry.workload, self.device, self.seed, entry.smallest
            )
            exact = check.Exact(problem)
        except Exception as error:  # such as too little memory, or a device that an earlier kernel has broken
            return [GpuRow(name, Status.FAILED, f"no reference: {told(error)}") for name in self.peers]
        rows: dict[str, GpuRow] = {}
        programs: dict[str, Prepared] = {}
        for name, prepare in self.peers.items():
            rows[name], prepared = self._checked(name, prepare, problem, exact)
            if prepared is not None and rows[name].status is Status.TIMED:
                programs[name] = prepared
        timings = measure({name: program.run for name, program in programs.items()}, self.plan, self.clock)
        for name, timing in timings.items():
            if isinstance(timing, Exception):
                rows[name] = replace(rows[name], status=Status.FAILED, note=f"while timed: {told(timing)}")
            else:
                rows[name] = replace(rows[name], timing=timing)
        return list(rows.values())

    def _checked(
        self, name: str, prepare: Prepare, problem: AnyProblem, exact: check.Exact
    ) -> tuple[GpuRow, Prepared | None]:
        """The row of a program without its time, and the program where there is one."""
        try:
            start = time.perf_counter()
            prepared = prepare(problem)
            if isinstance(prepared, Absent):
                return GpuRow(name, Status.ABSENT, prepared.reason), None
            first = check.result(prepared)
            _wait(self.torch, self.device)
            seconds = time.perf_counter() - start + prepared.ahead_seconds
            row = replace(_judged(name, first, exact), compile_seconds=seconds, configuration=prepared.configuration())
            if name in OWN:
                row = self._closer(row, prepare, problem, prepared, first)
        except Exception as error:  # one program that does not build or run must not hide the others
            return GpuRow(name, Status.FAILED, told(error)), None
        return row, prepared

    def _closer(self, row: GpuRow, prepare: Prepare, problem: AnyProblem, prepared: Prepared, first: Any) -> GpuRow:
        """A row of ours, with its further runs and the oracle's word on a small shape of the program."""
        equal = check.reruns_equal(problem, prepared, first)
        comparison = self._against_oracle(row.name, prepare, problem)
        row = replace(
            row, reruns_equal=equal, oracle_error=finite(comparison.max_error), oracle_allowed=comparison.allowed
        )
        wrong = [] if row.status is Status.TIMED else [row.note]
        wrong += [] if equal else ["further runs gave other bits"]
        wrong += [] if comparison.ok else [f"on a small shape: {comparison.message}"]
        return replace(row, status=Status.WRONG if wrong else Status.TIMED, note="; ".join(wrong))

    def _against_oracle(self, name: str, prepare: Prepare, problem: AnyProblem) -> Comparison:
        """Done once for workloads that come out as the same program at a small size."""
        small = check.twin(problem.workload)
        key = (name, problem.kind, *small.shape.items(), small.dtype)
        if key not in self._oracle:
            self._oracle[key] = check.against_oracle(self.torch, small, prepare, self.device, self.seed)
        return self._oracle[key]


def _judged(name: str, output: Any, exact: check.Exact) -> GpuRow:
    unwritten = int(output.isnan().sum())
    if unwritten:
        return GpuRow(name, Status.WRONG, f"{unwritten} elements are NaN, or were not written")
    return judged(GpuRow(name, Status.TIMED), exact.judge(output))


def _wait(torch: Any, device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()
