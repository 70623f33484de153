"""Products on CUDA cores against the float64 oracle: layouts, ragged extents, dtypes, batches, maps, slices of k."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

import tvm_cascade
from tvm_cascade.analysis.extract import Group, Reductions
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.devices.cards import H200
from tvm_cascade.evaluate.oracle import evaluate
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeleton import Kernel, Setting, build_kernel
from tvm_cascade.tile.skeletons.simt.config import CoreConfig
from tvm_cascade.tile.skeletons.simt.skeleton import CoreSkeleton, read_core_product
from tvm_cascade.tile.skeletons.simt.tiles import Cut

from ..tiers import slow_but
from .emulator.run import Array, compiler, emulate
from .product_programs import Grouped, Interleaved
from .test_compiled_kernels import instructions_of, text_of

TARGET = {"kind": "cuda", "arch": "sm_90a"}
SMALL = CoreConfig(Cut(1, 8, 8), Cut(4, 4, 4), 16, 3)
SLICED = CoreConfig(Cut(1, 4, 4), Cut(1, 8, 4), 32, 3, 4)

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def matmul(
    rows: int | Expr = 67,
    columns: int = 71,
    depth: int = 33,
    layout: str = "NN",
    dtypes: tuple[str, str] = ("float32", "float32"),
    total: str = "float32",
    factor: float = 1.0,
) -> tirx.PrimFunc:
    """A product of two matrices, either of which may be transposed in memory (T)."""
    left = te.placeholder((depth, rows) if layout[0] == "T" else (rows, depth), dtypes[0], name="left")
    right = te.placeholder((columns, depth) if layout[1] == "T" else (depth, columns), dtypes[1], name="right")
    k = te.reduce_axis((0, depth), name="k")

    def element(i: Expr, j: Expr) -> Expr:
        a = (left[k, i] if layout[0] == "T" else left[i, k]).astype(total)
        b = (right[j, k] if layout[1] == "T" else right[k, j]).astype(total)
        return te.sum(a * b if factor == 1.0 else a * b * tirx.const(factor, total), axis=k)

    return te.create_prim_func([left, right, te.compute((rows, columns), element, name="out")])


def kernel_of(func: tirx.PrimFunc, config: CoreConfig | None = None) -> Kernel:
    """The kernel of a function that is one product."""
    program = read_program(func)
    setting = Setting(H200, FuseOptions(tensor_cores=False))
    return build_kernel(CoreSkeleton(), program, Reductions(program).lone[-1], "main", setting, config)


def inputs_of(func: tirx.PrimFunc, count: int, seed: int = 0, known: dict[str, int] | None = None) -> list[Array]:
    """Random inputs of a function's first parameters."""
    rng, found = np.random.default_rng(seed), []
    for param in list(func.params)[:count]:
        shape = tuple((known or {}).get(str(n)) or int(n) for n in param.ty.shape)
        dtype = str(param.ty.dtype)
        if dtype.startswith(("int", "uint")):
            found.append(rng.integers(0, 9, shape).astype(dtype))
        else:
            found.append(rng.standard_normal(shape).astype(getattr(ml_dtypes, dtype, dtype)))
    return found


def assert_right(
    func: tirx.PrimFunc,
    inputs: Sequence[Array],
    length: int,
    config: CoreConfig | None = None,
    compiled: tirx.PrimFunc | None = None,
) -> None:
    """The kernel's outputs are as near to the oracle's as tolerance.py asks."""
    outputs = emulate(kernel_of(compiled or func, config).func, inputs)
    exact, usual = evaluate(func, inputs), evaluate(func, inputs, rounding=True)
    for got, (name, expected) in zip(outputs, exact.items(), strict=True):
        found = check(got, expected, usual[name], length=length, dtype=str(got.dtype))
        assert found.ok, f"{name}: {found.message}"


LAYOUTS = ["NN", "NT", "TN", "TT"]
EXTENTS = {"whole": (64, 64, 48), "ragged": (67, 71, 33), "ragged in vectors": (100, 132, 52)}
CONFIGS = {"whole": SMALL, "sliced": SLICED}


