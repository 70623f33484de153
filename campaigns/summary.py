"""Summary tables of a campaign: counts by verdict and code, derivation times, findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from campaigns.trial import Record

SLOWEST = 5
FINDINGS_SHOWN = 40


def findings(records: Iterable[Record]) -> list[Record]:
    """The trials in which something went wrong."""
    return [record for record in records if record.finding]


def unknown_share(records: Iterable[Record]) -> float:
    """The share of trials without findings in which nothing was shown either way."""
    verdicts = [record.verdict for record in records if not record.finding]
    return verdicts.count("unknown") / len(verdicts) if verdicts else 0.0


def summary(records: Iterable[Record]) -> RenderableType:
    """All that a reader wants to know."""
    every = list(records)
    parts: list[RenderableType] = []
    for kind in ("algebra", "program", "gpu"):
        of_kind = [record for record in every if record.kind == kind]
        if of_kind:
            parts += [_counts(kind, of_kind), _times(of_kind), Text("")]
    wrong = findings(every)
    parts.append(Text(f"findings: {len(wrong)}"))
    parts += [Text(f"  {r.kind} seed {r.seed}: {r.finding}: {r.detail}") for r in wrong[:FINDINGS_SHOWN]]
    return Group(*parts)


def _counts(kind: str, records: list[Record]) -> Table:
    table = Table(f"{kind} trials", "code", "count", "share", box=None)
    counts = Counter((r.finding or r.verdict, r.code) for r in records)
    for (verdict, code), count in sorted(counts.items(), key=lambda item: (item[0][0], -item[1])):
        table.add_row(verdict, code, str(count), f"{100 * count / len(records):.2f} %")
    table.add_row("all", "", str(len(records)), f"unknown {100 * unknown_share(records):.2f} %")
    return table


def _times(records: list[Record]) -> Text:
    timed = sorted((r for r in records if r.seconds), key=lambda r: r.seconds)
    if not timed:
        return Text("")
    middle, late = timed[len(timed) // 2].seconds, timed[int(0.99 * (len(timed) - 1))].seconds
    slowest = ", ".join(f"{r.seconds:.2f} s (seed {r.seed})" for r in reversed(timed[-SLOWEST:]))
    return Text(f"derivation: median {middle:.2f} s, 99 % within {late:.2f} s, slowest {slowest}")
