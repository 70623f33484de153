"""Products whose rows are folded on chip, whole or in stretches, against the float64 oracle."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import pytest
from tvm import tirx

from corpus import workloads
from tvm_cascade.analysis.extract import Group, Reductions
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.devices.cards import H200
from tvm_cascade.evaluate.oracle import evaluate
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.obligations.derive import RESCALABLE_CASTS
from tvm_cascade.tile.estimate import instruction_bytes
from tvm_cascade.tile.factors import find_factors
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeleton import Kernel, Setting, build_kernel
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.skeletons.product.folded import selection
from tvm_cascade.tile.skeletons.product.folded.config import Config, FoldedConfig, LongConfig
from tvm_cascade.tile.skeletons.product.folded.skeleton import FoldedSkeleton

from ..tiers import slow_but
from . import folded_programs as programs
from .emulator.run import Array, compiler, emulate

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def group_of(program: Program) -> Group:
    """All reductions of a program but its product, or the last one."""
    products = [stage for stage in program.stages if find_factors(stage) is not None]
    joint = Reductions(program).joint(products)
    if joint is not None:
        return joint
    found = [one.group for one in Reductions(program, RESCALABLE_CASTS).cascades() if one.group]
    return found[-1] if found else [g for g in Reductions(program).lone if g.members[0].stage not in products][-1]


def kernel_of(func: tirx.PrimFunc, config: Config | None = None) -> Kernel:
    """The kernel of a function that is a folded product."""
    program = read_program(func)
    assert isinstance(program, Program)
    return build_kernel(FoldedSkeleton(), program, group_of(program), "main", Setting(H200), config)


def inputs_of(func: tirx.PrimFunc, outputs: int, kind: str = "normal") -> list[Array]:
    """Data for every parameter but the last ones."""
    rng, found = np.random.default_rng(0), []
    for param in list(func.params)[:-outputs]:
        shape = [int(n) for n in param.ty.shape]
        if str(param.ty.dtype) == "int32":
            found.append(rng.integers(0, 40, shape).astype("int32"))
            continue
        values = rng.integers(-1, 2, shape) if kind == "ties" else rng.standard_normal(shape) * 0.5
        found.append(values.astype(_dtype(str(param.ty.dtype))))
    return found


def _dtype(name: str) -> np.dtype:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


def assert_right(func: tirx.PrimFunc, config: Config, length: int, outputs: int = 1, kind: str = "normal") -> None:
    """The kernel's outputs are as near to the oracle's as tolerance.py asks; indices are the same."""
    given = inputs_of(func, outputs, kind)
    found = emulate(kernel_of(func, config).func, given)
    exact, usual = evaluate(func, given), evaluate(func, given, rounding=True)
    for got, (name, expected) in zip(found, exact.items(), strict=True):
        told = check(got, expected, usual[name], length=length, dtype=str(got.dtype))
        assert told.ok, f"{name}: {told.message}"


def rows(columns: int, splits: int = 1, tile_rows: int = 64, sharing: int = 8) -> FoldedConfig:
    """Whole rows of a block."""
    tile = ProductConfig(tile_rows, columns, tile_rows // 64, stages=6, splits=splits, blocks=2)
    return FoldedConfig(tile, sharing)


def stretches(columns: int, count: int, rows_of: int = 64, tile_rows: int = 64, consumers: int = 1) -> LongConfig:
    """Stretches of rows."""
    return LongConfig(ProductConfig(tile_rows, columns, consumers, stages=2, blocks=3), count, rows_of)


@emulated
@pytest.mark.parametrize("config", [rows(48), rows(48, 2), rows(48, 4, sharing=16)], ids=["1", "2", "4"])
@pytest.mark.parametrize("kind", ["normal", "ties"])
def test_router(config: FoldedConfig, kind: str) -> None:
    """Of equal shares, that of the lower index comes first."""
    assert_right(programs.router(70, 40, 256), config, 256, outputs=2, kind=kind)


FOLDS: dict[str, tuple[Callable[[int, int, int], tirx.PrimFunc], int]] = {
    "sigmoid": (programs.sigmoid_router, 2),
    "biased": (lambda m, n, k: programs.router(m, n, k, biased=True, dtype="bfloat16"), 2),
    "absmax": (programs.absmax, 1),
    "lse": (programs.log_sum_exp, 1),
    "entropy": (programs.entropy, 1),
    "root_softplus": (programs.root_softplus_router, 2),
    "argmax": (programs.argmax, 1),
    "cross_entropy": (programs.cross_entropy, 1),
}
"""Folds of a product with one value a row, or ranks, and how many outputs each has."""


@emulated
@pytest.mark.parametrize("name", FOLDS)
def test_rows_on_chip(name: str) -> None:
    build, outputs = FOLDS[name]
    assert_right(build(130, 44, 128), rows(48, 2, tile_rows=128, sharing=4), 128, outputs)


@emulated
def test_rows_that_blocks_share_unevenly() -> None:
    """Three parts of 64 rows: the last block has two fewer."""
    assert_right(programs.router(70, 40, 256), rows(48, 3, sharing=4), 256, outputs=2, kind="ties")


@emulated
@pytest.mark.parametrize("name", FOLDS)
def test_stretches_of_long_rows(name: str) -> None:
    """The last tile of a row is not full, nor is the last tile of rows."""
    build, outputs = FOLDS[name]
    assert_right(build(70, 150, 64), stretches(32, 2), 64, outputs)


@emulated
def test_outputs_along_rows_on_chip() -> None:
    assert_right(programs.softmax(70, 40, 128), rows(48, 2), 128)


@emulated
@pytest.mark.parametrize("config", [stretches(48, 1), stretches(64, 3, 128, 128, 2), stretches(32, 2, 128, 128)])
def test_cuts_of_long_rows(config: LongConfig) -> None:
    """One stretch of which nothing is merged; several consumers; several accumulators of a consumer."""
    assert_right(programs.cross_entropy(130, 150, 64), config, 64)


@emulated
def test_few_rows() -> None:
    """Several threads a row merge its stretches."""
    assert_right(programs.log_sum_exp(5, 300, 64), stretches(32, 7, rows_of=5), 64)


@emulated
@pytest.mark.parametrize("splits", [1, 3])
def test_values_of_an_element_chosen_by_another_key(splits: int) -> None:
    """What is picked is read from the sums of the row, of which a block may have several parts."""
    assert_right(programs.biased_choice_router(70, 40, 256, 3), rows(48, splits, sharing=4), 256, outputs=2)


PACKED = 64
"""Columns that 4 and 8 threads read at once, so that elements are packed."""

KEYS: dict[str, Callable[[int, int, int], tirx.PrimFunc]] = {
    "best": partial(programs.router, best=4),
    "least": programs.least,
    "biased choice": programs.biased_choice_router,
}


@emulated
@pytest.mark.parametrize(
    ("name", "kind"),
    slow_but([("best", "normal"), *((name, "ties") for name in KEYS)], product(KEYS, ["normal", "ties"])),
)
def test_packed_elements(name: str, kind: str) -> None:
    """Keys that agree in the bits that are kept of them are told apart, or ordered by index."""
    config, func = rows(PACKED, 3, sharing=4), KEYS[name](70, PACKED, 256)
    assert "packed_key" in kernel_of(func, config).func.script()
    assert_right(func, config, 256, outputs=2, kind=kind)


@emulated
def test_only_where_packed_keys_agree_whole_keys_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the merge of whole keys, rows of different elements are right, and rows of equal ones are not."""
    monkeypatch.setattr(selection, "merge", lambda *_: None)
    func, config = programs.router(70, PACKED, 256, 4), rows(PACKED, 3, sharing=4)
    assert_right(func, config, 256, outputs=2)
    with pytest.raises((AssertionError, RuntimeError)):
        assert_right(func, config, 256, outputs=2, kind="ties")


