"""The kinds of kernels that sanitizers run: each is lowered to what it is there for, and what they say is told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from . import sanitize
from .tiers import slow_but


@pytest.mark.parametrize(
    "kind", slow_but(sanitize.KINDS[:1], sanitize.KINDS), ids=[kind.name for kind in sanitize.KINDS]
)
def test_a_kind_is_lowered_to_its_kernel(kind: sanitize.Kind) -> None:
    sanitize.lowered(kind)


def test_a_kind_of_another_kernel_is_an_error() -> None:
    row = sanitize.wanted(["row of a block"])[0]
    other = sanitize.Kind("a product", row.workload, ("product",))
    with pytest.raises(ValueError, match=r"a product: \('product',\) \(\) became \('row',\): the memory-bound kernel"):
        sanitize.lowered(other)


@pytest.mark.parametrize(
    ("printed", "code", "told"),
    [
        ("RAN\n========= ERROR SUMMARY: 0 errors", 0, "clean"),
        ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)", 0, "clean"),
        ("========= ERROR SUMMARY: 0 errors", 1, "exit code 1\n"),
        ("========= ERROR SUMMARY: 10 errors", 0, "exit code 0\n========= ERROR SUMMARY: 10 errors"),
        ("========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)", 0, "exit code 0\n"),
        ("", 0, "exit code 0\n"),
    ],
)
def test_what_a_tool_says_is_told(
    printed: str, code: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f"#!/bin/sh\ncat <<END\n{printed}\nEND\nexit {code}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = sanitize.outcome(tmp_path / "a.job", "memcheck")
    assert found == told if told == "clean" else found.startswith(told)


def test_as_a_script_it_names_the_kinds() -> None:
    """Where torch is not installed too: the folder of its tests has its name."""
    command = [sys.executable, sanitize.__file__, "--list"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.splitlines()) == (0, [kind.name for kind in sanitize.KINDS]), ran.stderr


def test_one_kind_that_is_not_clean_fails() -> None:
    said: list[str] = []

    def examine(kinds: Iterable[sanitize.Kind], tools: Iterable[str], _folder: Path) -> Mapping[tuple[str, str], str]:
        told = {"memcheck": "clean", "racecheck": "exit code 1"}
        return {(kind.name, tool): told[tool] for kind in kinds for tool in tools}

    assert sanitize.main(["prefill", "--tool", "memcheck"], examine, said.append) == 0
    assert said == ["memcheck   prefill: clean", "memcheck   prefill of float8 scores: clean"]
    assert sanitize.main(["prefill", "--tool", "memcheck", "--tool", "racecheck"], examine, said.append) == 1
    assert sanitize.main(["no such kind"], examine, said.append) == 1
