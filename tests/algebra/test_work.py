"""Every derivation ends: a budget of operations that no clock enters, and what is spent of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sympy as sp
from sympy.core.cache import clear_cache

import tvm_cascade.analysis.extract as extract
import tvm_cascade.obligations.derive as derivation
from campaigns.grammar import draw
from corpus import workloads
from tvm_cascade.algebra.cascade import LENGTH, Cascade, Reduction, element, result
from tvm_cascade.algebra.derive import NamedConstants, derived
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.policy import Move
from tvm_cascade.algebra.reducer import MAX, SUM
from tvm_cascade.algebra.verdict import Refusal, Verdict
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.obligations.check import check
from tvm_cascade.obligations.derive import RESCALABLE_CASTS, derive
from tvm_cascade.obligations.refutation import refutation
from tvm_cascade.symbolic.masks import truth
from tvm_cascade.symbolic.work import WORK, ExhaustedError, Work, budget, expanded, simplified

from .cascades import FUSABLE

x, v = element("x v")
a, b = result("a b")
temperature = sp.Symbol("temperature", positive=True)

OPERATIONS_OF_A_SECOND = WORK / 6
"""Machines differ, counts do not. `python -m benchmarks.check` prints the seconds."""

ENDS = 20
"""Seconds within which something ends that had gone on for minutes, on any machine."""


def test_a_derivation_over_its_budget_is_unknown_and_says_at_which_reduction_and_what_to_do() -> None:
    outcome = derive(FUSABLE["layernorm_times_weight"](), work=20)
    assert isinstance(outcome, Refusal)
    assert outcome.reason.verdict is Verdict.UNKNOWN and outcome.reason.code == "work_limit"
    assert outcome.reduction in map(str, FUSABLE["layernorm_times_weight"]().results)
    assert "20 operations" in outcome.reason.detail and "split the reduction" in outcome.reason.hint


def test_what_sympy_cannot_simplify_beside_a_wave_is_left_as_it_is() -> None:
    """SymPy compares with log r at r = 0 on its way, which is no number of any order."""
    positive = sp.Symbol("r", positive=True)
    chosen = sp.Piecewise((1, a <= sp.Max(x, sp.log(positive))), (0, True))
    with pytest.raises(ValueError, match="not comparable"):
        sp.simplify(x / chosen)
    assert simplified(sp.sin(x) / chosen) == sp.sin(x) / chosen


@pytest.mark.parametrize("name", ["softmax", "entropy"])
def test_what_a_derivation_spends_does_not_depend_on_what_was_derived_before(name: str) -> None:
    def spent() -> float:
        with budget(2500) as work:
            check(derived(FUSABLE[name](), RESCALABLE_CASTS, Move.EXACT, {}, refutation))
        return work.spent

    again = spent(), spent()
    clear_cache()
    assert again == (spent(), again[0]) and again[0] > 5


def test_a_power_is_charged_before_its_terms_are_written_out() -> None:
    many = sum(sp.symbols("z:30"))
    with budget(1000) as work, pytest.raises(ExhaustedError, match="expanding, after 1000 operations"):
        expanded(many**12)
    assert work.spent > 1000
    assert expanded((x + v) ** 2) == x**2 + 2 * x * v + v**2


def test_a_large_expression_that_is_zero_is_seen_to_be_zero() -> None:
    terms = [sp.exp(k * x) * (v + k) for k in range(12)]
    nothing = sum(terms) ** 2 - sp.expand(sum(terms) ** 2)
    assert simplified(nothing) == 0
    assert simplified(nothing + x / 1000) != 0


def test_a_sum_of_many_waves_is_not_simplified_at_length() -> None:
    waves = sum((x + k) * sp.tanh(k * v + x) ** 2 * sp.exp(k * x) for k in range(2, 10))
    start = time.process_time()
    assert simplified(waves) == waves
    assert simplified(sp.sin(x) ** 2 + sp.cos(x) ** 2) == 1
    assert time.process_time() - start < ENDS


@pytest.mark.parametrize("further", [sp.S.Zero, sp.sin(sp.Abs(x))], ids=["one", "one of either kind"])
def test_waves_without_a_law_are_simplified_as_symbols(further: sp.Expr, monkeypatch: pytest.MonkeyPatch) -> None:
    """SymPy would try every law of waves, for seconds or minutes, where none applies to one by itself."""
    live, given, plain = truth("live"), list[sp.Expr](), sp.simplify
    product = b * (sp.tanh(live * x + 10000 * live - 10000) - b - further) * (x - (a + 1) / LENGTH)
    monkeypatch.setattr(sp, "simplify", lambda e: given.append(e) or plain(e))
    assert sp.expand(simplified(product) - product) == 0
    assert given and not any(e.has(sp.tanh, sp.sin) for e in given)


def test_a_wave_is_a_symbol_beside_exponentials_of_other_quantities(monkeypatch: pytest.MonkeyPatch) -> None:
    """No law relates them; SymPy factors over complex numbers, without end. So it is once they have cancelled."""
    given, plain = list[sp.Expr](), sp.simplify
    masked = truth("live") * (x * b + 10000) - 10000
    element = v * sp.exp(v / 2 - a) * sp.tanh(masked - a)
    monkeypatch.setattr(sp, "simplify", lambda e: given.append(e) or plain(e))
    rate = simplified(sp.diff(element, a) / element)
    assert given and not any(e.has(sp.tanh, sp.sin) for e in given)
    assert rate.has(sp.tanh) and not rate.has(sp.exp)
    related = v * sp.exp(masked / 2 - a) * sp.tanh(masked - a)
    assert not simplified(sp.diff(related, a) / related).has(sp.exp)
    assert simplified(sp.diff(related, a)).has(sp.tanh, sp.exp)
    assert not any(e.has(sp.tanh) for e in given)
    assert simplified(sp.exp(x) * (sp.cosh(x) - sp.sinh(x))) == 1


def test_a_logarithm_of_parameters_is_a_symbol_until_the_fold_is_made() -> None:
    fixed, varying = sp.log((temperature + 1) / sp.sqrt(temperature)), sp.log(temperature * LENGTH)
    constants = NamedConstants()
    source = Cascade([Reduction(a, SUM, x - fixed), Reduction(b, SUM, (x - a - fixed - varying) ** 2)], [x])
    named = constants.named(source)
    assert not any(r.element.has(fixed) for r in named.reductions) and named.reductions[1].element.has(varying)
    assert [r.element.xreplace(constants.values) for r in named.reductions] == [r.element for r in source.reductions]


def test_exponentials_do_not_turn_into_hyperbolic_functions() -> None:
    assert not simplified((sp.exp(-x) * v - sp.exp(-x)) * (v + 1)).has(sp.sinh, sp.cosh)


def test_two_shifts_of_high_degree_under_an_exponential_end() -> None:
    """Its roots and exponentials had kept SymPy busy without end, in ranks over exact numbers."""
    shifts = temperature ** sp.Rational(1, 8) * (x**2 / 64 - a) ** 2 * (v * x - 2 * a - temperature) ** 2
    start = time.process_time()
    outcome = derive(Cascade([Reduction(a, SUM, x), Reduction(b, SUM, shifts * sp.exp(v - a))], [x, v]))
    assert isinstance(outcome, Fold) or outcome.reason.verdict is Verdict.UNKNOWN
    assert time.process_time() - start < ENDS


@pytest.mark.parametrize("seed", [1002822, 1032703, 2001372])
def test_what_took_fuzz_long_is_decided_within_seconds(seed: int) -> None:
    cascade = draw(seed).cascade()
    start = time.process_time()
    derive(cascade)
    assert time.process_time() - start < ENDS


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> list[Work]:
    """The budgets of what is derived, in order."""
    found: list[Work] = []

    @contextmanager
    def kept(limit: float) -> Iterator[Work]:
        with budget(limit) as work:
            found.append(work)
            yield work

    monkeypatch.setattr(derivation, "budget", kept)
    return found


@pytest.mark.slow
def test_each_workload_of_the_tables_is_derived_with_operations_of_a_second(spent: list[Work]) -> None:
    operations: dict[str, float] = {}
    for job in workloads.names():
        program = read_program(workloads.get(job).cpu.build())
        assert isinstance(program, Program)
        extract.remembered.cache_clear()
        extract.Reductions(program).cascades()
        operations[job] = max((work.spent for work in spent), default=0)  # a product alone is not derived
        spent.clear()
    assert len(operations) > 50
    assert not {name: found for name, found in operations.items() if found > OPERATIONS_OF_A_SECOND}


def test_a_chain_of_eight_is_derived_with_operations_of_five_seconds(spent: list[Work]) -> None:
    d = sp.symbols("d:8", real=True)
    chain = [
        Reduction(d[0], MAX, x),
        Reduction(d[1], SUM, sp.exp(x - d[0])),
        Reduction(d[2], SUM, v * sp.exp(x - d[0]) / d[1]),
        Reduction(d[3], SUM, (v - d[2]) ** 2 * sp.exp(x - d[0]) / d[1]),
        Reduction(d[4], SUM, (v - d[2]) ** 3 / sp.sqrt(d[3] + 1) ** 3),
        Reduction(d[5], MAX, sp.Abs(x - d[4] / LENGTH)),
        Reduction(d[6], SUM, sp.exp(v - d[2]) / d[5] ** 2),
        Reduction(d[7], SUM, (x - d[4] / LENGTH) * sp.exp(x - d[0]) / (d[6] + 1)),
    ]
    outcome = derive(Cascade(chain, [x, v]))
    assert isinstance(outcome, Fold), str(outcome)
    assert 0 < spent[-1].spent < 5 * OPERATIONS_OF_A_SECOND
