"""Goals of the GPU suites as data, and whether they are reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.goals import Outcome
from benchmarks.goals import evaluate as judged
from benchmarks.gpu import served_suites as served
from benchmarks.gpu.peers import CUBLAS, FLASHINFER, FLASHINFER_FA3, GEMM_ALONE, OURS
from benchmarks.gpu.record import GpuReport
from benchmarks.gpu.suites import (
    BACKWARD,
    FEW,
    LARGEST_INERTIA,
    SHORT,
    STREAMED,
    UNALIGNED,
    UNALIGNED_STREAMED,
)
from benchmarks.gpu.summary import BEST, WHOLE_SUITE, means


@dataclass(frozen=True)
class RatioGoal:
    """The time of a peer is at least so many times ours.

    Attributes
    ----------
    suite, group, peer : whose ratios.
    at_least : the ratio.
    each : whether every workload has to reach it, or their geometric mean.
    """

    suite: str
    group: str
    peer: str
    at_least: float
    each: bool = False

    def outcomes(self, reports: Sequence[GpuReport]) -> list[Outcome]:
        """The ratio over the group, or its least one."""
        kind = "each" if self.each else "geomean"
        text = f"{kind} at least {self.at_least:g}× over {self.peer}"
        mean = next((m for m in means(reports) if (m.group, m.peer) == (self.group, self.peer)), None)
        if mean is None:
            return [Outcome(self.group, text, "no time", None)]
        figure = mean.least if self.each else mean.geomean
        return [Outcome(self.group, text, f"{figure:.3f}× of {mean.count}", figure >= self.at_least)]


@dataclass(frozen=True)
class RateGoal:
    """Ours does at least so many operations a second.

    Attributes
    ----------
    suite, label : of which workload.
    at_least : floating-point operations in a second, in units of 10¹².
    """

    suite: str
    label: str
    at_least: float

    def outcomes(self, reports: Sequence[GpuReport]) -> list[Outcome]:
        """The rate on the workload."""
        text = f"at least {self.at_least:g} TF/s"
        report = next((report for report in reports if report.label == self.label), None)
        row = None if report is None else report.row(OURS)
        if report is None or row is None or row.timing is None:
            return [Outcome(self.label, text, "no time", None)]
        rate = report.flops / row.timing.median_s / 1e12
        return [Outcome(self.label, text, f"{rate:.0f} TF/s", rate >= self.at_least)]


@dataclass(frozen=True)
class ShareGoal:
    """Ours moves its compulsory traffic at so much of the memory's bandwidth, on each workload of a group."""

    suite: str
    group: str
    at_least: float

    def outcomes(self, reports: Sequence[GpuReport]) -> list[Outcome]:
        """The least share of the group."""
        shares = [(share, one.label) for one in reports if self.group in one.groups and (share := one.share(OURS))]
        text = f"each at least {self.at_least:.0%} of the bandwidth"
        if not shares:
            return [Outcome(self.group, text, "no time", None)]
        least, label = min(shares)
        return [Outcome(self.group, text, f"{least:.0%} ({label}) of {len(shares)}", least >= self.at_least)]


@dataclass(frozen=True)
class CompileGoal:
    """The first result of every workload of a suite is there in less than so many seconds."""

    suite: str
    below: float

    def outcomes(self, reports: Sequence[GpuReport]) -> list[Outcome]:
        """The slowest of all."""
        rows = [
            row
            for row in (report.row(OURS) for report in reports)
            if row is not None and row.compile_seconds is not None
        ]
        text = f"compiled in less than {self.below:g} s each"
        if not rows:
            return [Outcome(WHOLE_SUITE, text, "no time", None)]
        slowest = max(row.compile_seconds or 0.0 for row in rows)
        return [Outcome(WHOLE_SUITE, text, f"at most {slowest:.1f} s of {len(rows)}", slowest < self.below)]


@dataclass(frozen=True)
class PairGoal:
    """Ours takes at most so many times as long on one workload as ours or a peer on another, for every pair of them.

    Attributes
    ----------
    suite, group : what the goal is called by.
    pairs : labels of the one and of the other.
    at_most : the ratio of the times.
    against : whose time on the other counts.
    """

    suite: str
    group: str
    pairs: tuple[tuple[str, str], ...]
    at_most: float
    against: str = OURS

    def outcomes(self, reports: Sequence[GpuReport]) -> list[Outcome]:
        """The largest ratio."""
        seconds = {(report.label, who): report.seconds(who) for report in reports for who in (OURS, self.against)}
        ratios = []
        for one, other in self.pairs:
            own, base = seconds.get((one, OURS)), seconds.get((other, self.against))
            if own is not None and base is not None:
                ratios.append((own / base, one))
        theirs = "" if self.against == OURS else f" of {self.against}"
        text = f"each at most {self.at_most:g}× the time{theirs}"
        if not ratios:
            return [Outcome(self.group, text, "no time", None)]
        most, label = max(ratios)
        return [Outcome(self.group, text, f"{most:.3f}× ({label}) of {len(ratios)}", most <= self.at_most)]


Goal = RatioGoal | RateGoal | ShareGoal | CompileGoal | PairGoal

