"""A trial of the pass: a case fused, compiled for the CPU, run and compared with the oracle.

A result passes by the rule of `evaluate.tolerance`. Where the first data do not pass, the rule is asked again with the
unfused program's worst error over further data, over other orders of the axis, over the oracle's rounding mode, over
roundings to a narrower dtype at a scale beside their own (a fold rounds at its reference), and over inputs and earlier
results that differ in the last place: on an ill-conditioned case the error of one draw is luck.

The further data are other draws, and neighbours of the first ones, each number a place off, for which the oracle says
what is exact. In every order of the first data an element is rounded alike: exp(d) of exp(d) − d − 1 is off by up to
half a place of 1, the same for all runs, and no input that is off in its last place changes the element by more than d
times that. At the neighbours it is rounded anew.

Where the unfused program gives NaN (0/0 of what underflowed), or an infinity where the exact result or the fused one is
a number, nothing is asked; nor where an exact result on the way is out of the dtype's range.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np
import tvm
from tvm import s_tir, tirx
from tvm.target import Target

from campaigns.case import Case
from campaigns.program import Array, data, program, reordered, sorted_orders
from campaigns.trial import Record, first_line
from tvm_cascade.accuracy.comparison import Ranking
from tvm_cascade.devices.host import host_target
from tvm_cascade.devices.read import cpu_of
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.schedule.cpu import schedule_cpu
from tvm_cascade.transform.fuse_function import Outcome, fuse_function
from tvm_cascade.tvm_faults.copies import private_copy

SCHEDULED_SHARE = 0.3
FURTHER_DRAWS = 5
NUDGES = 32
LEAST_EXPONENT = -700.0
"""exp of it is not zero in float64."""

Results: TypeAlias = dict[str, Array]
"""Outputs by buffer name."""

Forms: TypeAlias = Mapping[str, Callable[..., object]]
"""What takes inputs, then outputs to fill, as tensors on the CPU."""

UNFUSED, FUSED, SCHEDULED = "unfused", "fused", "scheduled"


def program_trial(case: Case) -> Record:
    """Fuses, compiles, runs and checks the case; never raises."""
    start = time.perf_counter()
    try:
        func = program(case)
        options = FuseOptions.from_environment(tile=case.tile, segments=case.segments, lanes=case.lanes, force=True)
        outcome = fuse_function(func, options)
    except Exception as error:  # whatever is raised is what the trial looks for
        return Record("program", case.seed, "unknown", "defect", 0.0, "error", first_line(error))
    seconds = round(time.perf_counter() - start, 4)
    verdict, code, detail = _summary(outcome)
    if code == "defect":
        return Record("program", case.seed, verdict, code, seconds, "error", detail)
    if not outcome.fused:
        return Record("program", case.seed, verdict, code, seconds, detail=detail)
    try:
        wrong = _wrong(case, func, outcome.func)
        finding = "wrong" if wrong else ""
    except Exception as error:  # as above
        finding, wrong = "error", first_line(error)
    return Record("program", case.seed, verdict, code, seconds, finding, wrong or detail)


def _summary(outcome: Outcome) -> tuple[str, str, str]:
    """Verdict, code and detail: "fused" where anything was, with the first reason why something was not."""
    reasons = [decision.reason for decision in outcome.decisions]
    others = [reason for reason in reasons if reason.code != "fold"]
    defect = next((r for r in others if r.code == "defect"), None)
    reason = defect or (others[0] if others else None)
    if outcome.fused:
        return "fused", f"fold+{reason.code}" if reason else "fold", str(reason)[:300] if reason else ""
    assert reason is not None
    return str(reason.verdict), reason.code, str(reason)[:300]


def _wrong(case: Case, func: tirx.PrimFunc, fused: tirx.PrimFunc) -> str:
    """What is wrong with the fused function, or with it under the CPU schedule; empty where nothing is."""
    forms = {UNFUSED: func, FUSED: fused}
    if random.Random(case.seed).random() < SCHEDULED_SHARE:
        forms[SCHEDULED] = scheduled(fused)
    judge = Judge(case, func, compiled(forms))
    for name in (FUSED, SCHEDULED):
        if name in forms and (message := judge.objection(name)):
            return f"{name}: {message}"
    return ""


def scheduled(fused: tirx.PrimFunc) -> tirx.PrimFunc:
    """The fused function under our CPU schedule."""
    schedule = s_tir.Schedule(private_copy(fused))
    schedule_cpu(schedule, cpu_of(host_target()))
    return schedule.mod["main"]


@cache
def _quick_target() -> Target:
    """The host's CPU at the lowest optimisation that is not -O0: compiling is most of a trial's time."""
    return Target({**{k: v for k, v in host_target().export().items() if k != "tag"}, "opt-level": 1})


def compiled(forms: dict[str, tirx.PrimFunc]) -> Forms:
    """Every form by its name, for this CPU."""
    module = tvm.IRModule({name: func.with_attr("global_symbol", name) for name, func in forms.items()})
    executable = tvm.compile(module, target=_quick_target())
    return {name: executable[name] for name in forms}


def run(form: Callable[..., object], func: tirx.PrimFunc, inputs: list[Array]) -> dict[str, Array]:
    """The outputs of one form by buffer name; they start as NaN, or as True."""
    outputs = {param.name: param for param in oracle.signature(func).outputs}
    given = iter(inputs)
    tensors = []
    for param in func.params:
        shape = tuple(int(extent) for extent in param.ty.shape)
        dtype = str(param.ty.dtype)
        fresh = np.full(shape, np.nan if dtype.startswith("float") else 1, dtype)
        tensors.append(tvm.runtime.tensor(fresh if param.name in outputs else next(given)))
    form(*tensors)
    return {p.name: t.numpy() for p, t in zip(func.params, tensors, strict=True) if p.name in outputs}


def nudged(inputs: list[Array], seed: int) -> list[Array]:
    """The inputs in float64, each number off by half a unit in its last place.

    In float64, which has no half unit, by none or by a whole one.
    """
    rng = np.random.default_rng(seed)
    return [
        a * (1.0 + 0.5 * np.finfo(a.dtype).eps * rng.choice((-1.0, 1.0), a.shape)) if a.dtype.kind == "f" else a
        for a in inputs
    ]


def neighbours(inputs: list[Array], seed: int) -> list[Array]:
    """The inputs with each number moved to one beside it in its dtype, up or down."""
    rng = np.random.default_rng(seed)
    return [
        np.nextafter(a, rng.choice((-np.inf, np.inf), a.shape).astype(a.dtype)) if a.dtype.kind == "f" else a
        for a in inputs
    ]


class Judge:
    """Compares a form with the oracle; what the unfused program achieves is found out as far as it is needed."""

    def __init__(self, case: Case, func: tirx.PrimFunc, forms: Forms) -> None:
        self.case, self.func, self.forms = case, func, forms

    def objection(self, name: str) -> str:
        """Why the form is wrong; empty where it is as exact as the rule asks."""
        draws = self._draws()
        inputs, exact, usual = next(draws)
        found = self._run(name, inputs)
        for output, value in usual.items():
            told = np.isfinite(found[output]) | np.isfinite(exact[output])
            better = np.isnan(value) | (told & ~np.isfinite(value))
            found[output] = np.where(better, value, found[output])
        suspects = {output: self._check(found[output], value, usual[output]) for output, value in exact.items()}
        failed = {output: comparison for output, comparison in suspects.items() if not comparison.ok}
        if not failed or self._leaves_range(inputs):
            return ""
        floor = {output: c.allowed - 2.0 * c.baseline_error for output, c in failed.items()}
        largest = {output: c.baseline_error for output, c in failed.items()}
        for further_exact, further in [*self._others(inputs, exact), *(given[1:] for given in draws)]:
            for output in failed:
                error = self._check(further[output], further_exact[output], further[output]).baseline_error
                largest[output] = max(largest[output], error)
        for output, comparison in failed.items():
            if comparison.max_error > 2.0 * largest[output] + floor[output]:
                return f"{output}: {comparison.message} (unfused at worst {largest[output]:.3g})"
        return ""

    def _others(self, inputs: list[Array], exact: Results) -> Iterator[tuple[Results, Results]]:
        """Exact results, and what the unfused program might as well have given for them.

        In another order, on numbers that it cannot tell apart, or with the roundings of its elements drawn again.
        """
        yield exact, self._exact(self.func, inputs, rounding=True)
        for ordered in sorted_orders(self.case, inputs):
            yield exact, self._run(UNFUSED, ordered)
        unit = float(np.finfo(self.case.dtype).eps)
        for seed in range(NUDGES):
            yield exact, self._run(UNFUSED, reordered(self.case, inputs, seed))
            yield exact, self._exact(self.func, nudged(inputs, seed))
            beside = neighbours(inputs, seed)
            yield self._exact(self.func, beside), self._run(UNFUSED, beside)
            signs = np.random.default_rng(seed).choice((-1.0, 1.0), len(self.case.steps))
            yield exact, self._exact(program(self.case, [1.0 + unit * sign for sign in signs]), inputs)
            if any(part.op == "rounded" for step in self.case.steps for part in step.element.parts()):
                scale = float(np.exp2(np.random.default_rng(seed).uniform(-0.5, 0.5)))
                yield exact, self._exact(program(self.case, rounded_at=scale), inputs, rounding=True)

    def _leaves_range(self, inputs: list[Array]) -> bool:
        """Whether some result, asked for or not, is out of the dtype's range: what follows from it has no meaning.

        A result that underflows is: its logarithm and its reciprocal are infinite where the exact ones are not. A zero
        of the oracle may have underflowed as well: then it is none where exponentials do not vanish.
        """
        every = dataclasses.replace(self.case, asked=(True,) * len(self.case.steps))
        limits = np.finfo(self.case.dtype)
        exact = oracle.evaluate(program(every), inputs)
        kept = oracle.evaluate(program(every, least_exponent=LEAST_EXPONENT), inputs)
        for output, value in exact.items():
            size, zero = np.abs(value), (value == 0) & (kept[output] == 0)
            if value.dtype.kind == "f" and not np.all(zero | ((size >= limits.tiny) & (size < limits.max))):
                return True
        return False

    def _check(self, found: Array, exact: Array, usual: Array) -> tolerance.Comparison:
        dtype = "bool" if found.dtype == np.bool_ else self.case.dtype
        return tolerance.check(found, exact, usual, length=self.case.length, dtype=dtype)

    def _run(self, name: str, inputs: list[Array]) -> dict[str, Array]:
        """What a form gives; see `_with_keys`."""
        return self._with_keys(run(self.forms[name], self.func, inputs), inputs)

    def _exact(self, func: tirx.PrimFunc, inputs: list[Array], rounding: bool = False) -> dict[str, Array]:
        """What the oracle gives of a form of the program; see `_with_keys`."""
        return self._with_keys(oracle.evaluate(func, inputs, rounding=rounding), inputs)

    def _with_keys(self, outputs: dict[str, Array], inputs: list[Array]) -> dict[str, Array]:
        """The outputs with the exact keys at positions in place of positions: of equal keys, rounding decides.

        A row that holds a NaN has no order: there, all is 0.
        """
        parts = [name for name in outputs if "." in name]
        if not parts:
            return outputs
        every, named = oracle.evaluate(self._keyed, inputs), dict(outputs)
        for name in parts:
            selection = name.partition(".")[0]
            step, value = self.case.steps[int(selection[1:])], outputs[name]
            ranking = Ranking(every[f"{selection}_keys"], self.case.dtype, step.reducer == "max", None)
            found = ranking.named(value)[..., 0] if value.dtype.kind in "iu" else value
            named[name] = np.where(ranking.undefined(value), 0, found)
        return named

    @cached_property
    def _keyed(self) -> tirx.PrimFunc:
        return program(self.case, keys=True)

    def _draws(self) -> Iterator[tuple[list[Array], dict[str, Array], dict[str, Array]]]:
        """Inputs with the exact results and those of the unfused program."""
        for seed in range(1 + FURTHER_DRAWS):
            inputs = data(self.case, seed)
            yield inputs, self._exact(self.func, inputs), self._run(UNFUSED, inputs)
