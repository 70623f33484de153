"""The emulator finds faults: each of these changes of a kernel that is right makes it fail, and says why."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

from tvm_cascade.evaluate.oracle import evaluate
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.tile.skeletons.stream.config import StreamConfig

from ..tiers import quick_but
from .checked import attention_case, kernel_of
from .emulator.run import EmulationError, compiler, emulate
from .emulator.translate import UnknownInstruction, translate

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

# One block does four tiles of rows, each of four tiles of the axis, in two stages of either operand.
CASE = attention_case("full", heads=2, queries=200)
# At a reference that stays, a tile whose scores are NaN would be done again, and the fault be mended.
CONFIG = StreamConfig(columns=64, consumers=2, stages=2, left_stages=1, blocks=1, own_staging=True, optimistic=False)

WRONG = "wrong"
"""The kernel ends, and its results are not the oracle's."""


@dataclass(frozen=True)
class Fault:
    """One place of a kernel's text, and what stands there instead.

    Attributes
    ----------
    message : of the emulator's complaint, as a regular expression; or WRONG.
    which : of the places where the pattern matches.
    """

    pattern: str
    change: str
    message: str
    which: int = 0

    def __call__(self, text: str) -> str:
        """The text with the fault."""
        start = text.rindex('extern "C"')
        place = list(re.finditer(self.pattern, text[start:]))[self.which]
        return text[: start + place.start()] + place.expand(self.change) + text[start + place.end() :]


def without(statement: str, message: str, which: int = 0) -> Fault:
    """A statement left out."""
    return Fault(rf"tvm_builtin_{statement}[^;]*;", ";", message, which)


def without_wait(ring: str, message: str, which: int = 0) -> Fault:
    """A wait for a stage left out."""
    return Fault(rf"tvm_builtin_cuda_mbarrier_wait\([^;]*\b{ring}_ptr\[1\]\);", ";", message, which)


WAIT_SCORES = r"tvm_builtin_ptx_wgmma_wait_group_wait_group_sync_aligned_1\(\);"
UNDER_WAY = "reads shared address .* into which a copy is under way"

FAULTS = {
    "values_not_waited_for": without_wait("value", UNDER_WAY),
    "stage_released_before_it_is_read": Fault(
        r"(tvm_builtin_ptx_wgmma_wait\S*_0\(\);)(\s*if [^{]*\{[^}]*\})",
        r"\2\1",
        "fills shared address .* while it is read",
    ),
    "stores_not_fenced": without("ptx_fence_proxy", "wrote without a fence of the proxy", which=1),
    "stage_never_released": without("ptx_mbarrier_arrive_arrive", "deadlock: no thread can go on.*mbarrier"),
    "other_swizzle_of_stores": Fault(r"\^ \(\(\(int\)threadIdx\.x\) & 7\)", "^ (((int)threadIdx.x) & 3)", WRONG),
    "scores_read_before_they_are_there": Fault(WAIT_SCORES, ";", WRONG),
}

