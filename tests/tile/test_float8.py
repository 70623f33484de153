"""float8 operands on the tensor cores: by the emulator, whose sums of them are cut off as the hardware's are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tvm import te

import tvm_cascade
from tvm_cascade.analysis.extract import Reductions
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.devices.cards import H200
from tvm_cascade.evaluate.oracle import evaluate
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.obligations.derive import RESCALABLE_CASTS
from tvm_cascade.tile.attention.program import TileProgram, build_program
from tvm_cascade.tile.attention.shape import read_stream
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeleton import Kernel
from tvm_cascade.tile.skeletons.stream.config import StreamConfig, ranked_configs

from ..tiers import slow_but
from .checked import assert_right, kernel_of
from .emulator.run import Array, compiler, emulate
from .float8_programs import E4M3, E5M2, Attention
from .test_compiled_kernels import instructions_of, text_of

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

CASTS = (*RESCALABLE_CASTS, E4M3, E5M2)
SMALL = StreamConfig(columns=64, consumers=2, stages=2, blocks=132)
PERSISTENT = StreamConfig(columns=64, consumers=2, stages=3, left_stages=2, blocks=1, own_staging=True)
WIDE = StreamConfig(columns=128, consumers=2, stages=3, left_stages=2, blocks=1, own_staging=True)
SHARED_STAGING = StreamConfig(columns=64, consumers=2, stages=2, blocks=1)
TARGET = {"kind": "cuda", "arch": "sm_90a"}

slow = partial(pytest.param, marks=pytest.mark.slow)

NARROW = Attention(value=E4M3, transposed=True, rounded=E4M3, keys=208)
"""Everything in float8."""


def program_of(case: Attention) -> TileProgram:
    """The tile program of an attention."""
    program = read_program(case.build())
    (group,) = [found.group for found in Reductions(program, CASTS).cascades() if found.group]
    return build_program(read_stream(program, group))


def allowed(case: Attention, config: StreamConfig | None = None) -> Kernel:
    """The kernel of an attention, with float8 listed and allowed."""
    return kernel_of(case.build(), config, CASTS, narrow_sums=True)


def assert_attention_right(case: Attention, config: StreamConfig | None, inputs: list[Array] | None = None) -> None:
    """`assert_right` with float8 listed and allowed."""
    assert isinstance(case.keys, int)
    assert_right(case.build(), inputs or case.inputs(), config, length=case.keys, casts=CASTS, narrow_sums=True)


@emulated
@pytest.mark.parametrize(
    ("case", "config"),
    [
        (Attention(), SMALL),
        slow(Attention(left=E5M2, right=E5M2, value="bfloat16", out="bfloat16", causal=True), SMALL),
        (Attention(left=E4M3, right=E5M2, depth=80, features=40, queries=70), SMALL),
        slow(Attention(queries=200, keys=520, depth=128, features=128, causal=True), WIDE),
        slow(Attention(heads=2, queries=200, depth=256, features=64, causal=True), SHARED_STAGING),
    ],
    ids=["e4m3", "e5m2", "mixed", "three_stages", "stored_through_the_left_operand"],
)
def test_scores_of_float8(case: Attention, config: StreamConfig | None) -> None:
    assert_attention_right(case, config)


@emulated
@pytest.mark.parametrize(
    ("case", "config"),
    [
        slow(NARROW, SMALL),
        (replace(NARROW, value=E5M2, causal=True, heads=2, features=80), PERSISTENT),
        slow(replace(NARROW, left="bfloat16", right="bfloat16", value=E5M2, rounded=E5M2, causal=True), None),
        slow(
            replace(NARROW, keys=336, features=40, causal=True),
            StreamConfig(columns=96, stages=2, optimistic=False, blocks=132),
        ),
    ],
    ids=["e4m3", "mixed", "scores_of_bfloat16", "tiles_that_are_no_whole_boxes"],
)
def test_values_of_float8_with_weights_that_the_program_rounds(case: Attention, config: StreamConfig | None) -> None:
    assert_attention_right(case, config)


@emulated
@pytest.mark.parametrize("dtype", ["float16", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_values_of_16_bits_along_the_cascade_axis(dtype: str) -> None:
    case = Attention(dtype, dtype, dtype, dtype, transposed=True, keys=208, features=72, causal=True)
    assert_attention_right(case, SMALL)


@emulated
def test_every_position_of_float8_values_meets_its_own_weight() -> None:
    """Each query finds one key, so that the result is that key's value to the last bit."""
    case = replace(NARROW, keys=192, queries=192)
    rng = np.random.default_rng(1)
    chosen, signs = rng.permutation(192), rng.choice([-8.0, 8.0], (1, 192, 64))
    q, k = signs[:, chosen].astype(ml_dtypes.float8_e4m3fn), signs.astype(ml_dtypes.float8_e4m3fn)
    v = case.inputs()[2]
    (found,) = emulate(allowed(case, SMALL).func, [q, k, v])
    assert np.array_equal(found[0], v[0][:, chosen].T.astype(np.float16))


