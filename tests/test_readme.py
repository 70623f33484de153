"""README.md holds: its code runs as printed, prints what stands there, and what it names is there.

A block of `python` is run, in one namespace with those before it; a block of `sh` is a command of this package. A block
without a language is printed by the one before it, line by line, perhaps among others. The commands of set-up, which
have a marker, install the package: `.ci/run` reads and runs those.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from tvm_cascade import cli, te
from tvm_cascade.codes import CODES
from tvm_cascade.options import FuseOptions

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
COMMAND = "python -m tvm_cascade "


@dataclass(frozen=True)
class Block:
    """A fenced block, the line that it starts at, and the marker above it."""

    line: int
    language: str
    text: str
    marker: str


def blocks() -> list[Block]:
    found = re.finditer(
        r"^(?:<!-- (?P<marker>[\w-]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", TEXT, re.M | re.S
    )
    return [Block(TEXT.count("\n", 0, m.start()) + 1, m["language"], m["text"], m["marker"] or "") for m in found]


def test_every_block_runs_and_prints_what_stands_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {"__name__": "readme"}
    printed, checked = "", 0
    for block in blocks():
        if block.marker:
            assert f"readme_command {block.marker})" in (ROOT / ".ci" / "run").read_text()
        elif block.language == "python":
            exec(compile(block.text, f"README.md:{block.line}", "exec"), namespace)
            printed = capsys.readouterr().out
        elif block.language == "sh":
            for line in block.text.splitlines():
                assert line.startswith(COMMAND), f"README.md:{block.line}: nobody runs this"
                assert cli.main(shlex.split(line.removeprefix(COMMAND))) == 0
            printed = capsys.readouterr().out
        else:
            _is_printed(block, printed)
            checked += 1
    assert checked >= 2


def _is_printed(block: Block, printed: str) -> None:
    lines = iter([" ".join(line.split()) for line in printed.splitlines()])
    for wanted in block.text.splitlines():
        text = " ".join(wanted.split())
        assert text in lines, f"README.md:{block.line}: nothing above prints, in this order: {text}"


@pytest.mark.parametrize("line", sorted(set(re.findall(rf"`{COMMAND}([^`]*)`", TEXT))))
def test_a_command_that_the_text_names_can_be_given(line: str) -> None:
    words = [{"N": "1", "M": "1", "J": "1"}.get(word, word) for word in shlex.split(line)]
    assert callable(cli.parser().parse_args(words).run)


def test_the_commands_the_options_and_the_codes_are_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    (listed,) = re.findall(r"`tvm-cascade ([^`]*)`", TEXT)
    cli.main([])
    told = re.findall(r"^    ([a-z-]+)(?: |$)", capsys.readouterr().out, re.M)
    assert listed.replace("\\", "").split(" | ") == told
    (options,) = re.findall(r"flags of the commands that fuse:\s+(.*?)\. `", TEXT, re.S)
    assert re.findall(r"`(\w+)`", options) == [field.name for field in dataclasses.fields(FuseOptions)]
    reasons = TEXT[TEXT.index("## When it will not fuse") : TEXT.index("## Numbers that can go wrong")]
    codes = set(re.findall(r"\(`(\w+)`[):;,]", reasons))
    assert len(codes) >= 8 and codes <= CODES.keys()


def test_the_limit_of_topk_is_that_of_topk() -> None:
    assert f"in TE, k up to {te.MOST}:" in TEXT


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tvm_cascade(?:\.\w+)+)", TEXT))))
def test_a_name_that_the_text_gives_is_there(name: str) -> None:
    *path, last = name.split(".")
    found = importlib.import_module(".".join(path))
    assert hasattr(found, last) or importlib.import_module(name)
