"""What readers see of the results that are stored: BENCHMARKS.md, and the figures that other pages quote.

`python -m benchmarks.page` writes BENCHMARKS.md, and fills the quotes of README.md and docs. A quote is a comment
`<!-- quote CARD: TEMPLATE -->` with the filled template behind it, up to `<!-- end of quote -->`. In a template
`{SUITE/GROUP: FIGURE}` stands for a figure of a group of workloads, or of one by its label:

    PEER ms, PEER us, PEER TF/s, PEER of limit     of the only workload
    over PEER, least over PEER, most over PEER     the peer's time over ours; its geometric mean, or the extremes
    count over PEER                                of how many workloads

with `ours` as a peer too, and `best peer` where times are compared. `{suites}` is the table of all suites.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.commands import command
from benchmarks.goals import ALL, BEST, mean, members
from benchmarks.judge.check import Status
from benchmarks.record import OURS, RESULTS, SLOWER, Report, Result, stored
from benchmarks.suites import SUITES
from tvm_cascade.errors import InputError

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "BENCHMARKS.md"

OFF = 2.0
"""By which factor an estimate is off that is told."""

WHAT = {
    "cpu": "programs of every kind",
    "redfuser-cpu": "RedFuser's programs, smaller",
    "neptune-cpu": "Neptune's operators, smaller",
    "models": "whole models of PyTorch",
    "prefill": "attention of a whole prompt, bfloat16",
    "float8": "the same with scores of float8",
    "mha": "attention, RedFuser's shapes",
    "neptune": "attention and variants, Neptune's shapes",
    "variance": "variance of rows",
    "inertia": "moments of inertia of rows",
    "row": "softmax, norms, cross-entropy, gradients of these",
    "decode": "attention of one to eight queries over a cache",
    "mla": "latent attention",
    "paged": "attention over pages and uneven lengths",
    "prefix": "attention over keys that sequences share",
    "gemm": "matrix products, nothing fused",
    "skinny": "linear layers of 1 to 128 rows",
    "chain": "product, ReLU, product: FlashFuser's shapes",
    "ffn": "gated feed-forward layers: FlashFuser's shapes",
    "conv": "convolution, ReLU, convolution: FlashFuser's shapes",
    "moe": "routers; the best peer is the matrix product alone",
    "quant": "quantised products; a peer is the product alone",
    "normgemm": "norms into linear layers",
    "loss": "losses from logits that are not stored",
}

_HEAD = f"""# Benchmarks

