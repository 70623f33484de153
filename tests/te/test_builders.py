"""Programs that `tvm_cascade.te` writes: what they compute, and that they fuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import te, tirx

import tvm_cascade
from tvm_cascade import te as builders
from tvm_cascade.errors import InputError

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)
X = 3 * RNG.standard_normal((4, 5, 24), dtype="float32") + 1
GAIN, BIAS = (RNG.standard_normal(24, dtype="float32") for _ in range(2))
LOGITS, TARGET = X[0], np.array([0, 23, 7, 7, 11], "int32")
WIDE = X.astype("float64")


def softmax(x: Array, axis: int = -1) -> Array:
    weights = np.exp(x - x.max(axis, keepdims=True))
    return weights / weights.sum(axis, keepdims=True)


def normed(x: Array, axis: int, centred: bool, epsilon: float) -> Array:
    own = x - x.mean(axis, keepdims=True) if centred else x
    return own / np.sqrt((own**2).mean(axis, keepdims=True) + epsilon)


def routed(x: Array, k: int, bias: Array | None = None) -> tuple[Array, Array]:
    scores = softmax(x)
    experts = np.argsort(-(scores if bias is None else scores + bias), axis=-1, kind="stable")[..., :k]
    weights = np.take_along_axis(scores, experts, -1)
    return weights / weights.sum(-1, keepdims=True), experts


SCORE_BIAS = RNG.random(24, dtype="float32")
ROWS: dict[str, tuple[Callable[..., Any], list[Array], Any, str]] = {
    "softmax": (builders.softmax, [X], softmax(WIDE), "softmax_max, softmax_sum"),
    "softmax of columns": (lambda x: builders.softmax(x, axis=1), [X], softmax(WIDE, 1), "softmax_max, softmax_sum"),
    "log_softmax": (builders.log_softmax, [X], np.log(softmax(WIDE)), "log_softmax_max, log_softmax_sum"),
    "logsumexp": (builders.logsumexp, [X], np.log(np.exp(WIDE).sum(-1)), "logsumexp_max, logsumexp_sum"),
    "cross_entropy": (
        builders.cross_entropy,
        [LOGITS, TARGET],
        -np.log(softmax(WIDE[0]))[np.arange(5), TARGET],
        "cross_entropy_max, cross_entropy_sum",
    ),
    "moments": (builders.moments, [X], (WIDE.mean(-1), WIDE.var(-1)), "moments_mean_sum, moments_variance_sum"),
    "moments of columns": (
        lambda x: builders.moments(x, axis=0),
        [X],
        (WIDE.mean(0), WIDE.var(0)),
        "moments_mean_sum, moments_variance_sum",
    ),
    "layer_norm": (
        builders.layer_norm,
        [X, GAIN, BIAS],
        normed(WIDE, -1, True, 1e-5) * GAIN + BIAS,
        "layer_norm_mean_sum, layer_norm_square_sum",
    ),
    "layer_norm of columns, without a gain": (
        lambda x: builders.layer_norm(x, axis=1, epsilon=0.5),
        [X],
        normed(WIDE, 1, True, 0.5),
        "layer_norm_mean_sum, layer_norm_square_sum",
    ),
    "rms_norm": (builders.rms_norm, [X, GAIN], normed(WIDE, -1, False, 1e-6) * GAIN, ""),
    "router": (
        lambda x: builders.router(x, 3),
        [LOGITS],
        routed(WIDE[0], 3),
        "router_scores_max, router_scores_sum, router_top.v0",
    ),
    "router without a sum of one": (
        lambda x: builders.router(x, 3, renormalise=False),
        [LOGITS],
        (-np.sort(-softmax(WIDE[0]))[:, :3], routed(WIDE[0], 3)[1]),
        "router_scores_max, router_scores_sum, router_top.v0",
    ),
    "router with a bias": (
        lambda x, bias: builders.router(x, 3, bias),
        [LOGITS, SCORE_BIAS],
        routed(WIDE[0], 3, SCORE_BIAS),
        "router_scores_max, router_scores_sum",
    ),
}
"""By name: the program, its inputs, the definition in float64, and the reductions that are fused."""


def named(build: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The builder as a function of so many named arrays, the first of which is `a`."""
    if count == 1:
        return tvm_cascade.jit(lambda a: build(a), force=True)
    if count == 2:
        return tvm_cascade.jit(lambda a, b: build(a, b), force=True)
    return tvm_cascade.jit(lambda a, b, c: build(a, b, c), force=True)


