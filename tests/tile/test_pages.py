"""Keys and values in pages that a table finds: what is read as such, what is copied, and what is left alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tvm_cascade
from tvm_cascade.evaluate.oracle import evaluate
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeletons.stream.config import StreamConfig

from ..tiers import slow_but
from .checked import assert_right, kernel_of
from .emulator.run import compiler, emulate
from .paged_programs import Paged
from .test_compiled_kernels import TARGET, instructions_of, text_of
from .test_tile_program import tile_program

SMALL = StreamConfig(columns=64, consumers=1, stages=2, ping_pong=False, blocks=132)
emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


@pytest.mark.parametrize(
    ("case", "dimensions", "number"),
    [
        (Paged(), (1, 0), "table[i0, page]"),
        (Paged(layout="heads"), (2, 0), "table[i0, page]"),
        (Paged(layout="together", size=64), (2, 0), "table[i0, page]"),
        (Paged(flat=True), (1, 0), "table[page + starts[i0]]"),
        (Paged(size=1), (0, 0), "table[i0, page]"),
        (Paged(number=lambda table, b, j: table[b, j // 16] * 2 + 1), (1, 0), "table[i0, page] * 2 + 1"),
    ],
    ids=["slots", "heads", "together", "flat", "rows", "computed"],
)
def test_pages_are_read_off_the_indices(case: Paged, dimensions: tuple[int, int], number: str) -> None:
    stream = tile_program(case.func()).stream
    for operand in (stream.right, stream.products[0].value):
        assert operand.pages is not None
        assert (operand.row, operand.pages.dimension) == dimensions
        assert (operand.pages.size, str(operand.pages.number)) == (case.size, number)


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (Paged(layout="slots_last"), "the last dimension does not run along"),
        (Paged(number=lambda table, b, j: table[b, j // 8]), "is no function of j0 // 16"),
        (Paged(number=lambda table, b, j: table[b, j % 8]), "is no function of j0 // 16"),
        (
            Paged(indices="float32", number=lambda table, b, j: table[b, j // 16].astype("int32")),
            "is float32; numbers of pages are integers",
        ),
        (
            Paged(layout="heads", number=lambda table, b, j: table[b, j // 16] + j - j % 16),
            "is no function of j0 // 16",
        ),
        (Paged(slot=lambda table, b, j: table[b, j % 16]), "2 dimensions run along j0"),
        (Paged(slot=lambda table, b, j: (j + 1) % 16), "the slot .* is no remainder of j0"),
    ],
    ids=["contiguous", "other_page", "remainder", "floats", "position", "two_tables", "shifted"],
)
def test_what_is_no_page_of_rows_is_refused(case: Paged, why: str) -> None:
    with pytest.raises(Unfit, match=why):
        tile_program(case.func())


@emulated
@pytest.mark.parametrize(
    "case",
    [
        Paged(),
        Paged(size=1, flat=True, layout="heads"),
        pytest.param(Paged(size=64, layout="together", causal=True), marks=pytest.mark.slow),
        pytest.param(Paged(size=24, queries=130, indices="int64"), marks=pytest.mark.slow),
        pytest.param(Paged(size=256, keys=600, depth=128), marks=pytest.mark.slow),
        pytest.param(Paged(size=4, depth=96, causal=True, flat=True), marks=pytest.mark.slow),
    ],
    ids=["16", "1", "64", "24", "256", "4"],
)
def test_attention_over_pages(case: Paged) -> None:
    """Pages may be in the table twice; a sequence ends inside of a page and of a tile."""
    assert_right(case.func(), case.inputs([case.keys, 70]), SMALL, length=case.keys)


@emulated
def test_nothing_past_a_length_is_read() -> None:
    """What the table has there is no page at all, or one of NaN, which a weight of zero would not hide."""
    case = Paged(batch=3)
    lengths, func = [case.keys, 64, 0], case.func()
    (expected,) = evaluate(func, case.inputs(lengths, tail=0)).values()
    kernel = kernel_of(func, SMALL)
    for tail in (-1, 2**31 - 1, case.pages - 1):
        inputs = case.inputs(lengths, tail=tail)
        for cache in inputs[1:3]:
            cache[case.pages - 1] = np.nan
        (found,) = emulate(kernel.func, inputs)
        assert np.isnan(found[2]).all()
        assert check(found[:2], expected[:2], expected[:2].astype("float16"), length=case.keys, dtype="float16").ok


@pytest.mark.parametrize("known", [True, False], ids=["static", "symbolic"])
def test_a_cpu_runs_the_same_function(known: bool) -> None:
    case = Paged(queries=3, keys=40, dtype="float32", pages_known=known, flat=known)
    inputs, func = case.inputs([40, 17]), case.func()
    (expected,) = evaluate(replace(case, pages_known=True).func(), inputs).values()
    out = np.full(expected.shape, np.nan, "float32")
    compiled = tvm_cascade.compile(func, "llvm")
    compiled(*inputs, out)
    assert "fused" in str(compiled.report)
    assert check(out, expected, expected.astype("float32"), length=case.keys, dtype="float32").ok


def test_pages_of_any_number_get_the_tensor_core_kernel() -> None:
    assert "`stream`" in str(tvm_cascade.explain(Paged(pages_known=False).func(), target=TARGET, buckets=1))


@pytest.mark.parametrize("size", slow_but([16], [1, 16, 64]))
def test_a_kernel_of_pages_spills_nothing(size: int, tmp_path: Path) -> None:
    case = Paged(size=size, queries=2048, keys=4096, depth=128, dtype="bfloat16")
    found = instructions_of(text_of(kernel_of(case.func())), tmp_path)
    assert {"HGMMA", "UTMALDG", "USETMAXREG"} <= {name.split(".")[0] for name in found}
