"""What is too slow for every commit: mutants, sanitizers, all tests with code optimised, and suites beside stored ones.

`python tests/nightly.py [PART ...]` runs all parts or those that are named, each in a process of its own, and ends with
what failed and which workloads became slower by more than three percent; it exits with 1 where there is anything. Of
the suites those for a GPU are run where there is one. What they give is left in `nightly/`, and goes to
`benchmarks/results/` by hand.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOUND = ROOT / "nightly"
GPU = shutil.which("nvidia-smi") is not None
if (_BESIDE := str(Path(__file__).resolve().parent)) in sys.path:  # as for a script, which needs the benchmarks
    sys.path[sys.path.index(_BESIDE)] = str(ROOT)

from benchmarks import suites  # noqa: E402
from benchmarks.record import RESULTS, load, slower  # noqa: E402

PYTEST = ("-m", "pytest", "-q", "--optimised", "-m", "")
BENCHMARKS = ("-m", "benchmarks", "--results", str(FOUND), "--suite")
PARTS: dict[str, list[tuple[str, ...]]] = {
    "mutants": [("tests/mutate.py",)],
    "sanitizers": [("tests/sanitize.py",)] if GPU else [],
    "tests": [PYTEST],
    "suites": [
        (*BENCHMARKS, "cpu"),
        *((*BENCHMARKS, name, "--device", "cuda", "--jobs", str(os.cpu_count())) for name in suites.ON_GPU if GPU),
    ],
}
"""Arguments of Python by part."""


def became_slower(found: Path = FOUND, before: Path = RESULTS) -> Iterator[str]:
    """A line for each workload that takes longer than what is stored of its card says, by suite, the worst first."""
    for path in sorted(found.glob("*/*.json")):
        known = before / path.relative_to(found)
        if known.exists():
            for label, share in slower(load(known), load(path)):
                yield f"{path.parent.name} {path.stem}: {label} takes {share:.3f} of the stored time"


def main() -> int:
    """Run the parts; 1 where one failed or a workload became slower."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=f"of {', '.join(PARTS)}")
    chosen = parser.parse_args().parts or PARTS
    shutil.rmtree(FOUND, ignore_errors=True)
    FOUND.mkdir()
    failed = []
    for part in chosen:
        for words in PARTS[part]:
            print(f"$ python {' '.join(words)}", flush=True)
            if subprocess.run([sys.executable, *words], cwd=ROOT, check=False).returncode:
                failed.append(f"failed: python {' '.join(words)}")
    told = [*failed, *became_slower()]
    print("\n".join(told) or "nothing failed, and nothing became slower")
    return int(bool(told))


if __name__ == "__main__":
    sys.exit(main())
