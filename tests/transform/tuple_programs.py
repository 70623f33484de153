"""Programs with reductions of tuples: selections under order-preserving maps, and reducers that users write."""

from __future__ import annotations

from collections.abc import Callable

from tvm import te, tirx, topi
from tvm.ir import Expr

from tvm_cascade.te import topk

from ..analysis.programs import LENGTH, ROWS, array, each, fold, number, program, softmax_stages, tupled

Tuple = tuple[Expr, ...]


def zeros(*types: str) -> Tuple:
    """The identity of sums."""
    return tuple(tirx.const(0, dtype) for dtype in types)


def index_then_key(a: Tuple, b: Tuple) -> Tuple:
    """Argmax as topi writes it: of equal keys the lower index."""
    sooner = tirx.Or(a[1] > b[1], tirx.And(tirx.EQ(a[1], b[1]), a[0] < b[0]))
    return tirx.Select(sooner, a[0], b[0]), tirx.Select(a[1] > b[1], a[1], b[1])


def first_of_equals(a: Tuple, b: Tuple) -> Tuple:
    """Argmax as TVM's tutorial writes it, with whatever else is carried: of equal keys the first."""
    return tuple(tirx.Select(a[1] >= b[1], mine, other) for mine, other in zip(a, b, strict=True))


def nothing_yet(index: str, key: str, *carried: str) -> Tuple:
    """The identity of an argmax."""
    return tirx.const(-1, index), te.min_value(key), *zeros(*carried)


def log_sum_exp(a: Tuple, b: Tuple) -> Tuple:
    """(maximum, sum of exponentials)."""
    largest = te.max(a[0], b[0])
    return largest, a[1] * te.exp(a[0] - largest) + b[1] * te.exp(b[0] - largest)


def welford(a: Tuple, b: Tuple) -> Tuple:
    """(mean, squared deviations, count), merged by Chan's formula."""
    count, step = a[2] + b[2], b[0] - a[0]
    return a[0] + step * b[2] / count, a[1] + b[1] + step * step * a[2] * b[2] / count, count


