"""Programs that must not be fused: each stays the very object it was, with a code and the buffer concerned."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import tvm
from tvm import te, tirx, topi
from tvm.ir import Expr

from tvm_cascade.algebra.verdict import CODES, Verdict
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_cascaded_reductions import FuseCascadedReductions
from tvm_cascade.transform.fuse_function import fuse_function

from ..analysis.programs import (
    ROWS,
    array,
    conjunction,
    each,
    fold,
    maximum,
    minimum,
    number,
    product,
    program,
    softmax_stages,
    total,
    tupled,
)

Program = Callable[[], tirx.PrimFunc]


def after_sum(element: Callable[[Expr, Expr], Expr], combine: Callable[..., Expr] = total) -> Program:
    """s = Σ x; out = combine element(x, s)."""

    def build() -> tirx.PrimFunc:
        x = array("x")
        s = fold("s", lambda i, j: x[i, j])
        return program(x, fold("out", lambda i, j: element(x[i, j], s[i]), combine))

    return build


def rounded(dtype: str) -> Program:
    """absmax = max |x|; out = Σ dtype(x · 127 / absmax) · w."""

    def build() -> tirx.PrimFunc:
        x, w = array("x"), array("w")
        absmax = fold("absmax", lambda i, j: te.abs(x[i, j]), maximum)
        return program(
            x,
            w,
            fold(
                "out",
                lambda i, j: (x[i, j] * number(127) / absmax[i]).astype(dtype).astype("float32") * w[i, j],
            ),
        )

    return build


def integers() -> tirx.PrimFunc:
    x = array("x", dtype="int32")
    s = fold("s", lambda i, j: x[i, j])
    return program(x, fold("out", lambda i, j: x[i, j] * s[i]))


def predicate() -> tirx.PrimFunc:
    x = array("x")
    largest = fold("largest", lambda i, j: x[i, j], maximum)
    return program(x, fold("out", lambda i, j: x[i, j] < largest[i] * number(2), conjunction))


def condition_on_a_result() -> tirx.PrimFunc:
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    return program(x, fold("out", lambda i, j: tirx.if_then_else(s[i] > number(0), x[i, j] - s[i], x[i, j] * s[i])))


def other_axis() -> tirx.PrimFunc:
    x = array("x", 7, 7)
    rows = fold("rows", lambda i, j: x[i, j], length=7, rows=(7,))
    return program(x, fold("out", lambda j, i: x[i, j] * rows[j], length=7, rows=(7,)))


def unequal_lengths() -> tirx.PrimFunc:
    x, y = array("x", ROWS, 11), array("y", ROWS, 13)
    largest = fold("largest", lambda i, j: x[i, j], maximum, 11)
    return program(x, y, fold("out", lambda i, j: te.exp(y[i, j] - largest[i]), total, 13))


def reversed_row() -> tirx.PrimFunc:
    x = array("x")
    largest = fold("largest", lambda i, j: x[i, j], maximum)
    return program(x, fold("out", lambda i, j: te.exp(x[i, j] - largest[ROWS - 1 - i])))


def softmax_of_softmax() -> tirx.PrimFunc:
    x = array("x")
    row_max, row_sum = softmax_stages(x)

    def p(i: Expr, j: Expr) -> Expr:
        return te.exp(x[i, j] - row_max[i]) / row_sum[i]

    second_max = fold("second_max", lambda i, j: p(i, j), maximum)
    return program(x, fold("out", lambda i, j: te.exp(p(i, j) - second_max[i])))


def needs_another_axis_between() -> tirx.PrimFunc:
    """The second reduction reads a mean over all rows of the first, and the first itself."""
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    across = te.reduce_axis((0, ROWS), "r")
    shared = te.compute((1,), lambda _: te.sum(s[across], axis=across), name="shared")
    return program(x, fold("out", lambda i, j: (x[i, j] - s[i]) * shared[0]))


def selection(element: Callable[[Expr, Expr], Expr], select: Callable[..., te.Tensor] = topi.argmax) -> Program:
    """s = Σ x; out = argmax element(x, s)."""

    def build() -> tirx.PrimFunc:
        x = array("x")
        s = fold("s", lambda i, j: x[i, j])
        return program(x, select(each("keys", lambda i, j: element(x[i, j], s[i])), axis=1))

    return build


def users_tuple(combine: Callable[..., tuple[Expr, ...]], start: float = 0.0) -> Program:
    """pair = reduce (x, w); out = Σ (x − pair₀)·pair₁."""

    def build() -> tirx.PrimFunc:
        x, w = array("x"), array("w")
        identity = lambda *types: tuple(tirx.const(start, dtype) for dtype in types)  # noqa: E731
        pair = tupled("pair", combine, identity, lambda i, j: (x[i, j], w[i, j]))
        return program(x, w, fold("out", lambda i, j: (x[i, j] - pair[0][i]) * pair[1][i]))

    return build


def key_alone(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The second value of the larger first, whatever that is among equals."""
    return tuple(tirx.Select(a[0] >= b[0], mine, other) for mine, other in zip(a, b, strict=True))


