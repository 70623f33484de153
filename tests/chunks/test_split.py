"""`split`: states of chunks, merged, give what the whole function gives, whatever the fold, the chunks and the data."""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np
import pytest
import tvm
from tvm import te, tirx

import tvm_cascade
from benchmarks.check.catalogue import CATALOGUE
from corpus import workloads
from tvm_cascade.analysis.tir import within
from tvm_cascade.errors import InputError, OptionError, SplitError
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.evaluate.inputs import INPUTS
from tvm_cascade.evaluate.tolerance import kinds
from tvm_cascade.options import FuseOptions
from tvm_cascade.te import topk
from tvm_cascade.transform.fuse_function import fuse_function

from ..analysis.programs import LENGTH, ROWS, array, each, fold, maximum, number, program, softmax_stages, variance
from ..tiers import slow_but
from ..transform.programs import PROGRAMS
from ..transform.running import Array, Arrays, assert_close, build, run
from ..transform.test_hard_data import EXPONENTIALS, MOMENTS, NON_FINITE, masks
from ..transform.test_specials import CASCADES, DATA
from ..transform.tuple_programs import PROGRAMS as TUPLES
from .running import Running, empty_state

CHUNKINGS = [(LENGTH,), (18, 19), (1, 35, 1), (7, 11, 3, 16)]
ALL = {**PROGRAMS, **TUPLES, "variance": variance, "log ratios": CASCADES["Σ log(|x|/max |x|)"]}
LOSSY = {"cosine": ("late_spike",)}
"""Data on which float32 itself loses the digits: an angle of 80, to one unit of its last place, is off by 1e-5."""
FAST = ["softmax_times_values", "softmax_weighted_variance", "variance", "router"]
WORKLOADS = ["H1", "H9", "PF_ALIBI", "PF_SOFTCAP", "PF_WINDOWED", "DC_GQA", "mla", "R4", "Q7", "I1", "kl_divergence",
             "cross_entropy", "third_moment", "layernorm_gemm", "rmsnorm_gemm"]  # fmt: skip
FLOAT8 = ("float16", "bfloat16", "float8_e4m3fn")


@cache
def of_any_length(name: str) -> Running:
    """A program of `ALL`, split into chunks of any length and number."""
    func = ALL[name]()
    return Running(func, tvm_cascade.split(func))


@cache
def unfused(name: str) -> tvm.runtime.Module:
    return build(of_any_length(name).original)


def drawn(func: tirx.PrimFunc, kind: str, seed: str = "") -> Arrays:
    """The first input of that kind, the others normal."""
    rng = np.random.default_rng(zlib.crc32(f"{kind} {seed}".encode()))
    found = []
    for k, param in enumerate(oracle.signature(func).inputs):
        shape = tuple(int(extent) for extent in param.ty.shape)
        named = INPUTS[kind if k == 0 and kind in INPUTS else "normal"](rng, shape, str(param.ty.dtype))
        found.append(DATA[kind](rng, shape) if k == 0 and kind in DATA else named)
    return found


def slow_unless(name: str, fast: list[str]) -> object:
    return name if name in fast else pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [slow_unless(name, FAST) for name in ALL])
def test_any_chunks_of_every_fold_give_what_the_whole_gives(name: str) -> None:
    running = of_any_length(name)
    func = running.original
    for kind in ("normal", "late_spike", "ties"):
        if kind in LOSSY.get(name, ()):
            continue
        inputs = drawn(func, kind, name)
        baseline = run(unfused(name), func, inputs)
        for lengths in CHUNKINGS:
            found = running.merged(running.states(inputs, lengths), lengths, inputs)
            assert_close(found, func, inputs, baseline, LENGTH)


@pytest.mark.parametrize("name", [slow_unless(name, FAST) for name in ALL])
def test_states_merge_in_any_grouping_and_an_empty_one_changes_nothing(name: str) -> None:
    running, lengths = of_any_length(name), (7, 11, 3, 16)
    func = running.original
    inputs = drawn(func, "rising", name)
    baseline = run(unfused(name), func, inputs)
    a, b, c, d = running.states(inputs, lengths)
    nothing = empty_state(running.parts)
    left = running.combined([a, nothing, b], (7, 0, 11), inputs)
    right = running.combined([c, d], (3, 16), inputs)
    found = running.merged([nothing, left, nothing, right], (0, 18, 0, 19), inputs)
    assert_close(found, func, inputs, baseline, LENGTH)


