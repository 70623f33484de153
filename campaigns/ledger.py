"""A ledger of verdicts and state sizes by seed, on file, so that any change of them is a diff.

The file is text, in order of seeds. A line stands for seeds in a row, the first of which is named; each entry is
`COMPONENTS.REFERENCES` of the state where the cascade has a fold, and the reason's code where it has none:

    80000000 9.2 infinite_rank 4.1 6.1 not_monotone 12.3 5.1 10.2 3.1 7.2

A derivation that raises, hangs or kills its process is entered as "error", "timeout" or "crash".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from campaigns.campaign import State, Task, run_campaign
from campaigns.ledger_trial import KIND
from tvm_cascade.errors import InputError

SEEDS_PER_LINE = 10

MOST_SEEDS = 1_000_000
"""In one range of seeds: more is a slip of the keyboard."""

Ledger = dict[int, str]
"""Seed -> entry."""


@dataclass(frozen=True)
class Change:
    """An entry that is no longer what the ledger says."""

    seed: int
    expected: str
    found: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.expected} in the ledger, {self.found} now"


def seeds_of(text: str) -> list[int]:
    """Seeds and ranges with both ends in, as in "0-9999,84019250".

    Raises
    ------
    InputError
        When it is something else.
    """
    seeds: dict[int, None] = {}
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()) or (part.rstrip().endswith("-")):
            raise InputError("seeds and ranges of them, as in 0-9999,84019250", part.strip() or "nothing", "--record")
        if not 0 <= int(last or first) - int(first) < MOST_SEEDS:
            raise InputError(f"a range of 1 to {MOST_SEEDS} seeds", part.strip(), "--record")
        seeds.update(dict.fromkeys(range(int(first), int(last or first) + 1)))
    return list(seeds)


def read(path: Path) -> Ledger:
    """The ledger of a file.

    Raises
    ------
    InputError
        When the file holds something else.
    """
    ledger: Ledger = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        first, *entries = line.split() or [""]
        if not first.isdecimal() or not entries:
            raise InputError("a seed and its entries on each line", f"line {number}", str(path))
        ledger.update(enumerate(entries, start=int(first)))
    return ledger


def write(path: Path, ledger: Mapping[int, str]) -> None:
    """Write a ledger, in order of seeds."""
    lines: list[str] = []
    last = None
    for seed in sorted(ledger):
        if seed - 1 != last or seed % SEEDS_PER_LINE == 0:
            lines.append(str(seed))
        lines[-1] += f" {ledger[seed]}"
        last = seed
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def sample(ledger: Mapping[int, str], count: int) -> Ledger:
    """So many entries, evenly spread over the ledger, the same ones each time."""
    seeds, wanted = sorted(ledger), min(count, len(ledger))
    return {seed: ledger[seed] for seed in (seeds[k * len(seeds) // wanted] for k in range(wanted))}


def changes(expected: Mapping[int, str], found: Mapping[int, str]) -> list[Change]:
    """The entries that differ, in order of seeds; those that were not found are left out."""
    return [Change(seed, expected[seed], found[seed]) for seed in sorted(found) if expected[seed] != found[seed]]


@dataclass(frozen=True)
class _Derivations:
    """The derivations of some seeds as the work of a campaign."""

    seeds: Sequence[int]
    jobs: int
    budget: float | None = None

    def tasks(self) -> Iterator[Task]:
        return ((KIND, seed) for seed in self.seeds)


def derived(
    seeds: Sequence[int],
    jobs: int,
    state: State | None = None,
    progress: Callable[[State, int], None] | None = None,
) -> Ledger:
    """What the derivation makes of each seed, over `jobs` worker processes; a state of before is gone on from."""
    kept = State(None) if state is None else state
    run_campaign(_Derivations(seeds, jobs), kept, progress)
    records = {seed: kept.records[KIND, seed] for seed in seeds}
    return {seed: record.code or record.finding for seed, record in records.items()}
