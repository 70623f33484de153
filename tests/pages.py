"""The pages that readers see: README.md and docs/*.md, with their fenced blocks.

`python -m tests.pages` writes the table of suites in README.md from BENCHMARKS.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

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


PAGES = [Page(path) for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))]


README, BENCHMARKS = ROOT / "README.md", ROOT / "BENCHMARKS.md"
BLOCK_OF_SUITES = re.compile(
    r"(?<=<!-- suites, written by `python -m tests.pages` -->\n).*?(?=<!-- end of suites -->)", re.S
)
_INDEXED = re.compile(r"^\| \[(\w+)\]\(#\w+\) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", re.M)

_WHAT = {
    "prefill": "attention of a whole prompt, bfloat16",
    "mha": "attention, RedFuser's shapes",
    "neptune": "attention and variants, Neptune's shapes",
    "variance": "variance of rows",
    "inertia": "moments of inertia of rows",
    "row": "softmax, norms, cross-entropy, gradients of these",
    "decode": "attention of one to eight queries over a cache",
    "mla": "latent attention",
    "paged": "attention over pages and uneven lengths",
    "prefix": "attention over keys that sequences share",
    "gemm": "matrix products, nothing fused",
    "moe": "routers; the best peer is the matrix product alone",
    "quant": "quantised products; a peer is the product alone",
    "normgemm": "norms into linear layers",
    "loss": "losses from logits that are not stored",
}


def suites(benchmarks: str) -> dict[str, tuple[str, ...]]:
    """By suite, as the table of BENCHMARKS.md says: rows, geometric mean, least and most of the best peer's ratios."""
    return {name: tuple(numbers) for name, *numbers in _INDEXED.findall(benchmarks)}


def table_of_suites(benchmarks: str) -> str:
    """The table that README.md has of them, the slowest first."""
    lines = [
        "",
        "| suite | what | rows | best peer's time over ours, geometric mean | least | most |",
        "|---|---|---|---|---|---|",
    ]
    found = sorted(suites(benchmarks).items(), key=lambda item: float(item[1][1]))
    lines += [f"| `{name}` | {_WHAT[name]} | {' | '.join(numbers)} |" for name, numbers in found]
    return "\n".join([*lines, "", ""])


if __name__ == "__main__":
    table = table_of_suites(BENCHMARKS.read_text(encoding="utf-8"))
    README.write_text(
        BLOCK_OF_SUITES.sub(lambda _: table, README.read_text(encoding="utf-8"), count=1), encoding="utf-8"
    )