@pytest.mark.parametrize("name", [slow_unless(name, ["softmax_times_values"]) for name in EXPONENTIALS + MOMENTS])
def test_infinities_and_nan_come_out_as_they_do_in_the_whole(name: str) -> None:
    running = of_any_length(name)
    func = running.original
    for kind in (*NON_FINITE, *DATA):
        inputs = drawn(func, kind, name)
        expected = run(unfused(name), func, inputs)
        for lengths in CHUNKINGS:
            found = running.merged(running.states(inputs, lengths), lengths, inputs)
            for output, values in expected.items():
                np.testing.assert_array_equal(kinds(found[output]), kinds(values), f"{kind}, {lengths}")


@pytest.mark.parametrize("name", [slow_unless(name, ["H1"]) for name in WORKLOADS])
def test_workloads(name: str) -> None:
    workload = workloads.get(name).cpu
    func = workload.build()
    options = {"rescalable_casts": FLOAT8} if name == "Q7" else {}
    running = Running(func, tvm_cascade.split(func, chunks=3, **options))
    inputs = workload.inputs(np.random.default_rng(0))
    lengths = running.parts.lengths
    found = running.merged(running.states(inputs, lengths), lengths, inputs)
    assert_close(found, func, inputs, run(build(func), func, inputs), sum(lengths))


@pytest.mark.parametrize("name", ["decode_paged", slow_unless("mla_paged", [])])
def test_the_length_of_a_chunk_that_no_input_has_is_passed(name: str) -> None:
    workload = workloads.get(name).cpu
    func = workload.build()
    running = Running(func, tvm_cascade.split(func))
    assert [p.name for p in running.parts.partial.params if not tirx.is_buffer_var(p)] == ["length", "offset"]
    inputs, keys = workload.inputs(np.random.default_rng(0)), workload.shape["keys"]
    for lengths in ((keys,), (20, keys - 20)):
        found = running.merged(running.states(inputs, lengths), lengths, inputs)
        assert_close(found, func, inputs, run(build(func), func, inputs), keys)


def test_a_chunk_of_which_every_position_is_masked_changes_nothing() -> None:
    x, keep = array("x"), array("keep", dtype="bool")
    m = fold("m", lambda i, j: tirx.if_then_else(keep[i, j], x[i, j], number(float("-inf"))), maximum)
    out = fold("out", lambda i, j: tirx.if_then_else(keep[i, j], te.exp(x[i, j] - m[i]) * x[i, j], number(0)))
    func = program(x, keep, m, out)
    running = Running(func, tvm_cascade.split(func))
    for kept in masks().values():
        inputs = [INPUTS["normal"](np.random.default_rng(1), (ROWS, LENGTH), "float32"), kept]
        baseline = run(build(func), func, inputs)
        for lengths in ((20, 17), (5, 15, 17)):  # the first 20 positions of one mask are masked in all rows
            found = running.merged(running.states(inputs, lengths), lengths, inputs)
            assert_close(found, func, inputs, baseline, LENGTH)


def positional() -> tirx.PrimFunc:
    """x -> a causal softmax sum, and the position of the largest of each row."""
    x = array("x")
    masked = each("masked", lambda i, j: tirx.if_then_else(j <= i * 9, x[i, j], number(float("-inf"))))
    m, t = softmax_stages(masked)
    values, where = topk(masked, 1)
    return program(x, m, t, values, where)


