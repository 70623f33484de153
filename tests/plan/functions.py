"""Functions of models that hold matrix products among other stages, for tests of plans.

Each is a builder over a scale: at scale 1 extents are small enough for an oracle, at larger ones those of models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.analysis.tir import extent_of
from tvm_cascade.te import topk

from ..analysis.programs import array, each, fold, maximum, number, program, total

HALF = "float16"
EPSILON = 1e-5

Build = Callable[..., tirx.PrimFunc]


def wide(value: Expr) -> Expr:
    """In the dtype of sums."""
    return value.astype("float32")


def half(name: str, source: te.Tensor) -> te.Tensor:
    """A tensor in half precision."""
    return each(name, lambda *at: source(*at).astype(HALF), *_shape(source))


def times(name: str, left: te.Tensor, right: te.Tensor, transposed: bool = False) -> te.Tensor:
    """left[m, k]·right[k, n], or right[n, k], in float32."""
    (m, k), n = _shape(left), _shape(right)[0 if transposed else 1]

    def element(i: Expr, j: Expr, r: Expr) -> Expr:
        return wide(left(i, r)) * wide(right(j, r) if transposed else right(r, j))

    return fold(name, element, total, k, (m, n))


def _shape(tensor: te.Tensor) -> tuple[Any, ...]:
    return tuple(extent_of(extent) for extent in tensor.shape)


def gelu(x: Expr) -> Expr:
    """The tanh form of Hendrycks and Gimpel, arXiv 1606.08415."""
    inner = number(0.7978845608) * (x + number(0.044715) * x * x * x)
    return number(0.5) * x * (number(1.0) + te.tanh(inner))


def silu(x: Expr) -> Expr:
    """x·sigmoid(x)."""
    return x / (number(1.0) + te.exp(-x))


def lone(m: int = 64, n: int = 96, k: int = 128, transposed: bool = False) -> tirx.PrimFunc:
    """x·w."""
    x, w = array("x", m, k, dtype=HALF), array("w", *((n, k) if transposed else (k, n)), dtype=HALF)
    return program(x, w, half("out", times("y", x, w, transposed)))


def lone_transposed(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """x·wᵀ."""
    return lone(m, n, k, transposed=True)


def gram(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """xᵀ·x."""
    x = array("x", k, n, dtype=HALF)
    return program(x, fold("out", lambda i, j, r: wide(x[r, i]) * wide(x[r, j]), total, k, (n, n)))


def batched(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """A product for every batch."""
    x, w = array("x", 4, m, k, dtype=HALF), array("w", 4, k, n, dtype=HALF)
    y = fold("y", lambda b, i, j, r: wide(x[b, i, r]) * wide(w[b, r, j]), total, k, (4, m, n))
    return program(x, w, half("out", y))


def biased(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """relu(x·w + b)."""
    x, w, b = array("x", m, k, dtype=HALF), array("w", k, n, dtype=HALF), array("b", n, dtype=HALF)
    y = times("y", x, w)
    return program(x, w, b, each("out", lambda i, j: te.max(y(i, j) + wide(b(j)), number(0.0)).astype(HALF), m, n))


def residual(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """x·w·0.5 + r."""
    x, w, r = array("x", m, k, dtype=HALF), array("w", k, n, dtype=HALF), array("r", m, n, dtype=HALF)
    y = times("y", x, w)
    return program(x, w, r, each("out", lambda i, j: (y(i, j) * number(0.5) + wide(r(i, j))).astype(HALF), m, n))


def relu_first(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """relu(x)·w."""
    x, w = array("x", m, k, dtype=HALF), array("w", k, n, dtype=HALF)
    kept = each("kept", lambda i, r: te.max(x(i, r), tirx.const(0, HALF)), m, k)
    return program(x, w, half("out", times("y", kept, w)))


def chain(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """x·w·v, rounded between."""
    x, w, v = array("x", m, k, dtype=HALF), array("w", k, n, dtype=HALF), array("v", n, k, dtype=HALF)
    return program(x, w, v, half("out", times("z", half("h", times("y", x, w)), v)))


def wide_chain(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """x·w·v, not rounded between by the program."""
    x, w, v = array("x", m, k, dtype=HALF), array("w", k, n, dtype=HALF), array("v", n, k, dtype=HALF)
    return program(x, w, v, half("out", times("z", times("y", x, w), v)))


def feed_forward(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """gelu(x·w + b)·v."""
    x, w = array("x", m, k, dtype=HALF), array("w", k, n, dtype=HALF)
    b, v = array("b", n, dtype=HALF), array("v", n, k, dtype=HALF)
    y = times("y", x, w)
    h = each("h", lambda i, j: gelu(y(i, j) + wide(b(j))), m, n)
    return program(x, w, b, v, half("out", times("z", h, v)))


def gated(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """(silu(x·g) ∘ (x·u))·d."""
    x, g, u = array("x", m, k, dtype=HALF), array("g", k, n, dtype=HALF), array("u", k, n, dtype=HALF)
    d = array("d", n, k, dtype=HALF)
    gate, up = times("gate", x, g), times("up", x, u)
    h = each("h", lambda i, j: silu(gate(i, j)) * up(i, j), m, n)
    return program(x, g, u, d, half("out", times("z", h, d)))


def _rms(x: te.Tensor, gain: te.Tensor, name: str = "normalised") -> te.Tensor:
    m, k = _shape(x)
    squares = fold(f"{name}_squares", lambda i, r: wide(x(i, r)) * wide(x(i, r)), total, k, (m,))
    scale = each(f"{name}_scale", lambda i: te.rsqrt(squares(i) / number(k) + number(EPSILON)), m)
    return each(name, lambda i, r: wide(x(i, r)) * scale(i) * wide(gain(r)), m, k)


def _layer_norm(x: te.Tensor, gain: te.Tensor, name: str = "normalised") -> te.Tensor:
    m, k = _shape(x)
    mean = fold(f"{name}_mean", lambda i, r: wide(x(i, r)), total, k, (m,))

    def centred(i: Expr, r: Expr) -> Expr:
        return wide(x(i, r)) - mean(i) / number(k)

    squares = fold(f"{name}_squares", lambda i, r: centred(i, r) * centred(i, r), total, k, (m,))
    scale = each(f"{name}_scale", lambda i: te.rsqrt(squares(i) / number(k) + number(EPSILON)), m)
    return each(name, lambda i, r: centred(i, r) * scale(i) * wide(gain(r)), m, k)


def rms_product(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """RMSNorm(x)·w."""
    x, gain, w = array("x", m, k, dtype=HALF), array("gain", k, dtype=HALF), array("w", k, n, dtype=HALF)
    return program(x, gain, w, half("out", times("y", _rms(x, gain), w)))


def residual_rms_product(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """RMSNorm(x + r)·w, and x + r, which the layers after it add to."""
    x, r, gain, w = (array(*one, dtype=HALF) for one in (("x", m, k), ("r", m, k), ("gain", k), ("w", k, n)))
    added = each("added", lambda i, j: (wide(x(i, j)) + wide(r(i, j))).astype(HALF), m, k)
    return program(x, r, gain, w, added, half("out", times("y", _rms(added, gain), w)))


def layer_norm_product(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """LayerNorm(x)·w."""
    x, gain, w = array("x", m, k, dtype=HALF), array("gain", k, dtype=HALF), array("w", k, n, dtype=HALF)
    return program(x, gain, w, half("out", times("y", _layer_norm(x, gain), w)))


def first_row_of_a_norm(m: int = 2, rows: int = 17, n: int = 10, k: int = 32) -> tirx.PrimFunc:
    """LayerNorm(x·u)[:, 0]·w, of a norm over all rows: what a classifier reads of a vision transformer."""
    x, u, w = array("x", m, rows, k), array("u", k, k), array("w", n, k)
    y = fold("y", lambda i, t, r, s: x(i, t, s) * u(r, s), total, k, (m, rows, k))
    means = fold("means", lambda i, t, r: y(i, t, r), total, k, (m, rows))
    centred = each("centred", lambda i, t, r: y(i, t, r) - means(i, t) / number(k), m, rows, k)
    squares = fold("squares", lambda i, t, r: centred(i, t, r) * centred(i, t, r), total, k, (m, rows))
    scale = each("scale", lambda i, t: te.rsqrt(squares(i, t) / number(k) + number(EPSILON)), m, rows)
    normed = each("normed", lambda i, t, r: centred(i, t, r) * scale(i, t), m, rows, k)
    first = each("first", lambda i, r: normed(i, 0, r), m, k)
    return program(x, u, w, fold("out", lambda i, j, r: first(i, r) * w(j, r), total, k, (m, n)))


def residual_layer_norm(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """LayerNorm(x·w + r)."""
    x, w, r = array("x", m, k, dtype=HALF), array("w", k, n, dtype=HALF), array("r", m, n, dtype=HALF)
    gain, y = array("gain", n, dtype=HALF), times("y", x, w)
    added = each("added", lambda i, j: y(i, j) + wide(r(i, j)), m, n)
    return program(x, w, r, gain, half("out", _layer_norm(added, gain)))


def _softmax(x: te.Tensor) -> te.Tensor:
    *rows, n = _shape(x)
    top = fold("row_max", lambda *at: x(*at), maximum, n, rows)
    weights = each("weights", lambda *at: te.exp(x(*at) - top(*at[:-1])), *rows, n)
    row_sum = fold("row_sum", lambda *at: weights(*at), total, n, rows)
    return each("probs", lambda *at: weights(*at) / row_sum(*at[:-1]), *rows, n)


def product_softmax(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """softmax(x·w)."""
    x, w = array("x", m, k, dtype=HALF), array("w", k, n, dtype=HALF)
    return program(x, w, half("out", _softmax(times("y", x, w))))


def router(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """The six largest of softmax(x·w), and where they are."""
    x, w = array("x", m, k, dtype=HALF), array("w", k, n, dtype=HALF)
    values, places = topk(_softmax(times("y", x, w)), 6, name="top")
    return program(x, w, half("top_weights", values), each("top_ids", lambda i, r: places(i, r), m, 6))


def cross_entropy(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """log Σ exp(x·w) − (x·w)[label]."""
    x, w, label = array("x", m, k, dtype=HALF), array("w", k, n, dtype=HALF), array("label", m, dtype="int32")
    logits = times("logits", x, w)
    top = fold("row_max", lambda i, j: logits(i, j), maximum, n, (m,))
    row_sum = fold("row_sum", lambda i, j: te.exp(logits(i, j) - top(i)), total, n, (m,))
    zero = number(0.0)
    picked = fold("picked", lambda i, j: te.if_then_else(label(i).equal(j), logits(i, j), zero), total, n, (m,))
    return program(x, w, label, each("loss", lambda i: te.log(row_sum(i)) + top(i) - picked(i), m))


def quantised(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """Rows of x rounded to float8 at their largest magnitude, times float8 weights, scaled back."""
    x, w = array("x", m, k, dtype=HALF), array("w", n, k, dtype="float8_e4m3fn")
    largest = fold("largest", lambda i, r: te.abs(wide(x(i, r))), maximum, k, (m,))
    scale = each("scale", lambda i: te.max(largest(i), number(1e-12)) / number(448.0), m)
    rounded = each("rounded", lambda i, r: (wide(x(i, r)) / scale(i)).astype("float8_e4m3fn"), m, k)
    y = times("y", rounded, w, transposed=True)
    return program(x, w, each("out", lambda i, j: (y(i, j) * scale(i)).astype(HALF), m, n))


def integer_weights(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """x·(w·scale), of int8 weights with a scale for each column."""
    x, w, scale = array("x", m, k, dtype=HALF), array("w", n, k, dtype="int8"), array("scale", n, dtype=HALF)
    weight = each("weight", lambda j, r: w(j, r).astype(HALF) * scale(j), n, k)
    return program(x, w, scale, half("out", times("y", x, weight, transposed=True)))


def float8_weights(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """x·w of half precision and float8."""
    x, w = array("x", m, k, dtype=HALF), array("w", n, k, dtype="float8_e4m3fn")
    return program(x, w, half("out", times("y", x, w, transposed=True)))


def two_products(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """x·w and x·v, of which neither reads the other."""
    x, w, v = array("x", m, k, dtype=HALF), array("w", k, n, dtype=HALF), array("v", k, n, dtype=HALF)
    return program(x, w, v, half("one", times("y", x, w)), half("two", times("z", x, v)))


def two_groups(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """softmax(x·w) beside RMSNorm(z)."""
    x, w, z = array("x", m, k, dtype=HALF), array("w", k, n, dtype=HALF), array("z", m, k, dtype=HALF)
    gain = array("gain", k, dtype=HALF)
    return program(x, w, z, gain, half("one", _softmax(times("y", x, w))), half("two", _rms(z, gain)))


def normalised_rows(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """Rows of x·w, of length 1."""
    x, w = array("x", m, k, dtype=HALF), array("w", k, n, dtype=HALF)
    y = times("y", x, w)
    squares = fold("squares", lambda i, j: y(i, j) * y(i, j), total, n, (m,))
    return program(x, w, each("out", lambda i, j: (y(i, j) * te.rsqrt(squares(i))).astype(HALF), m, n))


def row_extremes(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """The largest element and the sum of every row of x·w."""
    x, w = array("x", m, k, dtype=HALF), array("w", k, n, dtype=HALF)
    y = times("y", x, w)
    largest = fold("largest", lambda i, j: y(i, j), maximum, n, (m,))
    return program(x, w, largest, fold("row_sum", lambda i, j: y(i, j), total, n, (m,)))


def pointwise(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """A 1×1 convolution of images with their channels last."""
    side = 8
    x, w = array("x", max(m // 64, 1), side, side, k, dtype=HALF), array("w", k, n, dtype=HALF)
    y = fold("y", lambda b, p, q, j, r: wide(x[b, p, q, r]) * wide(w[r, j]), total, k, (max(m // 64, 1), side, side, n))
    return program(x, w, half("out", y))


def convolution(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """A 3×3 convolution, padded before, with channels last."""
    side, images = 8, max(m // 64, 1)
    x, w = array("x", images, side + 2, side + 2, k, dtype=HALF), array("w", 3, 3, k, n, dtype=HALF)
    dy, dx, r = te.reduce_axis((0, 3), "dy"), te.reduce_axis((0, 3), "dx"), te.reduce_axis((0, k), "r")
    y = te.compute(
        (images, side, side, n),
        lambda b, p, q, j: te.sum(wide(x[b, p + dy, q + dx, r]) * wide(w[dy, dx, r, j]), axis=[dy, dx, r]),
        name="y",
    )
    return program(x, w, half("out", y))


def _attention(q: te.Tensor, k: te.Tensor, v: te.Tensor, heads: int, features: int) -> te.Tensor:
    """Attention over rows that hold the features of all heads side by side: out[i, h·features + d]."""
    (queries, _), (keys, _) = _shape(q), _shape(k)
    scale = number(features**-0.5)
    scores = fold(
        "scores", lambda h, i, j, d: wide(q(i, h * features + d)) * wide(k(j, h * features + d)), total, features,
        (heads, queries, keys),
    )  # fmt: skip
    scaled = each("scaled", lambda h, i, j: scores(h, i, j) * scale, heads, queries, keys)
    probs = _softmax(scaled)
    by_head = fold(
        "by_head", lambda h, i, d, j: probs(h, i, j) * wide(v(j, h * features + d)), total, keys,
        (heads, queries, features),
    )  # fmt: skip
    return each("mixed", lambda i, c: by_head(c // features, i, c % features).astype(HALF), queries, heads * features)


def attention(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """Attention of two heads of 64 features over m positions."""
    q, key, v = (array(name, m, 128, dtype=HALF) for name in ("q", "key", "v"))
    return program(q, key, v, _attention(q, key, v, 2, 64))


def projected_attention(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """Attention of projections of x, projected again."""
    x = array("x", m, k, dtype=HALF)
    weights = [array(name, k, 128, dtype=HALF) for name in ("wq", "wk", "wv")]
    wo = array("wo", 128, k, dtype=HALF)
    q, key, v = (half(w.name[1], times(f"{w.name[1]}_wide", x, w)) for w in weights)
    mixed = _attention(q, key, v, 2, 64)
    return program(x, *weights, wo, half("out", times("y", mixed, wo)))


def attention_layer_norm(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """LayerNorm of attention's result."""
    q, key, v = (array(name, m, 128, dtype=HALF) for name in ("q", "key", "v"))
    gain = array("gain", 128, dtype=HALF)
    mixed = _attention(q, key, v, 2, 64)
    return program(q, key, v, gain, half("out", _layer_norm(mixed, gain)))


