"""How kernels are cut: within the hardware's memory and registers, and by the work of the busiest block."""

from __future__ import annotations

import pytest

from tvm_cascade.devices.cards import H200
from tvm_cascade.tile.attention.shape import read_stream
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeletons.stream.config import StreamConfig, ranked_configs

from .checked import stream_kernel
from .test_tile_program import attention_of, group_of, tile_program

SHAPES = [(512, 64), (256, 80), (1000, 96), (4096, 128), (300, 256), (16384, 64)]


@pytest.mark.parametrize("variant", ["full", "causal"])
@pytest.mark.parametrize(("length", "head_dim"), SHAPES)
def test_what_is_chosen_fits(variant: str, length: int, head_dim: int) -> None:
    program = tile_program(attention_of(variant, queries=length, keys=length, head_dim=head_dim))
    config = ranked_configs(program, H200)[0]
    assert config.fits(program, H200)
    assert config.shared_bytes(program) <= H200.block_shared_bytes
    assert config.registers(program) <= config.shares(program.stream).consumer


def test_short_causal_rows_are_not_cut_into_three() -> None:
    """Three consumers hide more, but a third of the rows of a tile then wait for the last of a short triangle."""
    long, short = (
        ranked_configs(tile_program(attention_of("causal", heads=32, queries=n, keys=n)), H200)[0] for n in (16384, 512)
    )
    assert (long.consumers, short.consumers) == (3, 2)


def test_a_configuration_that_does_not_fit_is_no_kernel() -> None:
    program, group = group_of(attention_of("full", head_dim=256))
    with pytest.raises(Unfit, match="more registers or shared memory than there are"):
        stream_kernel(program, group, StreamConfig(columns=176, blocks=132))


def test_head_dimensions_beyond_the_accumulators_are_left_to_other_schedules() -> None:
    with pytest.raises(Unfit, match="hold 256"):
        ranked_configs(tile_program(attention_of("full", head_dim=320)), H200)


def test_rows_are_found_where_the_left_operand_alone_runs() -> None:
    stream = read_stream(*group_of(attention_of("full", kv_heads=2)))
    assert stream.row.name == "i" and [var.name for var in stream.batch] == ["h"]
    assert str(stream.right) == "k[h // 2, j, v_d]"
