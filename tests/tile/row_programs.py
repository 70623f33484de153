"""Programs over rows of memory: reductions that write a value a row, an element a position, or both."""

from __future__ import annotations

from collections.abc import Callable

from tvm import te, tirx, topi
from tvm.ir import Expr

from corpus.programs import moments, softmax
from corpus.programs.program import Precision

Extent = int | Expr
Build = Callable[..., tirx.PrimFunc]


def of_bench(builder: Callable[..., object], dtype: str, rows: int, length: int) -> tirx.PrimFunc:
    """A program of the benchmarks."""
    return builder({"rows": rows, "length": length}, Precision(dtype, "float32")).prim_func()  # type: ignore[attr-defined]


def of_named_bench(builder: Callable[..., object]) -> Build:
    """A program of the benchmarks by dtype, rows and length."""
    return lambda dtype="float16", rows=5, length=256: of_bench(builder, dtype, rows, length)


def rms_norm(dtype: str = "float16", rows: Extent = 5, length: int = 256) -> tirx.PrimFunc:
    """x, gain -> x / sqrt(mean x² + ε) · gain."""
    x, gain, j = te.placeholder((rows, length), dtype, name="x"), _vector("gain", dtype, length), _axis(length)
    squares = te.compute((rows,), lambda i: te.sum(_wide(x[i, j]) * _wide(x[i, j]), axis=j), name="squares")

    def element(i: Expr, c: Expr) -> Expr:
        scale = te.rsqrt(squares[i] / _number(length) + _number(1e-5))
        return (_wide(x[i, c]) * scale * _wide(gain[c])).astype(dtype)

    return te.create_prim_func([x, gain, te.compute((rows, length), element, name="out")])


def residual_rms_norm(rows: int = 5, length: int = 256, apart: bool = False) -> tirx.PrimFunc:
    """x, r -> h = x + r, and h / sqrt(mean h² + ε); `apart`: also a matrix z of its own, doubled."""
    x, r, j = *(te.placeholder((rows, length), "float16", name=name) for name in ("x", "r")), _axis(length)
    h = te.compute((rows, length), lambda i, c: x[i, c] + r[i, c], name="h")
    squares = te.compute((rows,), lambda i: te.sum(_wide(h[i, j]) * _wide(h[i, j]), axis=j), name="squares")

    def element(i: Expr, c: Expr) -> Expr:
        return (_wide(h[i, c]) * te.rsqrt(squares[i] / _number(length) + _number(1e-5))).astype("float16")

    z = te.placeholder((40, 30), "float16", name="z")
    twice = te.compute((40, 30), lambda i, c: z[i, c] + z[i, c], name="twice")
    out = te.compute((rows, length), element, name="out")
    return te.create_prim_func([x, r, z, twice, h, out] if apart else [x, r, h, out])


def layer_norm(dtype: str = "float16", rows: Extent = 5, length: int = 256) -> tirx.PrimFunc:
    """x, gain, bias -> (x − mean) / sqrt(variance + ε) · gain + bias, and the mean."""
    x, gain, bias = te.placeholder((rows, length), dtype, name="x"), *(_vector(n, dtype, length) for n in ("g", "b"))
    total, centred = _centred(x, rows, length)

    def element(i: Expr, c: Expr) -> Expr:
        scale = te.rsqrt(centred[i] / _number(length) + _number(1e-5))
        return ((_wide(x[i, c]) - total[i] / _number(length)) * scale * _wide(gain[c]) + _wide(bias[c])).astype(dtype)

    mean = te.compute((rows,), lambda i: total[i] / _number(length), name="mean")
    return te.create_prim_func([x, gain, bias, te.compute((rows, length), element, name="out"), mean])


def group_norm(dtype: str = "float16", rows: int = 2, length: int = 64) -> tirx.PrimFunc:
    """x[n, group, c, p] -> normalised over c and p."""
    shape = (rows, 2, 4, length)
    x = te.placeholder(shape, dtype, name="x")
    c, p, d, q = _axis(4), _axis(length), _axis(4), _axis(length)
    count = _number(4 * length)
    total = te.compute(shape[:2], lambda n, g: te.sum(_wide(x[n, g, c, p]), axis=[c, p]), name="total")

    def square(n: Expr, g: Expr) -> Expr:
        offset = _wide(x[n, g, d, q]) - total[n, g] / count
        return te.sum(offset * offset, axis=[d, q])

    centred = te.compute(shape[:2], square, name="centred")

    def element(n: Expr, g: Expr, i: Expr, j: Expr) -> Expr:
        offset = _wide(x[n, g, i, j]) - total[n, g] / count
        return (offset * te.rsqrt(centred[n, g] / count + _number(1e-5))).astype(dtype)

    return te.create_prim_func([x, te.compute(shape, element, name="out")])


def argmax_of_softmax(dtype: str = "float32", rows: int = 5, length: int = 256) -> tirx.PrimFunc:
    """x -> where its softmax is largest."""
    x = te.placeholder((rows, length), dtype, name="x")
    return te.create_prim_func([x, topi.argmax(topi.nn.softmax(x, axis=1), axis=1)])


