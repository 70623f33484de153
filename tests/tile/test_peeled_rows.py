"""Rows that start at any element: heads, bodies and tails of every phase, shifted vectors, and the choice of cuts."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tvm import ir, te, tirx

from tvm_cascade.analysis.extract import Reductions
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.devices.cards import H200
from tvm_cascade.evaluate.oracle import evaluate
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.config import RowConfig
from tvm_cascade.tile.row.segment import Peel, peel_of
from tvm_cascade.tile.row.shape import read_row
from tvm_cascade.tile.skeleton import Setting

from .emulator.run import compiler, emulate
from .row_programs import PROGRAMS, Extent
from .test_row_kernels import assert_right, row_kernel
from .test_row_texts import cuda_text

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

CONFIGS = {
    "warp": RowConfig(128, 32, 8, 1, peeled=True),
    "block": RowConfig(128, 128, 8, 1, peeled=True),
    "kept": RowConfig(128, 128, 8, 2, kept=True, peeled=True),
    "ahead": RowConfig(128, 128, 8, 2, kept=True, peeled=True, ahead=True),
    "staged": RowConfig(128, 128, 8, 1, staged=True, peeled=True),
    "kept by a cluster": RowConfig(128, 128, 8, 1, segments=2, clustered=True, kept=True, peeled=True),
    "staged by a cluster": RowConfig(128, 128, 8, 1, segments=4, clustered=True, staged=True, peeled=True),
}


def peeled(name: str, dtype: str, length: int, rows: int = 3) -> Peel | None:
    """How the rows of a program are peeled to vectors of eight."""
    program = read_program(PROGRAMS[name](dtype=dtype, rows=rows, length=length))
    assert isinstance(program, Program)
    group = Reductions(program).cascades()[-1].group
    assert group is not None
    return peel_of(read_row(program, group), 8)


@needs_compiler
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_level_reads_rows_of_every_phase(config: RowConfig) -> None:
    """Of nine rows of 1021 halves each starts at another place in a vector, and the last ends inside of one."""
    assert_right(PROGRAMS["rms_norm"](rows=9, length=1021), config)


@needs_compiler
@pytest.mark.parametrize(("dtype", "config"), [("bfloat16", "kept"), ("float32", "staged")])
def test_what_all_rows_share_is_shifted(dtype: str, config: str) -> None:
    assert_right(PROGRAMS["layer_norm"](dtype=dtype, rows=5, length=787), CONFIGS[config])


@needs_compiler
@pytest.mark.parametrize("name", ["variance", "argmax_of_softmax", "inertia"])
def test_folds_of_bodies_and_rims(name: str) -> None:
    """Several inputs, positions that are compared, structures of several numbers."""
    assert_right(PROGRAMS[name](rows=5, length=1021), CONFIGS["block"])


@needs_compiler
@pytest.mark.parametrize("length", [15, 17])
def test_rows_of_hardly_a_vector(length: int) -> None:
    """Some have no vector of their own: all is rim."""
    assert_right(PROGRAMS["softmax"](rows=5, length=length), CONFIGS["warp"])


@needs_compiler
@pytest.mark.parametrize(("dtype", "length"), [("float16", 5003), ("float32", 5003)])
def test_rows_in_the_cut_of_their_own_choice(dtype: str, length: int) -> None:
    kernel = assert_right(PROGRAMS["softmax"](dtype=dtype, rows=3, length=length))
    assert isinstance(kernel.config, RowConfig) and kernel.config.peeled


@needs_compiler
def test_a_row_that_starts_beside_the_others() -> None:
    """x has columns before those that are summed: its rows and the outputs' are out of step, and loads are shifted."""
    assert_right(sum_beside(rows=5, length=600), RowConfig(128, 128, 4, 1, peeled=True))