@emulated
@pytest.mark.parametrize(
    ("layout", "extents", "config"),
    slow_but(
        [
            *((layout, "ragged", "whole") for layout in LAYOUTS),
            *((layout, "ragged in vectors", "sliced") for layout in LAYOUTS),
            ("NN", "whole", "whole"),
            ("NT", "whole", "sliced"),
        ],
        product(LAYOUTS, EXTENTS, CONFIGS),
    ),
)
def test_either_operand_may_be_transposed_and_extents_ragged(layout: str, extents: str, config: str) -> None:
    rows, columns, depth = EXTENTS[extents]
    func = matmul(rows, columns, depth, layout=layout)
    assert_right(func, inputs_of(func, 2), depth, CONFIGS[config])


@emulated
@pytest.mark.parametrize("config", [SMALL, SLICED], ids=["whole", "sliced"])
def test_matrices_that_data_pick(config: CoreConfig) -> None:
    left, g = te.placeholder((5, 16, 40), name="left"), te.placeholder((5,), "int32", name="g")
    right, k = te.placeholder((9, 40, 33), name="right"), te.reduce_axis((0, 40), name="k")
    out = te.compute((5, 16, 33), lambda t, i, j: te.sum(left[t, i, k] * right[g[t], k, j], axis=k), name="out")
    func = te.create_prim_func([left, right, g, out])
    assert_right(func, inputs_of(func, 3), 40, config)


DTYPES = {
    "float32 with float16": (("float32", "float16"), "float32"),
    "float16": (("float16", "float16"), "float32"),
    "bfloat16 with float32": (("bfloat16", "float32"), "float32"),
    "float64": (("float64", "float64"), "float64"),
    "float64 with float32": (("float64", "float32"), "float64"),
    "bytes": (("int8", "uint8"), "int32"),
    "integers": (("int32", "int32"), "int32"),
}


@emulated
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("extents", [(40, 72, 36), (33, 65, 31)], ids=str)
def test_operands_are_widened_to_the_dtype_of_the_sum(name: str, extents: tuple[int, int, int]) -> None:
    dtypes, total = DTYPES[name]
    func = matmul(*extents, layout="NT", dtypes=dtypes, total=total)
    assert_right(func, inputs_of(func, 2), extents[2], SLICED)


@emulated
def test_a_constant_factor_multiplies_the_sums() -> None:
    func = matmul(40, 40, 40, factor=-0.125)
    assert_right(func, inputs_of(func, 2), 40, SMALL)


def heads(batch: int, heads: int, rows: int, columns: int, depth: int) -> tirx.PrimFunc:
    """x[b, i, h, :] · y[b, j, h, :], with out[b, h, i, j]."""
    x = te.placeholder((batch, rows, heads, depth), "float32", name="x")
    y = te.placeholder((batch, columns, heads, depth), "float32", name="y")
    d = te.reduce_axis((0, depth), name="d")
    out = te.compute(
        (batch, heads, rows, columns), lambda b, h, i, j: te.sum(x[b, i, h, d] * y[b, j, h, d], axis=d), name="out"
    )
    return te.create_prim_func([x, y, out])


def projected(batch: int, rows: int, heads: int, depth: int, columns: int) -> tirx.PrimFunc:
    """Σ over h and d of x[b, h, i, d]·w[h, d, j]: rows of two variables apart in memory, sums over two loops."""
    x = te.placeholder((batch, heads, rows, depth), "float32", name="x")
    w = te.placeholder((heads, depth, columns), "float32", name="w")
    h, d = te.reduce_axis((0, heads), name="h"), te.reduce_axis((0, depth), name="d")
    out = te.compute(
        (batch, rows, columns), lambda b, i, j: te.sum(x[b, h, i, d] * w[h, d, j], axis=[h, d]), name="out"
    )
    return te.create_prim_func([x, w, out])


BATCHED: dict[str, tuple[Callable[[], tirx.PrimFunc], int]] = {
    "heads by index maps": (lambda: heads(2, 3, 34, 40, 20), 20),
    "sums over two loops": (lambda: projected(2, 35, 3, 20, 44), 60),
}


@emulated
@pytest.mark.parametrize("name", BATCHED)
def test_batches_and_sums_over_several_loops(name: str) -> None:
    make, length = BATCHED[name]
    assert_right(make(), inputs_of(make(), 2), length, SMALL)


def with_maps(rows: int, columns: int, depth: int) -> tirx.PrimFunc:
    """max(a·b/2 + bias, 0) in float16 beside a·b + residual."""
    a, b = te.placeholder((rows, depth), name="a"), te.placeholder((depth, columns), name="b")
    bias, residual = te.placeholder((columns,), name="bias"), te.placeholder((rows, columns), name="residual")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    relu = te.compute(
        (rows, columns), lambda i, j: tirx.max(c[i, j] * 0.5 + bias[j], 0.0).astype("float16"), name="relu"
    )
    added = te.compute((rows, columns), lambda i, j: c[i, j] + residual[i, j], name="added")
    return te.create_prim_func([a, b, bias, residual, relu, added])


