"""Mutants: one thing broken at a time, and the tests that have to notice. Run by hand, for minutes.

`python tests/mutate.py [WORD ...]` breaks a copy of this checkout, runs the nearest tests there, and says of every
mutant whose name holds one of the words whether it was killed or survives; it exits with 1 where one survives. A
survivor is a line that no test holds: write the test. `--list` names the mutants. A mutant belongs here where several
computations share a definition, so that a slip in it is a slip in all of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("python", "corpus", "benchmarks", "campaigns", "tests", "docs", "pyproject.toml", "README.md")
SECONDS = 1800
"""After which tests that have not failed count as passed."""


@dataclass(frozen=True)
class Mutant:
    """One thing broken.

    Attributes
    ----------
    name : what is broken.
    file : below the root.
    old, new : text that stands in the file once, and what stands there instead.
    tests : arguments of pytest, nearest tests first.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The file's text with one thing broken.

        Raises
        ------
        ValueError
            Where the text to break does not stand there once.
        """
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} holds {text.count(self.old)} times: {self.old}")
        return text.replace(self.old, self.new)


PACKAGE = "python/tvm_cascade"
MOVES = ("tests/steps/test_moves.py",)
MERGES = ("tests/transform/test_segments.py", "tests/transform/test_policies.py")
NUMBERS = ("tests/transform/test_fused_numbers.py",)
TILE_MERGES = ("tests/tile/test_merge_levels.py", "tests/tile/test_row_folds.py", "tests/tile/test_row_kernels.py")
PROOFS = ("tests/fuzz/test_corrupted_folds.py", "tests/algebra/test_proofs.py")

MUTANTS = (
    Mutant(
        "a guarded reference moves to what is unusable",
        f"{PACKAGE}/steps/move.py",
        "value = kind.choose(kind.usable(value, move.scale), value, stay)",
        "value = kind.choose(kind.usable(value, False), value, stay)",
        MOVES,
    ),
    Mutant(
        "the lowest number is where a reference may stand, in TIR",
        f"{PACKAGE}/transform/values.py",
        "tirx.LT(tirx.abs(value), tirx.max_value(self.dtype))",
        "tirx.LE(tirx.abs(value), tirx.max_value(self.dtype))",
        MOVES,
    ),
    Mutant(
        "a scale may be zero, in numbers",
        f"{PACKAGE}/steps/arithmetic.py",
        "self.finite(value) and not (scale and compared(value, 0) == 0)",
        "self.finite(value)",
        MOVES,
    ),
    Mutant(
        "steps under a decay are not bounded",
        f"{PACKAGE}/transform/values.py",
        "        if decay is None:\n            return step\n",
        "        return step\n",
        (*MOVES, *MERGES),
    ),
    Mutant(
        "a lazy reference stays in an empty state",
        f"{PACKAGE}/steps/move.py",
        "kind.choose(kind.but_not(near, empty), stay, value)",
        "kind.choose(near, stay, value)",
        MOVES,
    ),
    Mutant(
        "an empty state stands somewhere",
        f"{PACKAGE}/steps/move.py",
        "return kind.choose(empty, new, stay)",
        "return stay",
        (*MOVES, *MERGES),
    ),
    Mutant(
        "numbers merge at the greatest of where states stand",
        f"{PACKAGE}/steps/numbers.py",
        "from tvm_cascade.algebra.reducer import MIN\n",
        "from tvm_cascade.algebra.reducer import MAX as MIN\n",
        MOVES,
    ),
    Mutant(
        "what a reference does where it has no value is left out",
        f"{PACKAGE}/steps/move.py",
        "return move.guarded or move.rule is Rule.LAZY",
        "return False",
        NUMBERS,
    ),
    Mutant(
        "segments stand at the start",
        f"{PACKAGE}/transform/merge.py",
        "destination(step, value, stay, empty, TirValues(dtype))",
        "destination(step, value, tirx.const(step.start, dtype), empty, TirValues(dtype))",
        NUMBERS,
    ),
    Mutant(
        "holders without positions stand where they started",
        f"{PACKAGE}/tile/merge/combine.py",
        "tirx.Select(state.empty, none, state.references[step.reference][0])",
        "state.references[step.reference][0]",
        TILE_MERGES,
    ),
    Mutant(
        "holders that are all empty stand at 0",
        f"{PACKAGE}/tile/merge/combine.py",
        "tirx.Select(self.merged.empty, tirx.const(step.start, self.dtype), least)",
        "tirx.Select(self.merged.empty, tirx.const(0, self.dtype), least)",
        TILE_MERGES,
    ),
    Mutant(
        "holders stand at the start",
        f"{PACKAGE}/tile/merge/combine.py",
        "return tirx.Select(self.merged.empty, tirx.const(step.start, self.dtype), least)",
        "return tirx.const(step.start, self.dtype)",
        TILE_MERGES,
    ),
    Mutant(
        "empty holders are shifted",
        f"{PACKAGE}/tile/merge/combine.py",
        "return [tirx.Select(*empty, value) for empty, value in zip(empties, values, strict=True)]",
        "return values",
        TILE_MERGES,
    ),
    Mutant(
        "homes that others have are not marked",
        f"{PACKAGE}/tile/merge/launches.cuh",
        "at_home, at_home | 1ull",
        "at_home, at_home",
        ("tests/tile/test_launch_sets.py",),
    ),
    *(
        Mutant(
            f"no check of: {obligation}",
            f"{PACKAGE}/obligations/check.py",
            f'    "{obligation}": {check},\n',
            "",
            PROOFS,
        )
        for obligation, check in (
            ("merge commutative", "_over_lifts(_swapped)"),
            ("merge associative", "_over_lifts(_regrouped)"),
            ("empty is the identity", "_over_lifts(_from_empty)"),
            ("shift between references", "_shifted"),
            ("finish from any free reference", "_from_anywhere"),
            ("finish over any split = definition", "_split"),
        )
    ),
    Mutant(
        "products are rounded once they are summed",
        f"{PACKAGE}/evaluate/oracle.py",
        "if not self._rounding or len(factors) == 1",
        "if True",
        ("tests/evaluate",),
    ),
    Mutant(
        "twenty times the error of the unfused program passes",
        f"{PACKAGE}/evaluate/tolerance.py",
        "allowed = 2.0 * baseline_error",
        "allowed = 20.0 * baseline_error",
        ("tests/evaluate",),
    ),
    Mutant(
        "every entry of the ledger is as it was",
        "campaigns/ledger.py",
        "if expected[seed] != found[seed]]",
        "if not found]",
        ("tests/fuzz/test_ledger.py",),
    ),
)


def outcome(mutant: Mutant, root: Path, log: Path) -> str:
    """ "killed", "survives", or what kept the tests from running, of a mutant of the checkout at `root`."""
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, Path(folder) / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif (root / name).exists():
                shutil.copy(root / name, folder)
        broken = Path(folder) / mutant.file
        broken.write_text(mutant.applied(broken.read_text(encoding="utf-8")), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "", "-p", "no:cacheprovider", *mutant.tests]
        environment = {**os.environ, "PYTHONPATH": str(Path(folder) / "python")}
        with log.open("a", encoding="utf-8") as told:
            print(f"\n== {mutant.name}", file=told, flush=True)
            try:
                ran = subprocess.run(
                    command, cwd=folder, env=environment, stdout=told, stderr=told, check=False, timeout=SECONDS
                )
            except subprocess.TimeoutExpired:
                return f"survives {SECONDS} s"
    return {0: "survives", 1: "killed"}.get(ran.returncode, f"no tests: pytest ended with {ran.returncode}")


def wanted(mutants: Iterable[Mutant], words: Iterable[str]) -> list[Mutant]:
    """The mutants whose names hold one of the words; all where there is none."""
    chosen = list(words)
    return [mutant for mutant in mutants if not chosen or any(word in mutant.name for word in chosen)]


def main(
    arguments: list[str] | None = None,
    mutants: Iterable[Mutant] = MUTANTS,
    root: Path = ROOT,
    say: Callable[[str], None] = print,
) -> int:
    """Run the mutants; returns 1 where one of them was not killed."""
    parser = argparse.ArgumentParser(description="Break one thing at a time and see whether tests notice.")
    parser.add_argument("words", nargs="*", help="of the names of the mutants to run (all)")
    parser.add_argument("--list", action="store_true", help="name them and stop")
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="where the tests' output goes")
    args = parser.parse_args(arguments)
    chosen, alive = wanted(mutants, args.words), 0
    for mutant in chosen:
        told = "" if args.list else outcome(mutant, root, args.log)
        alive += told not in ("", "killed")
        say(f"{told:<10} {mutant.name}".strip())
    return 1 if alive or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
