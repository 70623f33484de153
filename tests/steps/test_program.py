"""The step program of a fold: its steps in words, and a verifier that finds each way of being wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import sympy as sp

from tvm_cascade.algebra.fold import Fold
from tvm_cascade.errors import FoldError
from tvm_cascade.steps.program import Combine, Element, Move, Reduce, Scale, Shift, Step, StepProgram, Tuple, program_of
from tvm_cascade.steps.verify import verify

from ..algebra.cascades import FUSABLE, fold_of

Edit = Callable[[list[Step]], list[Step]]


def inputs_of(fold: Fold) -> set[sp.Symbol]:
    read = set().union(*(r.element.free_symbols for r in fold.cascade.reductions))
    return {*fold.cascade.elements, *(read - set(fold.cascade.results))}


def kept(program: StepProgram, edit: Edit) -> StepProgram:
    return dataclasses.replace(program, steps=tuple(edit(list(program.steps))))


def test_the_steps_of_softmax_statistics_read_as_the_online_normaliser() -> None:
    assert str(program_of(fold_of("softmax"))).splitlines() == [
        "reduce    m_0: max over x",
        "shift     m_0: m_0",
        "combine   m_0",
        "move      c_m to m_0",
        "scale     scale_c_m_0 = exp(-Δc_m)",
        "reduce    t_0: sum over exp(x - c_m)",
        "shift     t_0: scale_c_m_0*t_0",
        "combine   t_0",
        "finish    m = m_0",
        "finish    t = t_0",
    ]


@pytest.mark.parametrize("name", FUSABLE)
def test_every_fold_has_a_well_formed_program(name: str) -> None:
    fold = fold_of(name)
    program = program_of(fold)
    verify(program, inputs_of(fold))
    combined = [c for s in program.steps if isinstance(s, (Combine, Tuple)) for c in s.components]
    assert sorted(combined, key=str) == sorted((c.symbol for c in fold.components), key=str)
    assert [move.reference for move in program.moves] == [r.symbol for r in fold.references]


def test_merging_runs_no_step_over_positions() -> None:
    merge = program_of(fold_of("entropy")).merge
    assert not any(isinstance(step, (Element, Reduce)) for step in merge)
    assert {type(step) for step in merge} == {Move, Scale, Shift, Combine}


def test_shared_elements_stand_before_their_first_reader() -> None:
    fold = fold_of("softmax_times_values")
    weight, half = sp.symbols("weight half", real=True)
    exponential = next(e for c in fold.components for e in c.lift.atoms(sp.exp))
    lifts = {c.symbol: c.lift.xreplace({exponential: weight}) for c in fold.components}
    shared = [Element(half, exponential.args[0] / 2), Element(weight, sp.exp(2 * half))]
    program = program_of(fold, shared, lifts)
    verify(program, inputs_of(fold))
    at = [k for k, step in enumerate(program.steps) if isinstance(step, Element)]
    assert [program.steps[k] for k in at] == shared
    assert at[1] == at[0] + 1
    first = next(k for k, s in enumerate(program.steps) if isinstance(s, Reduce) and weight in s.lift.free_symbols)
    assert at[1] < first


def first_of(kind: type[Step]) -> Edit:
    def without(steps: list[Step]) -> list[Step]:
        at = next(k for k, step in enumerate(steps) if isinstance(step, kind))
        return steps[:at] + steps[at + 1 :]

    return without


def repeated(kind: type[Step]) -> Edit:
    return lambda steps: [s for step in steps for s in ([step, step] if isinstance(step, kind) else [step])]


FAULTS: dict[str, tuple[Edit, str]] = {
    "a reference that never moves": (first_of(Move), "c_m"),
    "a factor that is not computed": (first_of(Scale), "scale_c_m_0"),
    "a share that is not computed": (first_of(Reduce), "m_0"),
    "a component that is not shifted": (first_of(Shift), "m_0"),
    "a component that is not combined": (first_of(Combine), "m_0"),
    "a reference that moves twice": (repeated(Move), "another of c_m"),
    "a component that is combined twice": (repeated(Combine), "another of m_0"),
    "a lift before its reference moved": (
        lambda steps: sorted(steps, key=lambda step: not isinstance(step, Reduce)),
        "c_m",
    ),
    "a move before what it reads": (lambda steps: sorted(steps, key=lambda step: not isinstance(step, Move)), "m_0"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_verifier_names_what_is_wrong(name: str) -> None:
    edit, named = FAULTS[name]
    fold = fold_of("softmax")
    with pytest.raises(FoldError) as caught:
        verify(kept(program_of(fold), edit), inputs_of(fold))
    assert named in caught.value.found or named in caught.value.where


def test_a_result_reads_what_is_computed() -> None:
    fold = fold_of("softmax")
    program = program_of(fold)
    finish = (dataclasses.replace(program.finish[0], expression=sp.Symbol("gone")), *program.finish[1:])
    with pytest.raises(FoldError, match="gone"):
        verify(dataclasses.replace(program, finish=finish), inputs_of(fold))
