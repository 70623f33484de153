"""Writes reasons.md and options.md from the tables that the package works by: `python -m docs.reference`.

A test makes the pages again and compares.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tvm_cascade.codes import CODES
from tvm_cascade.options import ENVIRONMENT_PREFIX, FuseOptions
from tvm_cascade.report.reference import example_of

DOCS = Path(__file__).parent

ADVISED: dict[str, str] = {
    "infinite_rank": "total = sum x; out = sum exp(x - total)",
    "undefined": "m = max x; out = sum log(exp(x - m))",
    "not_monotone": "total = sum x; least = min x; out = abs(least - total)",
    "rounding": "a = max abs(x); s = sum 127*x/a; out = ceil(s)",
    "logical_dependence": "m = max x; out = any x >= m/2",
    "prod_dependence": "total = sum x; out = prod x*total",
    "rank_limit": "s = sum x; q = sum x**2; c = sum x**3; out = c - 3*s*q + 3*s**2*s - N*s**3",
}
"""By code, a program that follows its hint, and fuses: where its example is statements, and the hint changes these."""

_REASONS = """# Why a program does not fuse: reason codes

Every group of reductions has a verdict with a stable code, never a silent no. `explain` prints it with the buffers and
the expression concerned and, where a law fails, with numbers on which it does. `python -m tvm_cascade reasons` prints
this list. Where an example is statements, N is the length of the axis, and x what is read at a position.

Written by `python -m docs.reference`.
"""

_OPTIONS = """# Options

Fields of `tvm_cascade.FuseOptions`, keyword arguments of the pass, of `compile` and of `explain`, variables, and flags
of the commands that fuse. A keyword goes before a variable. `python -m tvm_cascade options` prints what is in force.

Compiled code is kept on disk in `$XDG_CACHE_HOME/tvm-cascade/code` (`~/.cache/tvm-cascade/code` by default), of at most
`TVM_CASCADE_CACHE_MIB` MiB (4096): what was used longest ago goes first, and 0 keeps nothing
([api](api.md#code-on-disk)). Not kept is what `FuseCascadedReductions` and `explain` find out.

Written by `python -m docs.reference`.

| option | flag, variable | default | meaning |
|---|---|---|---|
"""


def reasons() -> str:
    """A section for every code: verdict, law, example, remedy."""
    sections = []
    for code, (verdict, law, hint) in CODES.items():
        rows = [f"*{verdict}*: {law}.", f"Example: {example_of(code)}."]
        advised = f": `{ADVISED[code]}`" if code in ADVISED else ""
        sections.append("\n\n".join([f"## {code}", *rows, *([f"To make it fuse: {hint}{advised}."] if hint else [])]))
    return "\n".join([_REASONS, "\n\n".join(sections), ""])


def options() -> str:
    """A row for every option of the pass."""
    rows = []
    for option in dataclasses.fields(FuseOptions):
        named = f"`--{option.name.replace('_', '-')}`, `{ENVIRONMENT_PREFIX}{option.name.upper()}`"
        choices = f"; of {', '.join(option.metadata['choices'])}" if option.metadata["choices"] else ""
        rows.append(f"| `{option.name}` | {named} | `{option.default!r}` | {option.metadata['meaning']}{choices} |")
    return _OPTIONS + "\n".join(rows) + "\n"


PAGES = {"reasons.md": reasons, "options.md": options}


if __name__ == "__main__":
    for name, made in PAGES.items():
        (DOCS / name).write_text(made(), encoding="utf-8")
