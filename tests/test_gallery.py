"""docs/gallery.md and its pictures are what the package derives today: each field is written again and compared."""

from __future__ import annotations

from itertools import pairwise

import pytest

from .pages import ROOT, script
from .tiers import slow_but

DOCS = ROOT / "docs"


GALLERY = script("gallery")
STORED = (DOCS / "gallery.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("field", slow_but(["Norms", "Selection"], GALLERY.FIELDS))
def test_a_field_is_stored_as_it_is_derived(field: str) -> None:
    text, pictures = GALLERY.section(field)
    assert text in STORED, "python docs/gallery.py writes it anew"
    assert len(pictures) == len(GALLERY.FIELDS[field])
    for path, drawn in pictures.items():
        assert (DOCS / path).read_text(encoding="utf-8") == drawn, "python docs/gallery.py writes it anew"


def test_the_page_is_its_fields_in_order_and_no_picture_is_left_over() -> None:
    starts = [STORED.index(f"\n## {field}\n") + 1 for field in GALLERY.FIELDS] + [len(STORED) + 1]
    sections = [STORED[start : end - 1] for start, end in pairwise(starts)]
    assert GALLERY.page(sections) == STORED
    shown = [path for path in STORED.replace(")", "(").split("(") if path.endswith(".svg")]
    assert sorted(shown) == sorted(str(path.relative_to(DOCS)) for path in (DOCS / GALLERY.PICTURES).glob("*.svg"))
    assert len(shown) == len(set(shown)) == 40


def test_what_every_entry_shows_is_one_fused_loop() -> None:
    assert STORED.count("<pre>") == 2 * STORED.count("\n### ") == 80
    assert STORED.count("finish ") >= 40 and STORED.count("merge ") >= 40