MORE_FAULTS = {
    "left_not_waited_for": without_wait("left", UNDER_WAY),
    "right_not_waited_for": without_wait("right", UNDER_WAY, which=1),
    "stage_not_waited_for": without_wait("produced", "arrivals where 0 are missing"),
    "left_stage_not_waited_for": without_wait("produced_left", UNDER_WAY),
    "barriers_not_fenced": without("ptx_fence_proxy", "a barrier that thread 0 initialised without a fence"),
    "barriers_used_before_they_are_made": without("cuda_cta_sync", "no barrier at shared address"),
    "stores_before_all_warps_wrote": without("ptx_bar_sync", "without a fence of the proxy", which=-1),
    "staging_written_while_it_is_stored": without(
        "ptx_cp_async_bulk_wait_group", "stmatrix writes .* while it is read"
    ),
    "products_without_a_fence": without("ptx_wgmma_fence", "no wgmma.fence since"),
    "products_not_committed": without("ptx_wgmma_commit", "fills shared address .* while it is read"),
    "turns_never_passed_on": without("ptx_bar_arrive", "deadlock: no thread can go on.*bar.sync", which=1),
    "too_few_bytes_expected": Fault(r"\(uint\)8192\)", "(uint)4096)", "4096 bytes more than their barrier expects"),
    "too_many_bytes_expected": Fault(r"\(uint\)8192\)", "(uint)8208)", "deadlock"),
    "other_stride_of_a_descriptor": Fault(r", 512, 64, 3\);", ", 512, 32, 3);", WRONG),
    "other_swizzle_of_a_descriptor": Fault(r", 512, 64, 3\);", ", 512, 64, 2);", "128-byte swizzle alone"),
    "rows_exchanged_with_other_rows": Fault(r"(__shfl_xor_sync\([^;]*), 2, 32\)", r"\1, 4, 32)", WRONG),
    "part_of_a_warp_exchanges": Fault(
        r"(?<=if \()tvm_builtin_elect_one", "lane < 16 && tvm_builtin_elect_one", "deadlock"
    ),
    "weights_overwritten": Fault(WAIT_SCORES, r"weights_packed_ptr[0] = 7; \g<0>", "a left register was written"),
    "accumulator_overwritten": Fault(WAIT_SCORES, r"scores_ptr[0] = 7; \g<0>", "an accumulator was written"),
    "rows_stored_elsewhere": Fault(r"(s2g[^;]*) - 64\)", r"\1 - 56)", WRONG),
    "outside_of_shared_memory": Fault(r"\+ (\d+)\)\]\)\)\)(?=, stored_ptr)", r"+ 1\1)])))", "outside of shared memory"),
}


def outcome(change: Fault | None = None) -> str:
    """What the emulator says to a kernel: WRONG, nothing, or its complaint."""
    func, inputs = CASE.build(), CASE.inputs(np.random.default_rng(0))
    try:
        found = emulate(kernel_of(func, CONFIG).func, inputs, change)
    except EmulationError as error:
        return str(error)
    exact, usual = evaluate(func, inputs)["out"], evaluate(func, inputs, rounding=True)["out"]
    return "" if check(found[0], exact, usual, length=CASE.shape["keys"], dtype="float16").ok else WRONG


def test_kernel_without_faults() -> None:
    assert outcome() == ""


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_found(name: str) -> None:
    assert re.search(FAULTS[name].message, outcome(FAULTS[name]))


OTHERS = {
    "left_not_waited_for",
    "left_stage_not_waited_for",
    "right_not_waited_for",
    "too_many_bytes_expected",
    "other_swizzle_of_a_descriptor",
    "rows_stored_elsewhere",
}
"""Found as others are, of another operand."""


@pytest.mark.parametrize("name", quick_but(OTHERS, MORE_FAULTS))
def test_more_faults_are_found(name: str) -> None:
    assert re.search(MORE_FAULTS[name].message, outcome(MORE_FAULTS[name]))


def test_unknown_instructions_are_named() -> None:
    text = (
        'void f() {\n  asm volatile("tcgen05.wait;" : : : "memory");\n}\n'
        'extern "C" __global__ void __launch_bounds__(384, 1) main_kernel(float* x) {}\n'
    )
    with pytest.raises(UnknownInstruction, match="tcgen05"):
        translate(text)


def test_registers_of_an_accumulator_are_in_turn() -> None:
    product = "tvm_builtin_ptx_wgmma_f16_ss_mma_async_sync_aligned_m64n8k16_f32_f16_f16_1_1_0_0"
    text = f'extern "C" __global__ void __launch_bounds__(128, 1) k(float* x) {{ {product}(%s, l, r, 1); }}'
    assert f"{product}(&a[2], l, r, 1)" in translate(text % "a[2], a[3], a[4], a[5]")
    for registers in ("a[2], a[4], a[3], a[5]", "a[2], a[3], a[4]", "a[2], b[3], a[4], a[5]"):
        with pytest.raises(UnknownInstruction, match="4 elements of an accumulator in turn"):
            translate(text % registers)
