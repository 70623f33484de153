"""The table of peers: every implementation of a workload, prepared from the same case."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm.s_tir import dlight

from tvm_cascade.bench import numpy_peer, torch_peer
from tvm_cascade.bench.case import Case
from tvm_cascade.bench.record import (
    NUMPY,
    OURS_FORCED,
    OURS_FUSED,
    OURS_UNFUSED,
    TORCH,
    TVM_DEFAULT,
    TVM_DLIGHT,
)
from tvm_cascade.corpus.temporaries import temporary_bytes
from tvm_cascade.driver.compilation import compile_unfused
from tvm_cascade.driver.compiled import Compiled
from tvm_cascade.schedule.private_copy import private_copy
from tvm_cascade.tuning.compilation import compile

Array = NDArray[Any]


@dataclass(frozen=True)
class Runnable:
    """A program ready to run.

    Attributes
    ----------
    call : computes the result once; this is what is timed.
    outputs : the outputs of the latest call, in the order of the program's.
    temporary_bytes : what it allocates besides inputs and outputs, where that is known.
    """

    call: Callable[[], object]
    outputs: Callable[[], list[Array]]
    temporary_bytes: int | None = None


@dataclass(frozen=True)
class Absent:
    """A row without a program, and the reason."""

    reason: str


Peer = Callable[[Case], Runnable | Absent | None]
"""Prepares a row; None where the table has no such row."""


def _numpy(case: Case) -> Runnable | Absent:
    formula = case.entry.formula
    if formula is None:
        return Absent("no NumPy form of this program")
    return _of(numpy_peer.FORMULAS[formula](case.inputs))


def _torch(case: Case) -> Runnable | Absent:
    formula = case.entry.formula
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


def _tvm_default(case: Case) -> Runnable:
    return _built(case, tvm.IRModule({"main": case.func}))


def _tvm_dlight(case: Case) -> Runnable | Absent:
    mod = private_copy(case.func)
    with case.target:
        scheduled = dlight.ApplyDefaultSchedule(dlight.cpu.GEMV(), dlight.cpu.Reduction())(mod)
    if "tirx.is_scheduled" not in scheduled["main"].attrs:
        return Absent(f"none of its CPU rules takes this program: the code is that of `{TVM_DEFAULT}`")
    return _built(case, scheduled)


def _built(case: Case, mod: tvm.IRModule) -> Runnable:
    return _tvm(case, tvm.compile(mod, target=case.target)["main"], mod)


def _tvm(case: Case, function: Callable[..., object], mod: tvm.IRModule) -> Runnable:
    outputs = case.output_tensors()
    arguments = [*case.tensors, *outputs]
    return Runnable(
        lambda: function(*arguments),
        lambda: [tensor.numpy() for tensor in outputs],
        temporary_bytes(mod["main"]),
    )


def _ours(case: Case, compiled: Compiled) -> Runnable:
    return _tvm(case, compiled["main"], compiled.mod)


def _ours_unfused(case: Case) -> Runnable:
    return _ours(case, compile_unfused(case.func, case.target, **_given(case)))


def _ours_fused(case: Case) -> Runnable | Absent:
    if not case.outcome.fused:
        return Absent("; ".join(f"{reason.verdict}: {reason}" for reason in case.reasons))
    return _ours(case, compile(case.func, case.target, **_given(case)))


def _ours_forced(case: Case) -> Runnable | None:
    if not case.declined:
        return None
    return _ours(case, compile(case.func, case.target, **{**_given(case), "force": True}))


def _given(case: Case) -> dict[str, Any]:
    return dataclasses.asdict(case.options)


PEERS: Mapping[str, Peer] = {
    NUMPY: _numpy,
    TORCH: _torch,
    TVM_DEFAULT: _tvm_default,
    TVM_DLIGHT: _tvm_dlight,
    OURS_UNFUSED: _ours_unfused,
    OURS_FUSED: _ours_fused,
    OURS_FORCED: _ours_forced,
}
"""Every row in the order of the table."""
