"""Advice is tried: a program that is changed as the hint of its reason says fuses, or is refused for that no more.

What follows the hints of examples that are statements is in `report.reference`; here are those that take a program.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import tvm
from tvm import te, tirx
from tvm.script import tirx as T

import tvm_cascade
from tvm_cascade.analysis.expression import FUNCTIONS
from tvm_cascade.codes import CODES

from ..analysis.programs import (
    LENGTH,
    ROWS,
    array,
    each,
    fold,
    maximum,
    number,
    program,
    softmax_stats,
    tupled,
)
from .catalogue import CATALOGUE, Program, after_max, centred
from .test_unreadable_functions import UNREADABLE, scheduled


@dataclass(frozen=True)
class Advice:
    """A program, and what the hint of its reason makes of it.

    Attributes
    ----------
    code : of the reason.
    refused, advised : before and after.
    options : that the hint names.
    fuses : what is advised becomes one loop; else it is looked at for another reason.
    """

    code: str
    refused: Program
    advised: Program
    options: dict[str, object] = field(default_factory=dict)
    fuses: bool = True


def sum_in(dtype: str, element: Callable[[tirx.Var, tirx.Var], tirx.Var]) -> Program:
    """s = Σ x in float32; out = Σ element(x, s)."""

    def build() -> tirx.PrimFunc:
        x = array("x", dtype=dtype)
        s = fold("s", lambda i, j: x[i, j].astype("float32"))
        return program(x, fold("out", lambda i, j: element(x[i, j].astype("float32"), s[i])))

    return build


def of_narrow_integers() -> tirx.PrimFunc:
    x = array("x", dtype="int8")
    top = fold("top", lambda i, j: x[i, j], maximum)
    return program(x, fold("out", lambda i, j: te.exp((x[i, j] - top[i]).astype("float32"))))


def row_then(after: Callable[[te.Tensor, te.Tensor], te.Tensor]) -> Program:
    """m = max x; s = Σ exp(x − m); what comes after both."""

    def build() -> tirx.PrimFunc:
        x = array("x")
        m = fold("m", lambda i, j: x[i, j], maximum)
        return program(x, m, after(m, fold("s", lambda i, j: te.exp(x[i, j] - m[i]))))

    return build


def rounded_afterwards() -> tirx.PrimFunc:
    x, y = array("x"), array("y")
    s = fold("s", lambda i, j: x[i, j] * x[i, j])
    out = fold("out", lambda i, j: y[i, j] / s[i])
    return program(x, y, each("rounded", lambda i: out[i].astype("float16").astype("float32"), ROWS))


def about_a_mean_rounded_afterwards() -> tirx.PrimFunc:
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    out = fold("out", lambda i, j: centred(x[i, j], s[i]) * centred(x[i, j], s[i]))
    return program(x, each("rounded", lambda i: out[i].astype("bfloat16").astype("float32"), ROWS))


def selected_by_the_data() -> tirx.PrimFunc:
    x = array("x")
    s, best = fold("s", lambda i, j: x[i, j]), tvm_cascade.te.topk(x, 1, axis=1, largest=False)[0]
    return program(x, te.compute((ROWS,), lambda i: te.abs(best[i, 0] - s[i]), name="out"))


def largest_and_sum(together: bool) -> Program:
    """s = Σ x; the largest of x − s and the sum of x, as one tuple or as two reductions."""

    def build() -> tirx.PrimFunc:
        x = array("x")
        s = fold("s", lambda i, j: x[i, j])
        if not together:
            return program(x, fold("top", lambda i, j: x[i, j] - s[i], maximum), s)
        both = lambda a, b: (te.max(a[0], b[0]), a[1] + b[1])  # noqa: E731
        start = lambda top, sums: (te.min_value(top), tirx.const(0, sums))  # noqa: E731
        return program(x, *tupled("pair", both, start, lambda i, j: (x[i, j] - s[i], x[i, j])))

    return build


def pair(combine: Callable[..., tuple[tirx.Var, ...]]) -> Program:
    """pair = reduce (x, 1); out = Σ x·pair₀/pair₁."""

    def build() -> tirx.PrimFunc:
        x = array("x")
        zeros = lambda *types: tuple(tirx.const(0, dtype) for dtype in types)  # noqa: E731
        sums = tupled("pair", combine, zeros, lambda i, j: (x[i, j], number(1)))
        return program(x, fold("out", lambda i, j: x[i, j] * sums[0][i] / sums[1][i]))

    return build


def along_the_same_axis() -> tirx.PrimFunc:
    x = array("x", 7, 7)
    columns = fold("columns", lambda j, i: x[i, j], length=7, rows=(7,))
    return program(x, fold("out", lambda j, i: x[i, j] * columns[j], length=7, rows=(7,)))


def computed_after_the_cascade() -> tirx.PrimFunc:
    x, r = array("x"), te.reduce_axis((0, ROWS), "r")
    s = fold("s", lambda i, j: x[i, j])
    rest = fold("rest", lambda i, j: (x[i, j] - s[i]) * x[i, j])
    shared = te.compute((1,), lambda _: te.sum(s[r], axis=r), name="shared")
    return program(x, te.compute((ROWS,), lambda i: rest[i] * shared[0], name="out"))


@T.prim_func(s_tir=True)
def written_to_its_own(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    own = T.sblock_alloc_buffer((8,), "float32")
    for i in range(8):
        with T.sblock("first"):
            v = T.axis.spatial(8, i)
            own[v] = a[v]
    for i in range(8):
        with T.sblock("second"):
            v = T.axis.spatial(8, i)
            b[v] = own[7 - v] + T.float32(1)


@T.prim_func(s_tir=True)
def with_its_condition_in_the_value(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("kept"):
            v = T.axis.spatial(8, i)
            b[v] = T.if_then_else(v < 5, a[v], T.float32(0))


@T.prim_func(s_tir=True)
def one_store_a_block(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32"), c: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("first"):
            v = T.axis.spatial(8, i)
            b[v] = a[v]
    for i in range(8):
        with T.sblock("second"):
            v = T.axis.spatial(8, i)
            c[v] = a[v] + T.float32(1)


@T.prim_func(s_tir=True)
def in_blocks(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("b"):
            v = T.axis.spatial(8, i)
            b[v] = a[v] + T.float32(1)


@T.prim_func(s_tir=True)
def masked_triangle(a: T.Buffer((8, 8), "float32"), b: T.Buffer((8,), "float32")):
    for i, j in T.grid(8, 8):
        with T.sblock("rows"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                b[v_i] = T.float32(0)
            b[v_i] = b[v_i] + T.if_then_else(v_j <= v_i, a[v_i, v_j], T.float32(0))


def catalogued(name: str) -> Program:
    """A program of the catalogue of refusals, or of functions that cannot be read."""
    return CATALOGUE[name].build if name in CATALOGUE else UNREADABLE[name][0]


ADVICE: dict[str, Advice] = {
    "round the result": Advice(
        "rounding", catalogued("rounded and quantised"), after_max(lambda x, m: x * number(127) / m)
    ),
    "list the float": Advice(
        "rounding",
        catalogued("quantised to float8_e4m3fn"),
        catalogued("quantised to float8_e4m3fn"),
        {"rescalable_casts": ("float8_e4m3fn",)},
    ),
    "cast what is squared": Advice(
        "rounding_rank", catalogued("bfloat16 about a mean"), about_a_mean_rounded_afterwards
    ),
    "cast what is scaled": Advice(
        "rounding_range", catalogued("float16 at a scale of another array"), rounded_afterwards
    ),
    "known functions": Advice(
        "intrinsic",
        after_max(lambda x, m: x * tirx.log1p(m * m)),
        after_max(lambda x, m: x * te.log(number(1) + m * m)),
    ),
    "integers in floating point": Advice(
        "integer", catalogued("integer reductions"), sum_in("int32", lambda x, s: x * s)
    ),
    "what wraps around in floating point": Advice(
        "integer",
        of_narrow_integers,
        sum_in("int8", lambda x, s: (x - s / number(LENGTH)) * (x - s / number(LENGTH))),
    ),
    "another row afterwards": Advice(
        "result_index",
        catalogued("the next row's result"),
        row_then(lambda m, s: each("out", lambda i: s[i] * te.exp(m[i] - m[(i + 1) % ROWS]), ROWS)),
    ),
    "a combine that can be read": Advice(
        "reducer", catalogued("tuple reduction"), pair(lambda a, b: (a[0] + b[0], a[1] + b[1]))
    ),
    "a combine that is associative": Advice(
        "tuple_algebra",
        pair(lambda a, b: ((a[0] + b[0]) / number(2), a[1] + b[1])),
        pair(lambda a, b: (a[0] + b[0], a[1] + b[1])),
    ),
    "a tuple taken apart": Advice("tuple_dependence", largest_and_sum(True), largest_and_sum(False)),
    "selected by the data": Advice("not_order_preserving", catalogued("argmin of distances"), selected_by_the_data),
    "along the same axis": Advice("axis_mismatch", catalogued("other axis of a square"), along_the_same_axis),
    "afterwards": Advice("dependence_cycle", catalogued("another axis between"), computed_after_the_cascade),
    "before any schedule": Advice(
        "scheduled", scheduled(lambda s: s.parallel(s.get_loops(s.get_sblock("row_sum"))[0])), softmax_stats
    ),
    "a buffer of its own": Advice(
        "overwritten", catalogued("a buffer written twice"), lambda: written_to_its_own, fuses=False
    ),
    "a condition in the value": Advice(
        "predicate", catalogued("stores under a predicate"), lambda: with_its_condition_in_the_value, fuses=False
    ),
    "one store a block": Advice(
        "opaque_block", catalogued("two stores in a block"), lambda: one_store_a_block, fuses=False
    ),
    "blocks": Advice("tirx", catalogued("no blocks"), lambda: in_blocks, fuses=False),
    "a mask": Advice("symbolic_shape", catalogued("extent of another loop"), lambda: masked_triangle, fuses=False),
    "a position at least": Advice("empty_axis", catalogued("no positions"), softmax_stats),
}


def codes(build: Program, **options: object) -> list[str]:
    explained = tvm_cascade.explain(tvm.IRModule({"main": build()}), force=True, **options)
    return [group.reason.code for group in explained.groups]


@pytest.mark.parametrize("name", ADVICE)
def test_a_program_that_is_changed_as_advised_is_refused_for_that_no_more(name: str) -> None:
    advice = ADVICE[name]
    assert CODES[advice.code][2] and advice.code in codes(advice.refused)
    after = codes(advice.advised, **advice.options)
    assert after == ["fold"] if advice.fuses else advice.code not in after


def test_the_known_functions_are_those_that_the_hint_names() -> None:
    """And what is written with them: sigmoid is listed, square roots as sqrt and rsqrt, |x| as abs and fabs."""
    named = set(re.findall(r"\b[a-z]+\b", CODES["intrinsic"][2].split(";")[0]))
    same = {"exp2": "exp", "exp10": "exp", "log2": "log", "log10": "log", "rsqrt": "sqrt", "fabs": "abs"}
    same |= {"pow": "powers", "power": "powers"}
    assert {same.get(name, name) for name in FUNCTIONS} == named - {"write", "it", "with", "and"}