def complex_product(a: Tuple, b: Tuple) -> Tuple:
    """(real, imaginary)."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def probabilities(x: te.Tensor) -> te.Tensor:
    """The softmax of the rows of x."""
    row_max, row_sum = softmax_stages(x)
    return each("probs", lambda i, j: te.exp(x[i, j] - row_max[i]) / row_sum[i])


def deviations(x: te.Tensor) -> te.Tensor:
    """|x − mean| of the rows of x."""
    s = fold("s", lambda i, j: x[i, j])
    return each("deviations", lambda i, j: te.abs(x[i, j] - s[i] / number(LENGTH)))


def router() -> tirx.PrimFunc:
    """x -> index, probability of the likeliest."""
    x = array("x")
    probs = probabilities(x)
    return program(x, *tupled("best", index_then_key, nothing_yet, lambda i, j: (j, probs[i, j])))


def argmax_of_probabilities() -> tirx.PrimFunc:
    x = array("x")
    return program(x, topi.argmax(topi.nn.softmax(x, axis=1), axis=1))


def argmax_beside_log_sum_exp() -> tirx.PrimFunc:
    x = array("x")
    row_max, row_sum = softmax_stages(x)
    total = each("total", lambda i: row_max[i] + te.log(row_sum[i]), ROWS)
    return program(x, topi.argmax(each("logs", lambda i, j: x[i, j] - total[i]), axis=1), total)


def farthest_from_the_mean() -> tirx.PrimFunc:
    x = array("x")
    return program(x, topi.argmax(deviations(x), axis=1))


def argmin_of_gaps() -> tirx.PrimFunc:
    x = array("x")
    row_max, _ = softmax_stages(x)
    return program(x, topi.argmin(each("gaps", lambda i, j: row_max[i] - x[i, j]), axis=1))


def value_at_the_likeliest() -> tirx.PrimFunc:
    x, v = array("x"), array("v")
    probs = probabilities(x)
    return program(x, v, *tupled("best", first_of_equals, nothing_yet, lambda i, j: (j, probs[i, j], v[i, j])))


def gathered_at_the_argmax() -> tirx.PrimFunc:
    """The index is read by a stage outside, the value by the softmax."""
    x, v = array("x"), array("v")
    index, largest = tupled("best", index_then_key, nothing_yet, lambda i, j: (j, x[i, j]))
    total = fold("total", lambda i, j: te.exp(x[i, j] - largest[i]))
    return program(x, v, total, each("taken", lambda i: v[i, index[i]], ROWS))


def attention_over_a_pair() -> tirx.PrimFunc:
    x, v = array("x"), array("v")
    m, t = tupled(
        "lse", log_sum_exp, lambda m, t: (te.min_value(m), tirx.const(0, t)), lambda i, j: (x[i, j], number(1))
    )
    return program(x, v, fold("out", lambda i, j: te.exp(x[i, j] - m[i]) / t[i] * v[i, j]))


def argmax_over_a_pair() -> tirx.PrimFunc:
    x = array("x")
    m, t = tupled(
        "lse", log_sum_exp, lambda m, t: (te.min_value(m), tirx.const(0, t)), lambda i, j: (x[i, j], number(1))
    )
    return program(x, topi.argmax(each("probs", lambda i, j: te.exp(x[i, j] - m[i]) / t[i]), axis=1), m, t)


def attention_over_log_add_exp() -> tirx.PrimFunc:
    """A reducer of one number, by exponentials and a logarithm."""
    x, v = array("x"), array("v")

    def added(a: Expr, b: Expr) -> Expr:
        return te.max(a, b) + te.log(number(1) + te.exp(number(0) - te.abs(a - b)))

    lse = fold("lse", lambda i, j: x[i, j], te.comm_reducer(added, te.min_value, name="log_add_exp"))
    return program(x, v, lse, fold("out", lambda i, j: te.exp(x[i, j] - lse[i]) * v[i, j]))


def length_of_the_rest() -> tirx.PrimFunc:
    """The same by a root, of which 0 is the identity among numbers that are not negative."""
    x = array("x")
    hypotenuse = te.comm_reducer(lambda a, b: te.sqrt(a * a + b * b), lambda t: tirx.const(0, t), name="hypotenuse")
    length = fold("length", lambda i, j: te.exp(x[i, j]), hypotenuse)
    return program(x, fold("out", lambda i, j: x[i, j] / length[i]))


def layer_norm_over_welford() -> tirx.PrimFunc:
    x, w = array("x"), array("w", LENGTH)
    mean, square, count = tupled("moments", welford, zeros, lambda i, j: (x[i, j], number(0), number(1)))

    def element(i: Expr, j: Expr) -> Expr:
        return (x[i, j] - mean[i]) / te.sqrt(square[i] / count[i] + number(1e-5)) * w[j]

    return program(x, w, mean, fold("out", element))


def rotation_then_sum() -> tirx.PrimFunc:
    x, w = array("x"), array("w")
    one = lambda a, b: (tirx.const(1, a), tirx.const(0, b))  # noqa: E731
    re, im = tupled("turn", complex_product, one, lambda i, j: (te.cos(x[i, j]), te.sin(x[i, j])))
    return program(x, w, im, fold("out", lambda i, j: w[i, j] * re[i]))


def range_normalised() -> tirx.PrimFunc:
    """Two elements of one tuple that are the same expression."""
    x, w = array("x"), array("w")
    low, high = tupled(
        "ends",
        lambda a, b: (te.min(a[0], b[0]), te.max(a[1], b[1])),
        lambda low, high: (te.max_value(low), te.min_value(high)),
        lambda i, j: (x[i, j], x[i, j]),
    )
    return program(x, w, fold("out", lambda i, j: (x[i, j] - low[i]) / (high[i] - low[i] + number(1e-3)) * w[i, j]))


def sum_beyond_the_second() -> tirx.PrimFunc:
    """Reads a rank that the first position does not fill: a state of one position has no second largest."""
    x = array("x")
    values = topk(each("scores", lambda i, j: x[i, j]), 2)[0]
    return program(x, fold("out", lambda i, j: te.exp((x[i, j] - values[i, 1]) / number(8))), values)


PROGRAMS: dict[str, Callable[[], tirx.PrimFunc]] = {
    build.__name__: build
    for build in (
        router,
        argmax_of_probabilities,
        argmax_beside_log_sum_exp,
        farthest_from_the_mean,
        argmin_of_gaps,
        value_at_the_likeliest,
        gathered_at_the_argmax,
        attention_over_a_pair,
        argmax_over_a_pair,
        attention_over_log_add_exp,
        length_of_the_rest,
        layer_norm_over_welford,
        rotation_then_sum,
        range_normalised,
        sum_beyond_the_second,
    )
}
