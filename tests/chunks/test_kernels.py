"""GPU kernels of the parts of a split, by the emulator: the path taken, and results against the float64 oracle."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

import tvm_cascade
from corpus import workloads
from tvm_cascade.analysis.extract import Reductions
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.devices.cards import CARDS, H200
from tvm_cascade.driver.gpu import gpu_options
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.search import find_plan
from tvm_cascade.tile.launch.dependent import BY_ITSELF, Ahead, Launch
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.config import RowConfig
from tvm_cascade.tile.row.skeleton import RowSkeleton
from tvm_cascade.tile.skeleton import Kernel, Setting, build_kernel
from tvm_cascade.tile.skeletons.stream.config import StreamConfig
from tvm_cascade.tile.skeletons.stream.kernel import StreamKernel
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig
from tvm_cascade.tile.skeletons.stream.skeleton import StreamSkeleton
from tvm_cascade.transform.fuse_function import fuse_function

from ..analysis.programs import each, fold, maximum, number, program
from ..tiers import slow_but
from ..tile.emulator.run import compiler, emulate

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

FEATURES = 64
ALONE = RowConfig(128, 1, 4, 3, strided=True)


def attention(batch: int, heads: int, queries: int, keys: int, kv_heads: int, is_causal: bool = False) -> tirx.PrimFunc:
    """Halves of queries, keys and values -> halves, and the log-sum-exp."""
    group, rows = heads // kv_heads, (batch, heads, queries)
    q = te.placeholder((*rows, FEATURES), "float16", name="q")
    k, v = (te.placeholder((batch, kv_heads, keys, FEATURES), "float16", name=name) for name in "kv")
    d = te.reduce_axis((0, FEATURES), "d")

    def score(b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        return te.sum(q[b, h, i, d].astype("float32") * k[b, h // group, j, d].astype("float32"), axis=d)

    scores = te.compute((*rows, keys), score, name="scores")
    scale = number(FEATURES**-0.5)

    def visible(b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        value = scores[b, h, i, j] * scale
        return tirx.if_then_else(j <= i + (keys - queries), value, number(float("-inf"))) if is_causal else value

    s = each("visible", visible, *rows, keys)
    m = fold("m", lambda b, h, i, j: s[b, h, i, j], maximum, keys, rows)

    def weight(b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        return te.exp(s[b, h, i, j] - m[b, h, i])

    t = fold("t", weight, length=keys, rows=rows)
    wide = fold(
        "wide",
        lambda b, h, i, f, j: weight(b, h, i, j) / t[b, h, i] * v[b, h // group, j, f].astype("float32"),
        length=keys,
        rows=(*rows, FEATURES),
    )
    out = each("out", lambda b, h, i, f: wide[b, h, i, f].astype("float16"), *rows, FEATURES)
    return program(q, k, v, out, each("lse", lambda b, h, i: m[b, h, i] + te.log(t[b, h, i]), *rows))


def kernel_of(func: tirx.PrimFunc, skeleton: object, config: object = None) -> Kernel:
    read = read_program(func)
    assert isinstance(read, Program)
    group = Reductions(read).cascades()[-1].group
    assert group is not None
    return build_kernel(skeleton, read, group, "main", Setting(H200), config)  # type: ignore[arg-type]


def drawn(func: tirx.PrimFunc, **numbers: int) -> list[np.ndarray | int]:
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal([int(n) for n in p.ty.shape]).astype(str(p.ty.dtype))
        if tirx.is_buffer_var(p)
        else numbers[p.name]
        for p in oracle.signature(func).inputs
    ]


def assert_right(func: tirx.PrimFunc, kernel: Kernel, length: int, **numbers: int) -> None:
    """The kernel's outputs are as near to the oracle's as its operands, rounded to half, let them be."""
    inputs = drawn(func, **numbers)
    exact, usual = oracle.evaluate(func, inputs), oracle.evaluate(func, inputs, rounding=True)
    for got, (name, expected) in zip(emulate(kernel.func, inputs), exact.items(), strict=True):
        dtype = "float16" if got.ndim == 4 else str(got.dtype)  # weights are rounded to the dtype of the values
        found = tolerance.check(got, expected, usual[name], length=length, dtype=dtype)
        assert found.ok, f"{name}: {found.message}"


WAYS = {"whole rows": StreamConfig(columns=64, blocks=132), "in clusters": None}
"""Configurations; three tiles of rows alone are cut into pieces by default."""


@pytest.mark.parametrize("way", WAYS)
def test_a_log_sum_exp_beside_the_output_is_of_the_same_kernel(way: str) -> None:
    func = attention(1, 1, 130, 200, 1)
    kernel = kernel_of(func, StreamSkeleton(), WAYS[way])
    assert type(kernel.config) is (StreamConfig if WAYS[way] else PiecesConfig)
    assert_right(func, kernel, 200)


@pytest.mark.parametrize("way", WAYS)
def test_the_state_of_a_chunk_leaves_the_attention_kernel(way: str) -> None:
    parts = tvm_cascade.split(attention(1, 1, 130, 200, 1), lengths=(120, 80))
    for func, length in zip(parts.partials, parts.lengths, strict=True):
        kernel = kernel_of(func, StreamSkeleton(), WAYS[way])
        assert type(kernel.config) is (StreamConfig if WAYS[way] else PiecesConfig)
        assert_right(func, kernel, length)


@pytest.mark.parametrize("offset", [0, 60, 120])
def test_masks_of_a_chunk_are_by_the_position_that_is_passed(offset: int) -> None:
    func = tvm_cascade.split(attention(1, 1, 130, 200, 1, is_causal=True), lengths=80).partial
    assert [param.name for param in func.params][3] == "offset"
    kernel = kernel_of(func, StreamSkeleton())
    assert type(kernel.config) is StreamConfig
    assert_right(func, kernel, 80, offset=offset)


def test_sequences_that_share_a_prefix_are_rows_of_one_product() -> None:
    parts = tvm_cascade.split(attention(64, 8, 1, 140, 2), lengths=(100, 40), shared={0: "i0"})
    shared, own = (kernel_of(func, StreamSkeleton()) for func in parts.partials)
    assert isinstance(shared.config, PiecesConfig) and shared.config.consumers == 2  # 64 sequences × 4 heads of a group
    assert isinstance(own.config, PiecesConfig) and own.config.consumers == 1  # 4 heads
    assert_right(parts.partials[0], shared, 100)


@pytest.mark.parametrize("sequences", [64, 40])
def test_rows_of_several_variables_come_in_tiles_by_bulk_copies(sequences: int) -> None:
    partial = tvm_cascade.split(attention(sequences, 4, 1, 140, 1), lengths=(100, 40), shared={0: "i0"}).partials[0]
    kernel = kernel_of(partial, StreamSkeleton(), StreamConfig(columns=64, optimistic=False, blocks=132))
    assert kernel.program.stream.left.row is None
    assert_right(partial, kernel, 100)


def test_a_kernel_fetches_the_beginning_of_every_share_for_the_next() -> None:
    partial = tvm_cascade.split(attention(64, 4, 1, 140, 1), lengths=(100, 40), shared={0: "i0"}).partials[0]
    kernel = kernel_of(partial, StreamSkeleton(), StreamConfig(columns=64, optimistic=False, blocks=132))
    weights = tirx.decl_buffer([64, 128], "float16", name="weights")
    fetches = Launch(ahead=Ahead((weights,), (64 * 128 * 2,), 8192))
    texts: list[str] = []

    def note(text: str) -> str:
        texts.append(text)
        return text

    plain, fetching = (
        emulate(StreamKernel(kernel.program, kernel.config, launch).build("main"), drawn(partial), note)
        for launch in (BY_ITSELF, fetches)
    )
    for one, other in zip(plain, fetching, strict=False):
        np.testing.assert_array_equal(one, other)
    # two blocks share 128 lines; half of them, in the one step after the first, are 32 of 128 bytes each
    assert "fetch_ahead" not in texts[0]
    assert re.search(r"fetch_ahead\(.*fetched_ptr\[0\].*, 4096\)", texts[1])


def test_rows_of_several_variables_that_do_not_fill_tiles_do_not() -> None:
    partial = tvm_cascade.split(attention(64, 3, 1, 140, 1), lengths=(100, 40), shared={0: "i0"}).partials[0]
    with pytest.raises(Unfit, match="its rows are several variables"):
        kernel_of(partial, StreamSkeleton(), StreamConfig(columns=64, blocks=132))


@pytest.mark.parametrize("config", [None, ALONE], ids=["chosen", "alone"])
def test_states_are_merged_by_lanes_along_features(config: RowConfig | None) -> None:
    parts = tvm_cascade.split(attention(1, 3, 5, 60, 3), chunks=3)
    for func in (parts.merge, parts.combine):
        assert_right(func, kernel_of(func, RowSkeleton(), config), 3)


def test_few_states_of_many_rows_are_merged_by_one_thread_each() -> None:
    parts = tvm_cascade.split(attention(64, 32, 1, 64, 8), chunks=2)
    config = kernel_of(parts.merge, RowSkeleton()).config
    assert isinstance(config, RowConfig) and config.is_alone


@pytest.mark.parametrize("prefix", slow_but([512], [512, 1024]), ids=["short", "long"])
def test_a_shared_prefix_meets_what_sequences_own_in_the_epilogue_of_their_kernel(prefix: int) -> None:
    shape = {"batch": 64, "heads": 8, "kv_heads": 2, "keys": prefix + 40, "prefix": prefix, "head_dim": FEATURES}
    workload = workloads.get("decode_prefix").with_shape(**shape)
    func, gpu = workload.build(), next(card for card in CARDS if card.arch == "sm_90a")
    options = gpu_options(FuseOptions())
    plan = find_plan(fuse_function(func, options, gpu), "main", Setting(gpu, options))
    arrays = {p.name: a for p, a in zip(func.params, workload.inputs(np.random.default_rng(0)), strict=False)}
    inputs = list(arrays.values())
    assert len(plan.steps) == 2
    for step in plan.steps:
        assert isinstance(step.chosen, Kernel) and isinstance(step.chosen.config, PiecesConfig)
        taken = oracle.signature(step.func)
        found = emulate(step.chosen.func, [arrays[param.name] for param in taken.inputs])
        arrays |= {param.name: array for param, array in zip(taken.outputs, found, strict=True)}
    exact, usual = oracle.evaluate(func, inputs)["out"], oracle.evaluate(func, inputs, rounding=True)["out"]
    comparison = tolerance.check(arrays["out"], exact, usual, length=prefix + 40, dtype="bfloat16")
    assert comparison.ok, comparison.message
    assert_states_may_wait(plan.steps[-1].chosen, [arrays[param.name] for param in taken.inputs], arrays["out"])


def assert_states_may_wait(kernel: Kernel, inputs: list[np.ndarray], expected: np.ndarray) -> None:
    """Blocks that keep the states of all their items until they have folded the last store the same bits; of 128
    items some have four, and some five.
    """
    keeping = dataclasses.replace(kernel, config=dataclasses.replace(kernel.config, blocks=30, kept=5))
    (found,) = emulate(keeping.func, inputs)
    np.testing.assert_array_equal(found, expected)
