"""The tile program: what a tile of the cascade axis does, read off the fold, with nothing known by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import te, tirx

from corpus.programs import attention
from corpus.programs.program import Precision
from tvm_cascade.algebra.reducer import MAX, MIN
from tvm_cascade.analysis.extract import Group, Reductions
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.tile.attention.program import Accumulate, TileProgram, build_program
from tvm_cascade.tile.attention.shape import read_stream
from tvm_cascade.tile.attention.steps import RegisterElement, TileReduce
from tvm_cascade.tile.operand import Unfit

from ..golden.compare import assert_golden
from . import folds

HALF = Precision("float16", "float32")
SQUARE = {"heads": 4, "queries": 256, "keys": 256, "head_dim": 64}


def attention_of(variant: str, **shape: int) -> tirx.PrimFunc:
    return attention.attention(attention.VARIANTS[variant])({**SQUARE, **shape}, HALF).prim_func()


def group_of(func: tirx.PrimFunc) -> tuple[Program, Group]:
    program = read_program(func)
    assert isinstance(program, Program)
    groups = [c.group for c in Reductions(program).cascades() if c.group is not None] or Reductions(program).lone[::-1]
    return program, groups[0]


def tile_program(func: tirx.PrimFunc) -> TileProgram:
    return build_program(read_stream(*group_of(func)))


PROGRAMS: dict[str, Callable[[], tirx.PrimFunc]] = {
    "attention_causal": lambda: attention_of("causal"),
    "attention_softcap_window": lambda: attention_of("window_softcap", window=64),
    "attention_alibi_grouped": lambda: attention_of("causal_alibi", kv_heads=2),
    "log_sum_exp": lambda: folds.program(folds.log_sum_exp, "float16"),
    "entropy": lambda: folds.program(folds.entropy, "float16"),
    "variance": lambda: folds.program(folds.variance, "float16"),
    "sigmoid": lambda: folds.program(folds.sigmoid, "float16"),
    "normalised": lambda: folds.program(folds.normalised, "bfloat16"),
    "centred": lambda: folds.program(folds.centred, "bfloat16"),
    "two_values": lambda: folds.program(folds.two_values, "float16"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_of_a_tile(name: str) -> None:
    assert_golden(f"tile_{name}", str(tile_program(PROGRAMS[name]())))


def test_one_exponential_an_element_serves_the_sum_and_the_product() -> None:
    program = tile_program(attention_of("full"))
    values = [step for step in program.body.steps if isinstance(step, RegisterElement)]
    (accumulation,) = program.accumulations
    assert len(values) == 1 and values[0].in_place and accumulation.weight == values[0].symbol
    assert any(isinstance(step, TileReduce) and step.lift == values[0].symbol for step in program.body.steps)


def test_lanes_exchange_only_what_a_reference_reads() -> None:
    program = tile_program(attention_of("full"))
    assert {
        str(step.component) for step in program.body.steps if isinstance(step, TileReduce) and step.across_lanes
    } == {"row_max_0"}


def test_a_factor_of_the_score_is_left_to_the_exponent_and_to_the_end_of_the_maximum() -> None:
    program = tile_program(attention_of("full"))
    maximum = next(step for step in program.body.steps if isinstance(step, TileReduce))
    assert str(program.element.maps[0]) == "score" and str(maximum.lift) == "r" and str(maximum.outer) == "p/8"


def test_a_negative_factor_turns_a_maximum_into_a_minimum() -> None:
    program = tile_program(folds.program(folds.log_sum_exp, "float16", scale=-0.5))
    maximum = next(step for step in program.body.steps if isinstance(step, TileReduce))
    assert (
        maximum.reducer is MIN
        and maximum.reducer is not MAX
        and str(maximum.outer) == ("Piecewise((lowest, Eq(highest, p)), (-p/2, True))")
    ), "of a row that is masked whole the maximum is the lowest number"


def unfit(func: tirx.PrimFunc) -> str:
    with pytest.raises(Unfit) as refused:
        tile_program(func)
    return str(refused.value)


def test_float32_operands_are_left_to_other_schedules() -> None:
    assert "float32 is none of float16, bfloat16" in unfit(folds.program(folds.log_sum_exp, "float32"))


def test_weights_that_float16_may_not_hold_have_a_reference() -> None:
    (narrow, wide) = (tile_program(folds.program(folds.normalised, dtype)) for dtype in ("float16", "bfloat16"))
    (reference,) = narrow.stream.fold.references
    assert reference.scale and not wide.stream.fold.references
    assert isinstance(wide.accumulations[0], Accumulate)


def test_rows_alone_are_no_stream() -> None:
    x, j, k = te.placeholder((8, 64), "float16", name="x"), te.reduce_axis((0, 64)), te.reduce_axis((0, 64))
    top = te.compute((8,), lambda i: te.max(x[i, j].astype("float32"), axis=j), name="top")
    total = te.compute((8,), lambda i: te.sum(te.exp(x[i, k].astype("float32") - top[i]), axis=k), name="total")
    assert "0 inner reductions feed the fold" in unfit(te.create_prim_func([x, top, total]))


def test_rows_that_copies_cannot_fetch_are_left_to_other_schedules() -> None:
    assert "no multiple of 16" in unfit(attention_of("full", head_dim=20))
