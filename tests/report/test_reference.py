"""The reference pages are those of the tables, hold every code and option, and their examples have the codes."""

from __future__ import annotations

import pytest
from docs.reference import ADVISED, DOCS, PAGES

import tvm_cascade
from benchmarks.check.definition import Definition
from tvm_cascade.algebra.verdict import CODES
from tvm_cascade.report.reference import EXAMPLES, is_cascade

CASCADES = [code for code, example in EXAMPLES.items() if is_cascade(example)]


@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_that_of_the_tables(page: str) -> None:
    assert PAGES[page]() == (DOCS / page).read_text(encoding="utf-8")


def test_every_code_has_an_example_and_a_section_with_its_law_and_remedy() -> None:
    assert EXAMPLES.keys() == CODES.keys()
    text = (DOCS / "reasons.md").read_text(encoding="utf-8")
    for code, (verdict, law, hint) in CODES.items():
        section = text.split(f"\n## {code}\n")[1].split("\n## ")[0]
        assert f"*{verdict}*: {law}." in section and hint in section and EXAMPLES[code] in section


def test_many_examples_are_programs() -> None:
    assert len(CASCADES) >= 9


@pytest.mark.parametrize("code", ADVISED)
def test_an_example_that_is_changed_as_advised_fuses(code: str) -> None:
    assert code in CASCADES and CODES[code][2]
    explained = tvm_cascade.explain(Definition(code, ADVISED[code]).build(), force=True)
    assert [group.reason.code for group in explained.groups] == ["fold"]


@pytest.mark.parametrize("code", CASCADES)
def test_an_example_has_its_code(code: str) -> None:
    explained = tvm_cascade.explain(Definition(code, EXAMPLES[code]).build(), force=True)
    assert [group.reason.code for group in explained.groups] == [code]
