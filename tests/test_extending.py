"""docs/extending.md: its rows, put into a copy of the package, are all that its programs need.

A block of `python` whose first line is `# FILE, into TABLE` is a row of that table; the others are one program.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tvm_cascade

from .pages import ROOT, Page

PAGE = Page(ROOT / "docs" / "extending.md")
ROWS = {
    tuple(found.groups()): block.text[found.end() :].rstrip()
    for block in PAGE.blocks()
    if (found := re.match(r"# (\S+), into (\w+)\n", block.text))
}
PROGRAM = "".join(
    block.text for block in PAGE.blocks() if block.language == "python" and not block.text.startswith("# ")
)
PRINTED = "".join(block.text for block in PAGE.blocks() if not block.language)


def with_row(source: str, table: str, row: str) -> str:
    """A module with one more row at the end of the table, a dictionary or a tuple that it assigns."""
    (value,) = (
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and table in ast.unparse(node).split("=")[0] and node.value
    )
    literal = next(node for node in ast.walk(value) if isinstance(node, ast.Dict | ast.Tuple))
    assert literal.end_lineno is not None and literal.end_col_offset is not None
    lines = source.encode().splitlines(keepends=True)
    end = sum(map(len, lines[: literal.end_lineno - 1])) + literal.end_col_offset - 1
    before, after = source.encode()[:end].decode().rstrip(), source.encode()[end:].decode()
    return f"{before.removesuffix(',')}, {row}{after}"


def outcome(package: Path) -> subprocess.CompletedProcess[str]:
    """What the page's program does with a copy of the package."""
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return shutil.copytree(Path(tvm_cascade.__file__).parent, tmp_path / "tvm_cascade")


def test_rows_are_all_that_the_programs_need(package: Path) -> None:
    assert len(ROWS) == 3
    for (file, table), row in ROWS.items():
        path = package / file
        path.write_text(with_row(path.read_text(encoding="utf-8"), table, row), encoding="utf-8")
    done = outcome(package)
    assert done.returncode == 0, done.stderr
    assert done.stdout == PRINTED


@pytest.mark.parametrize("left_out", ROWS, ids=lambda place: place[1])
def test_without_a_row_its_program_does_something_else(package: Path, left_out: tuple[str, str]) -> None:
    for (file, table), row in ROWS.items():
        if (file, table) != left_out:
            path = package / file
            path.write_text(with_row(path.read_text(encoding="utf-8"), table, row), encoding="utf-8")
    assert outcome(package).stdout != PRINTED