_EIGHT_AGAINST_ONE = tuple(
    (served.grouped_label(*size, 8), served.grouped_label(*size, 1)) for size in served.grouped_sizes()
)
_MODELS_ROWS = ("softmax", "rms_norm", "layer_norm", "cross_entropy")

GOALS: tuple[Goal, ...] = (
    RatioGoal("prefill", "d128 full, length ≥ 2048", BEST, 1.05),
    RatioGoal("prefill", "d128 full, length ≥ 2048", BEST, 1.0, each=True),
    RateGoal("prefill", "d128s4096", 680),
    RatioGoal("prefill", "d128 causal, length ≥ 2048", BEST, 1.05),
    RatioGoal("prefill", "d64 full", BEST, 1.1),
    RatioGoal("prefill", "d64 causal", BEST, 1.1),
    RatioGoal("prefill", "length < 2048", BEST, 1.0),
    CompileGoal("prefill", 10.0),
    RatioGoal("mha", WHOLE_SUITE, BEST, 1.0, each=True),
    CompileGoal("mha", 10.0),
    RatioGoal("neptune", "PF_ALIBI", "flashinfer", 1.1),
    RatioGoal("neptune", "PF_SOFTCAP", "flashinfer", 1.1),
    RatioGoal("neptune", "PF_WINDOWED", "flashinfer", 1.1),
    RatioGoal("neptune", "PF_ALIBI", "flex", 1.3),
    RatioGoal("neptune", "PF_SOFTCAP", "flex", 2.0),
    RatioGoal("neptune", "PF_WINDOWED", "flex", 2.0),
    CompileGoal("neptune", 10.0),
    *(ShareGoal(suite, STREAMED, 0.9) for suite in ("variance", "inertia")),
    *(RatioGoal(suite, SHORT, "inductor", 1.2, each=True) for suite in ("variance", "inertia")),
    RatioGoal("inertia", LARGEST_INERTIA, "inductor", 5.0, each=True),
    *(RatioGoal("row", name, "inductor", 1.1, each=True) for name in _MODELS_ROWS),
    ShareGoal("row", STREAMED, 0.85),
    RatioGoal("row", BACKWARD, "inductor", 1.0, each=True),
    RatioGoal("row", UNALIGNED, "inductor", 1.1, each=True),
    ShareGoal("row", UNALIGNED_STREAMED, 0.8),
    RatioGoal("row", FEW, "inductor", 1.0, each=True),
    RatioGoal("decode", served.NEPTUNE, BEST, 1.35),
    RatioGoal("decode", served.NEPTUNE, BEST, 1.03, each=True),
    RatioGoal("decode", "DC_ALIBI", "flex", 5.0, each=True),
    RatioGoal("decode", served.REDFUSER, BEST, 1.0, each=True),
    RatioGoal("decode", served.GROUPED, BEST, 1.2),
    RatioGoal("decode", served.GROUPED, BEST, 1.0, each=True),
    PairGoal("decode", "8 queries against 1", _EIGHT_AGAINST_ONE, 1.05),
    RatioGoal("mla", served.LATENT, FLASHINFER, 1.35),
    RatioGoal("mla", served.LATENT, FLASHINFER, 1.1, each=True),
    RateGoal("mla", "L3", 540),
    ShareGoal("mla", served.heads_group(served.LEAST_HEADS), 0.9),
    *(RatioGoal("paged", served.PAGED, peer, 1.1, each=True) for peer in (FLASHINFER, FLASHINFER_FA3)),
    PairGoal("paged", "pages against one piece", ((served.page_label(16), served.CONTIGUOUS),), 1.03),
    ShareGoal("prefix", served.PREFIX, 0.85),
    RatioGoal("gemm", served.HALF, CUBLAS, 0.95),
    RatioGoal("gemm", served.HALF, CUBLAS, 0.85, each=True),
    RatioGoal("gemm", served.FLOAT32, CUBLAS, 0.85, each=True),
    *(RateGoal("loss", served.head_label(tokens), 740) for tokens in (4096, 8192)),
    RatioGoal("loss", served.MANY_TOKENS, "inductor", 1.2, each=True),
    ShareGoal("loss", served.FEW_TOKENS, 0.9),
    PairGoal("normgemm", "against the product alone", served.normed_pairs(), 1.053, against=CUBLAS),
    RatioGoal("normgemm", served.NORMED, "inductor", 1.05, each=True),
    RatioGoal("moe", served.TABLE_OF_ROUTERS, GEMM_ALONE, 1.0),
    RatioGoal("moe", served.TABLE_OF_ROUTERS, GEMM_ALONE, 1 / 1.15, each=True),
    *(RatioGoal("moe", served.TABLE_OF_ROUTERS, peer, 3.0) for peer in ("eager", "inductor")),
    RatioGoal("moe", served.FEW_ROUTED, "eager", 2.0, each=True),
    RatioGoal("quant", served.PER_TOKEN, "inductor", 1.2),
    RatioGoal("quant", served.PER_TOKEN, "inductor", 1.0, each=True),
    RatioGoal("quant", served.PER_TOKEN, GEMM_ALONE, 0.935),
)


def evaluate(suite: str, reports: Sequence[GpuReport], goals: Sequence[Goal] = GOALS) -> list[Outcome]:
    """The outcome of every goal of a suite; without a verdict where nothing was measured."""
    return judged([goal for goal in goals if goal.suite == suite], reports)
