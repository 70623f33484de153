"""Cells of inner blocks: on the stack, and never asked of the runtime once for each element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.script import tirx as T

import tvm_cascade
from tvm_cascade.analysis.tir import within
from tvm_cascade.devices.host import host_target
from tvm_cascade.schedule.vector_math import vectorise_math
from tvm_cascade.tvm_faults.stack import cells_on_the_stack, lets_on_the_stack


def with_cell(scope: str, size: int) -> tirx.PrimFunc:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
        T.func_attr({"tirx.noalias": True, "global_symbol": "main"})
        for i in T.parallel(64):
            with T.sblock("y"):
                v = T.axis.spatial(64, i)
                cell = T.sblock_alloc_buffer((size,), "float32", scope=scope)
                for k in range(size):
                    cell[k] = x[v] * T.float32(2)
                y[v] = cell[size - 1] + T.float32(1)

    return main


def scopes(func: tirx.PrimFunc) -> list[str]:
    found: list[str] = []
    tvm_ffi.structural_walk(
        func.body, (s_tir.SBlock, lambda block: found.extend(buffer.scope() for buffer in block.alloc_buffers))
    )
    return found


def asks_the_workspace(func: tirx.PrimFunc) -> bool:
    built = tvm.compile(func, target=host_target())
    return "AllocWorkspace, align" in built.mod.inspect_source("ll")


def test_small_cells_are_on_the_stack_and_right() -> None:
    func = cells_on_the_stack(with_cell("local", 4))
    assert scopes(func) == ["global"]
    assert asks_the_workspace(with_cell("local", 4)) and not asks_the_workspace(func)
    x, y = (tvm.runtime.tensor(one) for one in (np.arange(64, dtype="float32"), np.zeros(64, "float32")))
    tvm.compile(func, target="llvm")["main"](x, y)
    assert y.numpy().tolist() == [2 * k + 1 for k in range(64)]


def test_what_is_not_a_threads_own_stays_as_it_is() -> None:
    func = with_cell("global", 4)
    assert cells_on_the_stack(func).same_as(func)


def row_sums() -> tirx.PrimFunc:
    x, j = te.placeholder((32, 256), name="x"), te.reduce_axis((0, 256), name="j")
    return te.create_prim_func([x, te.compute((32,), lambda i: te.sum(x[i, j], axis=j), name="y")])


def small_product() -> tirx.PrimFunc:
    x, w = te.placeholder((8, 32), name="x"), te.placeholder((32, 16), name="w")
    k = te.reduce_axis((0, 32), name="k")
    return te.create_prim_func([x, w, te.compute((8, 16), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="y")])


@pytest.mark.parametrize("program", [row_sums, small_product])
def test_no_row_and_no_small_register_tile_asks_the_runtime_for_memory(program: Callable[[], tirx.PrimFunc]) -> None:
    assert not asks_the_workspace(tvm_cascade.compile(program()).mod["main"])


def chained(steps: int, guarded: bool) -> tirx.PrimFunc:
    """A chain of tanh, of which each reads the let of the one before it nine times, of the elements that there are."""
    x = te.placeholder((60,), "float32", name="x")

    def element(i: tirx.Var) -> tirx.Expr:
        value = x[i]
        for _ in range(steps):
            value = tirx.tanh(value)
        return tirx.if_then_else(i < 60, value, tirx.const(0.5, "float32")) if guarded else value

    length = 1 << 20 if guarded else 60  # that many are no longer in memory
    schedule = s_tir.Schedule(te.create_prim_func([x, te.compute((length,), element, name="y")]))
    schedule.vectorize(schedule.split(schedule.get_loops("y")[0], [None, 4])[1])
    return vectorise_math(schedule.mod["main"])[0]


@pytest.mark.parametrize(("steps", "guarded"), [(1, False), (3, True), (12, False), (12, True)])
def test_values_of_lets_in_lets_are_stored_where_they_would_be_written_out(steps: int, guarded: bool) -> None:
    func = lets_on_the_stack(chained(steps, guarded))
    assert len(within(func.body, tirx.BufferStore)) == (1 if steps < 12 else 1 + 2 * steps)
    expected = given = np.linspace(-3, 3, 60, dtype="float32")
    for _ in range(steps):
        expected = np.tanh(expected.astype("float64"))
    found = tvm.runtime.tensor(np.zeros(1 << 20 if guarded else 60, "float32"))
    tvm.compile(func.with_attr("global_symbol", "main"), target=host_target())["main"](tvm.runtime.tensor(given), found)
    assert np.abs(found.numpy()[:60] - expected).max() < 2e-6
    assert (found.numpy()[60:] == 0.5).all()