def rms_gated(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """A feed-forward layer with its normalisation and residual."""
    x, gain = array("x", m, k, dtype=HALF), array("gain", k, dtype=HALF)
    g, u, d = array("g", k, n, dtype=HALF), array("u", k, n, dtype=HALF), array("d", n, k, dtype=HALF)
    normal = half("normal", _rms(x, gain))
    gate, up = times("gate", normal, g), times("up", normal, u)
    h = each("h", lambda i, j: (silu(gate(i, j)) * up(i, j)).astype(HALF), m, n)
    y = times("y", h, d)
    return program(x, gain, g, u, d, each("out", lambda i, r: (y(i, r) + wide(x(i, r))).astype(HALF), m, k))


def split_weights(m: int = 64, n: int = 96, k: int = 128) -> tirx.PrimFunc:
    """A gated product whose two weights are halves of one tensor."""
    x, w = array("x", m, k, dtype=HALF), array("w", k, 2 * n, dtype=HALF)
    y = times("y", x, w)
    return program(x, w, each("out", lambda i, j: (silu(y(i, j)) * y(i, j + n)).astype(HALF), m, n))


def symmetrised(m: int = 64, n: int = 64, k: int = 128) -> tirx.PrimFunc:
    """x·w plus its transpose."""
    x, w = array("x", m, k, dtype=HALF), array("w", k, m, dtype=HALF)
    y = times("y", x, w)
    return program(x, w, each("out", lambda i, j: (y(i, j) + y(j, i)).astype(HALF), m, m))


FUNCTIONS: dict[str, Build] = {
    one.__name__: one
    for one in (
        lone, lone_transposed, gram, batched, biased, residual, relu_first, chain, wide_chain, feed_forward, gated,
        rms_product, residual_rms_product, layer_norm_product, residual_layer_norm, product_softmax, router,
        cross_entropy, quantised, integer_weights, float8_weights, two_products, two_groups, normalised_rows,
        row_extremes, pointwise, convolution, attention, projected_attention, attention_layer_norm, rms_gated,
        split_weights, symmetrised,
    )
}  # fmt: skip
"""Each holds a product of half precision."""