Made by `python -m benchmarks.page` from `benchmarks/results/`, where every row, time, error and kernel is; a suite is
measured again by the command of its line. Every row is checked against float64 before it is timed, and one that is
wrong has no time. Times are medians over all rounds, in which the programs of a workload take turns; on a GPU the L2
cache is filled with something else before each run. Ratios are the time of the *best* peer of a workload over ours:
over 1, ours is faster. A suite that is measured again tells which workloads take over {SLOWER:g} of the stored time.
"""


def page(results: Sequence[Result]) -> str:
    """BENCHMARKS.md: for each card its suites, every loss by name, and every estimate that is off."""
    cards = dict.fromkeys(result.environment.card for result in results)
    return "\n".join([_HEAD, *(line for card in cards for line in _card(card, results))])


def _card(card: str, results: Sequence[Result]) -> Iterator[str]:
    suites = _in_order([result for result in results if result.environment.card == card])
    yield f"## {card}\n"
    yield "| suite | workloads | geometric mean | least | most | commit | measured | command |"
    yield "| --- | ---: | ---: | ---: | ---: | --- | --- | --- |"
    for result in suites:
        where, found = result.environment, mean(result.reports, ALL, BEST)
        ratios = f"{found.count} | {found.geomean:.3f} | {found.least:.3f} | {found.most:.3f}" if found else "0 | | |"
        told = f"{where.commit or ''} | {where.date[:10]} | `{result.command}`"
        yield f"| {result.suite} | {ratios} | {told} |"
    yield ""
    losses = {result.suite: [(r, f"{one.label} {r:.3f}") for one, r in _ratios(result) if r < 1.0] for result in suites}
    yield from _listed("Slower than the best peer", losses, 1)
    off = {result.suite: [(-f, f"{one.label} {f:.1f}×") for one, f in _misjudged(result)] for result in suites}
    yield from _listed(f"Estimates that are off by more than {OFF:g} times", off, 1)
    bad = {result.suite: [(0.0, label) for label in _unsound(result)] for result in suites}
    yield from _listed("Wrong, failed, or not measured for lack of time", bad, 1)


def _listed(title: str, found: Mapping[str, list[tuple[float, str]]], level: int) -> Iterator[str]:
    """A line for each suite, the worst first, in which the worst is first."""
    lines = sorted((sorted(several), suite) for suite, several in found.items() if several)
    if lines:
        count = sum(len(several) for several, _ in lines)
        yield f"**{title}** ({count})\n"
        yield from (f"- {suite}: {', '.join(told for _, told in several)}" for several, suite in lines)
        yield ""


def _in_order(results: Sequence[Result]) -> list[Result]:
    return sorted(results, key=lambda result: SUITES.index(result.suite))


def _ratios(result: Result) -> Iterator[tuple[Report, float]]:
    return ((report, ratio) for report in result.reports if (ratio := report.best_ratio) is not None)


def _misjudged(result: Result) -> Iterator[tuple[Report, float]]:
    return ((one, factor) for one in result.reports if (factor := one.misjudged) is not None and factor > OFF)


def _unsound(result: Result) -> Iterator[str]:
    for report in result.reports:
        if not report.sound:
            bad = [row for row in report.rows if row.status in (Status.WRONG, Status.FAILED)]
            yield f"{report.label} ({', '.join(f'{row.name} {row.status}' for row in bad)})"
    if result.left_out:
        yield f"{len(result.left_out)} not measured"


QUOTE = re.compile(
    r"(?P<head><!-- quote (?P<card>[\w-]+):(?P<template>.*?)-->)(?P<filled>.*?)(?P<end><!-- end of quote -->)", re.S
)
_FIGURE = re.compile(r"\{(?P<suite>\w[\w-]*)(?:/(?P<group>[^{}:]+): (?P<figure>[^{}]+))?\}")


def quoted(text: str, results: Sequence[Result]) -> str:
    """A page with its quotes filled.

    Raises
    ------
    InputError
        When a quote names what is not stored.
    """

    def filled(quote: re.Match[str]) -> str:
        card = {one.suite: one for one in results if one.environment.slug == quote["card"]}
        template = quote["template"].removeprefix(" ").removesuffix(" ")
        return quote["head"] + _FIGURE.sub(lambda found: _told(card, found), template) + quote["end"]

    return QUOTE.sub(filled, text)


def without_quotes(text: str) -> str:
    """A page without what is filled into it."""
    return QUOTE.sub(lambda quote: quote["head"] + quote["end"], text)


def _told(card: Mapping[str, Result], found: re.Match[str]) -> str:
    if found["suite"] == "suites":
        return _table(list(card.values()))
    reports = members(card[found["suite"]].reports, found["group"]) if found["suite"] in card else []
    told = figure(reports, found["figure"] or "")
    if told is None:
        raise InputError("a figure that is stored", found[0], "a quote", f"it is one of {RESULTS}")
    return told


def _table(results: Sequence[Result]) -> str:
    """The suites, the slowest first."""
    found = [(result.suite, mean(result.reports, ALL, BEST)) for result in results]
    lines = [
        f"| `{suite}` | {WHAT[suite]} | {one.count} | {one.geomean:.3f} | {one.least:.3f} | {one.most:.3f} |"
        for suite, one in sorted(((suite, one) for suite, one in found if one), key=lambda pair: pair[1].geomean)
    ]
    head = "| suite | what | workloads | best peer's time over ours, geometric mean | least | most |"
    return "\n".join([head, "|---|---|---|---|---|---|", *lines])


def figure(reports: Sequence[Report], asked: str) -> str | None:
    """A figure of some workloads, as the head of this file says; None where there is none."""
    kind, over, peer = asked.rpartition("over ")
    if over:
        found = mean(reports, ALL, peer)
        shown = {"": "geomean", "least ": "least", "most ": "most", "count ": "count"}.get(kind)
        value = None if found is None or shown is None else getattr(found, shown)
        return None if value is None else str(value) if isinstance(value, int) else f"{value:.2f}"
    parts = re.fullmatch(r"(.*) (ms|us|TF/s|of limit)", asked)
    if len(reports) != 1 or parts is None:
        return None
    (report,), (name, unit) = reports, parts.groups()
    row = report.ours if name == OURS else report.best_peer or "" if name == BEST else name
    if unit == "of limit":
        return None if (share := report.share(row)) is None else f"{share:.0%}"
    if (seconds := report.seconds(row)) is None:
        return None
    return f"{(report.flops or 0) / seconds / 1e12:.0f}" if unit == "TF/s" else significant(seconds * _UNITS[unit])


_UNITS = {"ms": 1e3, "us": 1e6}


def significant(value: float) -> str:
    """A time as pages have it: to three digits, or to the point."""
    return f"{value:#.3g}" if value < 100 else f"{value:.0f}"


def pages() -> list[Path]:
    """The files that may quote."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--check", action="store_true", help="write nothing: name what would change, and exit with 1")


def run(args: argparse.Namespace) -> int:
    """Write BENCHMARKS.md and the quotes, and name the files that change; returns the exit code."""
    results = list(stored())
    written = {PAGE: page(results)} | {path: quoted(path.read_text(encoding="utf-8"), results) for path in pages()}
    changed = [path for path, text in written.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in changed:
        print(path.relative_to(ROOT))
        if not args.check:
            path.write_text(written[path], encoding="utf-8")
    return int(args.check and bool(changed))


if __name__ == "__main__":
    raise SystemExit(command("benchmarks.page", "what readers see of the stored results", add_arguments, run))
