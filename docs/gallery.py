"""Writes gallery.md and its pictures from what the package derives: `python docs/gallery.py`.

The cascades are those of the catalogue of text books; a test writes the gallery again and compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from pathlib import Path

import tvm_cascade
from benchmarks.check.catalogue import CATALOGUE
from tvm_cascade.report.explanation import picture
from tvm_cascade.report.group import GroupReport

DOCS = Path(__file__).parent
PAGE, PICTURES = "gallery.md", "pictures/gallery"

FIELDS: dict[str, tuple[str, ...]] = {
    "Attention": (
        "attention of one query",
        "softmax",
        "log-softmax",
        "softmax with a sink",
        "soft-capped softmax",
        "softmax with a linear bias",
        "softmax over kept positions",
    ),
    "Norms": (
        "rms norm of a sum",
        "rms norm into a column",
        "layer norm",
        "layer norm with gain and bias into a column",
        "cosine similarity",
    ),
    "Statistics": (
        "variance",
        "skewness",
        "kurtosis",
        "weighted variance",
        "covariance",
        "pearson correlation",
        "residuals of a regression",
        "variance under softmax",
        "mean distance from the maximum",
    ),
    "Losses": (
        "cross-entropy with soft labels",
        "entropy of softmax",
        "kullback-leibler of logits",
        "brier score",
        "heat capacity",
        "group-relative advantages",
    ),
    "Quantisation": (
        "scale of 8-bit integers",
        "scale of 8-bit floats",
        "scale by powers of two",
        "asymmetric scale",
    ),
    "Selection": (
        "three largest probabilities",
        "largest z-score",
        "mean over the maxima",
        "first maximum",
        "largest excess over the mean",
    ),
    "Numerics": (
        "log-sum-exp",
        "length in units of the largest",
        "geometric mean over the maximum",
        "product of shares",
    ),
}
"""Names in the catalogue, by field."""

INTRODUCTION = """# A gallery of cascades

Forty cascades of text books, each with the fold that the package derives for it. A definition is in the catalogue's
words: a reduction or a map along a row for each line, N its length (37 in the folds below), j the position. On the left
of a picture are the passes over the row as written, with arrows to what waits for them; on the right is the loop that
replaces them, with its state, and what stays behind it. In a fold `_1` and `_2` mark the two states that are merged, c
is a reference and Δc how far it moves, n the number of positions so far ([theory](theory.md)). Maps of results alone,
such as a square root at the end, follow the fold as they are. `explain` does all this for
programs of your own.

Written by `docs/gallery.py`: nothing here is typed by hand.
"""


def section(field: str) -> tuple[str, dict[str, str]]:
    """A field's part of the page, and its pictures by path below docs."""
    parts, pictures = [f"## {field}\n"], dict[str, str]()
    for name in FIELDS[field]:
        (group,) = tvm_cascade.explain(CATALOGUE[name].build(), force=True).groups
        drawn = f"{PICTURES}/{re.sub(r'[^a-z0-9]+', '-', name)}.svg"
        pictures[drawn] = picture(group.passes, group.state) + "\n"
        parts.append(_entry(name, group, drawn))
    return "\n".join(parts), pictures


def page(sections: Iterable[str]) -> str:
    """The page of all sections."""
    return "\n".join([INTRODUCTION, *sections])


def _entry(name: str, group: GroupReport, drawn: str) -> str:
    """A section: the definition, passes before and after, the picture, and the fold."""
    statements = _preformatted([statement.strip() for statement in re.split(r";|(?=->)", CATALOGUE[name].text)])
    passes = (
        f"Passes over the row: {group.passes_before} → {group.passes_after}; parts of the state: {len(group.state)}."
    )
    width = max(len(formula.section) for formula in group.formulas)
    fold = _preformatted([f"{formula.section:<{width}}  {formula}" for formula in group.formulas])
    return "\n".join([f"### {name.capitalize()}\n", statements, f"{passes}\n", f"![{name}]({drawn})\n", fold])


def _preformatted(lines: list[str]) -> str:
    return f"<pre>{escape(chr(10).join(lines), quote=False)}</pre>\n"


def main() -> None:
    """Write the page and its pictures; those of cascades that are no more there go."""
    sections = [section(field) for field in FIELDS]
    (DOCS / PICTURES).mkdir(parents=True, exist_ok=True)
    for old in (DOCS / PICTURES).glob("*.svg"):
        old.unlink()
    for path, drawn in {path: drawn for _, pictures in sections for path, drawn in pictures.items()}.items():
        (DOCS / path).write_text(drawn, encoding="utf-8")
    (DOCS / PAGE).write_text(page(text for text, _ in sections), encoding="utf-8")


if __name__ == "__main__":
    main()
