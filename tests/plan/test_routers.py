"""Routers of models: one kernel where the choice is one fold, and a plan of few where groups are chosen first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import tirx

from ..tiers import slow_but
from ..tile import folded_programs as programs
from ..tile.emulator.run import compiler
from .run import as_written, assert_plan_right, emulated, plan_of, skeletons

Build = Callable[[int, int, int], tirx.PrimFunc]

ROUTERS: dict[str, tuple[Build, list[str]]] = {
    "softmax": (programs.router, ["folded"]),
    "sigmoid": (programs.sigmoid_router, ["folded"]),
    "root_softplus": (programs.root_softplus_router, ["folded"]),
    "biased_choice": (programs.biased_choice_router, ["folded"]),
    "grouped": (programs.grouped_router, ["product", "row", "row", "row"]),
}
"""Programs with the skeletons of their steps."""


@pytest.mark.parametrize("name", slow_but([name for name in ROUTERS if name != "root_softplus"], ROUTERS))
def test_every_router_has_its_path_on_tensor_cores(name: str) -> None:
    build, path = ROUTERS[name]
    assert skeletons(plan_of(build(2048, 128, 2048))) == path
    func = build(64, 96, 128)
    assert_plan_right(func, plan_of(func), as_written, length=128)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_kernels_of_a_choice_among_the_best_groups() -> None:
    func = programs.grouped_router(64, 96, 128)
    assert_plan_right(func, plan_of(func), emulated, length=128)


MANY = [(4096, 8, 2), (4096, 128, 6)]


@pytest.mark.parametrize(("tokens", "experts", "best"), slow_but(MANY, [(16, 256, 8), *MANY]))
def test_a_biased_choice_is_one_kernel_at_the_extents_of_models(tokens: int, experts: int, best: int) -> None:
    assert skeletons(plan_of(programs.biased_choice_router(tokens, experts, 7168, best))) == ["folded"]
