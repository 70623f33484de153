"""Rows that bulk copies bring to shared memory: shares, pieces, tails; what a kernel may not leave out."""

from __future__ import annotations

import dataclasses
import re
from itertools import product

import pytest
from tvm import te

from tvm_cascade.devices.cards import H200
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.config import RowConfig

from ..tiers import slow_but
from .emulator.run import EmulationError, compiler, emulate
from .gradient_programs import TE_GRADIENTS
from .row_programs import PROGRAMS, rms_norm
from .test_row_kernels import WITHOUT_CLUSTERS, assert_right, drawn, row_kernel

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

BLOCK = RowConfig(128, 128, 4, 2, staged=True)
CLUSTER = RowConfig(128, 128, 4, 1, segments=2, clustered=True, staged=True)
CONFIGS = {"block": BLOCK, "cluster": CLUSTER}


@pytest.mark.parametrize(
    ("name", "config"),
    slow_but([("inertia", "block"), ("softmax", "cluster")], product(["softmax", "inertia"], CONFIGS)),
)
def test_rows_with_a_last_piece_of_their_own(name: str, config: str) -> None:
    """1608 positions, or 804: pieces do not divide them."""
    assert_right(PROGRAMS[name](dtype="float32", rows=3, length=1608), CONFIGS[config])


@pytest.mark.parametrize("name", ["layer_norm", "cross_entropy"])
def test_what_all_rows_share_and_numbers_of_their_own_are_read_where_they_are(name: str) -> None:
    assert_right(TE_GRADIENTS[name](dtype="float16", rows=3, length=1600), dataclasses.replace(BLOCK, vector=8))


def test_explain_says_how_rows_are_brought() -> None:
    assert "brought to shared memory by bulk copies" in str(BLOCK)


@pytest.mark.parametrize(("length", "config"), [(1001, BLOCK), (1604, CLUSTER), (1601, CLUSTER), (2**17, BLOCK)])
def test_rows_that_bulk_copies_cannot_bring_are_refused(length: int, config: RowConfig) -> None:
    """Halves: rows of 2002 bytes, shares of 1604 bytes, no shares of one length, and more than there is room for."""
    with pytest.raises(Unfit, match=r"multiples of 16 bytes|shares of one length|of 233472 bytes of shared memory"):
        row_kernel(PROGRAMS["softmax"](dtype="float16", rows=3, length=length), config)


def test_the_choice_between_registers_and_shared_memory() -> None:
    def config(name: str, dtype: str, length: int, gpu: Gpu = H200) -> RowConfig:
        programs = {**PROGRAMS, "softmax'": TE_GRADIENTS["softmax"], "layer_norm'": TE_GRADIENTS["layer_norm"]}
        found = row_kernel(programs[name](dtype=dtype, rows=4096, length=length), gpu=gpu).config
        assert isinstance(found, RowConfig)
        return found

    assert not config("softmax", "float16", 4096).staged
    assert config("softmax", "float16", 8192).staged
    assert config("softmax", "float16", 8200).staged
    assert config("softmax", "float16", 8201).staged and config("softmax", "float16", 8201).peeled
    assert not config("softmax", "float16", 8192, gpu=WITHOUT_CLUSTERS).staged
    assert config("softmax", "float32", 8192).staged
    assert config("softmax", "float32", 32768).kept
    long = config("softmax", "float32", 131072)
    assert (long.staged, long.segments, long.resident) == (True, 8, 3)
    assert config("softmax'", "float32", 32768).staged
    assert config("layer_norm'", "float32", 32768).kept  # the gain would be read again and again
    assert config("layer_norm'", "float16", 32768).segments == 1
    assert "read again" in str(config("softmax", "float32", 2**20))


def test_rows_in_the_cut_of_their_own_choice() -> None:
    """How many they are is known at the launch alone; those of the second are a cluster's."""
    for rows, length in ((3, 8192), (2, 65536)):
        compiled = rms_norm(rows=te.var("n", "int64"), length=length)
        kernel = assert_right(rms_norm(rows=rows, length=length), compiled=compiled)
        assert isinstance(kernel.config, RowConfig)
        assert kernel.config.staged and kernel.config.segments == max(1, length // 32768)


FAULTS = {
    "pieces_not_waited_for": (r"tvm_builtin_cuda_mbarrier_wait\([^;]*;", "the block ended while copies were under way"),
    "barriers_waited_for_before_they_are_made": (r"tvm_builtin_cuda_cta_sync\(\);", "no barrier at shared address"),
    "barriers_not_fenced": (r"tvm_builtin_ptx_fence_proxy[^;]*;", "initialised without a fence"),
    "bytes_not_announced": (r"tvm_builtin_ptx_mbarrier_arrive_expect[^;]*;", "deadlock"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_left_out_is_found(name: str) -> None:
    pattern, message = FAULTS[name]
    func = PROGRAMS["softmax"](dtype="float32", rows=5, length=1024)

    def change(text: str) -> str:
        start = text.rindex('extern "C"')
        assert re.search(pattern, text[start:])
        return text[:start] + re.sub(pattern, ";", text[start:])

    with pytest.raises(EmulationError, match=message):
        emulate(row_kernel(func, BLOCK).func, drawn(func), change)