def sum_beside(rows: Extent, length: int) -> tirx.PrimFunc:
    """x[i, l + 3], y[i, l] -> Σ x², Σ x·y of rows, where x has seven columns more."""
    x, y = te.placeholder((rows, length + 7), "float32", name="x"), te.placeholder((rows, length), "float32", name="y")
    j, k = te.reduce_axis((0, length), "j"), te.reduce_axis((0, length), "k")
    mean = te.compute((rows,), lambda i: te.sum(x[i, j + 3], axis=j), name="mean")
    out = te.compute((rows,), lambda i: te.sum((x[i, k + 3] - mean[i]) * y[i, k], axis=k), name="out")
    return te.create_prim_func([x, y, out])


OF_ANY_LENGTH = {
    "warp": RowConfig(128, 32, 8, 2, kept=True, peeled=True),
    "block": RowConfig(128, 128, 8, 4, kept=True, peeled=True),
    "ahead": RowConfig(128, 128, 8, 1, kept=True, peeled=True, ahead=True),
    "read again": RowConfig(128, 128, 8, 2, peeled=True),
}


def weighted_softmax(rows: Extent, length: Extent) -> tirx.PrimFunc:
    """x, gain -> softmax x · gain."""
    x, gain = te.placeholder((rows, length), "float16", name="x"), te.placeholder((length,), "float16", name="gain")
    j, k = te.reduce_axis((0, length), "j"), te.reduce_axis((0, length), "k")
    top = te.compute((rows,), lambda i: te.max(x[i, j].astype("float32"), axis=j), name="top")
    total = te.compute((rows,), lambda i: te.sum(te.exp(x[i, k].astype("float32") - top[i]), axis=k), name="total")

    def element(i: tirx.Var, c: tirx.Var) -> ir.Expr:
        share = te.exp(x[i, c].astype("float32") - top[i]) / total[i]
        return (share * gain[c].astype("float32")).astype("float16")

    return te.create_prim_func([x, gain, te.compute((rows, length), element, name="out")])


@needs_compiler
@pytest.mark.parametrize("config", OF_ANY_LENGTH.values(), ids=OF_ANY_LENGTH)
def test_rows_of_a_length_that_the_launch_tells(config: RowConfig) -> None:
    """Shorter than a vector, than what registers keep, and longer: what they do not keep is read again."""
    kernel = row_kernel(weighted_softmax(5, tirx.Var("n", "int64")), config)
    assert kernel.config == config
    rng = np.random.default_rng(0)
    for length in (1, 7, 64, 1021, 4096, 5003):
        given = [rng.standard_normal(shape).astype("float16") for shape in ((5, length), (length,))]
        (found,) = emulate(kernel.func, given)
        func = weighted_softmax(5, length)
        exact, usual = evaluate(func, given)["out"], evaluate(func, given, rounding=True)["out"]
        told = check(found, exact, usual, length=length, dtype="float16")
        assert told.ok, f"{length}: {told.message}"


def test_cuts_of_rows_of_any_length() -> None:
    """Those of warps and of blocks, of which buckets take the one for their lengths, keep what a row begins with."""
    kernel = row_kernel(weighted_softmax(4096, tirx.Var("n", "int64")))
    found = kernel.skeleton.alternatives(kernel.program, Setting(H200, FuseOptions()))
    assert all(one.kept and one.peeled and one.segments == 1 and not one.staged for one in found)
    assert {one.is_of_warps for one in found} == {True, False}
    assert max(one.chunk for one in found) == 1 << 13


def test_bodies_are_as_long_as_their_bounds_say() -> None:
    for length in (64, 1021, 5003):
        found = peeled("softmax", "float16", length)
        assert found is not None
        for head in range(8):
            body = (length - head) // 8 * 8
            assert found.least <= body <= found.most
    shared = peeled("layer_norm", "float16", 1021)
    assert shared is not None and shared.slack == 7 and shared.most == 1008
    assert peeled("softmax", "float16", 7) is None


