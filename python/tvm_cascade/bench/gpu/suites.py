"""The GPU suites as data: which attentions are measured, at which sizes, and what their ratios are averaged over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tvm_cascade.bench import workloads
from tvm_cascade.bench.programs.attention import VARIANTS, attention
from tvm_cascade.bench.workload import Workload
from tvm_cascade.errors import WorkloadError

_LARGEST_BYTES = 16 * 2**30
"""Of a workload's tensors; a length that needs more is left out."""


@dataclass(frozen=True)
class GpuEntry:
    """A workload of a GPU suite.

    Attributes
    ----------
    label : what its table is called.
    workload : the program with its shape.
    groups : the groups whose geometric means it counts in, besides that of the suite.
    smallest : whether programs that are hundreds of times slower are measured too.
    """

    label: str
    workload: Workload
    groups: tuple[str, ...]
    smallest: bool


_BATCHES = ((32, 512), (16, 1024), (8, 2048), (4, 4096), (1, 16384))
_HEADS = {64: 32, 128: 16, 256: 8}
_SIZES = [*((d, batch, length) for d in (128, 64) for batch, length in _BATCHES), (256, 4, 4096)]
_LONG = 2048


def _prefill() -> list[GpuEntry]:
    """bfloat16 self-attention of 16 Ki tokens and 2048 features, full and causal; labels as d128s4096c."""
    return [
        _prefill_entry(variant, *size, smallest=size[2] == _BATCHES[0][1])
        for size in _SIZES
        for variant in ("full", "causal")
    ]


def _prefill_entry(variant: str, head_dim: int, batch: int, length: int, *, smallest: bool) -> GpuEntry:
    shape = {"batch": batch, "heads": _HEADS[head_dim], "queries": length, "keys": length, "head_dim": head_dim}
    builder, along = attention(VARIANTS[variant]), ("queries", "keys")
    label = f"d{head_dim}s{length}" + ("c" if variant == "causal" else "")
    workload = Workload(label, "attention", "tvm-cascade", shape, "bfloat16", "float32", builder, along)
    kind = f"d{head_dim} {variant}"
    size = f"{kind}, length ≥ {_LONG}" if length >= _LONG else f"length < {_LONG}"
    return GpuEntry(label, workload, (kind, size), smallest)


def _mha() -> list[GpuEntry]:
    """RedFuser's attentions of many queries, at their published shapes; the slow programs run on the smallest."""
    return [GpuEntry(name, workloads.get(name), (), name == "H4") for name in ("H1", "H2", "H3", "H4", "H5", "H6")]


_NEPTUNE_LENGTHS = (2048, 8192, 32768)


def _neptune() -> list[GpuEntry]:
    """Neptune's prefill operators with one sequence, by operator and length."""
    names = [name for name in workloads.names(source="Neptune") if name.startswith("PF_")]
    return [
        GpuEntry(f"{name} {length}", workloads.get(name).with_length(length), (name,), length == _NEPTUNE_LENGTHS[0])
        for name in names
        for length in _NEPTUNE_LENGTHS
    ]


_SUITES: Mapping[str, Callable[[], list[GpuEntry]]] = {"prefill": _prefill, "mha": _mha, "neptune": _neptune}

SUITES = tuple(_SUITES)


def entries(suite: str, only: Sequence[str] = ()) -> list[GpuEntry]:
    """The entries of a suite whose tensors fit, in order.

    Parameters
    ----------
    suite : one of `SUITES`.
    only : labels, names of workloads, or groups to keep; all by default.

    Raises
    ------
    WorkloadError
        When there is no such suite, or something in `only` is not in it.
    """
    if suite not in _SUITES:
        raise WorkloadError(f"a suite among {', '.join(SUITES)}", repr(suite))
    found = [entry for entry in _SUITES[suite]() if entry.workload.bytes() <= _LARGEST_BYTES]
    if unknown := [name for name in only if not any(name in _names(entry) for entry in found)]:
        labels = ", ".join(entry.label for entry in found)
        raise WorkloadError(f"labels among {labels}", ", ".join(unknown), f"suite `{suite}`")
    return [entry for entry in found if not only or _names(entry) & set(only)]


def _names(entry: GpuEntry) -> set[str]:
    return {entry.label, entry.workload.name, *entry.groups}
