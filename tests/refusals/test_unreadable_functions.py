"""Functions that cannot be read: scheduled, opaque, symbolic, foreign. A reason comes back, and the same function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi
from tvm.s_tir import Schedule
from tvm.script import tirx as T

import tvm_cascade
from tvm_cascade.errors import CascadeError, OptionError
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_cascaded_reductions import FuseCascadedReductions
from tvm_cascade.transform.fuse_function import fuse_function

from ..analysis.programs import ROWS, array, program, softmax_stats


def scheduled(work: Callable[[Schedule], object]) -> Callable[[], tirx.PrimFunc]:
    """Softmax statistics after some primitives."""

    def build() -> tirx.PrimFunc:
        sch = Schedule(softmax_stats())
        work(sch)
        return sch.mod["main"]

    return build


def loops(sch: Schedule, block: str = "row_sum") -> list[object]:
    return list(sch.get_loops(sch.get_sblock(block)))


@T.prim_func(private=True)
def plain_loops(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    for i in range(8):
        b[i] = a[i] + T.float32(1)


@T.prim_func(s_tir=True)
def written_twice(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("first"):
            v = T.axis.spatial(8, i)
            b[v] = a[v]
    for i in range(8):
        with T.sblock("second"):
            v = T.axis.spatial(8, i)
            b[v] = b[7 - v] + T.float32(1)


@T.prim_func(s_tir=True)
def two_stores(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32"), c: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("both"):
            v = T.axis.spatial(8, i)
            b[v] = a[v]
            c[v] = b[7 - v]


@T.prim_func(s_tir=True)
def guarded(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    """What b holds elsewhere stays."""
    for i in range(8):
        with T.sblock("some"):
            v = T.axis.spatial(8, i)
            T.where(a[i] > T.float32(0))
            b[v] = a[v]


@T.prim_func(s_tir=True)
def never_started(a: T.Buffer((8, 8), "float32"), b: T.Buffer((8,), "float32")):
    for i in range(8):
        for j in range(3, 8):
            with T.sblock("rows"):
                v_i = T.axis.spatial(8, i)
                v_j = T.axis.reduce(8, j)
                with T.init():
                    b[v_i] = T.float32(0)
                b[v_i] = b[v_i] + a[v_i, v_j]


@T.prim_func(s_tir=True)
def stores_outside_of_blocks(a: T.Buffer((8, 8), "float32"), b: T.Buffer((8,), "float32")):
    for i in range(8):
        b[i] = T.float32(0)
        for j in range(8):
            b[i] = b[i] + a[i, j]


@T.prim_func(s_tir=True)
def running_sum(a: T.Buffer((8, 8), "float32"), b: T.Buffer((8, 8), "float32")):
    for i, j in T.grid(8, 8):
        with T.sblock("scan"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            b[v_i, v_j] = T.if_then_else(v_j == 0, T.float32(0), b[v_i, T.max(v_j - 1, 0)]) + a[v_i, v_j]


@T.prim_func(s_tir=True)
def sum_of_the_row_before(a: T.Buffer((8, 8), "float32"), b: T.Buffer((8,), "float32")):
    for i, j in T.grid(8, 8):
        with T.sblock("rows"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                b[v_i] = T.float32(0)
            b[v_i] = b[v_i] + a[v_i, v_j] * T.if_then_else(v_i > 0, b[T.max(v_i - 1, 0)], T.float32(1))


@T.prim_func(s_tir=True)
def rows_in_a_chain(a: T.Buffer((8, 8), "float32"), b: T.Buffer((8,), "float32"), c: T.Buffer((8,), "float32")):
    for i in range(8):
        for j in range(8):
            with T.sblock("top"):
                v_i, v_j = T.axis.remap("SR", [i, j])
                with T.init():
                    b[v_i] = T.if_then_else(v_i > 0, c[T.max(v_i - 1, 0)], T.float32(0))
                b[v_i] = T.max(b[v_i], a[v_i, v_j])
        for j in range(8):
            with T.sblock("total"):
                v_i, v_j = T.axis.remap("SR", [i, j])
                with T.init():
                    c[v_i] = T.float32(0)
                c[v_i] = c[v_i] + T.exp(a[v_i, v_j] - b[v_i])


@T.prim_func(s_tir=True)
def prefix_of_a_reduction(a: T.Buffer((8, 8), "float32"), b: T.Buffer((8,), "float32")):
    """Each position adds the maximum so far."""
    top = T.sblock_alloc_buffer((8,))
    for i, j in T.grid(8, 8):
        with T.sblock("top"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                top[v_i] = T.min_value("float32")
            top[v_i] = T.max(top[v_i], a[v_i, v_j])
        with T.sblock("total"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                b[v_i] = T.float32(0)
            b[v_i] = b[v_i] + top[v_i]


@T.prim_func(s_tir=True)
def overlapping_windows(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    for i, j in T.grid(3, 4):
        with T.sblock("windows"):
            v = T.axis.spatial(8, i * 2 + j)
            b[v] = a[v]


@T.prim_func(s_tir=True)
def run_through_twice(a: T.Buffer((8,), "float32"), b: T.Buffer((1,), "float32")):
    for _, j in T.grid(2, 8):
        with T.sblock("total"):
            v = T.axis.reduce(8, j)
            with T.init():
                b[0] = T.float32(0)
            b[0] = b[0] + a[v]


@T.prim_func(s_tir=True)
def triangular(a: T.Buffer((8, 8), "float32"), b: T.Buffer((8,), "float32")):
    for i in range(8):
        for j in range(i + 1):
            with T.sblock("rows"):
                v_i = T.axis.spatial(8, i)
                v_j = T.axis.reduce(i + 1, j)
                with T.init():
                    b[v_i] = T.float32(0)
                b[v_i] = b[v_i] + a[v_i, v_j]


def erf_of_a_tuple() -> tirx.PrimFunc:
    """A combine that calls a function without algebra on what it holds."""
    x = array("x")
    axis = te.reduce_axis((0, int(x.shape[1])), "l")
    combine = te.comm_reducer(
        lambda a, b: (a[0] + b[0], te.erf(a[1]) + b[1]), lambda *types: tuple(tirx.const(0, t) for t in types)
    )
    return program(x, *te.compute((ROWS,), lambda i: combine((x[i, axis], x[i, axis]), axis=axis), name="pair"))


def extern() -> tirx.PrimFunc:
    x = array("x")
    out = te.extern(
        (ROWS,),
        [x],
        lambda ins, outs: tirx.call_packed("some.kernel", ins[0], outs[0]),
        name="kernel",
        dtype="float32",
    )
    return program(x, out)


def sort() -> tirx.PrimFunc:
    x = array("x")
    return program(x, topi.sort(x, axis=1))


UNREADABLE: dict[str, tuple[Callable[[], tirx.PrimFunc], str]] = {
    "parallel": (scheduled(lambda s: s.parallel(loops(s)[0])), "scheduled"),
    "vectorize": (scheduled(lambda s: s.vectorize(loops(s)[0])), "scheduled"),
    "unroll": (scheduled(lambda s: s.unroll(loops(s)[1])), "scheduled"),
    "bind": (scheduled(lambda s: s.bind(loops(s)[0], "threadIdx.x")), "scheduled"),
    "annotate": (scheduled(lambda s: s.annotate(loops(s)[0], "pragma_auto_unroll_max_step", 4)), "scheduled"),
    "stores under a predicate": (lambda: guarded, "predicate"),
    "never started": (lambda: never_started, "predicate"),
    "no blocks": (lambda: plain_loops, "tirx"),
    "stores outside of blocks": (lambda: stores_outside_of_blocks, "tirx"),
    "a running sum": (lambda: running_sum, "carried"),
    "a sum that reads the row before": (lambda: sum_of_the_row_before, "carried"),
    "rows that start where the row before ends": (lambda: rows_in_a_chain, "carried"),
    "a prefix of a reduction": (lambda: prefix_of_a_reduction, "carried"),
    "overlapping windows": (lambda: overlapping_windows, "binding"),
    "run through twice": (lambda: run_through_twice, "binding"),
    "extent of another loop": (lambda: triangular, "symbolic_shape"),
    "tuple reduction": (erf_of_a_tuple, "reducer"),
    "two stores in a block": (lambda: two_stores, "opaque_block"),
    "a buffer written twice": (lambda: written_twice, "overwritten"),
    "no positions": (lambda: softmax_stats(length=0), "empty_axis"),
    "no rows": (lambda: softmax_stats(rows=0), "empty_axis"),
    "extern": (extern, "extern"),
    "sort": (sort, "extern"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_function_that_cannot_be_read_has_a_reason_and_stays_as_it_is(name: str) -> None:
    build, code = UNREADABLE[name]
    func = build()
    before = func.script()
    outcome = fuse_function(func, FuseOptions(force=True))
    assert outcome.func.same_as(func) and func.script() == before
    assert [decision.reason.code for decision in outcome.decisions] == [code], [
        str(decision.reason) for decision in outcome.decisions
    ]
    assert outcome.decisions[0].reason.detail


@pytest.mark.parametrize("name", UNREADABLE)
def test_the_pass_gives_it_back_and_still_fuses_its_neighbour(name: str) -> None:
    func = UNREADABLE[name][0]()
    module = tvm.IRModule({"neighbour": softmax_stats().with_attr("global_symbol", "neighbour"), "odd": func})
    after = FuseCascadedReductions(force=True)(module)
    assert after["odd"].same_as(module["odd"])
    assert not after["neighbour"].same_as(module["neighbour"])


@pytest.mark.parametrize(
    "work",
    [
        lambda s: s.reorder(loops(s)[1], loops(s)[0]),
        lambda s: s.merge(loops(s, "row_max")[0], loops(s)[0]),
        lambda s: s.split(loops(s)[1], [None, 4]),
        lambda s: s.fuse(*loops(s)),
    ],
    ids=["reorder", "merge", "split", "fuse"],
)
def test_loops_in_another_order_or_under_one_are_no_schedule(work: Callable[[Schedule], object]) -> None:
    assert fuse_function(scheduled(work)(), FuseOptions(force=True)).fused


def test_an_empty_module_stays_empty() -> None:
    assert len(FuseCascadedReductions()(tvm.IRModule({})).functions) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"tile": 0},
        {"tile": -4},
        {"tile": 2.0},
        {"tile": True},
        {"tile": "4"},
        {"segments": 0},
        {"segments": None},
        {"lanes": 0},
        {"force": 1},
        {"rescalable_casts": "float16"},
        {"rescalable_casts": ("int8",)},
        {"tiles": 4},
    ],
    ids=str,
)
def test_an_option_outside_its_domain_is_told_by_name_before_anything_runs(options: dict[str, object]) -> None:
    with pytest.raises(OptionError) as caught:
        FuseCascadedReductions(**options)
    assert isinstance(caught.value, (CascadeError, ValueError))
    assert next(iter(options)) in str(caught.value)


def test_a_function_over_no_positions_compiles_and_leaves_its_outputs_alone() -> None:
    compiled = tvm_cascade.compile(softmax_stats(length=0))
    outputs = [tvm.runtime.tensor(np.full(ROWS, 7, "float32")) for _ in range(2)]
    compiled(tvm.runtime.empty((ROWS, 0), "float32"), *outputs)
    assert all((output.numpy() == 7).all() for output in outputs)
