"""Matrix products on tensor cores: every layout, ragged extents, splits and epilogues, against the float64 oracle."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as cases
from pathlib import Path

import numpy as np
import pytest
from tvm import ir, te, tirx

import tvm_cascade
from tvm_cascade.analysis.extract import Reductions
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.devices.cards import H200
from tvm_cascade.devices.device import Gpu
from tvm_cascade.evaluate.oracle import evaluate
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.cost import seconds
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeleton import Kernel, Setting, build_kernel
from tvm_cascade.tile.skeletons.product.choice import counts_of, sizes_of
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.skeletons.product.raster import ends_with
from tvm_cascade.tile.skeletons.product.skeleton import ProductSkeleton, Variants, config_for

from ..tiers import slow_but
from .emulator.run import Array, compiler, emulate
from .product_programs import PARTS, Gated, Interleaved, Product, Scaled, inputs_of, parts
from .test_compiled_kernels import instructions_of, text_of

TARGET = {"kind": "cuda", "arch": "sm_90a"}

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

SMALL = ProductConfig(columns=64, stages=2, blocks=2)
"""Several tiles for each block, and more steps along k than stages."""

CLUSTERS = replace(SMALL, columns=128, cluster=2, blocks=4)
ALL = ProductConfig(blocks=132)
SPLIT = replace(ALL, columns=64, stages=4, splits=2)
CONFIGS = {"alone": SMALL, "clusters": CLUSTERS, "split": SPLIT}


def kernel_of(
    func: tirx.PrimFunc,
    config: ProductConfig | Variants | None = None,
    narrow_sums: bool = False,
    narrow_positions: int | None = None,
    gpu: Gpu = H200,
) -> Kernel:
    """The kernel of a function that is one product."""
    program = read_program(func)
    groups = Reductions(program).lone
    group = groups[0] if len(groups) == 1 else Reductions(program).joint()
    assert group is not None
    setting = Setting(gpu, FuseOptions(narrow_sums=narrow_sums, narrow_positions=narrow_positions))
    return build_kernel(ProductSkeleton(), program, group, "main", setting, config)


def assert_right(
    func: tirx.PrimFunc,
    config: ProductConfig | None = None,
    *,
    length: int,
    inputs: list[Array] | None = None,
    kernel: Kernel | None = None,
) -> None:
    """The kernel's outputs are as near to the oracle's as tolerance.py asks."""
    given = inputs_of(func) if inputs is None else inputs
    outputs = emulate((kernel or kernel_of(func, config)).func, given)
    exact, usual = evaluate(func, given), evaluate(func, given, rounding=True)
    for got, (name, expected) in zip(outputs, exact.items(), strict=True):
        found = check(got, expected, usual[name], length=length, dtype=str(got.dtype))
        assert found.ok, f"{name}: {found.message}"


RAGGED = Product(m=200, n=136, k=200)
INTERLEAVED = {
    "gated": Interleaved(70, 68, 136),
    "an odd number of float16": Interleaved(70, 35, 136, "float16"),
    "apart": Interleaved(70, 68, 136, apart=True),
    "turned": Interleaved(70, 68, 136, turned=True),
}


@emulated
@pytest.mark.parametrize(
    ("b", "a", "config"),
    slow_but(
        [("nk", "mk", "alone"), ("nk", "km", "clusters"), ("kn", "mk", "split"), ("kn", "km", "alone")],
        cases(("nk", "kn"), ("mk", "km"), CONFIGS),
    ),
)
def test_layouts(a: str, b: str, config: str) -> None:
    assert_right(replace(RAGGED, a_across=a == "km", b_across=b == "kn").build(), CONFIGS[config], length=200)


@emulated
@pytest.mark.parametrize(("columns", "splits"), [(80, 1), (176, 1), (160, 2)])
@pytest.mark.parametrize("n", [368, 363])  # 363 bfloat16 are no multiple of the 16 bytes of bulk copies
def test_columns_that_boxes_of_stores_cover_twice(columns: int, splits: int, n: int) -> None:
    config = ProductConfig(64, columns, 1, stages=4, splits=splits, staged=1, blocks=2)
    assert config.share % 64 and config.share >= 64
    assert_right(Product(m=72, n=n, k=264).build(), config, length=264)


@emulated
@pytest.mark.parametrize(
    ("name", "config"),
    slow_but(
        [("gated", "alone"), ("an odd number of float16", "clusters"), ("apart", "split"), ("turned", "alone")],
        cases(INTERLEAVED, CONFIGS),
    ),
)
def test_columns_two_and_two(name: str, config: str) -> None:
    program = INTERLEAVED[name]
    func = program.build()
    given = inputs_of(func)[:2] if program.apart else inputs_of(func)
    assert_right(func, CONFIGS[config], length=program.k, inputs=given)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("apart", [False, True])
def test_interleaved_columns_are_one_kernel(dtype: str, apart: bool) -> None:
    explained = tvm_cascade.explain(Interleaved(40, 48, 64, dtype, apart).build(), target=TARGET)
    (report,) = explained.functions
    assert [step.skeleton for step in report.plan] == ["cores" if dtype == "float32" else "product"]


def test_neighbours_that_no_thread_has_are_refused() -> None:
    """Columns by three, and points of a batch two and two."""
    a, b, d = *(te.placeholder((4, 48, 64), "float16", name=name) for name in "ab"), te.reduce_axis((0, 64), "d")
    y = te.compute(
        (4, 48, 48), lambda n, i, j: te.sum(a[n, i, d].astype("float32") * b[n, j, d].astype("float32"), axis=d), "y"
    )
    by_three = te.compute((4, 48, 16), lambda n, i, j: y[n, i, 3 * j] + y[n, i, 3 * j + 2], "out")
    of_points = te.compute((2, 48, 48), lambda n, i, j: y[2 * n, i, j] + y[2 * n + 1, i, j], "out")
    for out, told in ((by_three, "which no result of the cascade has"), (of_points, "which is no column")):
        with pytest.raises(Unfit, match=told):
            kernel_of(te.create_prim_func([a, b, out]))


@emulated
@pytest.mark.parametrize("kind", ["large", "zeros", "special"])
def test_data_that_products_are_sensitive_to(kind: str) -> None:
    """Zeros that fill tiles up must not meet infinities: what is outside is zero in both operands."""
    func = replace(RAGGED, dtypes=("float16", "float16"), out="float32").build()
    assert_right(func, SMALL, length=200, inputs=inputs_of(func, kind))


@emulated
@pytest.mark.parametrize(("columns", "splits"), [(64, 1), (80, 1), (64, 2)])
def test_float32_leaves_in_boxes_too(columns: int, splits: int) -> None:
    config = ProductConfig(64, columns, 1, stages=4, splits=splits, staged=2, blocks=2)
    func = Product(m=72, n=136, k=264, out="float32").build()
    kernel = kernel_of(func, config)
    assert all(config.stores_boxes(operand) for operand in kernel.program.tiled.values()) and kernel.program.tiled
    assert_right(func, config, length=264)


@emulated
def test_batches_in_several_dimensions() -> None:
    assert_right(Product(m=70, n=40, k=72, batch=(2, 3)).build(), SMALL, length=72)


def picking(tiles: int, height: int, n: int, k: int, across: bool) -> tirx.PrimFunc:
    """Tiles of rows, each by the matrix that data pick for it."""
    a, g = te.placeholder((tiles, height, k), "bfloat16", "a"), te.placeholder((tiles,), "int32", "g")
    b, d = te.placeholder((3, k, n) if across else (3, n, k), "bfloat16", "b"), te.reduce_axis((0, k), "d")

    def element(t: ir.Expr, i: ir.Expr, j: ir.Expr) -> ir.Expr:
        right = b(g(t), d, j) if across else b(g(t), j, d)
        return te.sum(a(t, i, d).astype("float32") * right.astype("float32"), axis=d)

    summed = te.compute((tiles, height, n), element, name="summed")
    out = te.compute(summed.shape, lambda *at: summed(*at).astype("bfloat16"), name="out")
    return te.create_prim_func([a, b, g, out])


@emulated
@pytest.mark.parametrize(
    ("b", "config"), slow_but([("nk", "alone"), ("kn", "split")], cases(("nk", "kn"), ("alone", "split")))
)
def test_matrices_that_data_pick(b: str, config: str) -> None:
    func = picking(5, 64, 136, 72, across=b == "kn")
    given = inputs_of(func)
    given[2] = np.array([2, 0, 0, 1, 2], "int32")
    assert_right(func, CONFIGS[config], length=72, inputs=given)


def test_what_is_picked_is_not_copied_before_its_index_is_there() -> None:
    func = picking(5, 64, 136, 72, across=False)
    kernel, (_, b, g, _) = kernel_of(func, SMALL), func.params
    early = [kernel.skeleton.may_begin_early(kernel.program, given) for given in ([b], [b, g])]
    assert early == [False, True]


@emulated
def test_sums_of_half_precision_are_taken_in_float32() -> None:
    func = Product(m=70, n=40, k=136, dtypes=("float16", "float16"), sums="float16", out="float16").build()
    assert_right(func, SMALL, length=136)


@emulated
@pytest.mark.parametrize("dtypes", [("float8_e4m3fn", "float8_e4m3fn"), ("float8_e4m3fn", "float8_e5m2")])
def test_float8_where_narrow_sums_are_allowed(dtypes: tuple[str, str]) -> None:
    """Few products, so that what the tensor cores keep of their sums is within what rounding the output costs."""
    func = Product(m=70, n=40, k=64, dtypes=dtypes).build()
    assert_right(func, length=64, kernel=kernel_of(func, SMALL, narrow_sums=True))
    with pytest.raises(Unfit, match="about twelve bits of sums of float8_e4m3fn"):
        kernel_of(func, SMALL)


@emulated
@pytest.mark.parametrize(("config", "promoted"), [(SMALL, 2), (SPLIT, 1)], ids=["alone", "split"])
def test_sums_that_leave_the_tensor_cores_every_few_steps(config: ProductConfig, promoted: int) -> None:
    """Five steps along k, so that the last part of two is shorter."""
    func = Product(m=70, n=72, k=600, dtypes=("float8_e4m3fn", "float8_e5m2")).build()
    assert_right(func, length=600, kernel=kernel_of(func, replace(config, promoted=promoted), narrow_sums=True))


@pytest.mark.parametrize(("positions", "promoted"), [(None, 0), (128, 1), (300, 2)])
def test_positions_that_are_summed_narrowly(positions: int | None, promoted: int) -> None:
    func = Product(m=4096, n=1536, k=2560, dtypes=("float8_e4m3fn",) * 2).build()
    config = kernel_of(func, narrow_sums=True, narrow_positions=positions).config
    assert config.promoted == promoted
    assert not promoted or config.columns <= 192, "each sum has a second register"


def test_fewer_positions_than_a_step() -> None:
    func = Product(m=64, n=64, k=256, dtypes=("float8_e4m3fn",) * 2).build()
    with pytest.raises(Unfit, match="narrow_positions is 64; a step sums over 128 positions of a"):
        kernel_of(func, narrow_sums=True, narrow_positions=64)


@emulated
@pytest.mark.parametrize(("columns", "case"), [(64, {}), (128, {"apart": True}), (64, {"gated": True})])
def test_scales_of_blocks_along_k(columns: int, case: dict[str, bool]) -> None:
    """Rows that end within a tile, and magnitudes of blocks that differ by 2³⁰."""
    func = Scaled(m=130, n=256, k=384, **case).build()
    given = inputs_of(func)
    given[1] *= np.float32(2) ** np.array([0, 20, -10], "float32")
    given[1][7] = 0
    config = ProductConfig(columns=columns, stages=2, blocks=2, promoted=1)
    assert_right(func, length=384, inputs=given, kernel=kernel_of(func, config, narrow_sums=True))


def test_tiles_of_scaled_products_have_one_scale_for_their_columns() -> None:
    kernel = kernel_of(Scaled(m=4096, n=2048, k=7168).build(), narrow_sums=True)
    assert kernel.config.promoted == 1 and 128 % kernel.config.columns == 0


@pytest.mark.parametrize(
    ("scaled", "reason"),
    [
        (Scaled(m=64, n=128, k=256, block=64), "scales change within 128 positions of d"),
        (Scaled(m=64, n=128, k=256, across=1), "no tile fits into registers and shared memory"),
    ],
    ids=["short blocks", "columns of their own"],
)
def test_scales_that_change_too_often(scaled: Scaled, reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        kernel_of(scaled.build(), narrow_sums=True)


def test_half_precision_is_promoted_by_no_option() -> None:
    assert kernel_of(Product(m=64, n=64, k=256).build(), narrow_positions=128).config.promoted == 0


@emulated
@pytest.mark.parametrize("config", [SMALL, SPLIT], ids=["alone", "split"])
def test_bias_activation_and_residual(config: ProductConfig) -> None:
    bias, rest = te.placeholder((136,), "bfloat16", name="bias"), te.placeholder((200, 136), "bfloat16", name="rest")

    def mapped(value: ir.Expr, at: object) -> ir.Expr:
        i, j = at  # type: ignore[misc]
        active = tirx.max(value + bias[j].astype("float32"), tirx.const(0, "float32"))
        return active * tirx.const(0.5, "float32") + rest[i, j].astype("float32")

    assert_right(RAGGED.build(mapped, [bias, rest]), config, length=200)


@emulated
def test_two_outputs_of_one_product() -> None:
    a, b = te.placeholder((70, 72), "float16", name="a"), te.placeholder((64, 72), "float16", name="b")
    d = te.reduce_axis((0, 72), "d")
    wide = te.compute((70, 64), lambda i, j: te.sum(a[i, d].astype("float32") * b[j, d].astype("float32"), axis=d))
    narrow = te.compute((70, 64), lambda i, j: wide[i, j].astype("float16"), name="narrow")
    square = te.compute((70, 64), lambda i, j: wide[i, j] * wide[i, j], name="square")
    func = te.create_prim_func([a, b, narrow, square])
    given = inputs_of(te.create_prim_func([a, b, narrow]))
    assert_right(func, SMALL, length=72, inputs=given)


@emulated
@pytest.mark.parametrize(
    ("name", "config"),
    slow_but(
        [("tiles", "alone"), ("within tiles", "clusters"), ("odd", "split"), ("heads", "alone"), ("two", "split")],
        cases(PARTS, CONFIGS),
    ),
)
def test_columns_that_go_to_several_outputs(name: str, config: str) -> None:
    """No output is written where it has no element, also not in front of its first."""
    widths, heads, boxes = PARTS[name]
    func = parts(widths, heads)
    kernel = kernel_of(func, CONFIGS[config])
    assert len(kernel.program.tiled) == boxes
    assert_right(func, length=72, inputs=inputs_of(func)[:3], kernel=kernel)


@emulated
def test_rows_of_two_variables_are_one_line() -> None:
    """A projection of tokens in a batch: a tile of rows runs on from one sequence into the next."""
    x, w = te.placeholder((3, 50, 72), "bfloat16", name="x"), te.placeholder((40, 72), "bfloat16", name="w")
    d = te.reduce_axis((0, 72), "d")
    product = te.compute(
        (3, 50, 40), lambda s, i, j: te.sum(x[s, i, d].astype("float32") * w[j, d].astype("float32"), axis=d)
    )
    out = te.compute(product.shape, lambda *at: product(*at).astype("bfloat16"), name="out")
    func = te.create_prim_func([x, w, out])
    kernel = kernel_of(func, SMALL)
    assert len(kernel.program.left.line.parts) == 2 and not kernel.program.batch
    assert_right(func, length=72, kernel=kernel)


@emulated
def test_heads_that_leave_apart() -> None:
    """Columns of two variables, which the output has in dimensions that are no neighbours."""
    x, w = te.placeholder((70, 72), "bfloat16", name="x"), te.placeholder((72, 2, 24), "bfloat16", name="w")
    d = te.reduce_axis((0, 72), "d")
    product = te.compute(
        (2, 70, 24), lambda h, i, f: te.sum(x[i, d].astype("float32") * w[d, h, f].astype("float32"), axis=d)
    )
    out = te.compute(product.shape, lambda *at: product(*at).astype("bfloat16"), name="out")
    func = te.create_prim_func([x, w, out])
    assert len(kernel_of(func, SMALL).program.right.line.parts) == 2
    assert_right(func, SMALL, length=72)


@emulated
def test_long_heads_that_leave_apart_are_tiles_of_their_own() -> None:
    """Rows and columns of one variable each, so that bulk copies store them; the other variables are a batch."""
    x, w = te.placeholder((2, 130, 72), "bfloat16", name="x"), te.placeholder((2, 128, 72), "bfloat16", name="w")
    d = te.reduce_axis((0, 72), "d")
    product = te.compute(
        (2, 2, 130, 128),
        lambda s, h, i, f: te.sum(x[s, i, d].astype("float32") * w[h, f, d].astype("float32"), axis=d),
    )
    out = te.compute(product.shape, lambda *at: product(*at).astype("bfloat16"), name="out")
    func = te.create_prim_func([x, w, out])
    shape = kernel_of(func, SMALL).program
    assert len(shape.batch) == 2 and list(shape.tiled)
    assert_right(func, SMALL, length=72)


@emulated
def test_sums_over_two_variables() -> None:
    x, w = te.placeholder((70, 3, 40), "bfloat16", name="x"), te.placeholder((3, 40, 48), "bfloat16", name="w")
    h, d = te.reduce_axis((0, 3), "h"), te.reduce_axis((0, 40), "d")
    product = te.compute(
        (70, 48), lambda i, j: te.sum(x[i, h, d].astype("float32") * w[h, d, j].astype("float32"), axis=[h, d])
    )
    out = te.compute(product.shape, lambda *at: product(*at).astype("bfloat16"), name="out")
    assert_right(te.create_prim_func([x, w, out]), SMALL, length=120)


@emulated
def test_sums_over_variables_that_are_no_neighbours() -> None:
    x, w = te.placeholder((3, 70, 40), "bfloat16", name="x"), te.placeholder((3, 40, 48), "bfloat16", name="w")
    h, d = te.reduce_axis((0, 3), "h"), te.reduce_axis((0, 40), "d")
    product = te.compute(
        (70, 48), lambda i, j: te.sum(x[h, i, d].astype("float32") * w[h, d, j].astype("float32"), axis=[h, d])
    )
    out = te.compute(product.shape, lambda *at: product(*at).astype("bfloat16"), name="out")
    func = te.create_prim_func([x, w, out])
    assert [v.name for v in kernel_of(func, SMALL).program.outer] == ["h"]
    assert_right(func, SMALL, length=120)


@emulated
def test_rows_known_at_launch_alone() -> None:
    func = Product(m=te.var("m", "int32"), n=72, k=136).build()
    known = Product(m=150, n=72, k=136).build()
    assert_right(known, length=136, kernel=kernel_of(func, SMALL), inputs=inputs_of(func, m=150))


@emulated
@pytest.mark.parametrize("rows", [5, 70, 150])
def test_the_launch_takes_the_kernel_for_the_rows_that_there_are(rows: int) -> None:
    """One function for few rows and for many: their tiles differ, and with them the blocks that are launched."""
    few = ProductConfig(rows=64, columns=32, consumers=1, stages=2, blocks=132)
    variants = Variants((few, SMALL), ((16, 0), (128, 1), (192, 0)))
    kernel = kernel_of(Product(m=te.var("m", "int32"), n=72, k=136).build(), variants)
    known = Product(m=rows, n=72, k=136)
    assert config_for(variants, rows) is (SMALL if rows == 70 else few)
    assert_right(known.build(), length=136, kernel=kernel, inputs=inputs_of(known.build()))


def test_symbolic_rows_have_a_few_kernels_that_the_estimate_chooses_from() -> None:
    """At any number of rows, what is chosen takes little more than the configuration for exactly so many."""
    kernel = kernel_of(Product(m=te.var("m", "int32"), n=4096, k=4096).build())
    variants, gpu, sizes = kernel.config, H200, sizes_of(kernel.program)
    assert 3 <= len(variants.configs) <= 10
    assert {config.rows for config in variants.configs} >= {64, 128}
    assert str(variants).startswith("tiles of 64×64 in 2 parts of k, ")
    for rows in (1, 16, 100, 300, 1000, 3000, 20000):
        known = kernel_of(Product(m=rows, n=4096, k=4096).build())
        chosen = counts_of(kernel.program, replace(sizes, rows=rows), config_for(variants, rows), gpu)
        least = counts_of(known.program, sizes_of(known.program), known.config, gpu)
        assert seconds(chosen, gpu) < 1.1 * seconds(least, gpu), rows


@emulated
@pytest.mark.parametrize("config", [SMALL, CLUSTERS, SPLIT], ids=["alone", "clusters", "split"])
def test_the_last_tiles_end_with_the_result(config: ProductConfig) -> None:
    """Over their neighbours, so that no copy is of a box that is partly outside."""
    func = Product(m=131, n=config.columns + 24, k=264).build()
    assert all(ends_with(side, length) for side, length in zip(kernel_of(func).program.sides, (128, 64), strict=True))
    assert_right(func, config, length=264)


GATHERED: dict[str, tuple[Product, tuple[int, int]]] = {
    "mk-nk of eight": (Product(m=131, n=72, k=164), (8, 8)),
    "kn of four": (Product(m=131, n=50, k=104, b_across=True), (16, 4)),
    "km-kn": (Product(m=131, n=50, k=101, a_across=True, b_across=True), (2, 4)),
    "mk-nk of two": (Product(m=131, n=75, k=133), (2, 2)),
    "mk-kn of two": (Product(m=131, n=75, k=133, b_across=True), (2, 2)),
}
"""Products with the pieces of their operands."""


@emulated
@pytest.mark.parametrize(("m", "n"), [(1, 8), (3, 100), (64, 24)])
def test_few_rows_in_a_configuration_of_its_own_choice(m: int, n: int) -> None:
    assert_right(Product(m=m, n=n, k=264, out="float32").build(), length=264)


@emulated
@pytest.mark.parametrize(
    ("name", "stages"),
    slow_but(
        [("mk-nk of eight", 4), ("kn of four", 2), ("km-kn", 4), ("mk-kn of two", 2)],
        cases(GATHERED, (2, 4)),
    ),
)
def test_rows_that_bulk_copies_cannot_fetch(name: str, stages: int) -> None:
    """Of tensors whose rows are no multiple of 16 bytes: threads copy one operand or both, in pieces of so many."""
    program, pieces = GATHERED[name]
    func = program.build()
    kernel = kernel_of(func, replace(SMALL, stages=stages))
    assert pieces == tuple(16 if side.bulk else side.piece for side in kernel.program.sides)
    assert_right(func, length=program.k, kernel=kernel)


@emulated
@pytest.mark.parametrize(
    ("b", "config"), slow_but([("nk", "clusters"), ("kn", "alone"), ("nk", "split")], cases(("nk", "kn"), CONFIGS))
)
def test_two_products_that_a_map_meets(b: str, config: str) -> None:
    """A gated layer: tiles of the left operand are loaded once for both, and no sum goes through memory."""
    func = Gated(m=200, n=136, k=200, across=b == "kn").build()
    assert_right(func, CONFIGS[config], length=200)


@emulated
def test_two_products_of_rows_that_bulk_copies_cannot_fetch() -> None:
    assert_right(Gated(m=70, n=72, k=100).build(), SMALL, length=100)


def test_two_products_are_chosen_where_the_left_operand_is_common() -> None:
    kernel = kernel_of(Gated(m=2048, n=14336, k=4096).build())
    assert len(kernel.program.rights) == 2 and kernel.config.columns <= 128
    whole = kernel_of(Product(m=2048, n=2 * 14336, k=4096).build())
    assert kernel.seconds < 1.05 * whole.seconds
    with pytest.raises(Unfit, match="no left operand in common"):
        kernel_of(Gated(m=64, n=64, k=64, alike=False).build())


def test_what_has_no_product_shape() -> None:
    """Each reason names the tensors of the program."""
    cases: dict[str, tirx.PrimFunc] = {
        "a and product is float64|summed in float64": Product(m=64, n=64, k=64, sums="float64").build(),
        "the tensor cores cut float32 off": Product(m=64, n=64, k=64, dtypes=("float32", "float32")).build(),
        "b.* is float16, a.* is bfloat16": Product(m=64, n=64, k=64, dtypes=("bfloat16", "float16")).build(),
    }
    for reason, func in cases.items():
        with pytest.raises(Unfit, match=reason):
            kernel_of(func)
    with pytest.raises(Unfit, match="the tensor cores multiply float8_e4m3fn where d is contiguous"):
        kernel_of(Product(m=64, n=64, k=64, dtypes=("float8_e4m3fn",) * 2, a_across=True).build(), narrow_sums=True)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (replace(SMALL, columns=264), "sums of a consumer"),
        (replace(SMALL, columns=68), "68 columns of a block are no multiple of 8"),
        (replace(SPLIT, splits=16, columns=256), "16 blocks in a cluster"),
        (replace(SPLIT, splits=8), "4 steps along k in 8 parts"),
        (replace(SPLIT, stages=2), "2 stages leave no room for the partial sums of 128 rows"),
        (replace(SPLIT, columns=128, cluster=2), "either an operand or partial sums"),
        (replace(SMALL, stages=1), "products release one"),
        (replace(SMALL, stages=20), "bytes of shared memory"),
        (replace(SMALL, cluster=2), "32 columns that a block copies are no multiple of 64"),
    ],
)
def test_configurations_that_do_not_fit(config: ProductConfig, reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        kernel_of(replace(RAGGED, b_across=True).build(), config)


def test_the_estimate_follows_the_roofline() -> None:
    """Long products take what the tensor cores take; products of few rows, what their columns take from memory."""
    square = kernel_of(Product(m=4096, n=4096, k=4096).build())
    assert 1.0 < square.seconds / (2 * 4096**3 / 8.5e14) < 1.2
    assert square.config.rows * square.config.columns == 128 * 256
    few = kernel_of(Product(m=16, n=4096, k=4096).build())
    assert 1.0 < few.seconds / (2 * 4096**2 / 4.8e12) < 2.0
    assert few.config.rows == 64 and few.config.splits > 1


def test_a_product_is_compiled_for_tensor_cores() -> None:
    func = Product(m=256, n=256, k=256).build()
    found = tvm_cascade.explain(func, target=TARGET).functions[0]
    assert found.lowering.startswith("the tensor-core kernel `product`, ProductConfig(")
    assert found.tile_program.startswith("sum       product = product over d, product = a[i0, d] · b[i1, d]")
    assert found.tile_program.splitlines()[1].startswith("store     out[i0, i1] = ")
    off = tvm_cascade.explain(func, target=TARGET, tensor_cores=False).functions[0].lowering
    assert off.startswith("the CUDA-core kernel")
    compiled = tvm_cascade.compile(func, target=TARGET)
    assert "wgmma" in compiled.mod.script()


def test_reruns_are_the_same_bit_by_bit_whatever_the_order_of_threads() -> None:
    """The emulator runs every kernel in two orders, and compares: here with partial sums that are added up."""
    rng = np.random.default_rng(1)
    func = Product(m=64, n=64, k=520, out="float32").build()
    given = [
        (rng.standard_normal(a.shape) * 10.0 ** rng.integers(-3, 4, a.shape)).astype(a.dtype) for a in inputs_of(func)
    ]
    emulate(kernel_of(func, replace(SPLIT, splits=4)).func, given)


COMPILED: dict[str, tuple[Product | Gated, ProductConfig, set[str]]] = {
    "whole": (
        Product(m=4096, n=4096, k=4096),
        ALL,
        {"HGMMA.64x256x16.F32.BF16", "UTMALDG.2D", "UTMASTG.2D"},
    ),
    "clusters": (Product(m=512, n=512, k=512), replace(ALL, cluster=2), {"UTMALDG.2D.MULTICAST", "UCGABAR_WAIT"}),
    "split": (Product(m=128, n=512, k=4096), replace(ALL, columns=128, splits=4), {"UBLKCP.S.S", "UTMALDG.2D"}),
    "transposed": (
        Product(m=512, n=512, k=512, a_across=True, b_across=True),
        replace(ALL, rows=256, columns=128, staged=1),
        {"HGMMA.64x128x16.F32.BF16"},
    ),
    "float8": (
        Product(m=512, n=512, k=512, dtypes=("float8_e4m3fn", "float8_e5m2")),
        ALL,
        {"QGMMA.64x256x32.F32.E4M3.E5M2"},
    ),
    "float32": (Product(m=512, n=512, k=512, out="float32"), ALL, {"UTMASTG.2D", "STS.64"}),
    "gated": (Gated(m=512, n=512, k=512), replace(ALL, columns=128), {"HGMMA.64x128x16.F32.BF16"}),
    "gathered": (Product(500, 501, 511, out="float32"), replace(ALL, columns=96, stages=3), {"LDGSTS.E.128"}),
    "promoted": (
        Product(m=4096, n=1536, k=2560, dtypes=("float8_e4m3fn",) * 2),
        replace(ALL, columns=176, promoted=1),
        {"QGMMA.64x176x32.F32.E4M3.E4M3", "FADD.FTZ"},
    ),
    "rows": (Product(m=512, n=501, k=512), ALL, {"STSM.16.M88.4", "LDS.U16", "STG.E.U16"}),
    "pieces": (Product(m=500, n=500, k=508), replace(ALL, columns=128, stages=5), {"LDGSTS.E.64"}),
}


EARLY = {"alone": SMALL, "split": SPLIT, "all steps early": replace(SMALL, stages=4)}


@pytest.mark.parametrize("name", slow_but(["whole", "clusters", "split", "float8"], COMPILED))
def test_a_product_compiles_without_spills_or_products_that_wait(name: str, tmp_path: Path) -> None:
    product, config, expected = COMPILED[name]
    found = instructions_of(text_of(kernel_of(product.build(), config, narrow_sums=True)), tmp_path)
    assert expected <= set(found)


@emulated
@pytest.mark.parametrize(
    ("count", "name"),
    slow_but([("one", "alone"), ("one", "split"), ("two", "all steps early")], cases(("one", "two"), EARLY)),
)
def test_operands_that_are_there_are_copied_before_the_wait(count: str, name: str) -> None:
    func = (RAGGED if count == "one" else Gated(200, 136, 200)).build()
    kernel = kernel_of(func, EARLY[name])
    early = replace(kernel, launch=Launch(given=True))
    assert_right(func, length=200, kernel=early)
    assert text_of(early).count("griddepcontrol_wait();") == 2 and "griddepcontrol" not in text_of(kernel)