def integers(case: Attention) -> list[Array]:
    """Small integers, of whose sums nothing is cut off."""
    q, k, v = case.inputs()
    rng = np.random.default_rng(2)
    return [*(rng.integers(-4, 5, array.shape).astype(array.dtype) for array in (q, k)), v]


def spike(case: Attention) -> list[Array]:
    """The first key's score is larger by hundreds than the others: what came before is rescaled to nothing."""
    q, k, v = integers(case)
    q[..., :8], k[..., :8], k[:, 0, :8] = 8, 0, 16
    return [q, k, v]


def rising(case: Attention) -> list[Array]:
    """Scores grow by far more than a reference may be left in every tile."""
    q, k, v = integers(case)
    q[..., :8], k[..., :8] = 4, np.linspace(8, -8, k.shape[1]).round()[None, :, None]
    return [q, k, v]


def not_a_number(case: Attention) -> list[Array]:
    """A NaN in a query."""
    q, k, v = case.inputs()
    q[0, 3, 5] = np.nan
    return [q, k, v]


@emulated
@pytest.mark.parametrize(
    ("case", "kind"),
    [
        slow(Attention(causal=True, keys=208), integers),
        slow(Attention(causal=True, keys=208), spike),
        slow(Attention(causal=True, keys=208), rising),
        slow(Attention(causal=True, keys=208), not_a_number),
        slow(NARROW, integers),
        slow(NARROW, spike),
        (NARROW, rising),
        slow(NARROW, not_a_number),
    ],
)
def test_adversarial_data(case: Attention, kind: Callable[[Attention], list[Array]]) -> None:
    assert_attention_right(case, SMALL, kind(case))


@emulated
@pytest.mark.parametrize("special", [np.inf, np.nan])
def test_special_values_of_keys(special: float) -> None:
    case = Attention(E5M2, E5M2, causal=True)
    q, k, v = case.inputs()
    k[0, 107, 9] = special
    assert_attention_right(case, SMALL, [q, k, v])


@emulated
def test_lengths_known_at_launch_alone() -> None:
    symbolic, case = Attention(queries=te.var("m"), keys=te.var("n")).build(), Attention(queries=70, keys=77)
    assert_right(case.build(), case.inputs(), SMALL, length=77, compiled=symbolic, narrow_sums=True)


@pytest.mark.parametrize("case", [Attention(causal=True), NARROW], ids=["scores", "values"])
@pytest.mark.parametrize("features", slow_but([64], [64, 128]))
def test_kernels_compile_for_the_tensor_cores(case: Attention, features: int, tmp_path: Path) -> None:
    case = replace(case, heads=64, queries=4096, keys=4096, depth=features, features=features)
    found = instructions_of(text_of(allowed(case)), tmp_path)
    families = {name.split(".")[0] for name in found}
    assert "UTMALDG" in families and any(name.startswith("QGMMA") and "E4M3.E4M3" in name for name in found)
    assert ("HGMMA" in families) is (case.value == "float16")


@emulated
@pytest.mark.parametrize(
    "case",
    [
        Attention(out=E4M3),
        pytest.param(Attention(out=E5M2), marks=pytest.mark.slow),
        pytest.param(Attention("float16", "float16", rounded=E4M3), marks=pytest.mark.slow),
    ],
    ids=["result_of_e4m3", "result_of_e5m2", "weights_rounded_before_halves"],
)
def test_the_program_rounds_to_float8_elsewhere(case: Attention) -> None:
    """By `compile`; what is out of range becomes NaN or an infinity as the type has it."""
    func, inputs = case.build(), case.inputs()
    if case.out in CASTS[2:]:
        inputs[2][0, :, 3], inputs[2][0, :, 4] = 60000, 449
    compiled = tvm_cascade.compile(func, target=TARGET, rescalable_casts=CASTS, narrow_sums=True)
    assert "tensor-core kernel `stream`" in compiled.report.functions[0].lowering
    (found,) = emulate(compiled.mod["main"], inputs)
    exact, usual = evaluate(func, inputs)["out"], evaluate(func, inputs, rounding=True)["out"]
    compared = check(found, exact, usual, length=200, dtype=case.out)
    assert compared.ok, compared.message


