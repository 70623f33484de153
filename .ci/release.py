"""Makes a release of a clean checkout: `python .ci/release.py`, with `--dry-run` to see what would be done.

The version, the changelog and the citation have to agree. A wheel and a source distribution are built, and each is
installed in an environment of its own, where the README's command and a test run. Then the commit is tagged. Nothing is
pushed or uploaded; what is left to do is printed.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHORT_TEST = "tests/te/test_builders.py"


def version_of(root: Path) -> str:
    """The version that the package states."""
    text = (root / "python" / "tvm_cascade" / "_versions.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^RELEASE = "(.*)"$', text, re.M)
    return version


def problems(root: Path) -> Iterator[str]:
    """What stands against a release: expected, found and where, a sentence each."""
    version = version_of(root)
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = next(iter(re.findall(r"^## (\S+)", changelog, re.M)), "nothing")
    if newest != version:
        yield f"expected a first section `## {version}`, found {newest} (CHANGELOG.md)"
    cited = re.findall(r"^version: (.*)$", (root / "CITATION.cff").read_text(encoding="utf-8"), re.M)
    if cited != [version]:
        yield f"expected version {version}, found {', '.join(cited) or 'none'} (CITATION.cff)"
    if changed := _output(["git", "status", "--porcelain"], root):
        yield f"expected a clean checkout, found changes (git status): {', '.join(changed.split()[1::2])}"
    if _output(["git", "tag", "--list", f"v{version}"], root):
        yield f"expected no tag v{version} yet, found one (git tag); state another version in _versions.py"


def commands(environment: Path, distribution: Path, sources: Path) -> list[list[str]]:
    """What is run with a distribution in an environment of its own, in a checkout that it was not installed from."""
    python = str(environment / "bin" / "python")
    readme = (sources / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"<!-- install-and-run -->\n```sh\n.* && python (.*)\n```", readme)
    return [
        [python, "-m", "pip", "install", "-q", f"{distribution}[test]"],
        [python, *shlex.split(line)],
        [python, "-m", "pytest", "-q", str(sources / SHORT_TEST)],
    ]


def _output(command: Sequence[str], root: Path) -> str:
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def _run(command: Sequence[str], root: Path, dry: bool) -> None:
    print("+", shlex.join(command), flush=True)
    if not dry:
        alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run(command, cwd=root, env=alone, check=True)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Make the release, or tell what stands against it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dry-run", action="store_true", help="check, and print what would be run")
    dry = parser.parse_args(arguments).dry_run
    if found := list(problems(root)):
        print("no release:", *found, sep="\n  ", file=sys.stderr)
        return 1
    version = version_of(root)
    with tempfile.TemporaryDirectory(prefix="tvm-cascade-release-") as scratch:
        built = root / "dist"
        sdist = f"from setuptools import build_meta; build_meta.build_sdist({str(built)!r})"
        _run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(built), "."], root, dry)
        _run([sys.executable, "-c", sdist], root, dry)
        for name in (f"tvm_cascade-{version}-py3-none-any.whl", f"tvm_cascade-{version}.tar.gz"):
            environment = Path(scratch) / name
            if not dry:
                venv.create(environment, with_pip=True)
            for command in commands(environment, built / name, root):
                _run(command, Path(scratch), dry)
    _run(["git", "tag", "--annotate", f"v{version}", "--message", f"tvm-cascade {version}"], root, dry)
    print(f"left to do: git push origin v{version}, which publishes its pages too, and an upload of {built}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