def attention(causal: bool = False) -> tirx.PrimFunc:
    """q, k, v of two sequences with two queries and four heads over two of keys -> out, log-sum-exp."""
    q, k, v = array("q", 2, 4, 2, 8), array("k", 2, 2, LENGTH, 8), array("v", 2, 2, LENGTH, 8)
    rows, d = (2, 4, 2), te.reduce_axis((0, 8), "d")
    s = te.compute(
        (*rows, LENGTH), lambda b, h, i, j: te.sum(q[b, h, i, d] * k[b, h // 2, j, d], axis=d), name="scores"
    )
    kept = (lambda i, j, e: tirx.if_then_else(j <= i + LENGTH - 2, e, number(float("-inf")))) if causal else None
    masked = s if kept is None else each("masked", lambda b, h, i, j: kept(i, j, s[b, h, i, j]), *rows, LENGTH)
    m = fold("m", lambda b, h, i, j: masked[b, h, i, j], maximum, rows=rows)
    t = fold("t", lambda b, h, i, j: te.exp(masked[b, h, i, j] - m[b, h, i]), rows=rows)
    out = fold(
        "out",
        lambda b, h, i, f, j: te.exp(masked[b, h, i, j] - m[b, h, i]) / t[b, h, i] * v[b, h // 2, j, f],
        rows=(*rows, 8),
    )
    return program(q, k, v, out, each("lse", lambda b, h, i: m[b, h, i] + te.log(t[b, h, i]), *rows))


@pytest.mark.parametrize("make", [positional, lambda: attention(causal=True)])
@pytest.mark.parametrize("request_", [{}, {"lengths": 12}, {"lengths": (12, 12, 13)}], ids=str)
def test_positions_are_those_of_the_whole_axis(make: object, request_: dict[str, object]) -> None:
    func = make()  # type: ignore[operator]
    parts = tvm_cascade.split(func, **request_)
    known = isinstance(request_.get("lengths"), tuple)
    assert ("offset" in [param.name for param in parts.partial.params]) is not known
    assert len({id(one) for one in parts.partials}) == (3 if known else 1)
    lengths = (12, 12, 13) if request_.get("lengths") != 12 else (12, 12, 12)
    if lengths[-1] == 12:  # one length for all: the axis is as long as three of them
        return
    inputs = drawn(func, "normal")
    running = Running(func, parts)
    found = running.merged(running.states(inputs, lengths), lengths, inputs)
    assert_close(found, func, inputs, run(build(func), func, inputs), LENGTH)


def test_chunks_that_read_no_positions_have_the_same_function() -> None:
    parts = tvm_cascade.split(attention(), lengths=(12, 12, 13))
    assert parts.partials[0] is parts.partials[1] is not parts.partials[2]


def test_a_prefix_that_sequences_share_has_no_dimension_of_them() -> None:
    func = attention()
    running = Running(func, tvm_cascade.split(func, lengths=(30, 7), shared={0: "i0"}))
    shapes = {p.name: [int(n) for n in p.ty.shape] for p in running.parts.partials[0].params}
    assert shapes["k"] == shapes["v"] == [2, 30, 8] and shapes["q"] == [2, 4, 2, 8]
    q, k, v = drawn(func, "normal")
    k[1, :, :30], v[1, :, :30] = k[0, :, :30], v[0, :, :30]
    found = running.merged(running.states([q, k, v], (30, 7)), (30, 7), [q, k, v])
    assert_close(found, func, [q, k, v], run(build(func), func, [q, k, v]), LENGTH)


def test_the_state_says_what_it_is() -> None:
    parts = tvm_cascade.split(attention(), chunks=4)
    told = {part.name: (part.shape, part.dtype) for part in parts.state}
    assert told == {
        "m_state": ((2, 4, 2), "float32"),
        "t_state": ((2, 4, 2), "float32"),
        "out_state": ((2, 4, 2, 8), "float32"),
    }
    assert str(parts).splitlines()[1] == "t_state: float32[2, 4, 2] = sum of exp(scores - c_m)"
    assert not parts.counted and tvm_cascade.split(variance(), chunks=2).counted
    assert set(parts.module.functions_items()[k][0].name_hint for k in range(3)) >= {"merge", "combine"}


def test_states_of_float64_stay_so_and_halves_are_widened() -> None:
    wide = tvm_cascade.split(variance(dtype="float64"), chunks=2).state
    assert {part.dtype for part in wide} == {"float64"}
    narrow = tvm_cascade.split(workloads.get("H1").cpu.build(), chunks=2).state
    assert {part.dtype for part in narrow} == {"float32"}


@pytest.mark.parametrize(
    "name",
    slow_but(
        ["softmax_times_values", "variance", "router"],
        ["softmax_times_values", "softmax_weighted_variance", "variance", "router"],
    ),
)
def test_parts_are_programs_that_fuse_again(name: str) -> None:
    parts = tvm_cascade.split(ALL[name](), chunks=3)
    for func in (parts.partial, parts.combine, parts.merge):
        assert fuse_function(func, FuseOptions(force=True)).fused, func.script()


@pytest.mark.parametrize("name", slow_but(["router"], ["softmax_weighted_variance", "variance", "router"]))
def test_parts_that_are_fused_give_what_the_whole_gives(name: str) -> None:
    func, lengths = ALL[name](), (7, 11, 3, 16)

    def fused(part: tirx.PrimFunc) -> dict[str, object]:
        name = str(part.attrs["global_symbol"])
        return {name: tvm_cascade.compile(part, force=True).runtime_module[name]}

    running = Running(func, tvm_cascade.split(func), fused)
    inputs = drawn(func, "normal", name)
    first, second, *others = running.states(inputs, lengths)
    states = [running.combined([first, second], (7, 11), inputs), *others]
    found = running.merged(states, (18, 3, 16), inputs)
    assert_close(found, func, inputs, run(build(func), func, inputs), LENGTH)


def test_one_reduction_alone_and_several_side_by_side() -> None:
    x, y = array("x"), array("y")
    alone = program(x, fold("s", lambda i, j: x[i, j]))
    beside = program(x, y, fold("s", lambda i, j: x[i, j]), fold("m", lambda i, j: y[i, j], maximum))
    several = program(x, y, *(fold(k, lambda i, j, t=t: t[i, j]) for k, t in zip("abc", (x, y, x), strict=True)))
    for func in (alone, beside, several):
        parts = tvm_cascade.split(func, chunks=2)
        assert not {"x", "y"} & {param.name for param in parts.merge.params}, "none is reduced by the merge alone"
        running, inputs = Running(func, parts), drawn(func, "normal")
        found = running.merged(running.states(inputs, (19, 18)), (19, 18), inputs)
        assert_close(found, func, inputs, run(build(func), func, inputs), LENGTH)


def test_what_follows_the_fold_is_in_the_merge() -> None:
    x = array("x")
    m, t = softmax_stages(x)
    func = program(x, each("probs", lambda i, j: te.exp(x[i, j] - m[i]) / t[i]))
    parts = tvm_cascade.split(func, chunks=2)
    assert [p.name for p in parts.merge.params] == ["row_max_states", "row_sum_states", "x", "probs"]
    running, inputs = Running(func, parts), drawn(func, "normal")
    found = running.merged(running.states(inputs, (19, 18)), (19, 18), inputs)
    assert_close(found, func, inputs, run(build(func), func, inputs), LENGTH)


def test_a_sum_of_which_one_term_counts_is_that_term() -> None:
    """Its position may be in a chunk, in another one, or in none; no chunk goes through all of its own."""
    x, label = te.placeholder((ROWS, LENGTH), name="x"), te.placeholder((ROWS,), "int64", name="label")
    m, t = softmax_stages(x)
    j = te.reduce_axis((0, LENGTH), "j")
    one = te.compute((ROWS,), lambda i: te.sum(te.if_then_else(j.astype("int64") == label[i], x[i, j], 0.0), axis=j))
    loss = te.compute((ROWS,), lambda i: te.log(t[i]) + m[i] - one[i], name="loss")
    func = te.create_prim_func([x, label, loss])
    running = Running(func, tvm_cascade.split(func))
    (partial,) = running.parts.partials
    assert len([one for one in within(partial.body, tirx.IterVar) if one.iter_type == tirx.IterVar.CommReduce]) == 2
    values = drawn(func, "normal")[0]
    for labels in ((0, 17, 18, LENGTH - 1), (-100, LENGTH, 7, 2**32)):
        inputs = [values, np.array(labels)]
        exact = oracle.evaluate(func, inputs)["loss"]
        for lengths in CHUNKINGS:
            found = running.merged(running.states(inputs, lengths), lengths, inputs)
            tolerance.assert_close(found["loss"], exact, length=LENGTH, dtype="float32")


def symbolic() -> tirx.PrimFunc:
    """A variance whose length is known at the call."""
    n = te.var("n")
    x = te.placeholder((ROWS, n), "float32", name="x")
    j, k = te.reduce_axis((0, n), "j"), te.reduce_axis((0, n), "k")
    total = te.compute((ROWS,), lambda i: te.sum(x[i, j], axis=j), name="total")
    mean = lambda i: total[i] / n.astype("float32")  # noqa: E731
    return program(
        x, te.compute((ROWS,), lambda i: te.sum((x[i, k] - mean(i)) * (x[i, k] - mean(i)), axis=k), name="out")
    )


def test_the_length_of_a_whole_axis_that_is_symbolic_is_a_number_that_is_passed() -> None:
    parts = tvm_cascade.split(symbolic())
    running = Running(symbolic(), parts)
    x: Array = np.random.default_rng(0).standard_normal((ROWS, LENGTH)).astype("float32") + np.float32(100)
    states = running.states([x], (18, 19), n=LENGTH)
    found = running.merged(states, (18, 19), [x], n=LENGTH)["out"]
    exact = np.square(x.astype("float64") - x.mean(axis=1, keepdims=True, dtype="float64")).sum(axis=1)
    whole = run_symbolic(x)
    comparison = tolerance.check(found, exact, whole, length=LENGTH, dtype="float32")
    assert comparison.ok, comparison.message


def run_symbolic(x: Array) -> Array:
    out = tvm.runtime.tensor(np.full(ROWS, np.nan, "float32"))
    build(symbolic())["main"](tvm.runtime.tensor(x), out)
    return out.numpy()


def no_fold() -> tirx.PrimFunc:
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    return program(x, fold("out", lambda i, j: te.tanh(x[i, j] * s[i])))


def two_cascades() -> tirx.PrimFunc:
    x, y = array("x"), array("y", ROWS, 20)
    first = softmax_stages(x)
    second = softmax_stages(y, 20, suffix="_y")
    return program(x, y, *first, *second)


def no_reduction() -> tirx.PrimFunc:
    x = array("x")
    return program(x, each("out", lambda i, j: x[i, j] + number(1)))


@pytest.mark.parametrize(
    ("func", "says"),
    [(no_fold, "infinite_rank"), (two_cascades, "row_sum_y"), (no_reduction, "no reduction")],
)
def test_functions_without_one_fold_are_refused(func: object, says: str) -> None:
    with pytest.raises(SplitError, match=says):
        tvm_cascade.split(func(), chunks=2)  # type: ignore[operator]


@pytest.mark.parametrize(
    "given",
    [
        {"chunks": 0},
        {"chunks": LENGTH + 1},
        {"chunks": 2, "lengths": (18, 19)},
        {"lengths": (18, 18)},
        {"lengths": (37, 0)},
        {"lengths": 0},
        {"lengths": ()},
        {"chunks": 2, "shared": {0: "nobody"}},
        {"chunks": 2, "shared": {2: "i0"}},
        {"unknown": 1},
    ],
    ids=str,
)
def test_what_is_no_cut_of_the_axis_is_an_option_error(given: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        tvm_cascade.split(attention(), **given)  # type: ignore[arg-type]


def test_what_is_no_function_is_an_input_error() -> None:
    two = tvm.IRModule({"a": variance(), "b": attention()})
    for given in (two, "attention", tvm.IRModule({})):
        with pytest.raises(InputError):
            tvm_cascade.split(given)  # type: ignore[arg-type]


def test_inputs_that_differ_along_a_shared_row_by_more_than_an_index_are_refused() -> None:
    with pytest.raises(SplitError, match="read at i1 itself"):
        tvm_cascade.split(attention(), lengths=(30, 7), shared={0: "i1"})


def test_the_function_that_is_split_stays_as_it_is() -> None:
    func = attention()
    before = func.script()
    tvm_cascade.split(tvm.IRModule({"main": func}), chunks=2)
    assert func.script() == before


@pytest.mark.parametrize("name", ["welch's t", "ratio of variances"])
def test_cascades_that_share_their_axis_are_one_fold(name: str) -> None:
    func = CATALOGUE[name].build()
    running, inputs = Running(func, tvm_cascade.split(func)), drawn(func, "normal")
    states = running.states(inputs, [17, 20])
    found = running.merged(states, [17, 20], inputs)["out"]
    exact, usual = (oracle.evaluate(func, inputs, rounding=rounding)["out"] for rounding in (False, True))
    tolerance.assert_close(found, exact, usual, length=37, dtype="float32")
    one_sided = running.merged([states[0], empty_state(running.parts)], [17, 0], inputs)["out"]
    assert not tolerance.check(one_sided, exact, usual, length=37, dtype="float32").ok
