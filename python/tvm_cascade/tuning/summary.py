"""What sessions of several programs found, a row each: how far the model's own choices are from the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tvm_cascade.tuning.exhaustion import DEFAULT_TRIALS
from tvm_cascade.tuning.report import FunctionTuning

_NEAR = (1.05, 1.1)
"""Of the best time, what the default may take and count as near."""

_TUNED = 1.03
"""Of the best of all, what a session of few trials may take."""


def table(found: Sequence[tuple[str, FunctionTuning]]) -> Table:
    """Labels and sessions as rows."""
    shown = Table(box=SIMPLE_HEAD)
    columns = ("program", "designs", "failed", "default µs", "best µs", "gain", f"best of {DEFAULT_TRIALS}", "best")
    for column in columns:
        shown.add_column(column, justify="left" if column in ("program", "best") else "right")
    for label, one in found:
        failed = str(len({trial.key for trial in one.failures}))
        within = "" if one.within is None else f"{one.within:.3f}"
        if one.default is None or one.best is None:
            shown.add_row(label, str(one.tried), failed, "", "", "", within, one.stopped)
            continue
        times = (f"{(trial.seconds or 0.0) * 1e6:.1f}" for trial in (one.default, one.best))
        shown.add_row(label, str(one.tried), failed, *times, f"{one.gain:.3f}", within, one.changes(one.best))
    return shown


def sentence(found: Sequence[tuple[str, FunctionTuning]]) -> str:
    """How many of the defaults are near the best, and what tuning gives in the geometric mean."""
    gains = [one.gain for _, one in found if one.default is not None and one.best is not None]
    if not gains:
        return "no program was measured"
    near = [sum(gain <= share for gain in gains) for share in _NEAR]
    mean = math.exp(sum(map(math.log, gains)) / len(gains))
    told = ", ".join(f"within {share - 1:.0%} in {count}" for share, count in zip(_NEAR, near, strict=True))
    text = f"of {len(gains)} programs the default is {told}; tuning gives {mean:.3f} in the geometric mean"
    shares = [one.within for _, one in found if one.within is not None]
    if shares:
        few = sum(share <= _TUNED for share in shares)
        text += f"; the best of {DEFAULT_TRIALS} trials is within {_TUNED - 1:.0%} of the best of all in {few}"
        text += f" of {len(shares)}"
    return text


def as_json(found: Sequence[tuple[str, FunctionTuning]]) -> list[dict[str, Any]]:
    """As data for JSON."""
    return [{"program": label, **one.to_json()} for label, one in found]
