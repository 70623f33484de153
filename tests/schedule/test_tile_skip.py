"""Tiles without a live position are not visited, and nothing but the time it takes shows it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import ir, s_tir, sym, te, tirx
from tvm.ir import Expr
from tvm.target import Target

from tvm_cascade.devices.host import host_target
from tvm_cascade.devices.read import cpu_of
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.schedule.cpu import schedule_cpu
from tvm_cascade.schedule.tile_skip import skip_dead_tiles
from tvm_cascade.transform.fuse_function import fuse_function

from ..tiers import slow_but

HEADS, LENGTH, FEATURES, TILE, ROWS = 2, 128, 16, 16, 16
LOWEST = float(np.finfo("float32").min)
EIGHT_LANES = Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell", "num-cores": 2})
"""Blocks of rows are two vectors at the least: the shares below are those of vectors of eight."""
Keep = Callable[[Expr, Expr, Expr], Expr]
Array = NDArray[Any]

MASKS: dict[str, tuple[Keep, float]] = {  # with the share of tiles that a block of rows has to look at
    "causal": (lambda h, i, j: j <= i, 36 / 64),
    "window": (lambda h, i, j: tirx.all(j <= i, i - j < 20), 26 / 64),
    "band": (lambda h, i, j: te.abs(i - j) < 10, 28 / 64),
    "block_diagonal": (lambda h, i, j: tirx.EQ(tirx.floordiv(i, 32), tirx.floordiv(j, 32)), 22 / 64),
    "padding": (lambda h, i, j: j < 50, 32 / 64),
    "no_position_for_the_first_row": (lambda h, i, j: j < i, 36 / 64),
}


def attention(keep: Keep, hidden: float, *inputs: te.Tensor) -> tirx.PrimFunc:
    """softmax(where(keep, q·k, hidden)) · v."""
    q, k, v = (te.placeholder((HEADS, LENGTH, FEATURES), "float32", name=name) for name in "qkv")
    inner, (a, b, c) = te.reduce_axis((0, FEATURES), "d"), (te.reduce_axis((0, LENGTH), "j") for _ in range(3))
    square, rows = (HEADS, LENGTH, LENGTH), (HEADS, LENGTH)
    scores = te.compute(square, lambda h, i, j: te.sum(q[h, i, inner] * k[h, j, inner], axis=inner), name="scores")
    constant = tirx.const(hidden, "float32")
    masked = te.compute(
        square, lambda h, i, j: tirx.if_then_else(keep(h, i, j), scores[h, i, j], constant), name="masked"
    )
    top = te.compute(rows, lambda h, i: te.max(masked[h, i, a], axis=a), name="top")
    norm = te.compute(rows, lambda h, i: te.sum(te.exp(masked[h, i, b] - top[h, i]), axis=b), name="norm")

    def element(h: Expr, i: Expr, d: Expr) -> Expr:
        return te.sum(te.exp(masked[h, i, c] - top[h, i]) / norm[h, i] * v[h, c, d], axis=c)

    return te.create_prim_func([q, k, v, *inputs, te.compute((HEADS, LENGTH, FEATURES), element, name="out")])


def scheduled(func: tirx.PrimFunc, segments: int = 1) -> tirx.PrimFunc:
    outcome = fuse_function(func, FuseOptions(force=True, tile=TILE, segments=segments))
    assert outcome.fused, [str(d.reason) for d in outcome.decisions]
    sch = s_tir.Schedule(tvm.ir.load_json(tvm.ir.save_json(tvm.IRModule({"main": outcome.func}))))
    schedule_cpu(sch, cpu_of(EIGHT_LANES), ROWS)
    return sch.mod["main"]


def inputs() -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((HEADS, LENGTH, FEATURES)).astype("float32") for _ in range(3)]


@lru_cache(maxsize=4)
def compiled(func: tirx.PrimFunc) -> tvm.runtime.Module:
    return tvm.compile(func, target=host_target())


def run(func: tirx.PrimFunc, arrays: list[Array]) -> Array:
    out = tvm.runtime.tensor(np.full((HEADS, LENGTH, FEATURES), np.nan, "float32"))
    compiled(func)["main"](*map(tvm.runtime.tensor, arrays), out)
    return out.numpy()


def assert_right(func: tirx.PrimFunc, unfused: tirx.PrimFunc, arrays: list[Array]) -> None:
    exact, usual = oracle.evaluate(unfused, arrays)["out"], run(unfused, arrays)
    tolerance.assert_close(run(func, arrays), exact, usual, length=LENGTH, dtype="float32")


def visited_share(func: tirx.PrimFunc) -> float:
    """Of the tiles of all tasks, those visited in the first turn."""
    found: list[tuple[tirx.For, tirx.For, ir.Expr]] = []

    def visit(statement: Any, loops: list[tirx.For]) -> None:
        if isinstance(statement, tirx.For):
            visit(statement.body, [*loops, statement])
        elif isinstance(statement, tirx.SeqStmt):
            for part in statement.seq:
                visit(part, loops)
        elif isinstance(statement, tirx.IfThenElse):
            if isinstance(statement.then_case, tirx.SeqStmt) and loops[-2].loop_var.name == "turn":
                found.append((loops[0], loops[-1], tvm_ffi.structural_map(statement.condition, zero(loops[-2]))))
            visit(statement.then_case, loops)

    def zero(turn: tirx.For) -> Any:
        return (ir.Var, lambda var: tirx.const(0, "int32") if var.same_as(turn.loop_var) else var)

    visit(func.body.block.body, [])
    ((tasks, tiles, condition),) = found
    total = 0
    for task in range(int(tasks.extent)):
        for tile in range(int(tiles.extent)):
            at = {tasks.loop_var: task, tiles.loop_var: tile}
            place = (ir.Var, lambda v, at=at: next((tirx.const(n, "int32") for k, n in at.items() if k.same_as(v)), v))
            total += int(sym.Analyzer().simplify(tvm_ffi.structural_map(condition, place)))
    return total / (int(tasks.extent) * int(tiles.extent))


@pytest.mark.parametrize("hidden", slow_but([-math.inf], [-math.inf, LOWEST]), ids=["infinite", "lowest"])
@pytest.mark.parametrize("mask", slow_but([mask for mask in MASKS if mask != "causal"], MASKS))  # causal: see below
def test_tiles_without_a_live_position_are_passed_over_and_the_result_is_right(mask: str, hidden: float) -> None:
    keep, share = MASKS[mask]
    unfused = attention(keep, hidden)
    func = skip_dead_tiles(scheduled(unfused))
    assert visited_share(func) == share
    assert_right(func, unfused, inputs())


@pytest.mark.parametrize("hidden", slow_but([-3.0], [-1e9, -3.0]))
def test_a_finite_mask_is_right_whether_or_not_it_vanishes(hidden: float) -> None:
    unfused = attention(MASKS["causal"][0], hidden)
    func = skip_dead_tiles(scheduled(unfused))
    assert visited_share(func) == 36 / 64
    assert_right(func, unfused, inputs())


@pytest.mark.parametrize("hidden", slow_but([-math.inf, -1e9], [-math.inf, LOWEST, -1e9]))
def test_dead_positions_are_not_looked_at(hidden: float) -> None:
    func = skip_dead_tiles(scheduled(attention(MASKS["padding"][0], hidden)))
    q, k, v = inputs()
    expected = run(func, [q, k, v])
    k[:, 64:], v[:, 64:] = np.nan, np.nan
    np.testing.assert_array_equal(run(func, [q, k, v]), expected)


def test_a_row_without_a_live_score_still_sees_every_position() -> None:
    """Live scores of −inf and dead ones at the lowest number: the unfused program averages v over the dead ones."""
    unfused = attention(MASKS["causal"][0], LOWEST)
    q, k, v = inputs()
    q[:, :40], k[:, :, 0] = 0.0, np.abs(k[:, :, 0])
    q[:, :40, 0] = -np.inf
    assert_right(skip_dead_tiles(scheduled(unfused)), unfused, [q, k, v])


@pytest.mark.parametrize("hidden", slow_but([-math.inf], [-math.inf, LOWEST]), ids=["infinite", "lowest"])
def test_segments_pass_tiles_over_each_for_itself(hidden: float) -> None:
    unfused = attention(MASKS["causal"][0], hidden)
    func = skip_dead_tiles(scheduled(unfused, segments=2))
    assert visited_share(func) < 3 / 4
    assert_right(func, unfused, inputs())


def test_lengths_in_a_tensor_pass_tiles_over_too() -> None:
    lengths = te.placeholder((HEADS,), "int32", name="lengths")
    unfused = attention(lambda h, i, j: j < lengths[h], LOWEST, lengths)
    func = skip_dead_tiles(scheduled(unfused))
    q, k, v = inputs()
    for given in ([1, 50], [0, 128]):
        assert_right(func, unfused, [q, k, v, np.array(given, "int32")])
    k[:, 64:], v[:, 64:] = np.nan, np.nan
    assert np.isfinite(run(func, [q, k, v, np.array([1, 50], "int32")])).all()


def test_a_mask_of_data_hides_no_tile() -> None:
    mask = te.placeholder((LENGTH, LENGTH), "bool", name="mask")
    func = scheduled(attention(lambda h, i, j: mask[i, j], -math.inf, mask))
    assert skip_dead_tiles(func).same_as(func)


def test_a_loop_without_a_mask_is_the_same_function() -> None:
    func = scheduled(attention(lambda h, i, j: j < LENGTH, -math.inf))
    assert skip_dead_tiles(func).same_as(func)
