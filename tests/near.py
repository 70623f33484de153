"""Runs the tests nearest to what changed, by the imports between a test and a changed file, for about a minute.

    python tests/near.py [--since REVISION] [--seconds SECONDS]

Changed are files that differ from the revision (HEAD by default), and new ones. A test that changed comes first, then
those that import what changed, then those that import these. It exits as pytest does, and tells what it did not reach.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from lint import FOLDERS, Module, Tree

ROOT = Path(__file__).parents[1]


def modules() -> dict[str, Module]:
    """All files of the packages and of the tests, by their paths in the checkout."""
    found = {module.name: module for module in Tree.of(ROOT).modules}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        found[name] = Module(path, name, "tests", path.relative_to(ROOT / "tests").with_suffix("").parts)
    return found


def readers(known: dict[str, Module]) -> dict[str, set[str]]:
    """By path, the paths of the files that import it."""
    by_name = {module.dotted: path for path, module in known.items()}
    found = defaultdict[str, set[str]](set)
    for path, module in known.items():
        for name in {name for node in module.nodes for name in module.imported(node)}:
            read = by_name.get(name) or by_name.get(name.rpartition(".")[0])
            if read is not None and read != path:
                found[read].add(path)
    return found


def by_distance(changed: set[str], read_by: dict[str, set[str]]) -> list[list[str]]:
    """The test files, those that changed first; each list is one import further away than the one before."""
    seen, level, found = set(changed), changed, []
    while level:
        found.append(sorted(path for path in level if Path(path).name.startswith("test_")))
        level = {reader for path in level for reader in read_by.get(path, ())} - seen
        seen |= level
    return [tests for tests in found if tests]


def changed_since(revision: str) -> set[str]:
    commands = ["git", "diff", "--name-only", revision], ["git", "ls-files", "--others", "--exclude-standard"]
    told = (subprocess.run(one, cwd=ROOT, capture_output=True, text=True, check=True).stdout for one in commands)
    return {path for text in told for path in text.splitlines() if (ROOT / path).exists()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", default="HEAD", metavar="REVISION")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    known = modules()
    changed = changed_since(options.since) & known.keys()
    levels = by_distance(changed, readers(known))
    if not levels:
        print(f"no test imports any of the {len(changed)} changed files of {', '.join(FOLDERS)} and tests")
        return 0
    end, status = time.monotonic() + options.seconds, 0
    for distance, tests in enumerate(levels):
        for test in tests:
            if status or time.monotonic() > end:
                left = sum(map(len, levels[distance:])) - tests.index(test)
                print(f"not reached: {left} test files, the next {test}, {distance} levels away")
                return status
            status = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", test], cwd=ROOT).returncode % 5
    return status


if __name__ == "__main__":
    sys.exit(main())
