"""What `import tvm_cascade` gives: names, what they refuse, and how results show themselves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import sympy as sp
from tvm import te, tirx

import tvm_cascade
from tvm_cascade import MAX, SUM, Cascade, Reduction, derive, element, result
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.verdict import Refusal
from tvm_cascade.errors import CascadeError, InputError, OptionError

x, (m, t) = element("x"), result("m t")
SOFTMAX = Cascade([Reduction(m, MAX, x), Reduction(t, SUM, sp.exp(x - m))], [x])
HYPERBOLA = Cascade([Reduction(m, MAX, x), Reduction(t, SUM, 1 / (1 + (x - m) ** 2))], [x])


def softmax_stats() -> tirx.PrimFunc:
    a = te.placeholder((8, 64), "float32", name="a")
    k, j = te.reduce_axis((0, 64), "k"), te.reduce_axis((0, 64), "j")
    top = te.compute((8,), lambda i: te.max(a[i, k], axis=k), name="top")
    total = te.compute((8,), lambda i: te.sum(te.exp(a[i, j] - top[i]), axis=j), name="total")
    return te.create_prim_func([a, top, total])


def test_every_name_is_there_after_a_bare_import_and_loads_nothing_before_it_is_used() -> None:
    script = """
import sys
import tvm_cascade
assert not {"sympy", "tvm_cascade.te", "tvm_cascade.driver.compilation"} & set(sys.modules), "loaded too early"
assert tvm_cascade.te.topk.__name__ == "topk"
for name in tvm_cascade.__all__:
    assert getattr(tvm_cascade, name) is not None and name in dir(tvm_cascade), name
assert not hasattr(tvm_cascade, "nonsense")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_help_of_the_commands_loads_no_algebra_and_no_kernels() -> None:
    script = """
import sys
from tvm_cascade.cli import main
try:
    main(["--help"])
except SystemExit as stopped:
    assert stopped.code == 0
slow = ("sympy", "rich", "torch", *(f"tvm_cascade.{room}" for room in ("algebra", "transform", "tile", "tuning")))
assert not [name for name in slow if name in sys.modules]
"""
    told = subprocess.run([sys.executable, "-c", script], check=True, timeout=120, capture_output=True, text=True)
    assert "numerics" in told.stdout


MISUSES: dict[str, tuple[Callable[[], object], type[CascadeError], str]] = {
    "no cascade": (lambda: derive(None), InputError, "a Cascade.*NoneType.*tvm_cascade.explain"),
    "a program": (lambda: derive(softmax_stats()), InputError, "a Cascade.*PrimFunc"),
    "one reduction": (lambda: Cascade(Reduction(m, MAX, x), [x]), InputError, r"a list of reductions.*in a list"),
    "one element": (lambda: Cascade([Reduction(m, MAX, x)], x), InputError, r"a list of elements.*x.*in a list"),
    "N of one's own": (
        lambda: Cascade([Reduction(m, SUM, x), Reduction(t, SUM, x - m / sp.Symbol("N"))], [x]),
        InputError,
        r"names other than N.*tvm_cascade\.LENGTH",
    ),
    "an element n": (lambda: Cascade([Reduction(m, SUM, element("n"))], [element("n")]), InputError, "another name"),
    "no reduction": (lambda: Cascade([], [x]), InputError, "one or more.*none"),
    "a pair": (lambda: Cascade([(m, x)], [x]), InputError, "reductions.*tuple"),
    "an element's name": (lambda: Cascade([Reduction(m, MAX, x)], ["x"]), InputError, "symbols.*'x'.*element"),
    "a reducer's name": (lambda: Reduction(m, "max", x), InputError, "a reducer.*'max'.*tvm_cascade.*MAX"),
    "a result's name": (lambda: Reduction("m", MAX, x), InputError, "a symbol.*'m'.*result"),
    "a number": (lambda: Reduction(m, SUM, 1.0), InputError, "an expression of SymPy.*1.0"),
    "a move": (lambda: derive(SOFTMAX, move="nope"), OptionError, "exact, lazy, power_of_two.*'nope'.*move"),
    "a dtype": (lambda: derive(SOFTMAX, "float16"), OptionError, "dtypes among.*'float16'.*rescalable_casts"),
    "no dtypes": (lambda: derive(SOFTMAX, None), OptionError, "dtypes among.*None"),
    "work": (lambda: derive(SOFTMAX, work=0), OptionError, "a number above 0.*work"),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_what_derive_does_not_take(misuse: str) -> None:
    call, kind, message = MISUSES[misuse]
    with pytest.raises(kind, match=r"(?s)" + message):
        call()


def test_the_length_of_the_axis_is_a_symbol() -> None:
    fold = derive(Cascade([Reduction(m, SUM, x), Reduction(t, SUM, (x - m / tvm_cascade.LENGTH) ** 2)], [x]))
    assert isinstance(fold, Fold) and "c_m' = m_0/n" in str(fold)


def test_a_refusal_prints_its_counterexample_as_explain_does() -> None:
    refusal = derive(HYPERBOLA)
    assert isinstance(refusal, Refusal) and refusal.reason.counterexample is not None
    assert f"counterexample: {refusal.reason.counterexample}" in str(refusal)
    assert f"to make it fuse: {refusal.reason.hint}" in str(refusal)


def numerics() -> object:
    return tvm_cascade.numerics(softmax_stats(), "normal")


SHOWN: dict[str, tuple[Callable[[], Any], str]] = {
    "Fold": (lambda: derive(SOFTMAX), "<Fold of m, t: state m_0, c_m, t_0; print it for its formulas>"),
    "Refusal": (lambda: derive(HYPERBOLA), "<Refusal of t: infinite_rank; print it for the law that fails>"),
    "Compiled": (
        lambda: tvm_cascade.compile(softmax_stats()),
        "<Compiled for llvm: main(a, top (output), total (output))>",
    ),
    "Numerics": (numerics, "<Numerics of main, fused: 2 of 2 rows ok; print it for the table>"),
    "Explanation": (
        lambda: tvm_cascade.explain(softmax_stats(), force=True),
        "<Explanation; print it for reasons and formulas, or call to_json()\n  main: fused: top, total [fold]>",
    ),
}


@pytest.mark.parametrize("kind", SHOWN)
def test_the_repr_is_a_summary(kind: str) -> None:
    made, summary = SHOWN[kind]
    assert repr(made()) == summary


def test_the_formulas_are_printed() -> None:
    fold = derive(SOFTMAX)
    assert isinstance(fold, Fold) and "exp(x - c_m)" in str(fold)
