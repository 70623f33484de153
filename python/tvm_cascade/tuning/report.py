"""What a tuning session found, as data and as a table."""

from __future__ import annotations

import io
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from tvm_cascade.tuning.proposals import DEFAULT_TRIALS
from tvm_cascade.tuning.records import Trial, best, sizes_text

_ROWS = 12
_WIDTH = 150
_BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class FunctionTuning:
    """The trials of one function.

    Attributes
    ----------
    name : of the function.
    trials : in order, those of earlier sessions first.
    words : the default design.
    known : how many trials were on record before.
    stopped : why the session ended, in words.
    seconds : that it took.
    within : of a session that tried every design: what one of few trials would have found, over the best of all.
    sizes : of symbolic extents, by name, that it was measured at.
    """

    name: str
    trials: tuple[Trial, ...]
    words: dict[str, str]
    known: int
    stopped: str
    seconds: float
    within: float | None = None
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.name} at {sizes_text(self.sizes)}" if self.sizes else self.name

    @property
    def default(self) -> Trial | None:
        """The last measurement of the default; None where it was not tried or failed."""
        same = [trial for trial in self.trials if trial.words == self.words and trial.seconds is not None]
        return same[-1] if same else None

    @property
    def best(self) -> Trial | None:
        """What is compiled from now on; None where nothing was measured."""
        return best(self.trials, self.words)

    @property
    def gain(self) -> float:
        """Seconds of the default over those of the best; 1 where one of them is not known."""
        default, chosen = self.default, self.best
        if default is None or chosen is None or not default.seconds or not chosen.seconds:
            return 1.0
        return default.seconds / chosen.seconds

    @property
    def tried(self) -> int:
        """Designs of different programs."""
        return len({trial.key for trial in self.trials if not trial.same})

    @property
    def failures(self) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.trials if trial.failed)

    @property
    def rank_correlation(self) -> float | None:
        """Spearman's, of estimates and times; None of fewer than three, or where all estimates are the same."""
        last = {trial.key: trial for trial in self.trials if trial.seconds is not None and trial.estimate > 0}
        pairs = [(trial.estimate, trial.seconds or 0.0) for trial in last.values()]
        if len(pairs) < 3 or len({estimate for estimate, _ in pairs}) < 2 or len({s for _, s in pairs}) < 2:
            return None
        return statistics.correlation(*(_ranks(values) for values in zip(*pairs, strict=True)))

    @property
    def residuals(self) -> tuple[float, ...]:
        """Measured over estimated time of each design that has both, in ascending order."""
        last = {trial.key: trial for trial in self.trials if trial.seconds is not None and trial.estimate > 0}
        return tuple(sorted((trial.seconds or 0.0) / trial.estimate for trial in last.values()))

    @property
    def curve(self) -> tuple[float, ...]:
        """The best seconds so far after each trial of a different program; infinite before the first time."""
        seconds = [trial.seconds or math.inf for trial in self.trials if not (trial.same or trial.in_turns)]
        return tuple(itertools.accumulate(seconds, min))

    def changes(self, trial: Trial) -> str:
        """The values of a trial that are not the default's."""
        changed = {name: value for name, value in trial.words.items() if self.words.get(name) != value}
        return "; ".join(f"{name}: {value}" for name, value in changed.items()) or "the default"

    def to_json(self) -> dict[str, Any]:
        chosen, default = self.best, self.default
        return {
            "function": self.name,
            "sizes": self.sizes,
            "default_us": default.seconds * 1e6 if default and default.seconds else None,
            "best_us": chosen.seconds * 1e6 if chosen and chosen.seconds else None,
            "gain": self.gain,
            "best": chosen.words if chosen else None,
            "tried": self.tried,
            "failed": len(self.failures),
            "stopped": self.stopped,
            "seconds": self.seconds,
            "rank_correlation": self.rank_correlation,
            "within": self.within,
            "residuals": self.residuals,
            "curve_us": [seconds * 1e6 if math.isfinite(seconds) else None for seconds in self.curve],
            "trials": [vars(trial) for trial in self.trials],
        }


@dataclass(frozen=True)
class TuningReport:
    """What a session found of all functions.

    Attributes
    ----------
    functions : in the order of the module.
    """

    functions: tuple[FunctionTuning, ...]

    def to_json(self) -> dict[str, Any]:
        return {"functions": [one.to_json() for one in self.functions]}

    def __str__(self) -> str:
        out = io.StringIO()
        console = Console(file=out, width=_WIDTH, highlight=False)
        for one in self.functions:
            console.print(_table(one), markup=False)
            console.print(_summary(one), markup=False)
            if line := _line(one.curve):
                console.print(line, markup=False)
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _ranks(values: Sequence[float]) -> list[float]:
    """The place of each value among all; equal ones share the mean of theirs."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def _line(curve: Sequence[float]) -> str:
    """A learning curve in one line: the best so far over trials, from the slowest to the fastest block."""
    times = [seconds for seconds in curve if math.isfinite(seconds)]
    if not times or times[0] == times[-1]:
        return ""
    span = times[0] - times[-1]
    blocks = "".join(_BLOCKS[round((seconds - times[-1]) / span * (len(_BLOCKS) - 1))] for seconds in times)
    first, last = times[0] * 1e6, times[-1] * 1e6
    return f"best so far {blocks} {first:.1f} to {last:.1f} µs over {len(curve)} trials, as first measured"


def _table(one: FunctionTuning) -> Table:
    table = Table("trial", "µs", "of default", "estimate", "design", title=one.label, title_justify="left", box=None)
    last = {trial.key: trial for trial in one.trials if not trial.same}
    ordered = sorted(last.values(), key=lambda trial: (trial.seconds is None, trial.seconds or 0.0))
    places = {key: number for number, key in enumerate(dict.fromkeys(t.key for t in one.trials if not t.same))}
    for trial in ordered[:_ROWS]:
        estimate = f"{trial.estimate * 1e6:.1f}" if trial.estimate else ""
        told = one.changes(trial)
        if trial.seconds is None:
            table.add_row(str(places[trial.key]), trial.failed, "", estimate, f"{told}: {trial.reason}")
            continue
        share = trial.seconds / one.default.seconds if one.default and one.default.seconds else 0.0
        chosen = " (chosen)" if trial == one.best else ""
        row = f"{trial.seconds * 1e6:.1f}", f"{share:.3f}" if share else "", estimate, told + chosen
        table.add_row(str(places[trial.key]), *row)
    return table


def _summary(one: FunctionTuning) -> str:
    tried, failed = one.tried, len({trial.key for trial in one.failures})
    told = f"{one.label}: {tried} designs tried, {failed} failed, in {one.seconds:.0f} s; ended by: {one.stopped}"
    if one.best is not None and one.default is not None:
        share = f"the best takes {1 / one.gain:.3f} of the time of the default"
        told += f"; {'no design takes less than the default' if one.best == one.default else share}"
    if one.rank_correlation is not None:
        told += f"; rank correlation with the estimates {one.rank_correlation:.2f}"
    if one.within is not None:
        told += f"; the best of {DEFAULT_TRIALS} trials takes {one.within:.3f} of the best of all"
    if one.residuals:
        least, middle, most = one.residuals[0], statistics.median(one.residuals), one.residuals[-1]
        told += f"; measured over estimated {middle:.2f} ({least:.2f} to {most:.2f})"
    return told
