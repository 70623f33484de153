"""docs/each_builder.md and its pictures are what the builders give today: the page is written again and compared."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from tvm_cascade import te

from .pages import ROOT, script

BUILDERS = script("each_builder")
DOCS = ROOT / "docs"


@cache
def written() -> tuple[str, dict[str, str]]:
    return BUILDERS.page()


def test_the_page_and_its_pictures_are_as_they_are_written() -> None:
    text, pictures = written()
    assert (DOCS / BUILDERS.PAGE).read_text(encoding="utf-8") == text, "python docs/each_builder.py writes it anew"
    stored = {str(path.relative_to(DOCS)): path.read_text() for path in (DOCS / BUILDERS.PICTURES).glob("*.svg")}
    assert stored == pictures, "python docs/each_builder.py writes them anew"


def test_every_builder_has_a_section() -> None:
    assert {section.builder for section in BUILDERS.SECTIONS} == {*te.__all__}


_QUERY, _KEY = np.ogrid[:24, :24]
_DOCUMENT = np.repeat(np.arange(3), (5, 12, 7))
MASKS = {
    "causal-attention": _KEY <= _QUERY,
    "sliding-window": (_KEY <= _QUERY) & (_QUERY - _KEY < 6),
    "a-prefix-that-all-see": (_KEY < 8) | (_KEY <= _QUERY),
    "packed-documents": (_DOCUMENT[:, None] == _DOCUMENT) & (_KEY <= _QUERY),
    "lengths": np.tile(_KEY < 17, (24, 1)),
}


@pytest.mark.parametrize("name", MASKS)
def test_the_picture_of_a_mask_is_the_mask(name: str) -> None:
    kept: NDArray[np.bool_] = MASKS[name]
    drawn = BUILDERS.weights_drawn(kept / kept.sum(axis=1, keepdims=True), "key")
    assert written()[1][f"{BUILDERS.PICTURES}/{name}.svg"] == drawn
