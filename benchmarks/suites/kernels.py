"""The GPU suites of attention of whole prompts, and of rows: their workloads, sizes and groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.suites.entry import Entry
from corpus import workloads
from corpus.programs import gradients, normalisation, softmax
from corpus.programs.attention import VARIANTS, attention
from corpus.programs.program import Builder
from corpus.workload import Workload

_BATCHES = ((32, 512), (16, 1024), (8, 2048), (4, 4096), (1, 16384))
_HEADS = {64: 32, 128: 16, 256: 8}
_SIZES = [*((d, batch, length) for d in (128, 64) for batch, length in _BATCHES), (256, 4, 4096)]
_LONG = 2048


def prefill() -> list[Entry]:
    """bfloat16 self-attention of 16 Ki tokens and 2048 features, full and causal; labels as d128s4096c."""
    return [
        _prefill_entry(variant, *size, smallest=size[2] == _BATCHES[0][1])
        for size in _SIZES
        for variant in ("full", "causal")
    ]


def float8() -> list[Entry]:
    """The same with q and k in float8 and `narrow_sums`, at 128 and 64 features; peers get them widened to bfloat16."""
    return [
        _prefill_entry(variant, *size, smallest=size[2] == _BATCHES[0][1], scores="float8_e4m3fn")
        for size in _SIZES[:-1]
        for variant in ("full", "causal")
    ]


def _prefill_entry(
    variant: str, head_dim: int, batch: int, length: int, *, smallest: bool, scores: str | None = None
) -> Entry:
    shape = {"batch": batch, "heads": _HEADS[head_dim], "queries": length, "keys": length, "head_dim": head_dim}
    builder, along = attention(VARIANTS[variant], scores), ("queries", "keys")
    label = f"d{head_dim}s{length}" + ("c" if variant == "causal" else "")
    allowed = ("narrow_sums",) if scores else ()
    workload = Workload(label, "attention", "tvm-cascade", shape, "bfloat16", "float32", builder, along, allowed)
    kind = f"d{head_dim} {variant}"
    size = f"{kind}, length ≥ {_LONG}" if length >= _LONG else f"length < {_LONG}"
    return Entry(label, workload, (kind, size), smallest)


def mha() -> list[Entry]:
    """RedFuser's attentions of many queries, at their published shapes; the slow programs run on the smallest."""
    names = ("H1", "H2", "H3", "H4", "H5", "H6", "flashdecoding")
    return [Entry(name, workloads.get(name), (), name == "H4") for name in names]


_NEPTUNE_LENGTHS = (2048, 8192, 32768)


def neptune() -> list[Entry]:
    """Neptune's prefill operators with one sequence, by operator and length."""
    names = [name for name in workloads.names(source="Neptune") if name.startswith("PF_")]
    return [
        Entry(f"{name} {length}", workloads.get(name).with_length(length), (name,), length == _NEPTUNE_LENGTHS[0])
        for name in names
        for length in _NEPTUNE_LENGTHS
    ]


_CACHED_BYTES = 64 * 2**20
"""Data beyond this is bound by the memory, and not by launches and latencies."""

STREAMED, SHORT = "over 64 MiB", "up to 64 MiB"
"""The groups of workloads by the bytes of their data."""

_ROW_BUILDERS: Mapping[str, Builder] = {
    "softmax": softmax.softmax,
    "rms_norm": normalisation.rms_norm,
    "layer_norm": normalisation.layer_norm,
    "cross_entropy": softmax.cross_entropy,
}
_GRADIENT_BUILDERS: Mapping[str, Builder] = {
    "softmax_gradient": gradients.softmax_gradient,
    "layer_norm_gradient": gradients.layer_norm_gradient,
    "cross_entropy_gradient": gradients.cross_entropy_gradient,
}
BACKWARD = "backward"
"""The group of programs that are gradients."""

LARGEST_INERTIA = "I6 to I8"
"""The group of RedFuser's largest moments of inertia."""

_ROWS = 4096
_ROW_LENGTHS = (1024, 8192, 32768, 131072)

UNALIGNED, UNALIGNED_STREAMED = "unaligned", "unaligned, over 64 MiB"
"""The groups of rows whose length is no multiple of 16 bytes, so that they start anywhere in a vector of memory."""

_UNALIGNED_LENGTHS = (197, 5003, 12345, 50257)

FEW = "few rows"
"""The group of rows that are too few to be bound by the memory."""

_FEW_COUNTS, _FEW_LENGTHS, _FEW_BUILDERS = (1, 16, 64), (4096, 8192, 16384), ("softmax", "rms_norm", "layer_norm")


def inertia() -> list[Entry]:
    """RedFuser's moments of inertia."""
    return _table_3("I")


def _table_3(letter: str) -> list[Entry]:
    """RedFuser's variances or moments of inertia, at their published shapes."""
    large = {f"I{k}": (LARGEST_INERTIA,) for k in (6, 7, 8)}
    names = [f"{letter}{k}" for k in range(1, 9)]
    return [_row_entry(workloads.get(name), _by_size(workloads.get(name)), *large.get(name, ())) for name in names]


def variance() -> list[Entry]:
    """RedFuser's, and one row that takes the whole GPU: its blocks' states are merged over the grid."""
    one = workloads.get("V1").with_shape(rows=1, length=2**24)
    return [*_table_3("V"), _row_entry(dataclasses.replace(one, name="one row of 16 Mi"))]


def row() -> list[Entry]:
    """Programs of rows that models have between their products, and their gradients; labels as softmax 8192 float16."""
    forward = [_row_entry(w, name, _by_size(w)) for name, w in _of_models(_ROW_BUILDERS)]
    backward = [_row_entry(w, name, BACKWARD) for name, w in _of_models(_GRADIENT_BUILDERS)]
    unaligned = [_row_entry(w, *_unaligned(w)) for _, w in _of_models(_ROW_BUILDERS, _UNALIGNED_LENGTHS)]
    return [*forward, *backward, *unaligned, *_few()]


def _of_models(
    builders: Mapping[str, Builder], lengths: Sequence[int] = _ROW_LENGTHS
) -> Iterator[tuple[str, Workload]]:
    for name, builder in builders.items():
        for dtype in ("float16", "float32"):
            for length in lengths:
                yield name, _of_rows(f"{name} {length} {dtype}", builder, dtype, _ROWS, length)


def _few() -> list[Entry]:
    """What a model has between its products while it generates; labels as rms_norm 16x8192 bfloat16."""
    return [
        _row_entry(_of_rows(f"{name} {rows}x{length} {dtype}", _ROW_BUILDERS[name], dtype, rows, length), FEW)
        for name in _FEW_BUILDERS
        for dtype in ("bfloat16", "float32")
        for length in _FEW_LENGTHS
        for rows in _FEW_COUNTS
    ]


def _of_rows(label: str, builder: Builder, dtype: str, rows: int, length: int) -> Workload:
    shape = {"rows": rows, "length": length}
    return Workload(label, "row", "tvm-cascade", shape, dtype, "float32", builder, ("length",))


def _unaligned(workload: Workload) -> tuple[str, ...]:
    return (UNALIGNED, UNALIGNED_STREAMED) if _by_size(workload) == STREAMED else (UNALIGNED,)


def _by_size(workload: Workload) -> str:
    return STREAMED if workload.bytes() > _CACHED_BYTES else SHORT


def _row_entry(workload: Workload, *groups: str) -> Entry:
    return Entry(workload.name, workload, groups, smallest=True)
