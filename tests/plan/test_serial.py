"""Functions in chunks of an axis: what may be, the numbers, and that no temporary has the axis whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import s_tir, te, tirx
from tvm.ir import Expr

import tvm_cascade
from benchmarks.judge.power import rejects
from corpus.programs.head import head
from corpus.programs.program import Precision
from tvm_cascade import gradient
from tvm_cascade.analysis.tir import within
from tvm_cascade.errors import SplitError
from tvm_cascade.evaluate import oracle
from tvm_cascade.evaluate.tolerance import assert_close
from tvm_cascade.plan.chunked import Call, Chunks, Cost, Serial, axes_of, in_chunks
from tvm_cascade.plan.plan import bytes_of
from tvm_cascade.transform.fuse_function import read_function

from ..analysis.programs import array, each, fold, maximum, number, program, total
from ..tile.emulator.run import compiler
from .run import draw, emulated, plan_of, run, skeletons

MIB = 1 << 20
HALF, WIDE = Precision("bfloat16", "float32"), Precision("float32", "float32")


def loss(asked: str, classes: int, precision: Precision = WIDE, tokens: int = 64, hidden: int = 32) -> tirx.PrimFunc:
    """The gradient of a loss of the logits of a product; the logarithms of sums come from the forward function."""
    sizes = {"tokens": tokens, "hidden": hidden, "classes": classes}
    return gradient(head(asked)(sizes, precision).prim_func(), of="out").backward


def smoothed(classes: int) -> tirx.PrimFunc:
    """The gradient of a cross-entropy against smoothed targets and a z-loss."""
    x, w, target = array("x", 64, 32), array("w", classes, 32), array("target", 64, dtype="int32")
    s = fold("s", lambda i, c, k: x[i, k] * w[c, k], total, 32, (64, classes))
    top = fold("top", lambda i, c: s[i, c], maximum, classes, (64,))
    t = fold("t", lambda i, c: te.exp(s[i, c] - top[i]), total, classes, (64,))
    log = each("log", lambda i: top[i] + te.log(t[i]), 64)
    spread = fold("spread", lambda i, c: s[i, c], total, classes, (64,))

    def element(i: Expr) -> Expr:
        wanted = number(0.9) * s[i, target[i]] + number(0.1 / classes) * spread[i]
        return log[i] - wanted + number(1e-2) * log[i] * log[i]

    return gradient(program(x, w, target, each("out", element, 64)), of="out").backward


def layer(hidden: int = 4608) -> tirx.PrimFunc:
    """The gradient of tanh(x·w1ᵀ)·w2ᵀ, of which hidden values are computed again: they are columns of w2."""
    x, w1, w2 = array("x", 64, 24), array("w1", hidden, 24), array("w2", 16, hidden)
    h = fold("h", lambda i, j, k: x[i, k] * w1[j, k], total, 24, (64, hidden))
    a = each("a", lambda i, j: te.tanh(h[i, j]), 64, hidden)
    y = fold("y", lambda i, o, j: a[i, j] * w2[o, j], total, hidden, (64, 16))
    return gradient(program(x, w1, w2, y), saved=()).backward


FUNCTIONS: dict[str, tuple[Callable[[], tirx.PrimFunc], list[int]]] = {
    "equal chunks": (lambda: loss("cross_entropy", 4480), [896]),
    "a shorter last chunk": (lambda: loss("cross_entropy", 4296), [1536, 1224]),
    "smoothed targets and a z-loss": (lambda: smoothed(4480), [896]),
    "an axis within another of a tensor": (layer, [768]),
}


def sizes(mod: Any) -> list[int]:
    """Bytes of what the functions of a module allocate."""
    blocks = [block for _, func in mod.functions_items() for block in within(func.body, s_tir.SBlock)]
    found = [buffer for block in blocks for buffer in block.alloc_buffers]
    found += [one.buffer for _, func in mod.functions_items() for one in within(func.body, tirx.AllocBuffer)]
    return [bytes_of([buffer]) or 0 for buffer in found]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_chunks_compute_the_function_in_less_memory(name: str) -> None:
    build, lengths = FUNCTIONS[name]
    func = build()
    inputs = [1 + np.abs(a) if a.dtype == "float32" and a.ndim == 1 else a for a in draw(func)]  # sums of exponentials
    at_once, apart = tvm_cascade.compile(func, "llvm"), tvm_cascade.compile(func, "llvm", temporaries=1)
    assert max(sizes(at_once.mod)) > MIB >= max(sizes(apart.mod))
    told = str(apart.report)
    assert all(f" of {length}" in told for length in lengths) and "one after the other" in told
    exact, usual = (oracle.evaluate(func, inputs, rounding=rounding) for rounding in (False, True))
    length = max(int(extent) for param in func.params for extent in param.ty.shape)
    for (output, wanted), found in zip(exact.items(), apart(*inputs), strict=True):
        assert_close(found, wanted, usual[output], length=length, dtype="float32")
        assert not rejects(wanted, length, "float32", baseline=usual[output])


def test_tokens_of_a_layer_are_computed_in_chunks_that_are_parts_of_their_tensors() -> None:
    """No sum runs over tokens: nothing is added up, and nothing is copied."""
    x, w, v = array("x", 2048, 16), array("w", 256, 16), array("v", 8, 256)
    h = fold("h", lambda i, j, k: x[i, k] * w[j, k], total, 16, (2048, 256))
    func = program(x, w, v, fold("out", lambda i, o, j: te.exp(h[i, j]) * v[o, j], total, 256, (2048, 8)))
    (token,) = [one for one in axes_of(read_function(func)) if isinstance(one, Serial) and one.extent == 2048]
    assert not token.sums and not token.passed
    (call,) = token.calls(512)
    assert (call.times, call.length) == (4, 512)
    assert [param.name for param in call.func.params if tirx.is_buffer_var(param)] == ["x", "w", "v", "out"]
    inputs = draw(func)
    np.testing.assert_array_equal(
        tvm_cascade.compile(func, "llvm", temporaries=1)(*inputs), tvm_cascade.compile(func, "llvm")(*inputs)
    )


# What is no chunk's own.


def normalised() -> tirx.PrimFunc:
    """Every element is divided by the sum of its row, which needs the whole row."""
    x, w = array("x", 256, 8), array("w", 2048, 8)
    s = fold("s", lambda i, j, k: x[i, k] * w[j, k], total, 8, (256, 2048))
    t = fold("t", lambda i, j: s[i, j] * s[i, j], total, 2048, (256,))
    return program(x, w, fold("out", lambda i, c, j: s[i, j] / t[i] * w[j, c], total, 2048, (256, 8)))


def gram() -> tirx.PrimFunc:
    """A tensor that has the axis twice."""
    x = array("x", 2048, 8)
    h = each("h", lambda i, k: te.exp(x[i, k]), 2048, 8)
    return program(x, fold("out", lambda i, j, k: h[i, k] * h[j, k], total, 8, (2048, 2048)))


def picked() -> tirx.PrimFunc:
    """A tensor that is read along the axis where another one tells."""
    x, w, at = array("x", 256, 8), array("w", 2048, 8), array("at", 256, dtype="int32")
    s = fold("s", lambda i, j, k: x[i, k] * w[j, k], total, 8, (256, 2048))
    return program(x, w, at, fold("out", lambda i, j: s[i, j] - s[i, at[i]], total, 2048, (256,)))


def largest() -> tirx.PrimFunc:
    """An extremum, which chunks do not add to."""
    x, w = array("x", 256, 8), array("w", 2048, 8)
    s = fold("s", lambda i, j, k: x[i, k] * w[j, k], total, 8, (256, 2048))
    return program(x, w, fold("out", lambda i, j: s[i, j], maximum, 2048, (256,)))


@pytest.mark.parametrize(
    ("build", "extent", "why"),
    [
        (normalised, "j", "`t`, which needs all of it"),
        (gram, "i", "dimensions \\(0, 1\\)"),
        (picked, "j", "at\\["),
        (largest, "out", "independent rows, or results that are sums"),
    ],
)
def test_an_axis_is_refused_with_the_reason(build: Callable[[], tirx.PrimFunc], extent: str, why: str) -> None:
    refusals = [str(one) for one in axes_of(read_function(build())) if isinstance(one, SplitError)]
    assert any(re.search(why, one) for one in refusals), refusals
    assert not [one for one in axes_of(read_function(build())) if isinstance(one, Serial) and one.name == extent]


def test_a_limit_that_is_not_kept_is_told() -> None:
    with pytest.warns(UserWarning, match=r"`main` has 2\.0 MiB of temporaries, and is not computed in chunks: .*`t`"):
        found = tvm_cascade.compile(rows_alone(), "llvm", temporaries=1, cache=False)
    assert "chunks" not in str(found.report)


def rows_alone() -> tirx.PrimFunc:
    """One long row, of which no axis but that of its sum can be cut."""
    x, y = array("x", 1 << 19), array("y", 1 << 19)
    s = each("s", lambda j: te.exp(x[j]) + y[j], 1 << 19)
    t = fold("t", lambda i, j: s[j] * s[j], total, 1 << 19, (1,))
    return program(x, y, each("out", lambda j: s[j] / t[0], 1 << 19))


# On GPUs: what estimates choose, and the kernels of chunks.


def test_logits_of_a_large_vocabulary_are_had_in_chunks_on_a_gpu() -> None:
    func = loss("cross_entropy", 128256, HALF, tokens=4096, hidden=4096)
    (told,) = tvm_cascade.explain(func, "nvidia/nvidia-h100").functions
    assert re.search(r"6 of 21376: 231\.0 MiB in place of 1002\.0 MiB of temporaries", told.lowering)
    now, before = map(float, re.findall(r"estimated ([\d.]+) in place of ([\d.]+) us", told.lowering)[0])
    assert before < now < 1.03 * before
    assert [step.skeleton for step in told.plan] == ["product"] * 3
    assert all("6 times" in step.kernel for step in told.plan)
    assert "d_x_sum_so_far" in told.plan[2].reads, "partial sums meet in the product's own results"


def test_a_plan_of_little_memory_is_left_as_it_is() -> None:
    func = loss("cross_entropy", 16384, HALF, tokens=4096, hidden=4096)
    (told,) = tvm_cascade.explain(func, "nvidia/nvidia-h100").functions
    assert "chunks" not in told.lowering and "128.0 MiB of temporaries" in told.lowering


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_kernels_of_chunks_compute_the_function() -> None:
    """Three products a chunk, in the emulator, with a shorter last chunk."""
    func = loss("cross_entropy", 448, HALF, tokens=64, hidden=64)
    inputs = draw(func)
    found = in_chunks(read_function(func), cost, Cost(0.0, 1 << 20), 49 << 10)
    assert isinstance(found, Chunks) and [(call.times, call.length) for call in found.calls if call.length] == [
        (1, 256),
        (1, 192),
    ]
    exact, usual = (oracle.evaluate(func, inputs, rounding=rounding) for rounding in (False, True))
    for output, value in in_turn(found.calls, func, inputs).items():
        assert_close(value, exact[output], usual[output], length=448, dtype="bfloat16")
        assert not rejects(exact[output], 448, "bfloat16", baseline=usual[output])


def cost(func: tirx.PrimFunc) -> Cost:
    plan = plan_of(func)
    return Cost(plan.seconds, bytes_of(plan.temporaries) or 0)


def in_turn(calls: Sequence[Call], func: tirx.PrimFunc, inputs: Sequence[Any]) -> dict[str, Any]:
    """What chunks leave, one after the other, each planned for a GPU and run by the emulator."""
    known: dict[tirx.Var, Any] = dict(zip(func.params, inputs, strict=False))
    for call in calls:
        plan = plan_of(call.func)
        products = ["product"] * 3 if call.length else [""]
        assert skeletons(plan) == products
        for chunk in range(call.times):
            start = call.start + chunk * call.length
            given, left = [], {}
            for param, argument in zip(call.func.params, call.arguments, strict=True):
                if argument is call.offset:
                    given.append(start)
                    continue
                shape = [int(extent) for extent in param.ty.shape]
                dtype = str(param.ty.dtype)
                whole = [int(extent) for extent in argument.ty.shape]
                if argument not in known:
                    known[argument] = np.full(whole, np.nan, getattr(ml_dtypes, dtype, dtype))
                view = known[argument]
                view = view if shape == whole else view[start : start + call.length]
                if param in written(call.func):
                    left[param.name] = view
                else:
                    given.append(view)
            for name, value in run(plan, given, emulated).items():
                left[name][...] = value
    return {param.name: known[param] for param in func.params if param in written(func)}


def written(func: tirx.PrimFunc) -> set[tirx.Var]:
    return {store.buffer for store in within(func.body, tirx.BufferStore)}
