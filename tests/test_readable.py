"""The front page and the tutorials are read with ease: Flesch's measure, by a rule of thumb for syllables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.page import without_quotes

from .pages import ROOT

LEAST = 60.0
"""Flesch reading ease: what a newspaper for the general reader has is 50 to 60, a scientific article about 30."""

NOT_PROSE = re.compile(r"<!--.*?-->|^```.*?^```$|\$\$.*?\$\$|^(?:#|\||    ).*?$|!\[.*?\]\(.*?\)", re.M | re.S)
INLINE = re.compile(r"`[^`]*`|\$[^$]*\$|\]\([^)]*\)")


def syllables(word: str) -> int:
    """Groups of vowels, but for a silent e at the end."""
    groups = len(re.findall(r"[aeiouy]+", word))
    silent = re.search(r"(?:[aeiouy]l|[^aeiouyl])e$|[^td]ed$|[^aeiouysxz]es$", word) is not None
    return max(1, groups - silent)


def ease(markdown: str) -> float:
    """Flesch reading ease of the prose of a page: code, formulas, tables and headings are left out."""
    prose = INLINE.sub("", NOT_PROSE.sub("\n\n", markdown)).lower()
    sentences = [one for one in re.split(r"[.!?](?=\s|$)|\n\s*\n", prose) if re.search("[a-z]{2}", one)]
    words = re.findall(r"[a-z][a-z'’]+", prose)
    return 206.835 - 1.015 * len(words) / len(sentences) - 84.6 * sum(map(syllables, words)) / len(words)


def text_of(path: Path) -> str:
    """A page without its quotes of measurements, or what a notebook says between its cells of code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return without_quotes(text)
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def test_long_words_and_long_sentences_are_hard_to_read() -> None:
    assert syllables("derivation") == 4 and syllables("scale") == 1 and syllables("merged") == 1
    easy = "The state is small. It is made from one row. Two of them are merged in one step."
    hard = "Representations, closed under translation, necessitate accumulating multiplicative normalisation factors."
    assert ease(easy) > 90 and ease(hard) < 0
    assert ease(easy.replace(".", ",")) < ease(easy)


@pytest.mark.parametrize(
    "path",
    [ROOT / "README.md", *sorted((ROOT / "tutorials").glob("*.ipynb"))],
    ids=lambda path: path.stem,
)
def test_the_page_is_read_with_ease(path: Path) -> None:
    assert ease(text_of(path)) >= LEAST