def tuple_over_a_result() -> tirx.PrimFunc:
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    product_and_sum = lambda a, b: (a[0] * b[0], a[1] + b[1])  # noqa: E731
    identity = lambda *types: (tirx.const(1, types[0]), tirx.const(0, types[1]))  # noqa: E731
    return program(x, *tupled("pair", product_and_sum, identity, lambda i, j: (x[i, j] - s[i], x[i, j])))


REFUSED: dict[str, tuple[Program, str, str]] = {
    # name: (program, code, a buffer that the message names)
    "hyperbolic tangent": (after_sum(lambda x, s: te.tanh(x - s)), "infinite_rank", "out"),
    "logistic loss": (after_sum(lambda x, s: te.log(number(1) + te.exp(x - s))), "infinite_rank", "out"),
    "reciprocal of a difference": (after_sum(lambda x, s: number(1) / (x - s)), "infinite_rank", "out"),
    "gaussian": (after_sum(lambda x, s: te.exp(number(0) - (x - s) * (x - s))), "infinite_rank", "out"),
    "smallest distance": (after_sum(lambda x, s: te.abs(x - s), minimum), "not_monotone", "out"),
    "smallest square": (after_sum(lambda x, s: (x - s) * (x - s), minimum), "not_monotone", "out"),
    "product of differences": (after_sum(lambda x, s: x - s, product), "prod_dependence", "out"),
    "sixth moment": (after_sum(lambda x, s: te.power(x - s, number(6))), "rank_limit", "out"),
    "unknown function": (after_sum(lambda x, s: te.erf(x - s)), "intrinsic", "out"),
    "rounding down": (after_sum(lambda x, s: te.floor(x - s)), "intrinsic", "out"),
    "quantised to int8": (rounded("int8"), "rounding", "out"),
    "quantised to float8": (rounded("float8_e4m3fn"), "rounding", "out"),
    "condition on a result": (condition_on_a_result, "select_on_result", "out"),
    "conjunction of comparisons": (predicate, "logical_dependence", "out"),
    "integer reductions": (integers, "integer", "out"),
    "other axis of a square": (other_axis, "axis_mismatch", "rows"),
    "axes of unequal length": (unequal_lengths, "axis_mismatch", "largest"),
    "another row's result": (reversed_row, "result_index", "largest"),
    "argmin of distances": (selection(lambda x, s: te.abs(x - s), topi.argmin), "not_order_preserving", "keys"),
    "argmax of multiples of unknown sign": (selection(lambda x, s: x * s), "not_order_preserving", "keys"),
    "argmax of what is cut off": (selection(lambda x, s: te.max(x - s, number(0))), "not_order_preserving", "keys"),
    "argmax of a gaussian": (
        selection(lambda x, s: te.exp(number(0) - (x - s) * (x - s))),
        "not_order_preserving",
        "keys",
    ),
    "differences of a tuple": (users_tuple(lambda a, b: (a[0] - b[0], a[1] + b[1])), "tuple_algebra", "pair"),
    "means of a tuple": (
        users_tuple(lambda a, b: ((a[0] + b[0]) / number(2), a[1] + b[1])),
        "tuple_algebra",
        "pair",
    ),
    "a value of equal keys": (
        lambda: users_tuple(key_alone, float(tirx.min_value("float32")))(),
        "tuple_algebra",
        "pair",
    ),
    "a tuple over an earlier result": (tuple_over_a_result, "tuple_dependence", "pair"),
    "another axis between": (needs_another_axis_between, "dependence_cycle", "shared"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_program_that_is_no_fold_is_refused_with_its_code_and_the_buffer_concerned(name: str) -> None:
    build, code, buffer = REFUSED[name]
    outcome = fuse_function(build(), FuseOptions(force=True))
    assert not outcome.fused
    reasons = [decision.reason for decision in outcome.decisions]
    assert code in [reason.code for reason in reasons], [str(reason) for reason in reasons]
    message = str(next(reason for reason in reasons if reason.code == code))
    assert buffer in message and CODES[code][1] in message


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_function_is_the_same_object_after_the_pass(name: str) -> None:
    module = tvm.IRModule({"main": REFUSED[name][0]()})
    before = module.script()
    assert FuseCascadedReductions(force=True)(module)["main"].same_as(module["main"])
    assert module.script() == before


def test_a_reducer_that_is_no_monoid_is_refused_with_a_counterexample() -> None:
    (decision,) = fuse_function(REFUSED["differences of a tuple"][0](), FuseOptions(force=True)).decisions
    assert re.search(r"identity ∘ a = a fails at a = \(.+\)", str(decision.reason)), str(decision.reason)


def test_what_is_refused_says_what_would_make_it_fuse() -> None:
    for name, (_, code, _) in REFUSED.items():
        verdict, _, hint = CODES[code]
        assert hint and verdict in (Verdict.REFUSED, Verdict.UNKNOWN), name


def test_of_a_softmax_of_a_softmax_only_the_first_is_fused() -> None:
    outcome = fuse_function(softmax_of_softmax(), FuseOptions(force=True))
    codes = {decision.reason.code: decision for decision in outcome.decisions}
    assert set(codes) == {"fold", "infinite_rank"}
    assert set(codes["fold"].candidate.names) >= {"row_max", "row_sum"}
    assert "out" in str(codes["infinite_rank"].reason)


def test_a_refusal_does_not_keep_the_rest_of_a_chain_from_fusing() -> None:
    x = array("x")
    row_max, row_sum = softmax_stages(x)
    out = fold("out", lambda i, j: te.tanh(x[i, j] - row_sum[i]))
    outcome = fuse_function(program(x, row_max, row_sum, out), FuseOptions(force=True))
    assert outcome.fused
    by_code = {d.reason.code: d.candidate.names for d in outcome.decisions}
    assert by_code["fold"] == ("row_max", "row_sum")
    assert "out" in by_code["infinite_rank"]


def test_float8_fuses_where_the_user_lists_it() -> None:
    outcome = fuse_function(
        rounded("float8_e4m3fn")(), FuseOptions(force=True, rescalable_casts=("float8_e4m3fn", "float16"))
    )
    codes = [decision.reason.code for decision in outcome.decisions]
    assert "rounding" not in codes, codes


def test_a_reduction_alone_is_no_cascade() -> None:
    x = array("x")
    func = program(x, fold("out", lambda i, j: x[i, j]))
    (decision,) = fuse_function(func, FuseOptions(force=True)).decisions
    assert decision.reason.code == "single_reduction" and "out" in str(decision.reason)


def test_two_reductions_that_do_not_read_each_other_are_no_cascade() -> None:
    x = array("x")
    func = program(x, fold("first", lambda i, j: x[i, j]), fold("second", lambda i, j: x[i, j], maximum))
    outcome = fuse_function(func, FuseOptions(force=True))
    assert [d.reason.code for d in outcome.decisions] == ["single_reduction"]
    assert outcome.func.same_as(func)


def test_a_function_without_reductions_is_left_alone_without_a_word() -> None:
    x = array("x")
    func = program(x, each("out", lambda i, j: x[i, j] * number(2)))
    outcome = fuse_function(func, FuseOptions(force=True))
    assert outcome.decisions == () and outcome.func.same_as(func)


def test_topi_softmax_is_not_refused() -> None:
    x = array("x")
    assert fuse_function(program(x, topi.nn.softmax(x, axis=1)), FuseOptions(force=True)).fused
