"""A group of reductions as an SVG: the passes as written with what waits for what, and the loop that replaces them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tvm_cascade.report.dependences import PassReport

_GLYPH = 7.3  # width of a letter of the 12-pixel monospaced font, at most
_ROW, _GAP, _MARGIN, _ARC = 24, 10, 12, 14
_LONGEST = 44  # letters of a label
_PASS = ("#ddf4ff", "#54aeff", "#0550ae")  # fill, stroke and text
_LOOP = ("#dafbe1", "#4ac26b", "#116329")
_TITLE = "#24292f"


def picture(passes: Sequence[PassReport], state: Sequence[str]) -> str:
    """The picture; the fused side is left out where there is no state.

    Parameters
    ----------
    passes : over the cascade axis, in order.
    state : the names of the fold's components and references.
    """
    written = _Side(_MARGIN, "as written")
    for one in passes:
        written.box([_label(one)], _PASS, one.waits_for)
    sides, told = [written], f"As written: {len(passes)} passes over the axis"
    if state:
        behind = [(k, one) for k, one in enumerate(passes) if one.after]
        fused = _Side(_MARGIN + written.width + 2 * _MARGIN, "fused")
        inputs = dict.fromkeys(name for one in passes if not one.after for name in one.reads)
        fused.box(_lines("one loop over ", list(inputs)) + _lines("state ", state), _LOOP, ())
        places = {k: place for place, (k, _) in enumerate(behind, 1)}
        for _, one in behind:
            fused.box([_label(one)], _PASS, sorted({places.get(k, 0) for k in one.waits_for}))
        sides.append(fused)
        told += f"; fused: {1 + len(behind)}"
    width = sides[-1].left + sides[-1].width + _MARGIN
    height = max(side.bottom for side in sides) + _MARGIN
    shown = "\n".join(line for side in sides for line in side.lines())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="monospace" font-size="12" role="img" aria-label="{escape(told)}">\n'
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>\n{shown}\n</svg>'
    )


class _Side:
    """A column of boxes under a title, with an arc from each box to those that wait for it."""

    def __init__(self, left: int, title: str) -> None:
        self.left, self.title = left, title
        self.bottom = _MARGIN + _ROW
        self.boxes: list[tuple[int, int, Sequence[str], tuple[str, str, str]]] = []
        self.arcs: list[tuple[int, int]] = []

    def box(self, lines: Sequence[str], colours: tuple[str, str, str], waits_for: Sequence[int]) -> None:
        """Add a box below the others."""
        height = _ROW + (len(lines) - 1) * 16
        self.arcs += [(place, len(self.boxes)) for place in waits_for]
        self.boxes.append((self.bottom, height, lines, colours))
        self.bottom += height + _GAP

    @property
    def _inner(self) -> int:
        longest = max([len(self.title), *(len(line) for _, _, lines, _ in self.boxes for line in lines)])
        return round(longest * _GLYPH) + 2 * _GAP

    @property
    def width(self) -> int:
        """Of the boxes and of the widest arc."""
        return self._inner + _ARC * (1 + max((to - start for start, to in self.arcs), default=0))

    def lines(self) -> list[str]:
        """Its elements."""
        found = [f'<text x="{self.left}" y="{_MARGIN + 14}" fill="{_TITLE}" font-weight="bold">{self.title}</text>']
        for top, height, lines, (fill, stroke, ink) in self.boxes:
            found.append(
                f'<rect x="{self.left}" y="{top}" width="{self._inner}" height="{height}" rx="4" '
                f'fill="{fill}" stroke="{stroke}"/>'
            )
            found += [
                f'<text x="{self.left + _GAP}" y="{top + 16 + 16 * k}" fill="{ink}">{escape(line)}</text>'
                for k, line in enumerate(lines)
            ]
        return found + [self._arc(start, to) for start, to in self.arcs]

    def _arc(self, start: int, to: int) -> str:
        """From the lower half of one box's right edge to the upper half of another's, with a head."""
        (top, height, _, _), (below, *_) = self.boxes[start], self.boxes[to]
        x, y, end, out = self.left + self._inner, top + height - 8, below + 8, _ARC * (to - start)
        return (
            f'<path d="M{x} {y}C{x + out} {y} {x + out} {end} {x + 6} {end}" fill="none" stroke="#57606a"/>'
            f'<path d="M{x} {end}l7 -4v8z" fill="#57606a"/>'
        )


def _label(one: PassReport) -> str:
    """`mass = sum over x`."""
    computed = f"{one.reducer} over" if one.reducer else "map of"
    read = ", ".join(one.reads) or "it"
    return _clipped(f"{', '.join(one.writes)} = {computed} {read}", _LONGEST)


def _clipped(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _lines(start: str, names: Sequence[str]) -> list[str]:
    """`start` and the names, broken into lines."""
    lines = [start]
    for k, name in enumerate(names):
        word = _clipped(name, _LONGEST - 4) + (", " if k + 1 < len(names) else "")
        if len(lines[-1]) + len(word) > _LONGEST:
            lines.append("  ")
        lines[-1] += word
    return [line.rstrip() for line in lines]