def assert_near(found: Any, exact: Any, error: float = 2e-5) -> None:
    """Within so much of the largest element; integers are equal."""
    several = found if isinstance(found, tuple) else (found,)
    for one, other in zip(several, exact if isinstance(exact, tuple) else (exact,), strict=True):
        assert one.shape == other.shape
        if one.dtype.kind == "i":
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_array_less(np.abs(one.astype("float64") - other), error * np.abs(other).max())


@pytest.mark.parametrize("case", ROWS)
def test_rows(case: str) -> None:
    build, given, exact, fused = ROWS[case]
    run = named(build, len(given))
    assert_near(run(*given), exact)
    report = str(run.compiled(*given).report)
    assert (f"fused: {fused}" if fused else "nothing to fuse") in report


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "int8"])
def test_codes_times_scales_are_the_tensor(dtype: str) -> None:
    codes, scales = tvm_cascade.jit(lambda a: builders.quantise(a, dtype))(X)
    assert str(codes.dtype) == dtype
    step = {"float8_e4m3fn": 2**-4, "float8_e5m2": 2**-3, "int8": 0.5 / 127}[dtype]
    off = np.abs(codes.astype("float64") * scales[..., None] - WIDE)
    assert (off <= 1.01 * step * np.abs(WIDE).max(-1, keepdims=True)).all()
    assert (np.abs(codes.astype("float64")).max(-1) == builders.rows.LARGEST[dtype]).all()


def test_rows_of_zeros_have_codes_of_zero() -> None:
    codes, _ = tvm_cascade.jit(lambda a: builders.quantise(a))(np.zeros_like(X))
    assert (codes.astype("float32") == 0).all()


def test_half_precision_is_computed_in_float32() -> None:
    x = X.astype(ml_dtypes.bfloat16)
    found = tvm_cascade.jit(lambda a: builders.softmax(a))(x)
    assert found.dtype == x.dtype
    assert_near(found, softmax(x.astype("float64")), 2**-8)


def test_a_mean_over_an_extent_that_changes() -> None:
    run = tvm_cascade.jit(lambda a: builders.layer_norm(a), dynamic={"a": {0: "rows", 1: "length"}})
    for given in (X[0], X[1, :2, :9]):
        assert_near(run(np.ascontiguousarray(given)), normed(given.astype("float64"), -1, True, 1e-5))


# Attention.

Q, K, V = (RNG.standard_normal(shape, dtype="float32") for shape in ((2, 4, 6, 8), (2, 2, 12, 8), (2, 2, 12, 10)))
SLOPES, SINKS = np.float32([0.5, 0.25, 0.125, 0.0625]), RNG.standard_normal(4, dtype="float32")
LENGTHS = np.array([12, 7], "int32")
HEADS, QUERIES, KEYS = np.ogrid[:4, :6, :12]


