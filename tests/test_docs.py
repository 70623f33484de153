"""The pages of docs/ hold: their code runs as printed, in one namespace a page, and prints what stands below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parent.parent / "docs").glob("*.md"))
BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_runs_and_prints_what_stands_below_it(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": page.stem}
    printed = ""
    for block in BLOCK.finditer(text):
        where = f"{page.name}:{text.count(chr(10), 0, block.start()) + 1}"
        if block["language"] == "python":
            exec(compile(block["text"], where, "exec"), namespace)
            printed = capsys.readouterr().out
        else:
            assert not block["language"], f"{where}: nobody runs this"
            assert block["text"] in printed, f"{where}: printed is\n{printed}"