@emulated
def test_two_packed_keys_that_agree_are_ordered_by_their_whole_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """−1 at 20 and −1 − 2⁻²² at 41, of a range of 5: in places of the order that they have packed, without a merge."""
    monkeypatch.setattr(selection, "merge", lambda *_: None)
    func = programs.least(70, PACKED, 256)
    x, w = (np.zeros_like(one) for one in inputs_of(func, 2))
    x[:, 0], x[:, 1] = 1, 2.0**-14
    columns = w if w.shape[0] == PACKED else w.T
    columns[:, 0] = np.linspace(-0.5, 4, PACKED)
    columns[[20, 41], 0], columns[41, 1] = -1, -(2.0**-8)
    kept, ids = emulate(kernel_of(func, rows(PACKED, 3, sharing=4)).func, [x, w])
    assert (ids == [41, 20, 0]).all() and (kept[:, 0] < kept[:, 1]).all()


@emulated
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_keys_that_are_no_numbers_of_a_range_are_compared_whole(value: float) -> None:
    """Other rows are not touched by one that has such a key."""
    func, config = programs.least(70, PACKED, 256), rows(PACKED, 2, sharing=4)
    given = inputs_of(func, 2)
    given[0] = given[0].astype("float32").clip(-1, 1).astype("float16")
    given[0][3, :] = np.float16(value)
    _kept, ids = emulate(kernel_of(func, config).func, given)
    exact = evaluate(func, given)["ids"]
    others = [row for row in range(70) if row != 3]
    np.testing.assert_array_equal(ids[others], exact[others])


