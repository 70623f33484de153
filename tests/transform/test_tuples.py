"""Reductions of tuples in the fused loop: the numbers and the indices of the unfused program, ties and all."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.target import Target

from tvm_cascade.analysis.statements import ROLE
from tvm_cascade.devices.read import cpu_of
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.schedule.cpu import schedule_cpu

from ..tiers import slow_but
from .running import Array, Arrays, Unfused, assert_close, build, read, run
from .tuple_programs import PROGRAMS

TILINGS = [(8, 1), (8, 3), (36, 1), (37, 1), (38, 1), (1, 3), (5, 3)]
"""(tile, segments) on an axis of 37: tiles of 1, B − 1, B and B + 1 of it, with the last segment short, or none."""


@cache
def unfused(name: str) -> Unfused:
    return read(PROGRAMS[name]())


def drawn(name: str, kind: str) -> Arrays:
    rng = np.random.default_rng(3)
    draws = {
        "normal": lambda shape: rng.standard_normal(shape),
        "ties": lambda shape: rng.integers(-1, 2, shape),
        "all equal": lambda shape: np.full(shape, 0.5),
        "rising": lambda shape: np.broadcast_to(np.linspace(-2, 4, shape[-1]), shape),
    }
    params = oracle.signature(unfused(name).func).inputs
    return [draws[kind](tuple(int(n) for n in p.ty.shape)).astype("float32") for p in params]


KINDS = ["normal", "ties", "all equal", "rising"]
FEW = ((5, 3), (36, 1))
QUICK = [(name, "ties", FEW) for name in PROGRAMS] + [("argmin_of_gaps", "ties", tuple(TILINGS))]
"""Every program in whole tiles, in short ones and in segments; one of two passes at every tiling."""


@pytest.mark.parametrize(
    ("name", "kind", "tilings"),
    slow_but(QUICK, [*QUICK[:-1], *((name, kind, tuple(TILINGS)) for name in PROGRAMS for kind in KINDS)]),
)
def test_fused_tuples_are_those_of_the_unfused_program(
    name: str, kind: str, tilings: tuple[tuple[int, int], ...]
) -> None:
    given = drawn(name, kind)
    for tile, segments in tilings:
        unfused(name).check(given, tile=tile, segments=segments)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_reduction_is_in_one_loop(name: str) -> None:
    (group,) = unfused(name).groups
    assert len(group.names) == sum(stage.reducer is not None for stage in unfused(name).program.stages)


@pytest.mark.parametrize("name", ["router", "value_at_the_likeliest", "layer_norm_over_welford"])
def test_the_cpu_schedule_leaves_tuples_right(name: str) -> None:
    target = Target({"kind": "llvm", "num-cores": 2})
    func = unfused(name).fuse(tile=8)
    sch = s_tir.Schedule(tvm.ir.load_json(tvm.ir.save_json(tvm.IRModule({"main": func}))))
    schedule_cpu(sch, cpu_of(target))
    for kind in ("normal", "ties"):
        given = drawn(name, kind)
        assert_close(
            run(build(sch.mod["main"]), func, given), unfused(name).func, given, unfused(name).results(given), 37
        )


def masked(rows: int = 4) -> Array:
    x = np.random.default_rng(0).standard_normal((rows, 37)).astype("float32")
    x[0, :20] = -np.inf
    x[1, 5:] = -np.inf
    x[2] = -np.inf
    return x


@pytest.mark.parametrize(("tile", "segments"), [(8, 1), (8, 3), (5, 3)])
def test_minus_infinity_loses_to_every_number_and_an_empty_row_has_no_index_it_did_not_have(
    tile: int, segments: int
) -> None:
    given = [masked(), masked()]
    name = "gathered_at_the_argmax"
    func, expected = unfused(name).func, unfused(name).results([given[0], np.zeros_like(given[1])])
    found = unfused(name).fused_results([given[0], np.zeros_like(given[1])], tile=tile, segments=segments)
    assert set(found) == set(expected) == {p.name for p in oracle.signature(func).outputs}
    whole = np.where(np.arange(4)[:, None] == 2, 0, given[0])  # the oracle gathers at no index but a real one
    exact = oracle.evaluate(func, [whole, np.zeros_like(given[1])])["total"]
    tolerance.assert_close(found["total"][:2], exact[:2], expected["total"][:2], length=37, dtype="float32")
    indices = unfused("argmin_of_gaps").fused_results(given[:1], tile=tile, segments=segments)
    (index,) = indices.values()
    np.testing.assert_array_equal(index[[0, 1, 3]], np.argmax(given[0][[0, 1, 3]], axis=1))


def test_no_part_of_a_selection_is_named_by_a_let_that_would_keep_it_from_the_lanes() -> None:
    func = unfused("router").fuse(tile=8)
    blocks: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, blocks.append))
    tuples = [
        b for b in blocks if isinstance(b.body, tirx.SeqStmt) and b.annotations.get(ROLE) in ("partial", "update")
    ]
    assert len(tuples) == 2
    assert not any(isinstance(statement, tirx.Bind) for block in tuples for statement in block.body.seq)
