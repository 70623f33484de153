"""What kernels of a module may read while the kernel before them ends: what no kernel of the module writes."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from tvm_cascade.relax import get_pipeline
from tvm_cascade.relax.pipeline import given_operands
from tvm_cascade.tile.launch.pipeline import register_mixed_pipeline

from .test_fuse_cascades import Forward, module_of
from .test_siblings import gated, product
from .test_surroundings import GPU

ROWS, WIDTH = 64, 512


def feed_forward(x: nn.Tensor, gate: nn.Tensor, down: nn.Tensor) -> nn.Tensor:
    """The second product reads a weight, and what the first kernel writes."""
    return product(gated(x, gate, gate), down).astype("float16")


def of_result(x: nn.Tensor, weight: nn.Tensor) -> nn.Tensor:
    """Both operands of the second product are results."""
    return product(op.exp(x), op.exp(weight))


def given(forward: Forward, *shapes: list[int | str]) -> dict[str, tuple[int, ...]]:
    return given_operands(relax.transform.LegalizeOps()(module_of(forward, *shapes, dtype="float16")))


def test_weights_are_given_and_results_are_not() -> None:
    found = given(feed_forward, [ROWS, WIDTH], [WIDTH, WIDTH], [WIDTH, WIDTH])
    assert all(places == (0,) for name, places in found.items() if name.startswith("transpose"))
    assert not any(name.startswith("matmul") for name in given(of_result, [ROWS, WIDTH], [WIDTH, WIDTH]))


def test_nothing_is_given_to_the_first_kernel() -> None:
    found = given(lambda x, y: op.exp(x) + y, [ROWS, WIDTH], [ROWS, WIDTH])
    assert list(found.values()) == [(1,)]


@pytest.mark.parametrize(("rows", "starts"), [(8, True), (4096, False)])
def test_the_next_kernel_starts_behind_one_wave_of_blocks(rows: int, starts: bool) -> None:
    """Once all blocks have waited themselves: the end of a kernel is the end of all before it."""
    shape = [rows, WIDTH]
    mod = relax.transform.LegalizeOps()(module_of(lambda x, y: op.exp(x) + y, shape, shape, dtype="float16"))
    found = get_pipeline(GPU).scheduled(relax.transform.FuseTIR()(relax.transform.FuseOps()(mod)))
    func = next(func for func in found.functions.values() if isinstance(func, tvm.tirx.PrimFunc))
    target = tvm.target.Target(GPU, host="llvm")
    with target:
        alone = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        built = tvm.compile(alone, target=target, tir_pipeline=register_mixed_pipeline())
    kernel = str(built.mod.imports[0].inspect_source("cuda")).split("__launch_bounds__")[-1]
    waits, launches = kernel.find("griddepcontrol_wait();"), kernel.find("griddepcontrol_launch_dependents();")
    assert waits >= 0 and (launches > waits if starts else launches < 0)


@pytest.mark.parametrize(("target", "early"), [(GPU, True), ({"kind": "cuda", "arch": "sm_80"}, False)], ids=str)
def test_products_begin_with_their_weights(target: dict[str, str], early: bool) -> None:
    pipeline = get_pipeline(target)
    scheduled = pipeline(module_of(feed_forward, [ROWS, WIDTH], [WIDTH, WIDTH], [WIDTH, WIDTH], dtype="float16"))
    kernels = [func for func in scheduled.functions.values() if isinstance(func, tvm.tirx.PrimFunc)]
    waits = [func.script().count('"wait"') for func in kernels]
    assert (max(waits) == 2) is early
