"""The catalogue of programs that must not fuse, as data: what is expected of each, and why.

`counterexample` says whether the checker must find numbers on which the law fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import te, tirx, topi
from tvm.ir import Expr
from tvm.script import tirx as T

from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.te import topk

from ..analysis.programs import (
    LENGTH,
    ROWS,
    array,
    disjunction,
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
    return program(x, fold("out", lambda i, j: tirx.EQ(x[i, j], largest[i] / number(2)), disjunction))


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


@T.prim_func(s_tir=True)
def _reads_a_shifted_copy(x: T.Buffer((ROWS, LENGTH), "float32"), out: T.Buffer((ROWS,), "float32")) -> None:
    s = T.sblock_alloc_buffer((ROWS,), "float32")
    copy = T.sblock_alloc_buffer((ROWS + 1,), "float32")
    for i, j in T.grid(ROWS, LENGTH):
        with T.sblock("s"):
            row, at = T.axis.remap("SR", [i, j])
            with T.init():
                s[row] = T.float32(0)
            s[row] = s[row] + x[row, at]
    for i in range(ROWS):
        with T.sblock("copy"):
            row = T.axis.spatial(ROWS, i)
            copy[row + 1] = s[row]
    for i, j in T.grid(ROWS, LENGTH):
        with T.sblock("out"):
            row, at = T.axis.remap("SR", [i, j])
            with T.init():
                out[row] = T.float32(0)
            out[row] = out[row] + x[row, at] * s[row] * copy[row + 1]


def reads_a_shifted_copy() -> tirx.PrimFunc:
    """A stage that is no function of its own indices stays a loop of its own, which needs s whole."""
    return _reads_a_shifted_copy


def selection(element: Callable[[Expr, Expr], Expr], select: Callable[..., te.Tensor] = topi.argmax) -> Program:
    """s = Σ x; out = argmax element(x, s)."""

    def build() -> tirx.PrimFunc:
        x = array("x")
        s = fold("s", lambda i, j: x[i, j])
        return program(x, select(each("keys", lambda i, j: element(x[i, j], s[i])), axis=1))

    return build


def after_the_best(element: Callable[[Expr, Expr], Expr]) -> Program:
    """best = the key of an argmax; out = Σ element(x, best)."""

    def build() -> tirx.PrimFunc:
        x = array("x")
        best, _ = topk(x, 1, axis=1)
        return program(x, fold("out", lambda i, j: element(x[i, j], best[i, 0])))

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


def after_max(element: Callable[[Expr, Expr], Expr], combine: Callable[..., Expr] = total) -> Program:
    """m = max x; out = combine element(x, m)."""

    def build() -> tirx.PrimFunc:
        x = array("x")
        m = fold("m", lambda i, j: x[i, j], maximum)
        return program(x, fold("out", lambda i, j: element(x[i, j], m[i]), combine))

    return build


def centred(x: Expr, s: Expr) -> Expr:
    """x − mean."""
    return x - s / number(LENGTH)


def cast(value: Expr, dtype: str) -> Expr:
    """value in a dtype, and back."""
    return value.astype(dtype).astype("float32")


def softmax_at_a_computed_temperature() -> tirx.PrimFunc:
    x = array("x")
    t = fold("t", lambda i, j: x[i, j] * x[i, j])
    m = fold("m", lambda i, j: x[i, j], maximum)
    return program(x, fold("out", lambda i, j: te.exp((x[i, j] - m[i]) / t[i])))


def two_inputs_under_a_maximum() -> tirx.PrimFunc:
    x, w = array("x"), array("w")
    s = fold("s", lambda i, j: x[i, j])
    return program(x, w, fold("out", lambda i, j: w[i, j] * (x[i, j] - s[i]), maximum))


def rounded_at_a_scale_of_another_array() -> tirx.PrimFunc:
    x, y = array("x"), array("y")
    s = fold("s", lambda i, j: x[i, j] * x[i, j])
    return program(x, y, fold("out", lambda i, j: cast(y[i, j] / s[i], "float16")))


def two_differences_under_a_maximum() -> tirx.PrimFunc:
    x, w = array("x"), array("w")
    s = fold("s", lambda i, j: x[i, j])
    return program(x, w, fold("out", lambda i, j: (w[i, j] - s[i]) * (x[i, j] - s[i]), maximum))


def line_where_kept() -> tirx.PrimFunc:
    """out = max (keep ? x + s·w : w)."""
    x, w = array("x"), array("w")
    keep = array("keep", ROWS, LENGTH, dtype="bool")
    s = fold("s", lambda i, j: x[i, j])
    line = fold("out", lambda i, j: tirx.Select(keep[i, j], x[i, j] + s[i] * w[i, j], w[i, j]), maximum)
    return program(x, w, keep, line)


def column_of_a_square() -> tirx.PrimFunc:
    x = array("x", 7, 7)
    rows = fold("rows", lambda i, j: x[i, j], maximum, 7, (7,))
    return program(x, fold("out", lambda j, i: te.exp(x[i, j] - rows[j]), total, 7, (7,)))


def one_axis_then_two() -> tirx.PrimFunc:
    x = te.placeholder((ROWS, 5, 6), "float32", name="x")
    j = te.reduce_axis((0, 5), "j")
    k, r = te.reduce_axis((0, 5), "k"), te.reduce_axis((0, 6), "r")
    first = te.compute((ROWS,), lambda i: te.max(x[i, j, 0], axis=j), name="first")
    return program(x, te.compute((ROWS,), lambda i: te.sum(te.exp(x[i, k, r] - first[i]), axis=[k, r]), name="out"))


def next_rows_result() -> tirx.PrimFunc:
    x = array("x")
    m = fold("m", lambda i, j: x[i, j], maximum)
    return program(x, fold("out", lambda i, j: te.exp(x[i, j] - m[(i + 1) % ROWS])))


def gathered_rows_result() -> tirx.PrimFunc:
    x, row = array("x"), te.placeholder((ROWS,), "int32", name="row")
    m = fold("m", lambda i, j: x[i, j], maximum)
    return program(x, row, fold("out", lambda i, j: te.exp(x[i, j] - m[row[i]])))


def wide_integers() -> tirx.PrimFunc:
    x = array("x", dtype="int64")
    m = fold("m", lambda i, j: x[i, j], maximum)
    return program(x, fold("out", lambda i, j: x[i, j] - m[i]))


@dataclass(frozen=True)
class Refused:
    """One entry.

    Attributes
    ----------
    build : makes the program.
    code : the reason's.
    buffer : a buffer that the message names.
    counterexample : numbers are found on which the law fails.
    verdict : refused by proof, or unknown.
    """

    build: Program
    code: str
    buffer: str = "out"
    counterexample: bool = False
    verdict: Verdict = Verdict.REFUSED


def infinite_rank(build: Program) -> Refused:
    """No finite state, with the numbers that show it."""
    return Refused(build, "infinite_rank", counterexample=True)


def not_monotone(build: Program) -> Refused:
    """The extrema do not determine the result, with segments that show it."""
    return Refused(build, "not_monotone", counterexample=True)


def prod_dependence(build: Program) -> Refused:
    """A product of what is no factor, with the numbers that show it."""
    return Refused(build, "prod_dependence", counterexample=True)


def rounding(build: Program, code: str = "rounding") -> Refused:
    """A cast at the final scale or offset, with an element that shows it."""
    return Refused(build, code, counterexample=True)


def unknown(build: Program, code: str, *, counterexample: bool = False) -> Refused:
    """A limit of ours."""
    return Refused(build, code, counterexample=counterexample, verdict=Verdict.UNKNOWN)


CATALOGUE: dict[str, Refused] = {
    "hyperbolic tangent": infinite_rank(after_sum(lambda x, s: te.tanh(x - s))),
    "logistic loss": infinite_rank(after_sum(lambda x, s: te.log(number(1) + te.exp(x - s)))),
    "sigmoid": infinite_rank(after_sum(lambda x, s: te.sigmoid(x - s))),
    "sigmoid about a maximum": infinite_rank(after_max(lambda x, m: te.sigmoid(x - m))),
    "reciprocal of a difference": infinite_rank(after_sum(lambda x, s: number(1) / (x - s))),
    "gaussian": infinite_rank(after_sum(lambda x, s: te.exp(number(0) - (x - s) * (x - s)))),
    "gaussian of a computed width": infinite_rank(after_sum(lambda x, s: te.exp(number(0) - x * x / (s * s)))),
    "quotient by a sum with itself": infinite_rank(after_sum(lambda x, s: x / (te.abs(x) + te.abs(s)))),
    "hypotenuse": infinite_rank(after_sum(lambda x, s: te.sqrt(x * x + s * s))),
    "logarithm of squares": infinite_rank(after_sum(lambda x, s: te.log(x * x + s * s))),
    "exponential of a product": infinite_rank(after_sum(lambda x, s: te.exp(x * s))),
    "softmax at a computed temperature": infinite_rank(softmax_at_a_computed_temperature),
    "sine of a product": infinite_rank(after_sum(lambda x, s: te.sin(x * s))),
    "cosine of a square": infinite_rank(after_sum(lambda x, s: te.cos((x - s) * (x - s)))),
    "tanh of a product": infinite_rank(after_max(lambda x, m: te.tanh(x * m))),
    "smallest distance": not_monotone(after_sum(lambda x, s: te.abs(x - s), minimum)),
    "smallest square": not_monotone(after_sum(lambda x, s: (x - s) * (x - s), minimum)),
    "largest negative square": not_monotone(after_sum(lambda x, s: number(0) - (x - s) * (x - s), maximum)),
    "largest gaussian": not_monotone(after_sum(lambda x, s: te.exp(number(0) - (x - s) * (x - s)), maximum)),
    "largest cosine": not_monotone(after_sum(lambda x, s: te.cos(x - s), maximum)),
    "largest wave about a maximum": not_monotone(after_max(lambda x, m: te.sin(x - m), maximum)),
    "largest of two inputs": not_monotone(two_inputs_under_a_maximum),
    "largest product of two differences": not_monotone(two_differences_under_a_maximum),
    "largest line where kept": not_monotone(line_where_kept),
    "distances, scaled": infinite_rank(after_sum(lambda x, s: te.abs(x * number(0.0625) - s))),
    "cut off at a sum": infinite_rank(after_sum(lambda x, s: te.max(x * number(0.125), s))),
    "product of differences": prod_dependence(after_sum(lambda x, s: x - s, product)),
    "product of sums": prod_dependence(after_max(lambda x, m: x * x + m * m, product)),
    "product of affine maps": prod_dependence(after_sum(lambda x, s: number(1) + x * s, product)),
    "quantised to int8": rounding(rounded("int8")),
    "quantised to uint8": rounding(rounded("uint8")),
    "quantised to int32": rounding(rounded("int32")),
    "quantised to float8_e4m3fn": rounding(rounded("float8_e4m3fn")),
    "quantised to float8_e5m2": rounding(rounded("float8_e5m2")),
    "quantised probabilities": rounding(after_max(lambda x, m: cast(te.exp(x - m) * number(255), "uint8"))),
    "float8 about a mean": rounding(after_sum(lambda x, s: cast(centred(x, s), "float8_e5m2"))),
    "float16 about a mean, squared": rounding(
        after_sum(lambda x, s: cast(centred(x, s), "float16") * cast(centred(x, s), "float16")), "rounding_rank"
    ),
    "bfloat16 about a mean": rounding(after_sum(lambda x, s: cast(centred(x, s), "bfloat16")), "rounding_rank"),
    "float16 at a scale of another array": Refused(rounded_at_a_scale_of_another_array, "rounding_range"),
    "a value among all": Refused(predicate, "logical_dependence"),
    "other axis of a square": Refused(other_axis, "axis_mismatch", "rows"),
    "column of a square": Refused(column_of_a_square, "axis_mismatch", "rows"),
    "axes of unequal length": Refused(unequal_lengths, "axis_mismatch", "largest"),
    "one axis, then two": Refused(one_axis_then_two, "axis_mismatch", "first"),
    "another axis between": Refused(needs_another_axis_between, "dependence_cycle", "shared"),
    "a shifted copy between": Refused(reads_a_shifted_copy, "dependence_cycle", "reads all of s"),
    "another row's result": Refused(reversed_row, "result_index", "largest", verdict=Verdict.UNKNOWN),
    "the next row's result": Refused(next_rows_result, "result_index", "m", verdict=Verdict.UNKNOWN),
    "a gathered row's result": Refused(gathered_rows_result, "result_index", "m", verdict=Verdict.UNKNOWN),
    "sixth moment": unknown(after_sum(lambda x, s: te.power(x - s, number(6))), "rank_limit"),
    "unknown function": unknown(after_sum(lambda x, s: te.erf(x - s)), "intrinsic"),
    "rounding down": rounding(after_sum(lambda x, s: te.floor(x - s))),
    "rounding up": rounding(after_max(lambda x, m: te.ceil(x / m))),
    "rounded and quantised": rounding(after_max(lambda x, m: cast(te.round(x * number(127) / m), "int8"))),
    "quantised to int8 at a power of two": rounding(
        after_max(lambda x, m: cast(x / tirx.exp2(te.ceil(tirx.log2(m * m))), "int8"))
    ),
    "sum of codes": rounding(
        after_max(lambda x, m: te.round(x * number(127) / m).astype("int8").astype("int32")),
    ),
    "argmax of what is above the mean": Refused(
        selection(lambda x, s: tirx.if_then_else(x > s / number(LENGTH), number(1), number(0))),
        "not_order_preserving",
        "keys",
        counterexample=True,
    ),
    "what is above the mean": infinite_rank(
        after_sum(lambda x, s: tirx.if_then_else(x > s / number(LENGTH), x, number(0)))
    ),
    "how much is above half the maximum": infinite_rank(
        after_max(lambda x, m: tirx.if_then_else(x * number(2) > m, number(1), number(0)))
    ),
    "quadratic near the mean, linear elsewhere": infinite_rank(
        after_sum(lambda x, s: tirx.if_then_else(te.abs(x - s) < number(1), (x - s) * (x - s), te.abs(x - s)))
    ),
    "the largest below the mean": not_monotone(
        after_sum(lambda x, s: tirx.if_then_else(x < s / number(LENGTH), x, number(0)), maximum)
    ),
    "integer reductions": unknown(integers, "integer"),
    "wide integers": unknown(wide_integers, "integer"),
    "sigmoid of the distance to the best": infinite_rank(
        after_the_best(lambda x, best: number(1) / (number(1) + te.exp(x - best)))
    ),
    "argmin of distances": Refused(
        selection(lambda x, s: te.abs(x - s), topi.argmin), "not_order_preserving", "keys", counterexample=True
    ),
    "argmin of what is cut off": Refused(
        selection(lambda x, s: te.max(x - s, number(0)), topi.argmin),
        "not_order_preserving",
        "keys",
        counterexample=True,
    ),
    "argmax of a gaussian": Refused(
        selection(lambda x, s: te.exp(number(0) - (x - s) * (x - s))),
        "not_order_preserving",
        "keys",
        counterexample=True,
    ),
    "differences of a tuple": Refused(users_tuple(lambda a, b: (a[0] - b[0], a[1] + b[1])), "tuple_algebra", "pair"),
    "means of a tuple": Refused(
        users_tuple(lambda a, b: ((a[0] + b[0]) / number(2), a[1] + b[1])), "tuple_algebra", "pair"
    ),
    "a value of equal keys": Refused(
        lambda: users_tuple(key_alone, float(tirx.min_value("float32")))(), "tuple_algebra", "pair"
    ),
    "a tuple over an earlier result": Refused(tuple_over_a_result, "tuple_dependence", "pair", verdict=Verdict.UNKNOWN),
}
