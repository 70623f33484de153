"""Results of a GPU benchmark as plain data; `--json` writes `dataclasses.asdict` of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.environment import Environment
from benchmarks.gpu.memory import Memory
from benchmarks.gpu.peers import OURS, OWN
from benchmarks.record import Table, TimedRow
from tvm_cascade.corpus.check import Status


@dataclass(frozen=True)
class GpuRow(TimedRow):
    """One way to compute a workload on a GPU.

    Attributes
    ----------
    compile_seconds : until the first result was there; None where none came.
    configuration : of the kernel, where it is known.
    reruns_equal : whether further runs gave the same bits; None where that was not looked at.
    oracle_error, oracle_allowed : scaled error against the oracle on a small shape; None where that was not looked at.
    """

    compile_seconds: float | None = None
    configuration: str = ""
    reruns_equal: bool | None = None
    oracle_error: float | None = None
    oracle_allowed: float | None = None


@dataclass(frozen=True)
class GpuReport(Table[GpuRow]):
    """One workload's table.

    Attributes
    ----------
    label, groups : of the entry.
    source, shape, dtype : of the workload.
    flops, bytes : useful operations, and compulsory traffic.
    rows : in the order of the table.
    limit_s : what the compulsory traffic takes at the measured bandwidth; None where that was not measured.
    """

    label: str
    groups: tuple[str, ...]
    source: str
    shape: Mapping[str, int]
    dtype: str
    flops: int
    bytes: int
    rows: tuple[GpuRow, ...]
    limit_s: float | None = None

    @property
    def best_peer(self) -> str | None:
        """The fastest row that is not ours; None where no peer has a time."""
        timed = {row.name: row.timing.median_s for row in self.rows if row.timing and row.name not in OWN}
        return min(timed, key=lambda name: timed[name]) if timed else None

    def ratio(self, peer: str) -> float | None:
        """The time of a peer over ours; None where either has none."""
        theirs, own = self.seconds(peer), self.seconds(OURS)
        return None if theirs is None or own is None else theirs / own

    @property
    def best_ratio(self) -> float | None:
        """The time of the best peer over ours; None where either has none."""
        return None if self.best_peer is None else self.ratio(self.best_peer)

    def share(self, name: str) -> float | None:
        """The share of the memory's bandwidth that a row reaches; None where either is not known."""
        seconds = self.seconds(name)
        return None if seconds is None or self.limit_s is None else self.limit_s / seconds

    @property
    def sound(self) -> bool:
        """Whether no row of ours is wrong or failed; that of a peer is for its authors."""
        return not any(row.status in (Status.WRONG, Status.FAILED) for row in self.rows if row.name in OWN)


@dataclass(frozen=True)
class GpuEnvironment:
    """Where and with what a measurement on a GPU was made.

    Attributes
    ----------
    gpu, driver : the card's name and its driver's version; None where nvidia-smi does not say.
    arch, multiprocessors, l2_bytes : of the card.
    cuda, cudnn : versions of torch's own.
    host : processor, versions, commit and date.
    memory : measured bandwidths; None where they do not matter.
    """

    gpu: str
    driver: str | None
    arch: str
    multiprocessors: int
    l2_bytes: int
    cuda: str
    cudnn: str
    host: Environment
    memory: Memory | None = None
