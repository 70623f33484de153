"""The table of peers: every implementation of a workload, prepared from the same case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm.s_tir import dlight

from benchmarks import numpy_peer, torch_peer
from tvm_cascade.corpus.case import Case, Job
from tvm_cascade.corpus.forms import (
    FORMS,
    TVM_DEFAULT,
    Absent,
    Form,
    Runnable,
    built,
)
from tvm_cascade.corpus.workload import Workload
from tvm_cascade.schedule.private_copy import private_copy

NUMPY = "numpy"
TORCH = "torch"
TVM_DLIGHT = "tvm dlight"

_SERIES = {"V": "variance", "I": "inertia", "H": "attention"}
"""The formulas of RedFuser's rows, by the letter that their names begin with."""

_PLAIN_ATTENTION = ("PF_GLOBAL", "DC_CAUSAL", "DC_GQA", "attention", "attention_gqa")
"""Attention without maps or masks, the only kind that NumPy and torch forms are written for."""


def formula_of(job: Job) -> str | None:
    """The key by which NumPy and torch compute a program; None where neither does."""
    if not isinstance(job, Workload):
        return None
    if job.source.startswith("RedFuser"):
        return _SERIES.get(job.name[0])
    return "attention" if job.name in _PLAIN_ATTENTION else job.name if job.name in numpy_peer.FORMULAS else None


def _numpy(case: Case) -> Runnable | Absent:
    formula = formula_of(case.job)
    if formula is None:
        return Absent("no NumPy form of this program")
    return _of(numpy_peer.FORMULAS[formula](case.inputs))


def _torch(case: Case) -> Runnable | Absent:
    formula = formula_of(case.job)
    if formula is None:
        return Absent("no torch form of this program")
    try:
        return _of(torch_peer.prepare(formula, case.inputs))
    except ImportError:
        return Absent("torch is not installed: python -m pip install 'tvm-cascade[bench]'")


def _of(compute: Callable[[], Any]) -> Runnable:
    """A row for a call that returns its only result."""
    latest: list[Any] = []

    def call() -> None:
        latest[:] = [compute()]

    return Runnable(call, lambda: [np.asarray(result) for result in latest])


def _tvm_dlight(case: Case) -> Runnable | Absent:
    mod = private_copy(case.func)
    with case.target:
        scheduled = dlight.ApplyDefaultSchedule(dlight.cpu.GEMV(), dlight.cpu.Reduction())(mod)
    if "tirx.is_scheduled" not in scheduled["main"].attrs:
        return Absent(f"none of its CPU rules takes this program: the code is that of `{TVM_DEFAULT}`")
    return built(case, scheduled)


PEERS: Mapping[str, Form] = {
    NUMPY: _numpy,
    TORCH: _torch,
    TVM_DEFAULT: FORMS[TVM_DEFAULT],
    TVM_DLIGHT: _tvm_dlight,
    **FORMS,
}
"""Every row in the order of the table."""
