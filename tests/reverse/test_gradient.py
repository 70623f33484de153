"""`gradient`: against central differences, formulas and the gradients that are written by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import te, tirx

import tvm_cascade
from corpus import workloads
from corpus.programs import attention, chain, gradients, moments, normalisation, softmax
from corpus.programs.head import head
from corpus.programs.program import Precision, Program
from corpus.programs.softmax import softmax as row_softmax
from tvm_cascade import gradient
from tvm_cascade.errors import GradientError, OptionError
from tvm_cascade.evaluate import oracle
from tvm_cascade.te import topk
from tvm_cascade.transform.fuse_function import read_function

from ..analysis.programs import array, each, fold, maximum, minimum, number, program, total
from ..tiers import slow_but
from ..transform.running import assert_close, build, numpy_dtype, run
from .differences import Array, adjoints, assert_gradient, drawn, evaluated, sums_of

WIDE = Precision("float64", "float64")
ROWS = {"rows": 3, "length": 5}
TOKENS = {"tokens": 3, "hidden": 5, "columns": 4}
SQUARE = {"heads": 2, "queries": 4, "keys": 4, "head_dim": 3, "window": 3}
GROUPED = {"batch": 2, "heads": 4, "kv_heads": 2, "queries": 3, "keys": 5, "head_dim": 3, "value_dim": 2}
LAYER = {"m": 3, "k": 4, "n": 5, "l": 2}

Build = Callable[[], Program]
PROGRAMS: dict[str, Build] = {
    "log-sum-exp": lambda: softmax.logsumexp(ROWS, WIDE),
    "softmax": lambda: softmax.softmax(ROWS, WIDE),
    "cross-entropy": lambda: softmax.cross_entropy(ROWS, WIDE),
    "entropy": lambda: softmax.entropy(ROWS, WIDE),
    "divergence": lambda: softmax.kl_divergence(ROWS, WIDE),
    "variance": lambda: moments.variance(ROWS, WIDE),
    "third moment": lambda: moments.third_moment(ROWS, WIDE),
    "covariance": lambda: moments.covariance(ROWS, WIDE),
    "inertia": lambda: moments.inertia(ROWS, WIDE),
    "rms norm": lambda: normalisation.rms_norm(ROWS, WIDE),
    "layer norm": lambda: normalisation.layer_norm(ROWS, WIDE),
    "rms norm and product": lambda: normalisation.rmsnorm_gemm(TOKENS, WIDE),
    "layer norm and product": lambda: normalisation.layernorm_gemm(TOKENS, WIDE),
    "a larger of two": lambda: normalisation.sum_sum(ROWS, WIDE),
    "chain": lambda: chain.chain(chain.Chain("silu"))(LAYER, WIDE),
    "gated chain": lambda: chain.chain(chain.Chain("gelu", gated=True))(LAYER, WIDE),
    "a gradient": lambda: gradients.softmax_gradient(ROWS, WIDE),
    **{
        f"attention {name}": lambda variant=variant: attention.attention(variant)(SQUARE, WIDE)
        for name, variant in attention.VARIANTS.items()
        if name != "tree"
    },
    "grouped heads": lambda: attention.attention(attention.VARIANTS["causal_softcap"])(GROUPED, WIDE),
}
SLOW = {"divergence", "inertia", "layer norm and product", "attention causal_softcap", "attention causal_alibi"}
SLOW |= {"attention window_softcap", "attention window_sink", "chain", "third moment"}


@pytest.mark.parametrize("name", slow_but([name for name in PROGRAMS if name not in SLOW], PROGRAMS))
def test_central_differences(name: str) -> None:
    assert_gradient(PROGRAMS[name]().prim_func())


def _softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _rms(x: Array) -> Array:
    return np.sqrt((x * x).mean(-1, keepdims=True) + normalisation.EPSILON)


FORMULAS: dict[str, Callable[..., Array]] = {
    "log-sum-exp": lambda x, d_out: d_out[:, None] * _softmax(x),
    "softmax": lambda x, d_out: _softmax(x) * (d_out - (_softmax(x) * d_out).sum(-1, keepdims=True)),
    "cross-entropy": lambda logits, target, d_loss: d_loss[:, None] * (_softmax(logits) - np.eye(5)[target]),
    "variance": lambda x, d_out: d_out[:, None] * 2 / 5 * (x - x.mean(-1, keepdims=True)),
    "rms norm": lambda x, gain, d_out: (
        gain * d_out / _rms(x) - x * (gain * d_out * x).mean(-1, keepdims=True) / _rms(x) ** 3
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(name: str) -> None:
    func = PROGRAMS[name]().prim_func()
    values = drawn(func)
    given, found = adjoints(gradient(func), values)
    expected = FORMULAS[name](**values, **given)
    assert np.abs(expected).max() > 0 and np.abs(next(iter(found.values())) - expected).max() < 1e-12


BY_HAND: dict[str, tuple[Build, Build]] = {
    "softmax": (PROGRAMS["softmax"], PROGRAMS["a gradient"]),
    "cross-entropy": (PROGRAMS["cross-entropy"], lambda: gradients.cross_entropy_gradient(ROWS, WIDE)),
    "layer norm": (PROGRAMS["layer norm"], lambda: gradients.layer_norm_gradient(ROWS, WIDE)),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_gradients_that_are_written_by_hand(name: str) -> None:
    """With nothing saved, backward functions take the same inputs and give the same values."""
    forward, by_hand = (build().prim_func() for build in BY_HAND[name])
    found = gradient(forward, wrt="logits" if name == "cross-entropy" else "x", saved=())
    assert not found.saved and [p.name for p in found.backward.params] == [p.name for p in by_hand.params]
    values = drawn(by_hand)
    ((name, ours),) = evaluated(found.backward, values).items()
    expected = evaluated(by_hand, values)[name]
    assert np.abs(expected).max() > 0 and np.abs(ours - expected).max() < 1e-12


@pytest.mark.parametrize("variant", ["full", "causal", "alibi", "sink"])
def test_of_attention_one_number_a_row_stands_for_a_pass(variant: str) -> None:
    """Σ_f d_out·out runs over features, and no maximum sends a gradient to the positions that attain it."""
    func = attention.attention(attention.VARIANTS[variant])({**SQUARE, "keys": 6, "queries": 5}, WIDE).prim_func()
    found = gradient(func, wrt=["q", "k", "v"])
    over = sorted(sums_of(found.backward).values())
    assert over == [[3], [3], [3], [5], [5], [6]]  # δ, scores and d_out·v over features; d_k and d_v; d_q
    assert found.saved == ("out", "log_row_sum")


def _divided_last(queries: int = 4, keys: int = 6, depth: int = 3) -> tirx.PrimFunc:
    """q, k, v -> the same, of Σ exp(s − m)·v over the keys before it is divided by Σ exp(s − m)."""
    q, k, v = (array(name, count, depth) for name, count in (("q", queries), ("k", keys), ("v", keys)))
    s = fold("s", lambda i, j, d: q[i, d] * k[j, d], total, depth, (queries, keys))
    m = fold("m", lambda i, j: s[i, j], maximum, keys, (queries,))
    t = fold("t", lambda i, j: te.exp(s[i, j] - m[i]), total, keys, (queries,))
    o = fold("o", lambda i, f, j: te.exp(s[i, j] - m[i]) * v[j, f], total, keys, (queries, depth))
    return program(q, k, v, each("out", lambda i, f: o[i, f] / t[i], queries, depth))


def test_where_a_sum_is_divided_makes_no_difference() -> None:
    """o is out·t, and Σ_f d_out·out is one sum whatever its variables are called, so that nothing is left of d_m."""
    found = assert_gradient(_divided_last())
    assert found.saved == ("out", "log_t")
    assert sorted(sums_of(found.backward).values()) == [[3], [3], [3], [4], [4], [6]]
    chosen = gradient(_divided_last(), saved=["o", "t", "m"])
    values = drawn(_divided_last())
    for name, expected in adjoints(found, values)[1].items():
        assert np.abs(adjoints(chosen, values)[1][name] - expected).max() < 1e-6 < np.abs(expected).max()


# What is saved.


def test_what_is_saved_can_be_chosen() -> None:
    func = PROGRAMS["gated chain"]().prim_func()
    values = drawn(func)
    found = [gradient(func, saved=saved) for saved in (None, ["by_gate", "by_up"], ["by_up"])]
    assert [one.saved for one in found] == [(), ("by_gate", "by_up"), ("by_up",)]
    assert [p.name for p in found[1].forward.params] == [*(p.name for p in func.params), "by_gate", "by_up"]
    ours = [adjoints(one, values)[1] for one in found]
    for name, expected in ours[0].items():
        assert all(np.abs(one[name] - expected).max() < 1e-12 for one in ours[1:]) and np.abs(expected).max() > 0


def test_an_output_is_read_for_what_it_holds_in_a_narrower_dtype() -> None:
    precision = Precision("bfloat16", "float32")
    func = attention.attention(attention.VARIANTS["full"])(SQUARE, precision).prim_func()
    found = gradient(func)
    assert found.saved == ("out", "log_row_sum")
    dtypes = {param.name: str(param.ty.dtype) for param in found.backward.params}
    assert {dtypes[f"d_{name}"] for name in ("q", "k", "v", "out")} == {"bfloat16"}
    assert dtypes["log_row_sum"] == "float32"
    assert_gradient(func)


@pytest.mark.parametrize("variant", ["full", "sink"])
def test_a_sum_that_divides_exponentials_is_saved_as_its_logarithm(variant: str) -> None:
    """Of p = exp(s − m)/t, m + log t is one number a row; chosen names are saved as they are."""
    func = attention.attention(attention.VARIANTS[variant])(SQUARE, WIDE).prim_func()
    names = "row_max" if variant == "full" else "largest", "row_sum"
    inputs = ["q", "k", "v"]
    found, chosen = gradient(func, wrt=inputs), gradient(func, wrt=inputs, saved=[*names, "out"])
    assert (found.saved, chosen.saved) == (("out", "log_row_sum"), (*names, "out"))
    values = drawn(func)
    ours, theirs = (adjoints(one, values)[1] for one in (found, chosen))
    for name, expected in theirs.items():
        assert np.abs(ours[name] - expected).max() < 1e-12 < np.abs(expected).max()
    if variant == "full":
        scores = np.einsum("hif,hjf->hij", values["q"], values["k"]) / np.sqrt(SQUARE["head_dim"])
        expected = np.log(np.exp(scores).sum(axis=-1))
        assert np.abs(evaluated(found.forward, values)["log_row_sum"] - expected).max() < 1e-12


def test_what_is_the_same_along_a_row_is_in_the_logarithm() -> None:
    """Of exp(x + y − m)/t with an input y of rows, log Σ exp(x + y) is left, and not the one without y."""
    x, y, v = array("x", 3, 5), array("y", 3), array("v", 5)
    largest = fold("m", lambda i, j: x[i, j] + y[i], maximum, 5, (3,))
    sums = fold("t", lambda i, j: te.exp(x[i, j] + y[i] - largest[i]), total, 5, (3,))
    out = fold("out", lambda i, j: te.exp(x[i, j] + y[i] - largest[i]) / sums[i] * v[j], total, 5, (3,))
    func = program(x, y, v, out)
    found = assert_gradient(func, wrt=["x", "v"])
    assert found.saved == ("out", "log_t")
    values = drawn(func)
    expected = np.log(np.exp(values["x"] + values["y"][:, None]).sum(-1))
    assert np.abs(evaluated(found.forward, values)["log_t"] - expected).max() < 1e-6


def test_results_that_have_one_name_are_saved_under_two() -> None:
    x = array("x", 3, 5)
    least = fold("same", lambda i, j: te.exp(-x[i, j]), te.sum, 5, (3,))
    most = fold("same", lambda i, j: te.exp(x[i, j]), te.sum, 5, (3,))
    out = each("out", lambda i, j: x[i, j] / (least[i] * most[i]), 3, 5)
    assert assert_gradient(program(x, out)).saved == ("same", "same_1")


# Where elements are read.


def _indexed(name: str) -> tirx.PrimFunc:
    x, rows = array("x", 4, 6), te.placeholder((3,), "int32", name="rows")
    k = te.reduce_axis((0, 3), "k")
    built: dict[str, Callable[[], te.Tensor]] = {
        "a window": lambda: te.compute((4, 4), lambda i, j: te.sum(x[i, j + k] * x[i, j + k], axis=k), name="out"),
        "strides": lambda: te.compute((4, 2), lambda i, j: te.sum(x[i, j * 2 + k] * x[i, k], axis=k), name="out"),
        "padding": lambda: te.compute(
            (4, 7), lambda i, j: te.if_then_else(tirx.all(j > 0), x[i, j - 1] * x[i, j - 1], number(0)), name="out"
        ),
        "turned": lambda: each("out", lambda j, i: x[i, 5 - j] * x[3 - i, j], 6, 4),
        "flat": lambda: each("out", lambda n: te.exp(x[n // 6, n % 6]), 24),
        "unflattened": lambda: each("out", lambda a, b: te.exp(array_of(x)[a * 8 + b]), 3, 8),
        "groups": lambda: each("out", lambda h, j: te.exp(x[h // 2, j // 3]) * x[h % 4, j], 8, 6),
        "differences": lambda: each("out", lambda i, j: te.exp(x[0, i - j + 2]) * x[3, j - i + 3], 4, 3),
        "one row": lambda: each("out", lambda j: x[2, j] * x[0, 1], 6),
        "classes": lambda: each("out", lambda i: te.exp(x[i, rows[i]]), 3),
    }
    out = built[name]()
    return program(x, *([rows] if name == "classes" else []), out)


def array_of(x: te.Tensor) -> te.Tensor:
    """A tensor of 4 × 6 as one of 24."""
    return each("flat", lambda n: x[n // 6, n % 6], 24)


@pytest.mark.parametrize(
    "name",
    ["a window", "strides", "padding", "turned", "flat", "unflattened", "groups", "differences", "one row", "classes"],
)
def test_elements_that_are_read_elsewhere(name: str) -> None:
    assert_gradient(_indexed(name))


# Extrema and selections.


def test_positions_that_attain_a_maximum_share_its_gradient() -> None:
    x = array("x", 2, 4)
    func = program(x, fold("most", lambda i, j: x[i, j], maximum, 4, (2,)))
    values = {"x": np.array([[1.0, 3.0, 3.0, 0.0], [-1.0, -2.0, -3.0, -4.0]])}
    given, found = adjoints(gradient(func), values)
    shares = np.array([[0, 0.5, 0.5, 0], [1, 0, 0, 0]])
    assert np.array_equal(found["d_x"], shares * given["d_most"][:, None])


def test_of_products_the_largest() -> None:
    """The extremum is computed again, so that its elements are compared with themselves."""
    x, w = array("x", 3, 5), array("w", 3, 5)
    func = program(x, w, fold("most", lambda i, j: te.abs(x[i, j] * w[i, j]), maximum, 5, (3,)))
    assert assert_gradient(func).saved == ()


def test_of_kept_positions_the_smallest() -> None:
    x, kept = array("x", 4, 5), array("kept", 4, 5, dtype="bool")
    least = fold("least", lambda i, j: te.if_then_else(kept[i, j], te.exp(x[i, j]), number(np.inf)), minimum, 5, (4,))
    assert_gradient(program(x, kept, each("out", lambda i: least[i] * least[i], 4)))


def test_results_of_several_shapes_whose_adjoints_are_one_number() -> None:
    x, y, w = array("x", 3, 6), array("y", 4, 5, 6), te.placeholder((), "float32", name="w")
    rows = fold("rows", lambda i, j: te.exp(x[i, j]), total, 6, (3,))
    cubes = fold("cubes", lambda h, i, j: te.sin(y[h, i, j]), total, 6, (4, 5))
    by_head = fold("by_head", lambda h, i: number(2) * cubes[h, i], total, 5, (4,))
    of_rows = fold("of_rows", lambda i: number(2) * rows[i], total, 3, ())
    of_heads = fold("of_heads", lambda h: number(2) * by_head[h], total, 4, ())
    assert_gradient(program(x, y, w, te.compute((), lambda: (of_rows() + of_heads()) * w(), name="out")))


def test_values_of_a_selection_go_where_they_were() -> None:
    x = array("x", 3, 6)
    values, indices = topk(x, 2)
    weights = fold("weights", lambda i, k: te.exp(values[i, k]), total, 2, (3,))
    found = assert_gradient(program(x, each("out", lambda i, k: te.exp(values[i, k]) / weights[i], 3, 2), indices))
    assert {"topk.v1", "topk.v3"} <= {*found.saved}


def test_a_maximum_that_is_asked_for_beside_what_does_not_depend_on_it() -> None:
    assert_gradient(softmax.softmax_stats(ROWS, WIDE).prim_func())
    assert_gradient(head("cross_entropy")({"tokens": 3, "hidden": 4, "classes": 5}, WIDE).prim_func())


# What compilers make of it.


def test_compiled_for_any_number_of_rows() -> None:
    n = te.var("n", "int32")
    x, gain = te.placeholder((n, 24), "bfloat16", name="x"), te.placeholder((24,), "bfloat16", name="gain")
    j = te.reduce_axis((0, 24), "j")
    squares = te.compute((n,), lambda i: te.sum(x[i, j].astype("float32") * x[i, j].astype("float32"), axis=j))

    def element(i: tvm.ir.Expr, c: tvm.ir.Expr) -> tvm.ir.Expr:
        scaled = x[i, c].astype("float32") * te.rsqrt(squares[i] / number(24) + number(1e-5))
        return (scaled * gain[c].astype("float32")).astype("bfloat16")

    backward = gradient(te.create_prim_func([x, gain, te.compute((n, 24), element, name="out")])).backward
    backward = backward.with_attr("global_symbol", "main")
    fixed = backward.specialize({backward.params[0]: tirx.decl_buffer((5, 24), "bfloat16")})
    dtypes = [numpy_dtype(str(param.ty.dtype)) for param in oracle.signature(fixed).inputs]
    inputs = [value.astype(dtype) for value, dtype in zip(drawn(fixed).values(), dtypes, strict=True)]
    unfused = run(build(fixed), fixed, inputs)
    assert_close(run(tvm_cascade.compile(backward), fixed, inputs), fixed, inputs, unfused, 24)


SMALL = {"keys": 6, "queries": 6, "heads": 2, "kv_heads": 1, "experts": 8, "classes": 5, "window": 3, "length": 6}
REFUSED = {
    **dict.fromkeys((*(f"Q{k}" for k in range(1, 11)), "ptpc_gemm"), "[not_smooth]"),
    **dict.fromkeys(("decode_paged", "mla_paged"), "[not_invertible]"),
    **dict.fromkeys(("head_best", "head_sample", "product_float8"), "it has no floats there"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", workloads.names())
def test_every_workload_has_a_gradient_or_a_refusal(name: str) -> None:
    given = workloads.get(name)
    small = given.within({extent: SMALL.get(extent, 4) for extent in given.shape})
    if name in REFUSED:
        with pytest.raises((GradientError, OptionError)) as refused:
            gradient(small.build())
        assert REFUSED[name] in str(refused.value)
        return
    drawn_values = zip(small.program.arguments, small.inputs(np.random.default_rng(3)), strict=True)
    values = {argument.tensor.name: value for argument, value in drawn_values}
    assert_gradient(small.build(), {n: v if v.dtype.kind in "biu" else v.astype("float64") for n, v in values.items()})


def test_the_backward_function_of_a_softmax_is_read_as_any_other() -> None:
    backward = gradient(row_softmax(ROWS, WIDE).prim_func(), saved=()).backward
    assert "row_max" in str(tvm_cascade.explain(backward)) and read_function(backward).opaque == ()
