"""A card is one row: what is cut for it keeps its processors busy and stays in its memory."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import tvm
from tvm import tirx

import tvm_cascade
from tvm_cascade.devices import cards
from tvm_cascade.devices.device import Gpu
from tvm_cascade.devices.read import device_of
from tvm_cascade.driver.backend import Goal, Lowered
from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.row.elements import staged_bytes
from tvm_cascade.tile.skeleton import Kernel
from tvm_cascade.transform.fuse_function import fuse_function

from ..schedule.gpu_programs import cuda_source
from ..tile import column_programs
from ..tile.row_programs import PROGRAMS
from ..tile.test_tile_program import attention_of

_DTYPES = {"float": "float32", "half": "float16", "int": "int32"}
"""CUDA's name of a type -> TVM's."""

ROW = '''
"""A card with fewer processors than any other of its architecture, and less shared memory."""

from dataclasses import replace

from tvm_cascade.devices import cards

CARD = replace(
    cards.H200,
    name="A card of 96 processors",
    processors=96,
    shared_bytes=100 * 1024,
    block_shared_bytes=99 * 1024,
    static_shared_bytes=16 * 1024,
)
cards.CARDS += (CARD,)
'''


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """The card of a module that adds its row, as a user of the package would."""
    monkeypatch.setattr(cards, "CARDS", cards.CARDS)  # and takes the row away again
    path = tmp_path / "further_card.py"
    path.write_text(ROW)
    spec = importlib.util.spec_from_file_location("further_card", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CARD


def lowered(func: tirx.PrimFunc, card: Gpu, **options: bool) -> Lowered:
    """A function as `compile` lowers it for the card that a target names."""
    target = resolve_target({"kind": "cuda", "arch": card.arch, "model": card.name})
    device, backend = device_of(target), backend_of(target)
    assert device == card
    chosen = backend.options(FuseOptions(**options))
    return backend.lower(fuse_function(func, chosen, device), "main", Goal(target, device, chosen))


def kernel(func: tirx.PrimFunc, card: Gpu) -> Kernel:
    chosen = lowered(func, card).chosen
    assert isinstance(chosen, Kernel)
    return chosen


def test_tiles_of_a_matrix_product_stay_in_its_shared_memory(card: Gpu) -> None:
    func = attention_of("causal", queries=4096, keys=4096, head_dim=128)
    here, there = kernel(func, card), kernel(func, cards.H200)
    assert here.config.blocks == 96 and there.config.blocks == 132
    assert here.config.shared_bytes(here.program) <= 99 * 1024 < there.config.shared_bytes(there.program)


def test_shares_of_rows_stay_in_its_shared_memory(card: Gpu) -> None:
    func = PROGRAMS["softmax"](dtype="float16", rows=4096, length=16384)
    here, there = kernel(func, card), kernel(func, cards.H200)
    room = {}
    for one, gpu in ((here, card), (there, cards.H200)):
        assert one.config.staged
        share = staged_bytes(one.program.row, 16384 // one.config.segments, gpu)
        assert one.config.resident * share <= gpu.shared_bytes
        assert share - gpu.reserved_shared_bytes <= gpu.block_shared_bytes
        room[gpu.name] = one.config.resident
    assert room[card.name] < room[cards.H200.name]


def test_few_rows_are_shared_by_blocks_for_its_processors(card: Gpu) -> None:
    told = str(kernel(PROGRAMS["log_sum_exp"](dtype="float32", rows=8, length=2**17), card))
    assert "8 rows would leave most of 96 multiprocessors idle" in told


def test_columns_are_cut_into_blocks_for_its_processors(card: Gpu) -> None:
    func = column_programs.variance(rows=512, length=2**14)
    blocks = {gpu: -(-512 // c.rows) * c.segments for gpu in (card, cards.H200) for c in [kernel(func, gpu).config]}
    assert blocks[card] < blocks[cards.H200]


def test_a_schedule_declares_no_more_shared_memory_than_a_block_has(card: Gpu) -> None:
    func = attention_of("full", heads=32, queries=512, keys=512, head_dim=64)
    declared = {
        gpu: shared_bytes(lowered(func, gpu, tensor_cores=False, row_kernels=False).func) for gpu in (card, cards.H200)
    }
    assert declared[card] <= 16 * 1024 < declared[cards.H200]


def test_the_public_functions_take_it_by_its_name(card: Gpu) -> None:
    target = {"kind": "cuda", "arch": card.arch, "model": card.name}
    func = attention_of("full", queries=512, keys=512, head_dim=64)
    assert str(tvm_cascade.explain(func, target)) == str(tvm_cascade.compile(func, target).report)


def shared_bytes(func: tirx.PrimFunc) -> int:
    """Of shared memory that a block of a scheduled function declares."""
    arrays = re.findall(r"__shared__ (?:alignas\(\d+\) )?(\w+) \w+\[(\d+)\]", cuda_source(func))
    return sum(tvm.DataType(_DTYPES[name]).itemsize * int(count) for name, count in arrays)
