"""The result of `numerics`, as data, text and JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any

from tvm_cascade.accuracy.losses import Loss
from tvm_cascade.evaluate.tolerance import Comparison
from tvm_cascade.report.group import in_columns

SCHEMA = 1
"""Version of the JSON form; it changes when a key is renamed or removed."""

_HEADINGS = ("input", "output", "unfused", "fused", "allowed", "", "where it is lost")
_SHOWN = 3  # losses that are told


@dataclass(frozen=True)
class InputRow:
    """One output for one input.

    Attributes
    ----------
    input, output : the name of the data, and of the buffer.
    unfused_error, fused_error : largest scaled errors against float64; inf where a non-finite element does not match.
    allowed : twice the unfused program's error, plus a floor for length and dtype.
    ok : the fused error is allowed.
    fused : there is a fused program.
    losses : where it is not ok, the parts of the fold that lose most, the worst first.
    note : one sentence on the element that is furthest off; empty where all is well.
    """

    input: str
    output: str
    unfused_error: float
    fused_error: float
    allowed: float
    ok: bool
    fused: bool
    losses: tuple[Loss, ...] = ()
    note: str = ""

    @classmethod
    def of(cls, name: str, output: str, judged: Comparison, fused: bool, losses: tuple[Loss, ...]) -> InputRow:
        note = "" if judged.ok else judged.message
        errors = judged.baseline_error, judged.max_error, judged.allowed
        return cls(name, output, *errors, judged.ok, fused, losses[:_SHOWN], note)

    def to_dict(self) -> dict[str, Any]:
        """The row in JSON's types: an error that is not finite is null."""
        told = dataclasses.asdict(self)
        fused_error = self.fused_error if told.pop("fused") and math.isfinite(self.fused_error) else None
        return {**told, "fused_error": fused_error}

    @property
    def cells(self) -> tuple[str, ...]:
        errors = [f"{self.unfused_error:.1e}", f"{self.fused_error:.1e}" if self.fused else "-", f"{self.allowed:.1e}"]
        where = "; ".join(map(str, self.losses)) or self.note
        return (self.input, self.output, *errors, "ok" if self.ok else "WORSE", where)


@dataclass(frozen=True)
class Numerics:
    """The errors of a program, fused and unfused.

    Attributes
    ----------
    function : its name.
    fused : whether anything in it was fused.
    reasons : the verdict's reason for each group of reductions.
    rows : one for each input and output.
    """

    function: str
    fused: bool
    reasons: tuple[str, ...]
    rows: tuple[InputRow, ...]

    @property
    def ok(self) -> bool:
        """Whether every row is."""
        return all(row.ok for row in self.rows)

    def to_json(self) -> str:
        """The report as JSON text; the keys are stable, and `schema` is the version of the form."""
        form = {
            "schema": SCHEMA,
            "function": self.function,
            "fused": self.fused,
            "reasons": list(self.reasons),
            "ok": self.ok,
            "rows": [row.to_dict() for row in self.rows],
        }
        return json.dumps(form, indent=2, ensure_ascii=False)

    def __repr__(self) -> str:
        good = sum(row.ok for row in self.rows)
        kind = "fused" if self.fused else "nothing fused"
        return f"<Numerics of {self.function}, {kind}: {good} of {len(self.rows)} rows ok; print it for the table>"

    def __str__(self) -> str:
        lines = [f"{self.function}: {reason}" for reason in self.reasons if not self.fused]
        return "\n".join([*lines, in_columns([_HEADINGS, *(row.cells for row in self.rows)])])