@emulated
@pytest.mark.parametrize("best", [17, pytest.param(32, marks=pytest.mark.slow)])
def test_many_ranks(best: int) -> None:
    assert_right(programs.router(33, 40, 128, best), rows(48, 2, sharing=4), 128, outputs=2, kind="ties")


def test_elements_picked_of_long_rows_are_refused() -> None:
    with pytest.raises(Unfit, match="weights has elements that are picked of whole rows, which are gone by then"):
        kernel_of(programs.biased_choice_router(70, 40, 128), stretches(48, 1))


def test_outputs_along_long_rows_are_refused() -> None:
    with pytest.raises(Unfit, match="p has an element for every column, which is gone by then"):
        kernel_of(programs.softmax(70, 40, 128), stretches(48, 1))


@emulated
@pytest.mark.parametrize("config", [rows(48), stretches(32, 2)], ids=["rows", "stretches"])
def test_elements_picked_by_an_index(config: Config) -> None:
    assert_right(programs.gathered(70, 40, 64), config, 64)


@emulated
@pytest.mark.parametrize("config", [rows(48), stretches(32, 2)], ids=["rows", "stretches"])
def test_elements_of_a_map_picked_by_an_index(config: Config) -> None:
    """The map reads what the row is folded to; the row that is picked from is that of the product."""
    assert_right(programs.gathered_of_map(70, 40, 64), config, 64, outputs=2)


def test_products_read_elsewhere_are_refused() -> None:
    with pytest.raises(Unfit, match=r"backwards reads .*logits.*, which is not stored"):
        kernel_of(programs.reversed_rows(70, 40, 128))


@pytest.mark.parametrize(("of_data", "factor"), [(False, "1/2"), (True, r"scale\[0\]")])
def test_factors_of_sums_are_refused(of_data: bool, factor: str) -> None:
    """What a row folds are sums of plain products."""
    with pytest.raises(Unfit, match=f"logits is multiplied by {factor} on the way"):
        kernel_of(programs.scaled_sums(70, 40, 128, of_data))


@pytest.mark.parametrize(
    ("func", "kind", "cut"),
    [
        (lambda: programs.router(2048, 128, 2048, 8), FoldedConfig, {"rows": 64, "columns": 128, "splits": 3}),
        (lambda: programs.router(16, 256, 4096, 8), FoldedConfig, {"rows": 64, "columns": 256, "splits": 8}),
        (lambda: programs.router(2048, 512, 4096, 2), LongConfig, {"splits": 1}),
        (lambda: programs.cross_entropy(4096, 128256, 4096), LongConfig, {"rows": 128, "columns": 256, "consumers": 2}),
    ],
    ids=["router", "few_tokens", "wide", "vocabulary"],
)
def test_choices(func: Callable[[], tirx.PrimFunc], kind: type, cut: dict[str, int]) -> None:
    config = kernel_of(func()).config
    assert isinstance(config, kind)
    assert {name: getattr(config.tile, name) for name in cut} == cut


@pytest.mark.parametrize(
    ("columns", "config", "reason"),
    [
        (300, rows(256), "300 columns are more than the 256 of a tile"),
        (300, rows(304), "expected 64 rows, and columns in 8s up to 256"),
        (300, stretches(64, 9), "9 stretches of 5 tiles"),
        (40, rows(48, 8), "1 steps along k in 8 parts"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(columns: int, config: Config, reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        kernel_of(programs.log_sum_exp(70, columns, 64), config)


def test_the_instructions_of_a_tile_are_those_that_a_processor_keeps() -> None:
    """A sample's noise is some hundred instructions a sum, and each sum of a thread has its own."""

    def bytes_of(name: str) -> float:
        kernel = kernel_of(workloads.get(name).with_shape(tokens=256).program.prim_func())
        assert isinstance(kernel.config, LongConfig) and kernel.config.tile.rows == 128
        sums = 128 * kernel.config.tile.columns // 256
        return sums * instruction_bytes(kernel.program.row_program.position_inputs.values())

    kept = H200.code_bytes
    assert kept / 2 < bytes_of("head_sample") <= kept
    assert bytes_of("head_cross_entropy") < kept / 8
