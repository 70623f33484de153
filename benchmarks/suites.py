"""Suites as data: workloads, sizes and goals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from benchmarks.goals import Goal, MeanGoal, PassGoal, SpeedGoal
from tvm_cascade.corpus import workloads
from tvm_cascade.corpus.workload import Workload
from tvm_cascade.errors import WorkloadError


def _attention(heads: int, queries: int, keys: int, head_dim: int) -> Workload:
    shape = {"heads": heads, "queries": queries, "keys": keys, "head_dim": head_dim}
    return workloads.get("attention").with_shape(**shape)


def _rows(name: str, rows: int, length: int) -> Workload:
    return workloads.get(name).with_shape(rows=rows, length=length)


_ROW_PROGRAMS = ("variance", "inertia", "logsumexp")


def _large_cpu() -> list[Workload]:
    attentions = [_attention(*shape) for shape in ((8, 512, 512, 64), (8, 1024, 1024, 64), (4, 4096, 4096, 64))]
    rows = [_rows(name, *size) for name in _ROW_PROGRAMS for size in ((1024, 8192), (256, 131072))]
    return [*attentions, *_lengths(), *_decoding(), *rows]


def _lengths() -> list[Workload]:
    """Self-attention at lengths that models have, most of which no tile divides."""
    lengths = (77, 192, 196, 197, 200, 208, 257, 500, 513, 576, 577, 1000, 1500)
    return [_attention(4, length, length, 64) for length in lengths]


def _decoding() -> list[Workload]:
    """One query over many keys."""
    return [_attention(4, 1, keys, 64) for keys in (1024, 4096, 16384)]


def _cpu() -> list[Workload]:
    """Programs at sizes that outgrow a cache, then every workload at its size for a CPU."""
    norms = [workloads.get(name) for name in ("rmsnorm_gemm", "layernorm_gemm")]
    return [*_large_cpu(), *norms, *_twins(workloads.names())]


def _smoke() -> list[Workload]:
    return [_attention(2, 24, 53, 16), *(_rows(name, 6, 1009) for name in _ROW_PROGRAMS)]


def _twins(names: Sequence[str]) -> list[Workload]:
    """Workloads at sizes for a CPU; RedFuser's rows that become the same program and size appear once."""
    found: dict[tuple[object, ...], Workload] = {}
    for name in names:
        workload = workloads.get(name)
        series = name[0] if workload.source.startswith("RedFuser") else name
        found.setdefault((series, *workload.cpu.shape.values()), workload.cpu)
    return list(found.values())


def _redfuser_cpu() -> list[Workload]:
    """RedFuser's 52 rows at sizes for a CPU."""
    return _twins([name for name in workloads.names() if workloads.get(name).source.startswith("RedFuser")])


def _neptune_cpu() -> list[Workload]:
    """Neptune's ten operators at sizes for a CPU."""
    return _twins(workloads.names(source="Neptune"))


_SUITES: Mapping[str, Callable[[], list[Workload]]] = {
    "cpu": _cpu,
    "smoke": _smoke,
    "redfuser-cpu": _redfuser_cpu,
    "neptune-cpu": _neptune_cpu,
}

SUITES = tuple(_SUITES)


def entries(suite: str, only: Sequence[str] = ()) -> list[Workload]:
    """The workloads of a suite, in order.

    Parameters
    ----------
    suite : one of `SUITES`.
    only : labels or names of workloads to keep; all by default.

    Raises
    ------
    WorkloadError
        When there is no such suite, or something in `only` is not in it.
    """
    return selected(_SUITES, suite, only, lambda job: (job.label, job.name))


E = TypeVar("E")


def selected(
    suites: Mapping[str, Callable[[], list[E]]], suite: str, only: Sequence[str], names: Callable[[E], Sequence[str]]
) -> list[E]:
    """The entries of a suite that `only` names, in order; all where it names none. Of `names` the first is its label.

    Raises
    ------
    WorkloadError
        When there is no such suite, or something in `only` is not in it.
    """
    if suite not in suites:
        raise WorkloadError(f"a suite among {', '.join(suites)}", repr(suite))
    found = suites[suite]()
    known = {name for entry in found for name in names(entry)}
    if unknown := [name for name in only if name not in known]:
        labels = ", ".join(names(entry)[0] for entry in found)
        raise WorkloadError(f"labels or workloads among {labels}", ", ".join(unknown), f"suite `{suite}`")
    return [entry for entry in found if not only or set(names(entry)) & set(only)]


def goals(suite: str) -> list[Goal]:
    """The goals of a suite; only the suite `cpu` has some."""
    if suite != "cpu":
        return []
    found: list[Goal] = []
    ragged, single, large = ([entry.label for entry in found] for found in (_lengths(), _decoding(), _large_cpu()))
    found.append(MeanGoal("attention at lengths that models have", tuple(ragged), "torch", 1.0))
    for entry in _cpu():
        if entry.label in (*ragged, *single):
            over_torch = SpeedGoal(entry.label, ("torch",), 0.7 if entry.label in ragged else 1.0)
            found += [over_torch, SpeedGoal(entry.label, ("ours, unfused",), 1.0)]
        elif entry.label not in large:
            found.append(SpeedGoal(entry.label, ("ours, unfused",), NEVER_SLOWER))
        elif entry.name == "attention":
            found += _attention_goals(entry)
        else:
            found += _row_goals(entry.label)
    return found


NEVER_SLOWER = 1 / 1.05
"""What users get over our unfused schedule, at least, on every workload."""

_LONG = 4096
"""Keys from which on the scores of one attention no longer fit a cache."""


def _attention_goals(entry: Workload) -> list[Goal]:
    fusion = 1.3 if entry.shape["keys"] >= _LONG else None
    speed = (("torch", 1.5), ("numpy", 2.5), ("tvm default", 50.0), ("ours, unfused", fusion))
    return [*(SpeedGoal(entry.label, (peer,), ratio) for peer, ratio in speed), PassGoal(entry.label, 2.0)]


def _row_goals(label: str) -> list[Goal]:
    return [
        SpeedGoal(label, ("numpy",), 2.0),
        # Where no rule of dlight takes the program, what runs is TVM's default code.
        SpeedGoal(label, ("tvm dlight", "tvm default"), 1.5),
        SpeedGoal(label, ("ours, unfused",), 1.0),
    ]
