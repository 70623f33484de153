"""The pages that readers see: README.md and docs/*.md, with their fenced blocks."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"^(?:<!-- (?P<marker>[\w-]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, its language, and the marker above it."""

    where: str
    language: str
    text: str
    marker: str


@dataclass(frozen=True)
class Page:
    """One page."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def blocks(self) -> Iterator[Block]:
        for found in _BLOCK.finditer(self.text):
            line = self.text.count("\n", 0, found.start()) + 1
            yield Block(f"{self.name}:{line}", found["language"], found["text"], found["marker"] or "")


def script(name: str, folder: Path = ROOT / "docs") -> ModuleType:
    """A program that is no module of a package, by default one of docs/ that writes a page."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


PAGES = [Page(path) for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))]
