"""An explanation as data, text and JSON: the outcome of each function and group of reductions."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.codes import CODES
from tvm_cascade.report.group import (
    EXCHANGES,
    INTERMEDIATES,
    Apart,
    ExchangeReport,
    Formula,
    FunctionReport,
    GroupReport,
    PassReport,
    StepReport,
    bytes_text,
    exchanges_text,
)
from tvm_cascade.report.reference import example_of

SCHEMA = 1
"""Version of the JSON form; it changes when a key is renamed or removed."""

_SUMMARY = 10  # lines of an explanation's repr


@dataclass(frozen=True)
class Explanation:
    """The result of `explain`: text when printed, HTML in a notebook.

    Attributes
    ----------
    groups : one for each group of reductions that was looked at, in order of functions.
    functions : every function of the module.
    apart : of a module of Relax, the operators that were looked at together and not merged.
    exchanges : of a function whose axis is sharded over ranks, those that were considered.
    """

    groups: tuple[GroupReport, ...] = ()
    functions: tuple[FunctionReport, ...] = ()
    apart: tuple[Apart, ...] = ()
    exchanges: tuple[ExchangeReport, ...] = ()

    @property
    def fused(self) -> bool:
        """Whether any group is, or was already, fused."""
        return any(group.verdict is Verdict.FUSED for group in self.groups)

    def to_json(self) -> str:
        """The explanation as JSON text; keys are stable, and `schema` is the version of the format."""
        functions = [dataclasses.asdict(f) for f in self.functions]
        groups = [group.to_dict() for group in self.groups]
        apart = [dataclasses.asdict(one) for one in self.apart]
        told = {"schema": SCHEMA, "functions": functions, "groups": groups, "apart": apart}
        told |= {"exchanges": [dataclasses.asdict(one) for one in self.exchanges]} if self.exchanges else {}
        return json.dumps(told, indent=2, ensure_ascii=False)

    def __repr__(self) -> str:
        lines = [f"{group.heading} [{group.reason.code}]" for group in self.groups]
        told = {group.function for group in self.groups}
        lines += [f"{function.name}: {function.status}" for function in self.functions if function.name not in told]
        more = [f"and {len(lines) - _SUMMARY} more"] if len(lines) > _SUMMARY else []
        shown = "".join(f"\n  {line}" for line in [*lines[:_SUMMARY], *more])
        return f"<Explanation; print it for reasons and formulas, or call to_json(){shown}>"

    @property
    def _others(self) -> list[FunctionReport | Apart]:
        """What is told beside groups: functions without any, or lowered; operators not merged."""
        told = {group.function for group in self.groups}
        return [*(one for one in self.functions if one.name not in told or one.lowering_lines), *self.apart]

    def __str__(self) -> str:
        parts = [exchanges_text(self.exchanges)] if self.exchanges else []
        parts += [str(one) for one in (*self.groups, *self._others)]
        return "\n\n".join(parts) if parts else "no functions"

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        """The text in colours, as wide as a terminal is, whose sentences keep to their column."""
        if self.exchanges:
            yield exchanges_text(self.exchanges)
            yield ""
        for group in self.groups:
            yield Text(group.heading, style=f"bold {_STYLES.get(group.verdict, '')}")
            yield _columns((f"  {label}", sentence) for label, sentence in group.rows)
            yield ""
        for one in self._others:
            heading, *lines = str(one).splitlines()
            yield Text(heading, style="bold")
            yield _columns((" " * (len(line) - len(line.lstrip())), line.lstrip()) for line in lines)
            yield ""

    def to_html(self, title: str) -> str:
        """The explanation as a whole HTML page, with nothing to load."""
        return page(self._repr_html_(), title)

    def _repr_html_(self) -> str:
        exchanges = [EXCHANGES, *(one.cells for one in self.exchanges)] if self.exchanges else []
        return _table([*map(escape, row)] for row in exchanges) + fragment(self.groups, self.functions, self.apart)


def _columns(rows: Iterable[tuple[str, str]]) -> Table:
    """Labels, and sentences beside them that keep to their column."""
    grid = Table.grid(Column(style="dim", no_wrap=True), Column(overflow="fold"), padding=(0, 2, 0, 0))
    for label, sentence in rows:
        grid.add_row(Text(label), Text(sentence))
    return grid


# Reports as HTML: a fragment for notebooks, a page for files; every text is escaped, and nothing is loaded.
#
# Pictures are SVG and formulas MathML, both in place; the code of a reason leads to its section at the end.


_COLOURS = {
    Verdict.FUSED: "#1a7f37",
    Verdict.REFUSED: "#b35900",
    Verdict.UNKNOWN: "#6e7781",
    Verdict.DECLINED: "#0969da",
    Verdict.NOTHING: "inherit",
}
_STYLES = {
    Verdict.FUSED: "green",
    Verdict.REFUSED: "yellow",
    Verdict.UNKNOWN: "magenta",
    Verdict.DECLINED: "blue",
}
"""Of headings in a terminal, in its own colours."""

_BYTES, _TIME, _LEVEL = "#54aeff", "#d4a72c", "#8c959f"
_BAR = 120  # pixels of the longest
_CELL = "text-align:left;vertical-align:top;padding:1px 12px 1px 0"


def page(shown: str, title: str) -> str:
    """A whole document around a fragment."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width"/><style>:root{color-scheme:light dark}</style></head>\n'
        '<body style="font-family:sans-serif;line-height:1.5;max-width:75em;margin:2em auto;padding:0 1em">\n'
        f"<h1>{escape(title)}</h1>\n{shown}\n</body></html>\n"
    )


