"""Keys and values of 8 bits that the program widens: tiles are converted on the way to the tensor cores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from corpus.workloads import get
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig

from ..tiers import slow_but
from .checked import assert_right, kernel_of
from .emulator.run import compiler
from .paged_programs import Paged
from .test_compiled_kernels import instructions_of, text_of
from .test_tile_program import tile_program

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
DECODE = Paged(queries=1, heads=8, kv_heads=2, stored=E4M3)
SMALL = PiecesConfig(64, 1, 3, 5, widening=2)


def test_elements_are_what_they_are_multiplied_with() -> None:
    stream = tile_program(DECODE.func()).stream
    for operand in (stream.right, stream.products[0].value):
        assert (operand.stored, operand.dtype, operand.stored_size, operand.size) == (E4M3, "float16", 1, 2)


def test_a_warp_group_converts_keys_and_another_values() -> None:
    config = kernel_of(DECODE.func()).config
    assert config.widening == 2 and config.threads == 512


def test_one_warp_group_converts_for_many_rows() -> None:
    """Two consumers leave no registers for another one."""
    kernel = kernel_of(Paged(stored=E4M3, queries=300, heads=8, depth=128).func())
    assert isinstance(kernel.config, PiecesConfig)
    assert (kernel.config.consumers, kernel.config.widening) == (2, 1)


def test_scales_of_keys_multiply_scores() -> None:
    """Beside those of the values, which the same tensor has: they stay apart."""
    program = tile_program(replace(DECODE, scaled=True).func())
    assert [str(scale) for scale in program.stream.score.scales] == ["scales[0, i1_group]"]
    assert sorted(map(str, program.row_inputs.values())) == ["scales[0, i1_group]", "scales[1, i1_group]"]


@emulated
@pytest.mark.parametrize(
    "case",
    [
        replace(DECODE, scaled=True),
        pytest.param(
            Paged(queries=3, heads=8, kv_heads=2, stored=E5M2, depth=128, dtype="bfloat16", causal=True, size=64),
            marks=pytest.mark.slow,
        ),
        Paged(queries=1, heads=8, kv_heads=1, stored=E4M3, depth=96, dtype="bfloat16", size=1, layout="together"),
        Paged(queries=70, stored=E4M3, causal=True),
    ],
    ids=["scaled", "e5m2_bfloat16", "half_a_box", "many_rows"],
)
def test_attention_over_floats_of_8_bits(case: Paged) -> None:
    config = SMALL if case.queries * case.heads // case.kv_heads <= 64 else replace(SMALL, consumers=2, widening=1)
    assert_right(case.func(), case.inputs([case.keys, 70]), config, length=case.keys)


@emulated
def test_contiguous_rows_of_8_bits() -> None:
    case = get("decode_float8").with_shape(batch=1, heads=8, kv_heads=2, keys=260)
    assert_right(case.build(), list(case.inputs(np.random.default_rng(0))), SMALL, length=260)


@emulated
def test_every_float_of_8_bits_arrives() -> None:
    """Of one key the value is the result: subnormal, largest, infinite and NaN ones too."""
    case = Paged(batch=4, queries=1, heads=2, kv_heads=1, keys=64, stored=E5M2)
    inputs = case.inputs([1] * 4)
    inputs[3][:] = np.arange(16).reshape(4, 4)
    for b, page in enumerate(inputs[3][:, 0]):
        inputs[2][page, 0, 0] = np.arange(64 * b, 64 * b + 64, dtype=np.uint8).view(inputs[2].dtype)
    assert_right(case.func(), inputs, SMALL, length=1)


@pytest.mark.parametrize(
    ("dtype", "queries", "size"), slow_but([("float16", 1, 1)], [("float16", 1, 1), ("bfloat16", 1, 16)])
)
def test_a_kernel_that_converts_spills_nothing(dtype: str, queries: int, size: int, tmp_path: Path) -> None:
    case = Paged(size=size, queries=queries, heads=64, kv_heads=8, keys=8000, depth=128, dtype=dtype, stored=E4M3)
    found = instructions_of(text_of(kernel_of(case.func())), tmp_path)
    assert {"HGMMA", "LDGSTS" if size == 1 else "UTMALDG", "F2FP"} <= {name.split(".")[0] for name in found}