@emulated
@pytest.mark.parametrize("extents", [(40, 72, 36), (33, 65, 31)], ids=str)
@pytest.mark.parametrize("config", [SMALL, SLICED], ids=["whole", "sliced"])
def test_outputs_are_maps_of_the_sums(extents: tuple[int, int, int], config: CoreConfig) -> None:
    func = with_maps(*extents)
    assert_right(func, inputs_of(func, 4), extents[2], config)


@emulated
def test_a_result_may_count_the_positions_of_its_axis() -> None:
    """Σ exp(−s) over an axis that s does not have is N·exp(−s)."""
    a, b = te.placeholder((33, 31), name="a"), te.placeholder((31, 40), name="b")
    k, j = (te.reduce_axis((0, 31), name) for name in "kj")
    s = te.compute((33, 40), lambda i, n: te.sum(a[i, k] * b[k, n], axis=k), name="s")
    out = te.compute((33, 40), lambda i, n: te.sum(te.exp(-s[i, n]), axis=j), name="out")
    func = te.create_prim_func([a, b, out])
    program = read_program(func)
    ((found,),) = (Reductions(program).cascades(),)
    assert isinstance(found.group, Group)
    setting = Setting(H200, FuseOptions(tensor_cores=False))
    kernel = build_kernel(CoreSkeleton(), program, found.group, "main", setting, SMALL)
    inputs = inputs_of(func, 2)
    (got,) = emulate(kernel.func, inputs)
    exact, usual = evaluate(func, inputs)["out"], evaluate(func, inputs, rounding=True)["out"]
    result = check(got, exact, usual, length=31, dtype="float32")
    assert result.ok, result.message


@emulated
@pytest.mark.parametrize("config", [SMALL, SLICED], ids=["whole", "sliced"])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("columns", [36, 35])
def test_columns_two_and_two(columns: int, apart: bool, config: CoreConfig) -> None:
    func = Interleaved(33, columns, 31, "float32", apart).build()
    assert_right(func, inputs_of(func, 2 if apart else 3), 31, config)


