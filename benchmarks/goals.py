"""Figures of groups of workloads, and what they are meant to reach, for every suite."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.judge.forms import OURS_UNFUSED, TVM_DEFAULT
from benchmarks.peers import CUBLAS, FLASHINFER, FLASHINFER_FA3, GEMM_ALONE, INDUCTOR, NUMPY, TORCH, TVM_DLIGHT
from benchmarks.record import OURS, Report, own
from benchmarks.suites import cpu, kernels, served

ALL = "all"
"""The group of all workloads of a suite."""

BEST = "best peer"
"""Of each workload, in the place of a peer."""

Figure = Callable[[Report, Sequence[Report]], float | None]
"""Of a workload, beside the others of its suite; None where it has none."""


def members(reports: Sequence[Report], group: str) -> list[Report]:
    """The workloads of a group; a label is a group of one."""
    return [report for report in reports if group in (ALL, report.label, *report.groups)]


def over(*peers: str) -> Figure:
    """The time of a peer over ours, of the first peer that has one."""

    def figure(report: Report, _others: Sequence[Report]) -> float | None:
        ratios = (report.best_ratio if peer == BEST else report.ratio(peer) for peer in peers)
        return next((ratio for ratio in ratios if ratio is not None), None)

    return figure


@dataclass(frozen=True)
class Mean:
    """The ratios of one peer over ours in one group.

    Attributes
    ----------
    group, peer : whose.
    geomean, least, most : of the ratios; over 1 where ours is faster.
    count : of the workloads on which both have a time.
    """

    group: str
    peer: str
    geomean: float
    least: float
    most: float
    count: int


def mean(reports: Sequence[Report], group: str, peer: str) -> Mean | None:
    """The ratios of a peer in a group; None where there are none."""
    found = [ratio for report in members(reports, group) if (ratio := over(peer)(report, reports)) is not None]
    return Mean(group, peer, statistics.geometric_mean(found), min(found), max(found), len(found)) if found else None


def means(reports: Sequence[Report]) -> list[Mean]:
    """By group, the suite first: against the best peer of each workload, then against each peer that has a time."""
    groups = dict.fromkeys([ALL, *(group for report in reports for group in report.groups)])
    timed = dict.fromkeys(row.name for report in reports for row in report.rows if row.timing is not None)
    peers = [BEST, *(name for name in timed if not own(name))]
    return [one for group in groups for peer in peers if (one := mean(reports, group, peer)) is not None]


@dataclass(frozen=True)
class Outcome:
    """One goal with its figure.

    Attributes
    ----------
    group : of workloads.
    text : the goal in words.
    figure : what was measured, in words.
    met : None where nothing was.
    """

    group: str
    text: str
    figure: str
    met: bool | None


@dataclass(frozen=True)
class Goal:
    """A figure of the workloads of a group reaches a bound.

    Attributes
    ----------
    group : of workloads.
    text : what it asks for.
    figure : of a workload.
    bound : what the figures are to reach, or to stay below.
    below : which of the two.
    geomean : whether their geometric mean is, and not each of them.
    shown : how a figure is written.
    labels : of the workloads, where they are no group.
    """

    group: str
    text: str
    figure: Figure
    bound: float
    below: bool = False
    geomean: bool = False
    shown: str = "{:.3f}×"
    labels: tuple[str, ...] = ()

    def outcome(self, reports: Sequence[Report]) -> Outcome | None:
        """The figure over the group; None where nothing of it is in the reports."""
        chosen = [one for one in reports if one.label in self.labels] if self.labels else members(reports, self.group)
        figures = [(value, one.label) for one in chosen if (value := self.figure(one, reports)) is not None]
        if not figures:
            return Outcome(self.group, self.text, "no time", None) if chosen else None
        value, label = (max if self.below else min)(figures)
        told = f" ({label})"
        if self.geomean:
            value, told = statistics.geometric_mean([one for one, _ in figures]), ""
        met = value <= self.bound if self.below else value >= self.bound
        return Outcome(self.group, self.text, f"{self.shown.format(value)}{told} of {len(figures)}", met)


def ratio(group: str, *peers: str, at_least: float, each: bool = False) -> Goal:
    """The time of a peer, of the first that has one, is at least so many times ours."""
    kind = "each" if each else "geomean"
    return Goal(group, f"{kind} at least {at_least:.4g}× over {peers[0]}", over(*peers), at_least, geomean=not each)


def rate(label: str, at_least: float) -> Goal:
    """Ours does at least so many operations a second, in units of 10¹²."""

    def figure(report: Report, _others: Sequence[Report]) -> float | None:
        seconds = report.seconds(report.ours)
        return None if seconds is None or report.flops is None else report.flops / seconds / 1e12

    return Goal(label, f"at least {at_least:g} TF/s", figure, at_least, shown="{:.0f} TF/s")


def share(group: str, at_least: float) -> Goal:
    """Ours moves its compulsory traffic at so much of the memory's bandwidth, on each workload."""
    text = f"each at least {at_least:.0%} of the bandwidth"
    return Goal(group, text, lambda report, _: report.share(report.ours), at_least, shown="{:.0%}")