def test_which_rows_are_peeled() -> None:
    def config(dtype: str, length: int, rows: int = 4096) -> RowConfig:
        found = row_kernel(PROGRAMS["layer_norm"](dtype=dtype, rows=rows, length=length)).config
        assert isinstance(found, RowConfig)
        return found

    for length in (1024, 5000, 8192):
        assert not config("float16", length).peeled
    assert config("float16", 5003).peeled and config("float16", 5003).vector == 8
    assert config("float32", 5002).peeled and config("float32", 5002).vector == 4
    assert config("bfloat16", 50257).staged and config("bfloat16", 50257).peeled
    assert not config("float16", 197).peeled  # a lane has seven elements
    assert config("float16", 197).ahead and not config("float16", 5003).ahead  # all rows are there at once
    assert "with the unaligned ends of rows element by element" in str(config("float16", 5003))


def test_few_rows_are_cut_for_their_latency() -> None:
    def config(name: str, rows: int, length: int) -> tuple[int, int, bool]:
        found = row_kernel(PROGRAMS[name](dtype="bfloat16", rows=rows, length=length)).config
        assert isinstance(found, RowConfig) and found.kept
        return found.segments, found.threads, found.ahead

    assert config("rms_norm", 16, 8192) == (1, 256, True)
    assert config("softmax", 16, 8192) == (1, 256, False)
    assert config("layer_norm", 1, 16384) == (8, 128, True)
    assert config("layer_norm", 64, 16384) == (1, 256, True)


def test_rows_without_vectors_are_refused() -> None:
    with pytest.raises(Unfit, match="no vectors of 8 to be peeled to"):
        row_kernel(PROGRAMS["softmax"](rows=3, length=7), CONFIGS["warp"])
    with pytest.raises(Unfit, match="aligned to vectors of 1, not of 2"):
        row_kernel(PROGRAMS["softmax"](rows=3, length=7), RowConfig(128, 32, 2, 4))


def test_loads_and_stores_of_bodies_are_whole_vectors() -> None:
    """Every load of the kernel's rows is of 16 bytes, but for one of the rim."""
    text = cuda_text(row_kernel(PROGRAMS["softmax"](rows=4096, length=5003)))
    kernel = text[text.rindex('extern "C" __global__') :]
    assert len(re.findall(r"\*\(uint4\*\)\(x_vectors_ptr_1 \+ \d+\) = \*\(uint4\*\)\(x_ptr", kernel)) == 5
    assert len(re.findall(r"= x_ptr\[", kernel)) == 1 and len(re.findall(r"  out_ptr\[", kernel)) == 1


def picked_rows(rows: int, length: int) -> tirx.PrimFunc:
    """The gradient of a loss by labels: the sum reads no tensor along the row, the outputs do."""
    x, label = te.placeholder((rows, length), "bfloat16", name="x"), te.placeholder((rows,), "int32", name="label")
    weight, k = te.placeholder((rows,), "float32", name="weight"), te.reduce_axis((0, length), "k")

    def hot(i: tirx.Var, j: tirx.Var) -> ir.Expr:
        return tirx.if_then_else(label[i] == j, weight[i], tirx.const(0.0, "float32"))

    total = te.compute((rows,), lambda i: te.sum(hot(i, k), axis=k), name="total")
    out = te.compute(
        (rows, length), lambda i, j: (hot(i, j) - x[i, j].astype("float32") * total[i]).astype("bfloat16"), name="out"
    )
    return te.create_prim_func([x, label, weight, out])


def test_rows_that_outputs_alone_run_along_are_peeled() -> None:
    config = row_kernel(picked_rows(4096, 5027), None).config
    assert isinstance(config, RowConfig) and config.peeled and config.vector > 1


@needs_compiler
@pytest.mark.parametrize("config", ["block", "staged"])
def test_outputs_of_peeled_rows_are_right(config: str) -> None:
    rng, (rows, length) = np.random.default_rng(8), (5, 1021)
    x = (rng.standard_normal((rows, length)) / 8).astype("bfloat16")
    given = [x, rng.integers(0, length, rows).astype("int32"), rng.standard_normal(rows).astype("float32")]
    assert_right(picked_rows(rows, length), CONFIGS[config], inputs=given)