def fragment(groups: Sequence[GroupReport], functions: Sequence[FunctionReport], apart: Sequence[Apart] = ()) -> str:
    """The HTML that a notebook shows: groups; functions without groups, or lowered; operators not merged; reasons."""
    told = {group.function for group in groups}
    rest = [_function(function) for function in functions if function.name not in told or function.lowering_lines]
    rest += [f"<p>{escape(one.heading)}</p>{_table([('why', escape(one.why))])}" for one in apart]
    reasons = dict.fromkeys(group.reason.code for group in groups)
    parts = [_group(group) for group in groups] + rest + [_reason(code) for code in reasons]
    return f'<div class="tvm-cascade">{"".join(parts) or "<p>no functions</p>"}</div>'


def _function(function: FunctionReport) -> str:
    """What became of a function, its kernels in order, why they are not one, and what one does with a tile."""
    told = [("lowered to", function.lowering), ("chosen by", function.design), *(("", one) for one in function.buckets)]
    most_bytes = max((step.bytes for step in function.plan), default=0)
    most_time = max((step.microseconds for step in function.plan), default=0)
    steps = [
        (
            str(position),
            f"<code>{escape(step.computes)}</code>",
            escape(step.amounts) + _bars(step, most_bytes, most_time),
            _marked(step.kernel) if step.kernel != function.lowering else "",
        )
        for position, step in enumerate(function.plan, 1)
    ]
    apart = _table(
        (f"<code>{escape(kind)}</code>", escape(covers), _marked(why))
        for one in function.reasons
        for kinds, _, why in [one.rpartition("): ")]
        for kind, covers in re.findall(r"`([^`]*)` \(([^)]*)", kinds) or [("", "")]
    )
    tile = (line.split(None, 1) for line in function.tile_program.splitlines())
    return (
        f"<h4>{escape(f'{function.name}: {function.status} ({function.note})')}</h4>"
        + _table((label, _marked(sentence)) for label, sentence in told if sentence)
        + _table(steps)
        + (f"<p>not as one kernel, since of each kind:</p>{apart}" if apart else "")
        + _table((escape(word), f"<code>{escape(' '.join(what))}</code>") for word, *what in tile)
    )


