"""What the schedule of a CPU made of a function: how fused loops are cut, and the rule of every other nest."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_cascade.analysis.tir import Extent

SERIAL = "serial, as no order of its iterations is known to be free"
PANELS = "a copy in panels"
PRODUCT = "a product in register tiles"
RUNS_OF_ROWS = "a product in register tiles of rows that pick the same matrix"
SCALAR = "one element at a time, or as LLVM vectorises it"


def row_lanes(width: int) -> str:
    """The rule of a reduction whose lanes are positions of its rows."""
    return f"rows in {width} lanes"


def vectors(width: int) -> str:
    """The rule of a nest whose lanes are neighbours of its output."""
    return f"vectors of {width} along the output"


@dataclass(frozen=True)
class LoopSummary:
    """How a fused loop is cut.

    Attributes
    ----------
    tile : positions of the cascade axis in one step.
    lanes : partial results of a tile's reduction; 1 where it is not split.
    segments : parts of the axis that are folded apart.
    rows : of the block that one task works on; 0 where the loop's nests share no row.
    together : of those, rows that lie side by side in vectors; 0 where none do.
    """

    tile: int
    lanes: int
    segments: Extent
    rows: int
    together: int = 0

    def __str__(self) -> str:
        counts = [f"tiles of {self.tile} positions", _count(self.lanes, "lane"), _count(self.segments, "segment")]
        counts += [f"{_count(self.rows, 'row')} a task"] if self.rows else []
        counts += [f"{self.together} of them side by side"] if self.together else []
        return f"the fused loop: {', '.join(counts)}"


@dataclass(frozen=True)
class CpuSchedule:
    """The schedule of one function.

    Attributes
    ----------
    loops : fused ones, in order.
    rules : of each nest of the program's own outside them, its block and what it became.
    """

    loops: tuple[LoopSummary, ...]
    rules: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        blocks: dict[str, list[str]] = {}
        for block, rule in self.rules:
            blocks.setdefault(rule, []).append(block)
        parts = [*map(str, self.loops), *(f"{', '.join(names)}: {rule}" for rule, names in blocks.items())]
        return f"an S-TIR schedule: {'; '.join(parts) or 'nothing to loop over'}"


def _count(number: Extent, word: str) -> str:
    return f"{number} {word}" + ("" if isinstance(number, int) and number == 1 else "s")