def compiled(below: float) -> Goal:
    """The first result of every workload is there in so many seconds."""

    def figure(report: Report, _others: Sequence[Report]) -> float | None:
        row = report.row(report.ours)
        return None if row is None else row.compile_seconds

    return Goal(ALL, f"compiled in {below:g} s each", figure, below, below=True, shown="{:.1f} s")


def fused(group: str, below: float) -> Goal:
    """The pass takes at most so many seconds."""
    text = f"fusing takes at most {below:g} s"
    return Goal(group, text, lambda report, _: report.fuse_seconds, below, below=True, shown="{:.2f} s")


def pairs(group: str, labels: Sequence[tuple[str, str]], at_most: float, against: str = OURS) -> Goal:
    """Ours takes at most so many times as long on one workload as ours or a peer on another, for every pair."""
    other = dict(labels)

    def figure(report: Report, reports: Sequence[Report]) -> float | None:
        base = next((one.seconds(against) for one in reports if one.label == other[report.label]), None)
        ours = report.seconds(report.ours)
        return None if base is None or ours is None else ours / base

    theirs = "" if against == OURS else f" of {against}"
    return Goal(group, f"each at most {at_most:g}× the time{theirs}", figure, at_most, below=True, labels=tuple(other))


NEVER_SLOWER = 1 / 1.05
"""What users get over our unfused schedule, at least, on every workload for a CPU."""

_EIGHT_AGAINST_ONE = tuple(
    (served.grouped_label(*size, 8), served.grouped_label(*size, 1)) for size in served.grouped_sizes()
)
_OF_MODELS = ("softmax", "rms_norm", "layer_norm", "cross_entropy")