def test_shared_memory_is_counted_in_bytes() -> None:
    shape = {"depth": 128, "features": 128, "queries": 4096, "keys": 4096}
    config = StreamConfig(columns=128, stages=2, left_stages=1, own_staging=True, blocks=132)
    halves, scores, values = (
        config.shared_bytes(program_of(case))
        for case in (
            Attention("float16", "float16", **shape),
            Attention(**shape),
            replace(NARROW, **shape),
        )
    )
    tile = 128 * 128
    assert halves - scores == tile * (1 + 2) and scores - values == tile * 2
    assert replace(ranked_configs(program_of(Attention(**shape)), H200)[0], blocks=1) == WIDE
    narrow = program_of(replace(NARROW, **shape))
    chosen = ranked_configs(narrow, H200)[0]
    assert chosen.stages == 4 and chosen.shared_bytes(narrow) <= H200.block_shared_bytes


def test_tiles_hold_whole_steps_of_float8_weights() -> None:
    program = program_of(NARROW)
    fitting = [columns for columns in (96, 112) if StreamConfig(columns=columns, blocks=132).fits(program, H200)]
    assert fitting == [96]
    with pytest.raises(Unfit):
        allowed(NARROW, StreamConfig(columns=80, blocks=132))


def test_explain_says_what_the_tensor_cores_multiply() -> None:
    told = str(tvm_cascade.explain(Attention(right=E5M2).build(), target=TARGET, narrow_sums=True))
    assert "tensor-core kernel `stream`" in told and f"ᵀ of {E4M3} and {E5M2}" in told and "of float16" in told
    listed = str(tvm_cascade.explain(NARROW.build(), target=TARGET, rescalable_casts=CASTS, narrow_sums=True))
    assert f"ᵀ of {E4M3}\n" in listed[listed.index("accumulate") :] and "gains 256 a lane" in listed


REFUSED = {
    "weights_that_nobody_rounds": (replace(NARROW, rounded=""), "are float32; the program has to round them"),
    "weights_of_float16": (replace(NARROW, rounded="float16"), "are float16; the program has to round them"),
    "weights_out_of_range": (replace(NARROW, gain=449.0), "may leave the range of float8_e4m3fn"),
    "contiguous_features": (replace(NARROW, transposed=False), "the tensor cores multiply float8_e4m3fn where"),
    "a_length_that_copies_cannot_fetch": (replace(NARROW, keys=200), "rows of 200 bytes are no multiple of 16"),
    "a_depth_that_copies_cannot_fetch": (Attention(depth=72), "rows of 72 bytes are no multiple of 16"),
    "halves_beside_float8": (Attention(right="float16"), "is float16, q"),
    "a_symbolic_length": (replace(NARROW, keys=te.var("n")), "the contiguous dimension has a symbolic extent"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_tensor_cores_do_not_take(name: str) -> None:
    case, reason = REFUSED[name]
    with pytest.raises(Unfit) as refused:
        allowed(case)
    assert reason in str(refused.value)


UNASKED = {
    "scores": (Attention(), "q", E4M3),
    "values": (replace(NARROW, left="float16", right="float16", value=E5M2), "v", E5M2),
}


@pytest.mark.parametrize("name", UNASKED)
def test_sums_of_float8_products_are_exact_unless_the_user_allows_less(name: str) -> None:
    case, operand, dtype = UNASKED[name]
    reason = f"the tensor cores keep about twelve bits of sums of {dtype} products, which the option narrow_sums allows"
    options = {"target": TARGET, "rescalable_casts": CASTS}
    exact = tvm_cascade.compile(case.build(), **options)
    told = exact.report.functions[0]
    assert told.whole.startswith("no `stream` (folds of a matrix product): ")
    assert f": {operand}[h, " in told.whole and reason in told.whole
    assert any(f"{operand}_float16" in step.writes for step in told.plan), "tensor cores take it as float16"
    assert all(step.skeleton for step in told.plan if step.flops)
    asked = tvm_cascade.compile(case.build(), **options, narrow_sums=True).report.functions[0]
    assert asked.lowering.startswith("the tensor-core kernel `stream`") and len(asked.plan) == 1


@pytest.mark.parametrize(("dtype", "gain"), [(E4M3, 448.0), (E5M2, 57344.0)])
def test_weights_up_to_the_largest_float8_are_taken(dtype: str, gain: float) -> None:
    program = program_of(replace(NARROW, rounded=dtype, gain=gain))
    assert program.accumulations[0].dtype == dtype and program.optimistic is None


def test_weights_are_rounded_to_float8_where_the_user_lists_it_alone() -> None:
    told = str(tvm_cascade.explain(NARROW.build(), target=TARGET, narrow_sums=True))
    assert "[rounding]" in told and "rescalable_casts" in told and "tensor-core kernel `stream`" not in told
