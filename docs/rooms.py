"""Writes pictures/rooms.svg, the rooms of the package by what they may import: `python -m docs.rooms` in a checkout.

A room stands one floor above the highest that `tests/lint.py` lets it import. A test draws it again and compares.
"""

from __future__ import annotations

from graphlib import TopologicalSorter
from itertools import groupby
from pathlib import Path

from tests.lint import ALLOWED, FOLDERS, NAME

DOCS = Path(__file__).parent
PICTURE = "pictures/rooms.svg"

_WIDTH, _BOX, _FLOOR, _MARGIN = 148, 28, 38, 12  # pixels
_FILL, _STROKE, _INK = "#ddf4ff", "#54aeff", "#24292f"


def floors() -> list[list[str]]:
    """Names of rooms, which are folders, by floor, the lowest first."""
    heights = dict[str, int]()
    for part in TopologicalSorter(ALLOWED).static_order():
        heights[part] = 1 + max((heights[other] for other in ALLOWED[part]), default=0)
    package = DOCS.parent / FOLDERS[NAME]
    rooms = sorted((part for part in ALLOWED if (package / part).is_dir()), key=lambda part: (heights[part], part))
    return [list(names) for _, names in groupby(rooms, key=heights.__getitem__)]


def picture() -> str:
    """The floors as rows of boxes, the highest on top."""
    found = floors()
    width = _MARGIN + max(map(len, found)) * (_WIDTH + _MARGIN)
    height = _MARGIN + len(found) * _FLOOR
    boxes = []
    for row, names in enumerate(reversed(found)):
        left, top = (width - len(names) * (_WIDTH + _MARGIN) + _MARGIN) // 2, _MARGIN + row * _FLOOR
        for at, name in enumerate(names):
            x = left + at * (_WIDTH + _MARGIN)
            boxes.append(
                f'<rect x="{x}" y="{top}" width="{_WIDTH}" height="{_BOX}" rx="5" fill="{_FILL}" stroke="{_STROKE}"/>'
                f'<text x="{x + _WIDTH // 2}" y="{top + 19}" text-anchor="middle" fill="{_INK}">{name}</text>'
            )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="14" role="img" aria-label="Rooms by floor, the commands on top">\n'
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>\n' + "\n".join(boxes) + "\n</svg>\n"
    )


if __name__ == "__main__":
    (DOCS / PICTURE).write_text(picture(), encoding="utf-8")