GOALS: Mapping[str, tuple[Goal, ...]] = {
    "cpu": (
        *(ratio(cpu.LARGE_ATTENTION, peer, at_least=k, each=True) for peer, k in ((TORCH, 1.5), (NUMPY, 2.5))),
        ratio(cpu.LARGE_ATTENTION, TVM_DEFAULT, at_least=50.0, each=True),
        ratio(cpu.LONG, OURS_UNFUSED, at_least=1.3, each=True),
        fused(cpu.LARGE_ATTENTION, 2.0),
        ratio(cpu.RAGGED, TORCH, at_least=1.0),
        ratio(cpu.RAGGED, TORCH, at_least=0.7, each=True),
        ratio(cpu.SINGLE, TORCH, at_least=1.0, each=True),
        *(ratio(group, OURS_UNFUSED, at_least=1.0, each=True) for group in (cpu.RAGGED, cpu.SINGLE, cpu.LARGE_ROWS)),
        ratio(cpu.LARGE_ROWS, NUMPY, at_least=2.0, each=True),
        # Where no rule of dlight takes the program, what runs is TVM's default code.
        ratio(cpu.LARGE_ROWS, TVM_DLIGHT, TVM_DEFAULT, at_least=1.5, each=True),
        ratio(cpu.OTHERS, OURS_UNFUSED, at_least=NEVER_SLOWER, each=True),
    ),
    "prefill": (
        ratio("d128 full, length ≥ 2048", BEST, at_least=1.05),
        ratio("d128 full, length ≥ 2048", BEST, at_least=1.0, each=True),
        rate("d128s4096", 680),
        ratio("d128 causal, length ≥ 2048", BEST, at_least=1.05),
        ratio("d64 full", BEST, at_least=1.1),
        ratio("d64 causal", BEST, at_least=1.1),
        ratio("length < 2048", BEST, at_least=1.0),
        compiled(10.0),
    ),
    "mha": (ratio(ALL, BEST, at_least=1.0, each=True), compiled(10.0)),
    "neptune": (
        *(ratio(name, FLASHINFER, at_least=1.1) for name in ("PF_ALIBI", "PF_SOFTCAP", "PF_WINDOWED")),
        *(
            ratio(name, "flex", at_least=k)
            for name, k in (("PF_ALIBI", 1.3), ("PF_SOFTCAP", 2.0), ("PF_WINDOWED", 2.0))
        ),
        compiled(10.0),
    ),
    "variance": (share(kernels.STREAMED, 0.9), ratio(kernels.SHORT, INDUCTOR, at_least=1.2, each=True)),
    "inertia": (
        share(kernels.STREAMED, 0.9),
        ratio(kernels.SHORT, INDUCTOR, at_least=1.2, each=True),
        ratio(kernels.LARGEST_INERTIA, INDUCTOR, at_least=5.0, each=True),
    ),
    "row": (
        *(ratio(name, INDUCTOR, at_least=1.1, each=True) for name in _OF_MODELS),
        share(kernels.STREAMED, 0.85),
        ratio(kernels.BACKWARD, INDUCTOR, at_least=1.0, each=True),
        ratio(kernels.UNALIGNED, INDUCTOR, at_least=1.1, each=True),
        share(kernels.UNALIGNED_STREAMED, 0.8),
        ratio(kernels.FEW, INDUCTOR, at_least=1.0, each=True),
    ),
    "decode": (
        ratio(served.NEPTUNE, BEST, at_least=1.35),
        ratio(served.NEPTUNE, BEST, at_least=1.03, each=True),
        ratio("DC_ALIBI", "flex", at_least=5.0, each=True),
        ratio(served.REDFUSER, BEST, at_least=1.0, each=True),
        ratio(served.GROUPED, BEST, at_least=1.2),
        ratio(served.GROUPED, BEST, at_least=1.0, each=True),
        pairs("8 queries against 1", _EIGHT_AGAINST_ONE, 1.05),
    ),
    "mla": (
        ratio(served.LATENT, FLASHINFER, at_least=1.35),
        ratio(served.LATENT, FLASHINFER, at_least=1.1, each=True),
        rate("L3", 540),
        share(served.heads_group(served.LEAST_HEADS), 0.9),
    ),
    "paged": (
        *(ratio(served.PAGED, peer, at_least=1.1, each=True) for peer in (FLASHINFER, FLASHINFER_FA3)),
        pairs("pages against one piece", ((served.page_label(16), served.CONTIGUOUS),), 1.03),
    ),
    "prefix": (share(served.PREFIX, 0.85),),
    "gemm": (
        ratio(served.HALF, CUBLAS, at_least=0.95),
        *(ratio(group, CUBLAS, at_least=0.85, each=True) for group in (served.HALF, served.FLOAT32)),
    ),
    "skinny": (
        ratio(served.SKINNY, CUBLAS, at_least=1.0, each=True),
        share(served.SKINNY, 0.9),
    ),
    **dict.fromkeys(
        ("chain", "ffn"),
        (
            ratio(served.CHAINS, BEST, at_least=1.35),
            ratio(served.CHAINS, BEST, at_least=1.05, each=True),
            ratio(served.MANY_ROWS, BEST, at_least=1.0, each=True),
        ),
    ),
    "loss": (
        *(rate(served.head_label(tokens), 740) for tokens in (4096, 8192)),
        ratio(served.MANY_TOKENS, INDUCTOR, at_least=1.2, each=True),
        share(served.FEW_TOKENS, 0.9),
    ),
    "normgemm": (
        pairs("against the product alone", served.normed_pairs(), 1.053, against=CUBLAS),
        ratio(served.NORMED, INDUCTOR, at_least=1.05, each=True),
    ),
    "moe": (
        ratio(served.TABLE_OF_ROUTERS, GEMM_ALONE, at_least=1.0),
        ratio(served.TABLE_OF_ROUTERS, GEMM_ALONE, at_least=1 / 1.15, each=True),
        *(ratio(served.TABLE_OF_ROUTERS, peer, at_least=3.0) for peer in ("eager", INDUCTOR)),
        ratio(served.FEW_ROUTED, "eager", at_least=2.0, each=True),
    ),
    "quant": (
        ratio(served.PER_TOKEN, INDUCTOR, at_least=1.2),
        ratio(served.PER_TOKEN, INDUCTOR, at_least=1.0, each=True),
        ratio(served.PER_TOKEN, GEMM_ALONE, at_least=0.935),
    ),
}
"""By suite; those without goals are left out."""


def outcomes(suite: str, reports: Sequence[Report]) -> list[Outcome]:
    """Those of a suite's goals of which something was measured, in their order."""
    return [found for goal in GOALS.get(suite, ()) if (found := goal.outcome(reports)) is not None]
