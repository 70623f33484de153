"""Reports as HTML: a fragment for notebooks, a page for files; every text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.report.group import FunctionReport, GroupReport
from tvm_cascade.report.steps import StepReport

_COLOURS = {
    Verdict.FUSED: "#1a7f37",
    Verdict.REFUSED: "#b35900",
    Verdict.UNKNOWN: "#6e7781",
    Verdict.DECLINED: "#0969da",
    Verdict.NOTHING: "inherit",
}
_CELL = 'style="text-align:left;vertical-align:top;padding:1px 12px 1px 0"'


def page(groups: Sequence[GroupReport], functions: Sequence[FunctionReport], title: str) -> str:
    """A whole document."""
    shown = fragment(groups, functions)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title></head>\n'
        f'<body style="font-family:sans-serif">\n<h1>{escape(title)}</h1>\n{shown}\n</body></html>\n'
    )


def fragment(groups: Sequence[GroupReport], functions: Sequence[FunctionReport]) -> str:
    """The HTML that a notebook shows: one section per group, then the functions without groups, or with kernels."""
    told = {group.function for group in groups}
    rest = [_function(function) for function in functions if function.name not in told or function.lowering_lines]
    parts = [_group(group) for group in groups] + rest
    return f'<div class="tvm-cascade">{"".join(parts) or "<p>no functions</p>"}</div>'


def _function(function: FunctionReport) -> str:
    """What became of a function, and its kernels in order."""
    told = [f"{function.name}: {function.status} ({function.note})"]
    told += [f"lowered to {function.lowering}"] if function.lowering else []
    told += [f"chosen by {function.design}"] if function.design else []
    told += [f"not as one kernel: {function.whole}"] if function.whole else []
    steps = "".join(
        f"<tr><td {_CELL}>{position}</td><td {_CELL}><code>{escape(step.computes)}</code></td>"
        f"<td {_CELL}>{escape(step.amounts)}{_bars(step, function.plan)}</td>"
        f"<td {_CELL}>{escape(step.kernel)}</td></tr>"
        for position, step in enumerate(function.plan, 1)
    )
    return "".join(f"<p>{escape(line)}</p>" for line in told) + (f"<table>{steps}</table>" if steps else "")


def _bars(step: StepReport, plan: Sequence[StepReport]) -> str:
    """Bytes and estimated time as bars, each relative to the largest of the plan."""
    shares = (
        ("bytes", "#54aeff", step.bytes, max(other.bytes for other in plan)),
        ("estimated time", "#d4a72c", step.microseconds, max(other.microseconds for other in plan)),
    )
    return "".join(
        f'<div title="{name}" style="background:{colour};height:5px;width:{120 * value / most:.0f}px"></div>'
        for name, colour, value, most in shares
        if most
    )


def _group(group: GroupReport) -> str:
    verdict, colour = escape(str(group.verdict)), _COLOURS[group.verdict]
    buffers = ", ".join(f"<code>{escape(name)}</code>" for name in group.buffers)
    heading = (
        f'<h4>{escape(group.function)}: <span style="color:{colour}">{verdict}</span>'
        f"{': ' if buffers else ''}{buffers}</h4>"
    )
    formulas = "".join(
        f"<tr><td {_CELL}>{escape(f.section)}</td><td {_CELL}><code>{escape(f.left)}</code></td>"
        f"<td {_CELL}><code>= {escape(f.right)}</code></td></tr>"
        for f in group.formulas
    )
    facts = "".join(f"<tr><td {_CELL}>{escape(k)}</td><td {_CELL}>{escape(v)}</td></tr>" for k, v in group.facts)
    table = f"<table>{formulas}</table>" if formulas else ""
    return f"<section>{heading}<table>{facts}</table>{table}</section>"