def _bars(step: StepReport, most_bytes: float, most_time: float) -> str:
    """Bytes and estimated time of a kernel, and the time of each level, relative to the largest of the plan."""
    shown = _bar("bytes", _BYTES, step.bytes, most_bytes)
    levels = "".join(
        f'<div style="font-size:85%">{one.name}: {amount}, {one.microseconds:.1f} us</div>'
        + _bar(one.name, _LEVEL, one.microseconds, most_time)
        for one, amount in zip(step.levels, step.amounts_by_level, strict=True)
    )
    return shown + _bar("estimated time", _TIME, step.microseconds, most_time) + levels


def _bar(title: str, colour: str, value: float, most: float) -> str:
    if not most:
        return ""
    return f'<div title="{title}" style="background:{colour};height:5px;width:{_BAR * value / most:.0f}px"></div>'


def _table(rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already; nothing where there are no rows."""
    styles = (f"{_CELL};white-space:nowrap;min-width:9em", *(_CELL,) * 4)
    lines = ["".join(f'<td style="{s}">{cell}</td>' for s, cell in zip(styles, row, strict=False)) for row in rows]
    rows = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div style="overflow-x:auto"><table>{rows}</table></div>' if lines else ""


def _group(group: GroupReport) -> str:
    verdict, colour = escape(str(group.verdict)), _COLOURS[group.verdict]
    buffers = ", ".join(f"<code>{escape(name)}</code>" for name in group.buffers)
    heading = (
        f'<h4>{escape(group.function)}: <span style="color:{colour}">{verdict}</span>'
        f"{': ' if buffers else ''}{buffers}</h4>"
    )
    drawn = f'<div style="overflow-x:auto">{picture(group.passes, group.state)}</div>' if group.passes else ""
    formulas = [(escape(formula.section), _typeset(formula)) for formula in group.formulas]
    told = (fact for fact in group.facts if fact[0] != INTERMEDIATES)  # which bars tell
    why, *facts = [(escape(label), _marked(sentence)) for label, sentence in told]
    code = escape(group.reason.code)
    linked = why[1].replace(f"[{code}]", f'<a href="#reason-{code}"><code>{code}</code></a>:', 1)
    tables = map(_table, ([(why[0], linked)], formulas, facts))  # apart, as long formulas scroll
    return f"<section>{heading}{drawn}{_savings(group)}{''.join(tables)}</section>"


def _marked(sentence: str) -> str:
    """A sentence in HTML, with what stands between backticks as code."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", escape(sentence))


def _typeset(formula: Formula) -> str:
    return formula.mathml or f"<code>{escape(formula.left)} = {escape(formula.right)}</code>"


def _savings(group: GroupReport) -> str:
    """Bytes of intermediates and estimated time, unfused and fused, as bars of one scale."""
    scales = (
        (INTERMEDIATES, _BYTES, group.bytes_before, group.bytes_after, lambda size: bytes_text(int(size))),
        ("estimated time", _TIME, group.us_before, group.us_after, lambda time: f"{time:.1f} us"),
    )
    rows = []
    for title, colour, before, after, told in scales:
        if before is None or after is None:
            continue
        for when, value in (("unfused", before), ("fused", after)):
            bar = _bar(f"{title}, {when}", colour, value, max(before, after))
            rows.append((f"{title}, {when}", told(value) + bar))
    return _table(rows)


def _reason(code: str) -> str:
    """What the reference page says of a code, below the anchor that headings lead to."""
    verdict, law, hint = CODES[code]
    rows = [(str(verdict), f"{law}."), ("example", f"{example_of(code)}."), ("to make it fuse", hint)]
    rows.append(("more", f"`python -m tvm_cascade reasons {code}`, `docs/reasons.md`"))
    told = _table((escape(label), _marked(sentence)) for label, sentence in rows if sentence)
    return f'<section id="reason-{code}"><h5><code>{code}</code></h5>{told}</section>'


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
        loop = _lines(f"one loop over {', '.join(inputs)}") + _lines(f"state {', '.join(state)}")
        fused.box(loop, _LOOP, ())
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
    told = f"{', '.join(one.writes)} = {computed} {read}"
    return told if len(told) <= _LONGEST else f"{told[: _LONGEST - 1]}…"


def _lines(text: str) -> list[str]:
    return textwrap.wrap(text, _LONGEST, subsequent_indent="  ")
