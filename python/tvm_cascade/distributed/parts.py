"""A loop of which a function runs one part after another, while what later parts read is on its way.

    heads 0 … 31, of which 4 share keys     →     heads 0 … 7 read keys 0 and 1; heads 8 … 31 then those of 2 … 7

The loop is one of rows that every rank has whole: nothing is merged, and results are the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import ir

from tvm_cascade.analysis.tir import analyzer_of, loads_of
from tvm_cascade.chunks.part import Rows
from tvm_cascade.distributed.order import Share, Span
from tvm_cascade.distributed.sharding import Along, Sharding, rows_named
from tvm_cascade.errors import SplitError

Ranges = Mapping[int, Span]
"""By dimension, the part of a tensor that is read; what is not named is read whole."""

FIRST = 4
"""The first part is so much of the loop: what it reads is waited for, and its work hides what comes after."""


@dataclass(frozen=True)
class Parts:
    """The parts of a loop, and by tensor what each reads."""

    along: Along
    spans: Share
    reads: Mapping[str, Sequence[Ranges]]


def parts_of(sharding: Sharding) -> Parts | None:
    """The parts of the outermost loop by which inputs along the axis are read range after range; None without one.

    Ranges are of dimensions before the axis, in which an input is contiguous.
    """
    axis, inputs = sharding.axis, sharding.inputs
    cut = {one.name: axis.dimensions[one.name] for one in inputs if sharding.cut_along(one) is axis}
    frame = sharding.chunked.fold.group.frame
    own = {*frame.axis, *(var for var in frame.extents if sharding.rows and var.name == sharding.rows.name)}
    for var in (one for one in frame.extents if one not in own):
        try:
            along = rows_named(sharding.chunked.fold, var.name)
            first = along.length // FIRST or 1
            spans = tuple(one for one in (Span(0, first), Span(first, along.length - first)) if one.length)
            for span in spans:
                sharding.over(sharding.func, along, span.length)
        except SplitError:
            continue
        rows = sharding.rows_in(sharding.func, along)
        reads = {name: [_ranges(rows, name, d, span) for span in spans] for name, d in cut.items()}
        if len(spans) > 1 and all(first for first, *_ in reads.values()):
            return Parts(along, spans, reads)
    return None


def _ranges(rows: Rows, name: str, before: int, span: Span) -> Ranges:
    """What of a tensor's dimensions before one is read where a loop's variables are within a span."""
    found, extents = dict[int, list[tuple[int, int]]](), dict[int, int]()
    for stage in rows.program.stages:
        analyzer = analyzer_of({v: n for v, n in stage.extents.items() if v not in rows.variables})
        for var in rows.variables & stage.extents.keys():
            analyzer.bind(var, ir.Range(span.start, span.start + span.length))
        for load in (one for one in loads_of(stage.value) if one.source.name == name):
            for d, index in enumerate(load.indices[:before]):
                bound, extent = analyzer.const_int_bound(index), int(load.source.ty.shape[d])
                found.setdefault(d, []).append((max(bound.min_value, 0), min(bound.max_value + 1, extent)))
                extents[d] = extent
    ends = {d: (min(start for start, _ in each), max(end for _, end in each)) for d, each in found.items()}
    return {d: Span(start, end - start) for d, (start, end) in ends.items() if end - start < extents[d]}
