"""The record of a trial, and its time limit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Record:
    """One trial.

    Attributes
    ----------
    kind : "algebra", "program", "gpu" or "ledger".
    seed : of its case.
    verdict : of the derivation or of the pass: fused, refused, unknown.
    code : the reason's code; of the first reduction that was not fused, where there is one.
    seconds : of the derivation; on a GPU of the compilation.
    finding : what went wrong: "wrong", "error", "crash" or "timeout"; empty where nothing did.
    detail : the finding in one line, or a remark.
    """

    kind: str
    seed: int
    verdict: str = ""
    code: str = ""
    seconds: float = 0.0
    finding: str = ""
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """The fields that say something."""
        return {key: value for key, value in asdict(self).items() if value not in ("", 0.0) or key == "seed"}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Record:
        """The record of `to_json`."""
        return cls(**fields)


def first_line(error: BaseException) -> str:
    """An exception as one line of at most 300 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
