"""A trial of `compile` for a GPU: a case fused, compiled, run there and compared with the oracle."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tvm
from tvm.target import Target

from campaigns.case import Case
from campaigns.program import program
from campaigns.program_trial import FUSED, UNFUSED, Judge, compiled
from campaigns.trial import Record, first_line
from tvm_cascade.driver.compiled import Compiled
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.tuning.compilation import compile

KERNELS = ("stream", "row")
"""Skeletons by the names that `explain` gives them."""


def gpu_trial(case: Case, target: str | dict[str, Any] | Target = "cuda") -> Record:
    """Fuses, compiles for a GPU, runs and checks the case; never raises.

    The seconds are those of all of `compile`; the detail says what the program was lowered to.

    Parameters
    ----------
    target : any that `compile` takes.
    """
    start = time.perf_counter()
    try:
        func = program(case)
        built = compile(func, target, force=True)
        seconds = round(time.perf_counter() - start, 4)
        if (defect := next((g.reason for g in built.report.groups if g.reason.code == "defect"), None)) is not None:
            return Record("gpu", case.seed, "unknown", "defect", seconds, "error", str(defect)[:300])
        verdict, code = _summary(built.report)
        forms = {UNFUSED: compiled({UNFUSED: func})[UNFUSED], FUSED: _called_on_device(built)}
        wrong = Judge(case, func, forms).objection(FUSED)
    except Exception as error:  # whatever is raised is what the trial looks for
        return Record("gpu", case.seed, finding="error", detail=first_line(error))
    lowering = built.report.functions[0].lowering
    return Record("gpu", case.seed, verdict, code, seconds, "wrong" if wrong else "", f"{wrong} {lowering}".strip())


def _summary(report: Explanation) -> tuple[str, str]:
    """Verdict and code: "fused" where anything was, with the skeleton; else the first reason why nothing was."""
    if report.fused:
        return "fused", next((name for name in KERNELS if f"`{name}`" in report.functions[0].lowering), "S-TIR")
    return (
        (str(report.groups[0].reason.verdict), report.groups[0].reason.code) if report.groups else ("refused", "none")
    )


def _called_on_device(built: Compiled) -> Callable[..., None]:
    """The program as one of tensors on the CPU."""

    def call(*tensors: tvm.runtime.Tensor) -> None:
        arrays = [tensor.numpy() for tensor in tensors]
        built(*arrays)
        for tensor, array in zip(tensors, arrays, strict=True):
            tensor.copyfrom(array)

    return call
