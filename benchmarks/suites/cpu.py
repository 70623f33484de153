"""The suites for a CPU: workloads, sizes and groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.suites.entry import Entry
from corpus import workloads
from corpus.workload import Workload

RAGGED, SINGLE = "attention at lengths that models have", "one query over many keys"
LARGE_ATTENTION, LONG, LARGE_ROWS, OTHERS = "large attention", "over 4096 keys", "large rows", "others"
"""The groups of the suite `cpu`."""

_LONG = 4096
"""Keys from which on the scores of one attention no longer fit a cache."""

_ROW_PROGRAMS = ("variance", "inertia", "logsumexp")


def cpu() -> list[Entry]:
    """Programs at sizes that outgrow a cache, then every workload at its size for a CPU."""
    norms = [workloads.get(name) for name in ("rmsnorm_gemm", "layernorm_gemm")]
    return [*_large(), *_entries([*norms, *_twins(workloads.names())], OTHERS)]


def smoke() -> list[Entry]:
    """A few small programs."""
    return _entries([_attention(2, 24, 53, 16), *(_rows(name, 6, 1009) for name in _ROW_PROGRAMS)])


def redfuser() -> list[Entry]:
    """RedFuser's 52 rows at sizes for a CPU."""
    return _entries(_twins([name for name in workloads.names() if workloads.get(name).source.startswith("RedFuser")]))


def neptune() -> list[Entry]:
    """Neptune's ten operators at sizes for a CPU."""
    return _entries(_twins(workloads.names(source="Neptune")))


def _large() -> list[Entry]:
    """Attention at large sizes, at lengths that models have, most of which no tile divides, and of one query; rows."""
    lengths = (77, 192, 196, 197, 200, 208, 257, 500, 513, 576, 577, 1000, 1500)
    found = _entries([_attention(8, length, length, 64) for length in (512, 1024)], LARGE_ATTENTION)
    found += _entries([_attention(4, _LONG, _LONG, 64)], LARGE_ATTENTION, LONG)
    found += _entries([_attention(4, length, length, 64) for length in lengths], RAGGED)
    found += _entries([_attention(4, 1, keys, 64) for keys in (1024, 4096, 16384)], SINGLE)
    sizes = ((1024, 8192), (256, 131072))
    return found + _entries([_rows(name, *size) for name in _ROW_PROGRAMS for size in sizes], LARGE_ROWS)


def _entries(jobs: Iterable[Workload], *groups: str) -> list[Entry]:
    return [Entry(job.label, job, groups) for job in jobs]


def _attention(heads: int, queries: int, keys: int, head_dim: int) -> Workload:
    shape = {"heads": heads, "queries": queries, "keys": keys, "head_dim": head_dim}
    return workloads.get("attention").with_shape(**shape)


def _rows(name: str, rows: int, length: int) -> Workload:
    return workloads.get(name).with_shape(rows=rows, length=length)


def _twins(names: Sequence[str]) -> list[Workload]:
    """Workloads at sizes for a CPU; RedFuser's rows that become the same program and size appear once."""
    found: dict[tuple[object, ...], Workload] = {}
    for name in names:
        workload = workloads.get(name)
        series = name[0] if workload.source.startswith("RedFuser") else name
        found.setdefault((series, *workload.cpu.shape.values()), workload.cpu)
    return list(found.values())
