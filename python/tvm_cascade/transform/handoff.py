"""Hand-off to MetaSchedule: one anchor block names our schedule rule, every other block none.

Default rules split and inline blocks of the fused loop one by one, which breaks it; with the root annotated as well,
even a plain `meta_schedule.tune_tir` samples our space alone. The anchor tells of the fold, too: Relax's FuseTIR drops
attributes of the functions that it merges, and keeps those of their blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp
import tvm_ffi
from tvm import s_tir, tirx

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.statements import ROLE
from tvm_cascade.analysis.tir import rebuilt, within
from tvm_cascade.errors import InputError
from tvm_cascade.symbolic.printing import Row, aligned, formula, shortened

SCHEDULE_RULE = "tvm_cascade"
"""Name of the schedule rule, registered as `s_tir.meta_schedule.<target>.tvm_cascade`."""


FUSED = "tvm_cascade.fused"
"""Attribute of a fused function, and annotation of its anchor block: a dictionary for each of its folds."""


@dataclass(frozen=True)
class CarriedFold:
    """A fold as the function that was fused by it carries it.

    Attributes
    ----------
    results : names of the buffers that it computes.
    formulas : (section, left side, right side) of each, in order of computation.
    latex : the same as one `aligned` block.
    """

    results: tuple[str, ...]
    formulas: tuple[tuple[str, ...], ...]
    latex: str


def formulas_of(group: Group) -> list[Row]:
    """The formulas of a group's fold with short numbers, and with the number of all positions where that is one."""
    length = group.frame.length
    known = {LENGTH: sp.Integer(length)} if isinstance(length, int) else {}
    return [(section, left, shortened(right.xreplace(known))) for section, left, right in group.fold.formulas()]


def carried_form(group: Group) -> dict[str, Any]:
    """A group's fold as plain data for the attribute: ASCII alone, as TVM's script loses other texts."""
    rows = formulas_of(group)
    told = [[escaped(text) for text in (section, str(left), formula(right))] for section, left, right in rows]
    return {
        "results": list(map(escaped, group.names)),
        "formulas": told,
        "latex": escaped(aligned(rows, verbatim=True)),
    }


def carried_folds(func: tirx.PrimFunc) -> tuple[CarriedFold, ...]:
    """The folds that a fused function carries; none where nothing of it was fused.

    Raises
    ------
    InputError
        When the attribute is not one that the rewrite wrote, or has been changed so that it holds no fold.
    """
    return tuple(_carried(data) for data in _attribute(func))


def is_fused(func: tirx.PrimFunc) -> bool:
    return bool(_attribute(func))


def _attribute(func: tirx.PrimFunc) -> list[Any]:
    """One entry for each fold; of a function that others were merged into, those that the anchors hold."""
    if func.attrs is not None and FUSED in func.attrs:
        return _listed(func.attrs[FUSED])
    blocks = within(func.body, s_tir.SBlock)
    return [entry for block in blocks if FUSED in block.annotations for entry in _listed(block.annotations[FUSED])]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]


def _carried(data: Any) -> CarriedFold:
    given = dict(data) if isinstance(data, Mapping) else {}
    results, latex = _listed(given.get("results")), given.get("latex")
    rows = [_listed(row) for row in _listed(given.get("formulas"))]
    texts = [*results, latex, *(text for row in rows for text in row)]
    if any(len(row) != 3 for row in rows) or not all(isinstance(text, str) for text in texts):
        hint = "fuse the original function again: this one was changed, or fused by another version"
        raise InputError("results and formulas of a fold", str(data)[:100], f"attribute {FUSED}", hint)
    formulas = tuple(tuple(map(unescaped, row)) for row in rows)
    return CarriedFold(tuple(map(unescaped, results)), formulas, unescaped(str(latex)))


def escaped(name: str) -> str:
    """A name in ASCII: all else as in Python's literals."""
    return name.encode("unicode_escape").decode()


def unescaped(text: str) -> str:
    """The name of an `escaped` text; a text that is none stays as it is."""
    try:
        return str(text).encode("ascii").decode("unicode_escape")
    except UnicodeError:
        return str(text)


def hand_to_tuner(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The rewritten function with a `schedule_rule` on every block, and with its folds on the anchor."""
    anchored, folds = False, func.attrs[FUSED]

    def annotate(block: s_tir.SBlock, mutator: object) -> s_tir.SBlock:
        nonlocal anchored
        block = mutator.default_mutate(block)  # type: ignore[attr-defined]
        anchor = not anchored and block.annotations.get(ROLE) == "update"
        anchored = anchored or anchor
        own = {"schedule_rule": SCHEDULE_RULE, FUSED: folds} if anchor else {"schedule_rule": "None"}
        annotations = {**dict(block.annotations), **own}
        return rebuilt(block, annotations=annotations)

    return func.with_body(tvm_ffi.structural_mutate(func.body, (s_tir.SBlock, annotate)))
