"""The forms of a program that this package builds: by TVM's default, and by our schedules, unfused and fused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from numpy.typing import NDArray

from benchmarks.judge.case import Case
from tvm_cascade.cli.run import temporary_bytes
from tvm_cascade.driver.compilation import compile_unfused
from tvm_cascade.driver.compiled import Compiled
from tvm_cascade.tuning.compilation import compile

Array = NDArray[Any]

TVM_DEFAULT = "tvm default"
OURS_UNFUSED = "ours, unfused"
OURS_FUSED = "ours, fused"
OURS_FORCED = "ours, fused (forced)"


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


Form = Callable[[Case], Runnable | Absent | None]
"""Prepares a row; None where the table has no such row."""


def _tvm_default(case: Case) -> Runnable:
    return built(case, tvm.IRModule({"main": case.func}))


def built(case: Case, mod: tvm.IRModule) -> Runnable:
    """A module whose function "main" TVM compiles as it is."""
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


FORMS: Mapping[str, Form] = {
    TVM_DEFAULT: _tvm_default,
    OURS_UNFUSED: _ours_unfused,
    OURS_FUSED: _ours_fused,
    OURS_FORCED: _ours_forced,
}
"""Every form by the name of its row."""