@emulated
@pytest.mark.parametrize("config", [SMALL, SLICED], ids=["whole", "sliced"])
def test_columns_that_go_to_several_outputs(config: CoreConfig) -> None:
    """No output is written where it has no element, also not in front of its first."""
    a, b, k = te.placeholder((33, 31), name="a"), te.placeholder((31, 64), name="b"), te.reduce_axis((0, 31), "k")
    whole = te.compute((33, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    first = te.compute((33, 24), lambda i, j: whole[i, j] * tirx.const(2, "float32"), name="first")
    second = te.compute((33, 40), lambda i, j: whole[i, j + 24], name="second")
    func = te.create_prim_func([a, b, first, second])
    assert_right(func, inputs_of(func, 2), 31, config)


@emulated
def test_infinities_nan_and_small_numbers_stay_where_they_are() -> None:
    func = matmul(40, 36, 20)
    left, right = inputs_of(func, 2)
    left[3, 5], left[4, 6], left[5, 7] = np.inf, np.nan, -np.inf
    left[7], right[:, 9] = 0, 0
    left[7, 0], right[0] = np.float32(1e-42), 1
    (got,) = emulate(kernel_of(func, SMALL).func, [left, right])
    with np.errstate(invalid="ignore"):
        expected = left.astype("float64") @ right.astype("float64")
    assert np.array_equal(np.isnan(got), np.isnan(expected)) and np.isnan(got).any()
    assert np.array_equal(np.isinf(got), np.isinf(expected)) and np.isinf(got).any()
    assert got[7, 1] == np.float32(1e-42) != 0
    assert not kernel_of(func).fast_math


@emulated
def test_an_extent_that_is_known_at_the_launch() -> None:
    rows = te.var("rows", "int32")
    assert_right(matmul(45, 40, 24), inputs_of(matmul(45, 40, 24), 2), 24, SMALL, compiled=matmul(rows, 40, 24))


def test_what_tensor_cores_do_not_take_is_a_kernel_for_cuda_cores() -> None:
    def lowering(func: tirx.PrimFunc, **options: Any) -> str:
        return tvm_cascade.explain(func, target=TARGET, **options).functions[0].lowering

    assert lowering(matmul(512, 512, 512)).startswith("the CUDA-core kernel `cores`, ")
    assert "`cores`" in lowering(matmul(512, 512, 512, dtypes=("float32", "float16")))
    assert "`cores`" not in lowering(matmul(512, 512, 512, dtypes=("float16", "float16")))
    assert "the option row_kernels is off" in lowering(matmul(512, 512, 512), row_kernels=False)


def test_vectors_are_copied_where_memory_allows() -> None:
    """By the instruction: 16 bytes where rows of memory are multiples of that, else single elements."""
    assert "cp.async.cg.shared.global [%0], [%1], 16" in text_of(kernel_of(matmul(64, 64, 64), SMALL))
    assert "cp.async.ca.shared.global [%0], [%1], 4, %2" in text_of(kernel_of(matmul(67, 71, 33), SMALL))


def test_refusals_name_what_is_in_the_way() -> None:
    a, b = te.placeholder((64, 64), name="a"), te.placeholder((64, 64), name="b")
    k = te.reduce_axis((0, 64), name="k")
    largest = te.compute((64, 64), lambda i, j: te.max(a[i, k] + b[k, j], axis=k), name="largest")
    outer = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[i, j], axis=k), name="outer")
    halves = matmul(64, 64, 64, dtypes=("float16", "float16"), total="float16")
    for func, reason in (
        (te.create_prim_func([a, b, largest]), "largest is no one sum"),
        (te.create_prim_func([a, b, outer]), "no one dimension|no dimension|no axis"),
        (halves, "out is summed in float16, CUDA cores sum in float32, float64, int32"),
    ):
        program = read_program(func)
        with pytest.raises(Unfit, match=reason):
            read_core_product(program, Reductions(program).lone[-1])


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (CoreConfig(Cut(3, 8, 8), Cut(4, 4, 4)), "powers of two"),
        (CoreConfig(Cut(1, 8, 8), Cut(4, 8, 4)), "8 lanes along one side and 4 along the other"),
        (CoreConfig(Cut(1, 8, 2), Cut(4, 4, 4), slices=4), "slices are a power of two of a thread's rows"),
        (CoreConfig(Cut(1, 8, 8), Cut(4, 4, 4), depth=8, slices=8), "an even number of positions for each slice"),
        (CoreConfig(Cut(1, 8, 8), Cut(4, 4, 4), depth=12), "12 positions of k are no multiple of 8"),
        (CoreConfig(Cut(4, 8, 16), Cut(4, 4, 16)), "more registers than there are"),
        (CoreConfig(Cut(2, 8, 8), Cut(4, 4, 8), depth=64, stages=8), "more shared memory than there is"),
    ],
)
def test_a_configuration_that_does_not_fit_says_why(config: CoreConfig, reason: str) -> None:
    func = matmul(512, 512, 512)
    with pytest.raises(Unfit, match=reason):
        kernel_of(func, config)


def test_the_choice_fills_the_processors() -> None:
    """Large results get large tiles, small ones small tiles, or slices of k."""
    large, small, few = (kernel_of(matmul(m, n, 4096)).config for m, n in ((4096, 4096), (512, 512), (16, 4096)))
    assert large.rows.block * large.columns.block >= 128 * 128 and large.slices == 1
    assert small.rows.block * small.columns.block <= 64 * 64
    assert few.rows.block <= 32 and few.slices > 1
    assert 4096 // few.columns.block >= H200.processors * 3 // 4


@pytest.mark.parametrize("layout", slow_but(["TN"], ["NN", "NT", "TN"]))
def test_a_kernel_compiles_without_spills(layout: str, tmp_path: Path) -> None:
    found = instructions_of(text_of(kernel_of(matmul(4096, 4096, 4096, layout))), tmp_path)
    loads = sum(count for name, count in found.items() if name.startswith("LDS.128"))
    assert found["FFMA.FTZ"] >= 16 * loads and any(name.startswith("LDGSTS") for name in found)


@emulated
@pytest.mark.parametrize("config", CONFIGS)
def test_tiles_that_begin_where_data_say_and_some_without_a_sum(config: str) -> None:
    program = Grouped(height=64, dtype="float32")
    func, given = program.build(), program.inputs()
    assert_right(func, given, program.k, CONFIGS[config])
    (found,) = emulate(kernel_of(func, CONFIGS[config]).func, given)
    assert [bool(np.any(tile)) for tile in found] == [True, True, True, False, True]