def weighted_slope(dtype: str = "float16", rows: int = 5, length: int = 256) -> tirx.PrimFunc:
    """A regression that nobody has named: w, x, y -> Σ w·(x − x̄)·(y − ȳ) / Σ w·(x − x̄)², where x is positive."""
    w, x, y = (te.placeholder((rows, length), dtype, name=name) for name in "wxy")

    def total(name: str, term: Callable[[Expr, Expr], Expr]) -> te.Tensor:
        j = _axis(length)
        return te.compute((rows,), lambda i: te.sum(term(i, j), axis=j), name=name)

    def weight(i: Expr, j: Expr) -> Expr:
        return te.exp(tirx.const(-1, "float32") * te.abs(_wide(w[i, j])))

    mass = total("mass", weight)
    of_x = total("of_x", lambda i, j: weight(i, j) * _wide(x[i, j]))
    of_y = total("of_y", lambda i, j: weight(i, j) * _wide(y[i, j]))
    both = total("both", lambda i, j: weight(i, j) * (_wide(x[i, j]) - of_x[i] / mass[i]) * (
        _wide(y[i, j]) - of_y[i] / mass[i]))  # fmt: skip
    return te.create_prim_func([w, x, y, both])


def masked_sum_exp(dtype: str = "float16", rows: int = 5, length: int = 256) -> tirx.PrimFunc:
    """x, lengths -> log Σ exp of the first positions of every row; a row of none is −inf."""
    x, lengths = te.placeholder((rows, length), dtype, name="x"), te.placeholder((rows,), "int32", name="lengths")
    j, k = _axis(length), _axis(length)

    def score(i: Expr, j: Expr) -> Expr:
        return te.if_then_else(j < lengths[i], _wide(x[i, j]), tirx.const(float("-inf"), "float32"))

    top = te.compute((rows,), lambda i: te.max(score(i, j), axis=j), name="top")
    total = te.compute((rows,), lambda i: te.sum(te.exp(score(i, k) - top[i]), axis=k), name="total")
    return te.create_prim_func([x, lengths, te.compute((rows,), lambda i: top[i] + te.log(total[i]), name="out")])


def columns(dtype: str = "float16", rows: int = 64, length: int = 64) -> tirx.PrimFunc:
    """The sum of each column: neighbours on the axis are not contiguous in memory."""
    x, j = te.placeholder((length, rows), dtype, name="x"), _axis(length)
    return te.create_prim_func([x, te.compute((rows,), lambda i: te.sum(_wide(x[j, i]), axis=j), name="out")])


def kurtosis(dtype: str = "float16", rows: Extent = 5, length: int = 256) -> tirx.PrimFunc:
    """x -> Σ ((x − mean)/deviation)⁴ and the largest |x|, of which Σ (x/largest)² is the third output."""
    x, j, k, m = te.placeholder((rows, length), dtype, name="x"), *(_axis(length) for _ in range(3))
    total, centred = _centred(x, rows, length)

    def fourth(i: Expr) -> Expr:
        z = (_wide(x[i, j]) - total[i] / _number(length)) / te.sqrt(centred[i])
        return te.sum(z * z * z * z, axis=j)

    largest = te.compute((rows,), lambda i: te.max(te.abs(_wide(x[i, k])), axis=k), name="largest")
    shares = lambda i: te.sum(_wide(x[i, m]) / largest[i] * (_wide(x[i, m]) / largest[i]), axis=m)  # noqa: E731
    norm = te.compute((rows,), shares, name="norm")
    return te.create_prim_func([x, te.compute((rows,), fourth, name="out"), largest, norm])


def modes(dtype: str = "float16", rows: Extent = 5, length: int = 256) -> tirx.PrimFunc:
    """x -> the largest of x, rounded to quarters, how many there are, and the sum of the others."""
    x, (j, k, m) = te.placeholder((rows, length), dtype, name="x"), (_axis(length) for _ in range(3))
    coarse = lambda i, at: te.floor(_wide(x[i, at]) * _number(4))  # noqa: E731
    largest = te.compute((rows,), lambda i: te.max(coarse(i, j), axis=j), name="largest")
    count = lambda i: te.sum(tirx.EQ(coarse(i, k), largest[i]).astype("float32"), axis=k)  # noqa: E731
    rest = lambda i: te.sum(  # noqa: E731
        tirx.if_then_else(coarse(i, m) < largest[i], coarse(i, m), _number(0)), axis=m
    )
    outputs = [te.compute((rows,), count, name="count"), te.compute((rows,), rest, name="rest")]
    return te.create_prim_func([x, largest, *outputs])


PROGRAMS: dict[str, Build] = {
    "softmax": of_named_bench(softmax.softmax),
    "softmax_stats": of_named_bench(softmax.softmax_stats),
    "log_sum_exp": of_named_bench(softmax.logsumexp),
    "cross_entropy": of_named_bench(softmax.cross_entropy),
    "entropy": of_named_bench(softmax.entropy),
    "kl_divergence": of_named_bench(softmax.kl_divergence),
    "variance": of_named_bench(moments.variance),
    "inertia": of_named_bench(moments.inertia),
    "rms_norm": rms_norm,
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "argmax_of_softmax": argmax_of_softmax,
    "weighted_slope": weighted_slope,
    "masked_sum_exp": masked_sum_exp,
    "kurtosis": kurtosis,
    "modes": modes,
}


def _centred(x: te.Tensor, rows: Extent, length: int) -> tuple[te.Tensor, te.Tensor]:
    """(sum, sum of squares about the mean) of rows."""
    j, k = _axis(length), _axis(length)
    total = te.compute((rows,), lambda i: te.sum(_wide(x[i, j]), axis=j), name="total")

    def square(i: Expr) -> Expr:
        offset = _wide(x[i, k]) - total[i] / _number(length)
        return te.sum(offset * offset, axis=k)

    return total, te.compute((rows,), square, name="centred")


def _axis(length: int) -> tirx.IterVar:
    return te.reduce_axis((0, length), "j")


def _vector(name: str, dtype: str, length: int) -> te.Tensor:
    return te.placeholder((length,), dtype, name=name)


def _wide(value: Expr) -> Expr:
    return value.astype("float32")


def _number(value: float) -> Expr:
    return tirx.const(float(value), "float32")