def attended(score: Callable[[Array], Array] = lambda s: s, kept: Any = True, sinks: Array | None = None) -> Array:
    k, v = (np.repeat(x.astype("float64"), 2, axis=1) for x in (K, V))
    scores = np.where(kept, score(Q.astype("float64") @ k.transpose(0, 1, 3, 2) / 8**0.5), -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    further = 0 if sinks is None else np.exp(sinks[:, None, None] - top)
    return weights / (weights.sum(-1, keepdims=True) + further) @ v


def _tanh_cap(score: Any, *_at: Any) -> Any:
    return te.tanh(score / tirx.const(5.0, "float32")) * tirx.const(5.0, "float32")


ATTENTIONS: dict[str, tuple[Callable[..., Any], dict[str, Array], Array]] = {
    "plain": (builders.attention, {}, attended()),
    "causal": (
        lambda q, k, v: builders.attention(q, k, v, mask_mod=lambda _b, _h, i, j: j <= i + 6),
        {},
        attended(kept=KEYS <= QUERIES + 6),
    ),
    "soft cap": (
        lambda q, k, v: builders.attention(q, k, v, score_mod=_tanh_cap),
        {},
        attended(lambda s: 5 * np.tanh(s / 5)),
    ),
    "ALiBi": (
        lambda q, k, v, slopes: builders.attention(
            q, k, v, score_mod=lambda s, _b, h, i, j: s + slopes(h) * (j - i).astype("float32")
        ),
        {"slopes": SLOPES},
        attended(lambda s: s + SLOPES[:, None, None] * (KEYS - QUERIES)),
    ),
    "sinks": (lambda q, k, v, sinks: builders.attention(q, k, v, sinks=sinks), {"sinks": SINKS}, attended(sinks=SINKS)),
    "lengths": (
        lambda q, k, v, lengths: builders.attention(q, k, v, lengths=lengths),
        {"lengths": LENGTHS},
        attended(kept=LENGTHS[:, None, None, None] > KEYS),
    ),
}


def compiled(build: Callable[..., Any], names: tuple[str, ...]) -> Any:
    made: dict[int, Callable[..., Any]] = {
        3: lambda q, k, v: build(q, k, v),
        4: lambda q, k, v, further: build(q, k, v, further),
    }
    return tvm_cascade.jit(made[3 + len(names)], force=True)


@pytest.mark.parametrize("case", ATTENTIONS)
def test_attention(case: str) -> None:
    build, further, exact = ATTENTIONS[case]
    run = compiled(build, tuple(further))
    assert_near(run(Q, K, V, *further.values()), exact)
    program = run.program(Q, K, V, *further.values())
    assert "main: fused: attention_max, attention_sum, attention_sums" in str(tvm_cascade.explain(program, force=True))


def test_attention_over_pages() -> None:
    table = np.array([[3, 0, 5], [1, 4, 2]], "int32")
    pools = [np.empty((6, 4, 2, x.shape[3]), "float32") for x in (K, V)]
    for pool, x in zip(pools, (K, V), strict=True):
        for sequence, pages in enumerate(table):
            for at, page in enumerate(pages):
                pool[page] = x[sequence, :, 4 * at : 4 * at + 4].transpose(1, 0, 2)

    @tvm_cascade.jit
    def paged(q: Any, k: Any, v: Any, pages: Any, lengths: Any) -> Any:
        return builders.attention(q, k, v, pages=pages, lengths=lengths)

    assert_near(paged(Q, *pools, table, LENGTHS), attended(kept=LENGTHS[:, None, None, None] > KEYS))


def test_a_query_that_sees_no_key_has_no_number() -> None:
    found = compiled(lambda q, k, v: builders.attention(q, k, v, mask_mod=lambda _b, _h, i, _j: i > 0), ())(Q, K, V)
    assert np.isnan(found[:, :, 0]).all() and np.isfinite(found[:, :, 1:]).all()


def test_on_a_gpu_it_is_one_kernel_on_tensor_cores() -> None:
    q = np.zeros((1, 16, 1024, 128), ml_dtypes.bfloat16)

    @tvm_cascade.jit
    def causal(q: Any, k: Any, v: Any) -> Any:
        return builders.attention(q, k, v, mask_mod=lambda _b, _h, i, j: j <= i)

    told = str(tvm_cascade.explain(causal.program(q, q, q), target="sm_90a"))
    assert "the tensor-core kernel `stream`" in told


SMALL = te.placeholder((2, 6, 4, 8), "float32", name="q")
WRONG = {
    "a rank": (
        lambda: builders.attention(SMALL, SMALL, te.placeholder((6, 8), name="v")),
        r"4 dimensions.*of 2.*\(v\)",
    ),
    "heads": (
        lambda: builders.attention(SMALL, te.placeholder((2, 4, 4, 8), name="k"), SMALL),
        r"divides 6, the queries'.*found 4.*attention\(k",
    ),
    "no tensor": (lambda: builders.softmax(X), r"a te.Tensor.*ndarray.*te.softmax\(x"),
    "an axis": (
        lambda: builders.layer_norm(SMALL, axis=4),
        r"an axis of a tensor of 4 dim.*4.*layer_norm\(axis",
    ),
    "a dtype": (lambda: builders.quantise(SMALL, "float16"), r"float8_e4m3fn, float8_e5m2, int8.*'float16'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_argument_is_told(case: str) -> None:
    build, message = WRONG[case]
    with pytest.raises(InputError, match="(?s)" + message):
        build()
