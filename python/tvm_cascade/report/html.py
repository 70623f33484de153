"""Reports as HTML: a fragment for notebooks, a page for files; every text is escaped, and nothing is loaded.

Pictures are SVG and formulas MathML, both in place; the code of a reason leads to its section at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.codes import CODES
from tvm_cascade.report.apart import Apart
from tvm_cascade.report.group import Formula, FunctionReport, GroupReport, bytes_text
from tvm_cascade.report.picture import picture
from tvm_cascade.report.reference import example_of
from tvm_cascade.report.steps import StepReport

_COLOURS = {
    Verdict.FUSED: "#1a7f37",
    Verdict.REFUSED: "#b35900",
    Verdict.UNKNOWN: "#6e7781",
    Verdict.DECLINED: "#0969da",
    Verdict.NOTHING: "inherit",
}
_BYTES, _TIME = "#54aeff", "#d4a72c"
_BAR = 120  # pixels of the longest
_CELL = 'style="text-align:left;vertical-align:top;padding:1px 12px 1px 0"'


def page(shown: str, title: str) -> str:
    """A whole document around a fragment."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><title>{escape(title)}</title></head>\n'
        f'<body style="font-family:sans-serif">\n<h1>{escape(title)}</h1>\n{shown}\n</body></html>\n'
    )


def fragment(groups: Sequence[GroupReport], functions: Sequence[FunctionReport], apart: Sequence[Apart] = ()) -> str:
    """The HTML that a notebook shows: groups; functions without groups, or lowered; operators left apart; reasons."""
    told = {group.function for group in groups}
    rest = [_function(function) for function in functions if function.name not in told or function.lowering_lines]
    rest += [f"<p>{escape(one.heading)}</p>{_table([('why', escape(one.why))])}" for one in apart]
    reasons = dict.fromkeys(group.reason.code for group in groups)
    parts = [_group(group) for group in groups] + rest + [_reason(code) for code in reasons]
    return f'<div class="tvm-cascade">{"".join(parts) or "<p>no functions</p>"}</div>'


def _function(function: FunctionReport) -> str:
    """What became of a function, and its kernels in order."""
    told = [f"{function.name}: {function.status} ({function.note})"]
    told += [f"lowered to {function.lowering}"] if function.lowering else []
    told += [f"chosen by {function.design}"] if function.design else []
    told += function.buckets
    told += [f"not as one kernel: {function.whole}"] if function.whole else []
    most_bytes = max((step.bytes for step in function.plan), default=0)
    most_time = max((step.microseconds for step in function.plan), default=0)
    steps = [
        (
            str(position),
            f"<code>{escape(step.computes)}</code>",
            escape(step.amounts) + _bars(step, most_bytes, most_time),
            escape(step.kernel),
        )
        for position, step in enumerate(function.plan, 1)
    ]
    return "".join(f"<p>{escape(line)}</p>" for line in told) + _table(steps)


def _bars(step: StepReport, most_bytes: float, most_time: float) -> str:
    """Bytes and estimated time of a kernel, each relative to the largest of the plan."""
    shown = _bar("bytes", _BYTES, step.bytes, most_bytes)
    return shown + _bar("estimated time", _TIME, step.microseconds, most_time)


def _bar(title: str, colour: str, value: float, most: float) -> str:
    if not most:
        return ""
    return f'<div title="{title}" style="background:{colour};height:5px;width:{_BAR * value / most:.0f}px"></div>'


def _table(rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already; nothing where there are no rows."""
    lines = ["".join(f"<td {_CELL}>{cell}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>" if lines else ""


def _group(group: GroupReport) -> str:
    verdict, colour = escape(str(group.verdict)), _COLOURS[group.verdict]
    buffers = ", ".join(f"<code>{escape(name)}</code>" for name in group.buffers)
    heading = (
        f'<h4>{escape(group.function)}: <span style="color:{colour}">{verdict}</span>'
        f"{': ' if buffers else ''}{buffers}</h4>"
    )
    code = escape(group.reason.code)
    link = f'<p>reason: <a href="#reason-{code}"><code>{code}</code></a></p>'
    drawn = f'<div style="overflow-x:auto">{picture(group.passes, group.state)}</div>' if group.passes else ""
    facts = _table((escape(label), escape(sentence)) for label, sentence in group.facts)
    formulas = _table((escape(formula.section), _typeset(formula)) for formula in group.formulas)
    return f"<section>{heading}{link}{drawn}{_savings(group)}{facts}{formulas}</section>"


def _typeset(formula: Formula) -> str:
    return formula.mathml or f"<code>{escape(formula.left)} = {escape(formula.right)}</code>"


def _savings(group: GroupReport) -> str:
    """Bytes of intermediates and estimated time, unfused and fused, as bars of one scale."""
    scales = (
        ("intermediates", _BYTES, group.bytes_before, group.bytes_after, lambda size: bytes_text(int(size))),
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
    lines = [f"{verdict}: {law}.", f"Example: {example_of(code)}.", *([f"To make it fuse: {hint}."] if hint else [])]
    told = "".join(f"<p>{escape(line)}</p>" for line in lines)
    more = f"<p>More: <code>python -m tvm_cascade reasons {code}</code>, <code>docs/reasons.md</code></p>"
    return f'<section id="reason-{code}"><h5><code>{code}</code></h5>{told}{more}</section>'
