"""Summary of a suite: geometric means of the peers' times over ours."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.gpu.peers import OWN
from benchmarks.gpu.record import GpuReport

WHOLE_SUITE = "all"
BEST = "best peer"


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


def peers_of(reports: Sequence[GpuReport]) -> list[str]:
    """The peers that have a time anywhere, in the order of the tables."""
    names = dict.fromkeys(row.name for report in reports for row in report.rows if row.timing is not None)
    return [name for name in names if name not in OWN]


def means(reports: Sequence[GpuReport]) -> list[Mean]:
    """By group, the suite first: against the best peer of each workload, then against each peer."""
    groups = dict.fromkeys([WHOLE_SUITE, *(group for report in reports for group in report.groups)])
    found = []
    for group in groups:
        members = [report for report in reports if group in (WHOLE_SUITE, *report.groups)]
        for peer in (BEST, *peers_of(members)):
            ratios = [report.best_ratio if peer == BEST else report.ratio(peer) for report in members]
            known = [ratio for ratio in ratios if ratio is not None]
            if known:
                mean = statistics.geometric_mean(known)
                found.append(Mean(group, peer, mean, min(known), max(known), len(known)))
    return found
