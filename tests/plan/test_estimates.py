"""Estimates of plans: counts, what is declined and why, and what a user is told."""

from __future__ import annotations

import json
import re

import pytest
from tvm import te

import tvm_cascade
from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.analysis.program import Program
from tvm_cascade.tile.cost import Counts
from tvm_cascade.tile.estimate import Work, count_work
from tvm_cascade.tile.skeleton import Kernel
from tvm_cascade.tile.skeletons.stream.skeleton import StreamSkeleton
from tvm_cascade.transform.fuse_function import read_function

from ..analysis.programs import array, fold, program
from . import functions
from .run import plan_of, skeletons

TARGET = {"kind": "cuda", "arch": "sm_90a"}


def program_of(name: str, *extents: int) -> Program:
    read = read_function(functions.FUNCTIONS[name](*extents))
    assert isinstance(read, Program)
    return read


def test_a_product_moves_its_matrices_once() -> None:
    work = count_work(program_of("lone", 512, 256, 1024))
    assert work.flops == 2 * 512 * 256 * 1024
    assert work.bytes == 2 * (512 * 1024 + 1024 * 256 + 512 * 256)


def test_elements_that_data_pick_are_sectors_of_memory() -> None:
    """One of each row is not the whole tensor; rows that are picked are read whole."""
    table, at = te.placeholder((4096, 8192), name="table"), te.placeholder((4096,), "int32", name="at")
    of_rows = te.compute((4096,), lambda i: table[i, at[i]], name="picked")
    k = te.reduce_axis((0, 8192), "k")
    rows = te.compute((64,), lambda i: te.sum(table[at[i], k], axis=k), name="rows")
    for made, read in ((of_rows, 4096 * 32), (rows, 64 * 8192 * 4)):
        counted = read_function(te.create_prim_func([table, at, made]))
        assert isinstance(counted, Program)
        extent = int(made.shape[0])
        assert count_work(counted).bytes == read + 4 * extent + 4 * extent


def test_temporaries_count_where_they_go_through_memory() -> None:
    program = program_of("lone", 512, 256, 1024)
    assert count_work(program, temporaries=True).bytes - count_work(program).bytes == 2 * 4 * 512 * 256


def test_functions_are_counted_apart_from_other_arithmetic() -> None:
    work = count_work(program_of("product_softmax", 64, 96, 128))
    assert work.functions == 64 * 96 and work.operations > 64 * 96


def test_a_cascade_is_declined_with_both_estimates() -> None:
    plan = plan_of(functions.rms_product(4096, 4096, 4096))
    (declined,) = plan.declined
    assert declined.names == ("normalised_squares", "y") and declined.steps == 2
    assert declined.fused > 100 * declined.apart == 100 * plan.seconds


def test_the_user_is_told_of_the_plan_and_of_what_was_declined() -> None:
    told = tvm_cascade.explain(functions.rms_product(4096, 4096, 4096), target=TARGET)
    (group,), (function,) = told.groups, told.functions
    assert group.verdict is Verdict.DECLINED and group.buffers == ("normalised_squares", "y")
    assert "us fused" in group.reason.detail and "us as 2 steps" in group.reason.detail
    assert [step.skeleton for step in function.plan] == ["row", "product"]
    assert [step.writes for step in function.plan] == [("normalised_float16",), ("out",)]
    assert function.plan[1].flops == 2 * 4096**3 and 100 < function.plan[1].microseconds < 400
    text, html = str(told), told._repr_html_()
    for shown in ("a plan of 2 steps, estimated", "normalised_float16 from x, gain", "137.4 Gflop of products"):
        assert shown in text and shown in html
    assert "a plan of 2 steps, estimated" in text and "32.0 MiB of temporaries between them" in text
    assert "0 flop" not in text
    assert "not as one kernel: no `stream`" in text and "<p>not as one kernel, since of each kind:</p>" in html
    assert "<code>stream</code></td>" in html and "folds of a matrix product" in html
    assert json.loads(told.to_json())["functions"][0]["plan"][0]["writes"] == ["normalised_float16"]


def test_statistics_of_a_row_are_one_kernel() -> None:
    x = array("x", 4096, 8192)
    extrema = [fold(f"r{k}", lambda i, j: x[i, j], how, 8192, (4096,)) for k, how in enumerate((te.min, te.max))]
    told = tvm_cascade.explain(program(x, *extrema), target=TARGET)
    assert [(g.verdict, g.buffers) for g in told.groups] == [(Verdict.FUSED, ("r0", "r1"))]
    assert [step.skeleton for step in told.functions[0].plan] == ["row"]


def test_a_fold_of_a_products_rows_is_declined_where_the_product_is_stored() -> None:
    x, c, d = array("x", 4096, 64), array("c", 1024, 64), te.reduce_axis((0, 64), "d")
    between = te.compute((4096, 1024), lambda i, j: te.sum((x[i, d] - c[j, d]) * (x[i, d] - c[j, d]), axis=d))
    nearest = fold("nearest", lambda i, j: between[i, j], te.min, 1024, (4096,))
    told = tvm_cascade.explain(program(x, c, nearest), target=TARGET)
    (group,), (function,) = told.groups, told.functions
    assert len(function.plan) == 2 and group.verdict is Verdict.DECLINED and "us as 2 steps" in group.reason.detail


def test_the_times_that_are_shown_are_those_that_decided() -> None:
    """Not a CPU's beside the verdict of a GPU; where the verdict compares no times, none are shown."""
    told = tvm_cascade.explain(functions.rms_product(4096, 4096, 4096), target=TARGET)
    (group,) = told.groups
    assert group.us_before is not None and group.us_after is not None and group.us_before < group.us_after
    decided = f"estimated {group.us_after:.1f} us fused, {group.us_before:.1f} us as 2 steps"
    shown = re.findall(r"estimated time, (\w+)</td><td[^>]*>([\d.]+) us", told._repr_html_())
    assert decided in group.reason.detail
    assert shown == [("unfused", f"{group.us_before:.1f}"), ("fused", f"{group.us_after:.1f}")]
    (fused,) = (kept := tvm_cascade.explain(functions.attention(1024), target=TARGET)).groups
    assert fused.verdict is Verdict.FUSED and fused.us_before is fused.us_after is None and fused.passes_before
    assert "estimated time, " not in kept._repr_html_()
    cpu = {"kind": "llvm", "num-cores": 1}
    (alone,) = tvm_cascade.explain(functions.rms_product(512, 1024, 1024), target=cpu, force=False).groups
    assert alone.us_before is not None and f"{alone.us_before:.1f} us unfused" in alone.reason.detail


def test_a_fused_kernel_is_declined_where_its_parts_take_less(monkeypatch: pytest.MonkeyPatch) -> None:
    func = functions.attention(4096)
    usual = plan_of(func)
    assert skeletons(usual) == ["stream"] and not usual.declined

    def slow(self: StreamSkeleton, *_arguments: object) -> Counts:
        return Counts(Work(bytes=1e12))

    monkeypatch.setattr(StreamSkeleton, "counts", slow)
    apart = plan_of(func)
    assert "stream" not in skeletons(apart)
    (declined,) = apart.declined
    assert declined.kernel.startswith("the tensor-core kernel `stream`") and declined.apart < declined.fused


def test_rows_are_read_once_by_all_that_is_computed_of_them() -> None:
    """Though the largest and the sum are a cascade of their own, which is cut from the label's logit first."""
    plan = plan_of(functions.cross_entropy(128, 32000, 1024), tensor_cores=False)
    assert len(plan.steps) == 2 and skeletons(plan)[1] == "row" and plan.steps[1].work.bytes < 1.01 * 128 * 32000 * 4


@pytest.mark.parametrize(
    ("name", "extents", "measured"),
    [
        ("lone", (128, 1024, 1024), 7.6),
        ("gated", (128, 1024, 1024), 17.5),
        ("rms_product", (16, 4096, 4096), 17.6),
        ("attention", (256,), 7.7),
        ("attention", (1024,), 10.3),
        ("attention", (4096,), 31.4),
        ("router", (2048, 64, 2560), 10.8),
    ],
)
def test_small_functions_are_estimated_within_a_quarter(name: str, extents: tuple[int, ...], measured: float) -> None:
    """Of medians in microseconds on an H200, L2 flushed."""
    assert 0.75 < plan_of(functions.FUNCTIONS[name](*extents)).seconds * 1e6 / measured < 1.25


@pytest.mark.parametrize("length", [256, 1024, 4096])
def test_short_attention_is_fused_though_its_parts_are_small(length: int) -> None:
    """Measured: 7.7, 10.3 and 31.4 us fused, 8.4, 16.2 and 121 apart."""
    assert skeletons(plan_of(functions.attention(length))) == ["stream"]


def test_the_user_may_insist_on_fusing() -> None:
    plan = plan_of(functions.rms_product(4096, 4096, 4096), force=True)
    assert len(plan.steps) == 1 and not plan.declined


def test_a_kernel_alone_is_told_with_its_estimate() -> None:
    (function,) = tvm_cascade.explain(functions.lone(4096, 4096, 4096), target=TARGET).functions
    assert function.lowering.startswith("the tensor-core kernel `product`") and not function.whole
    assert [step.writes for step in function.plan] == [("out",)]
    assert any(line.startswith("  estimated") for line in function.lowering_lines)


def test_the_skeleton_of_least_estimated_time_is_taken() -> None:
    for step in plan_of(functions.two_groups()).steps:
        assert isinstance(step.chosen, Kernel) and step.seconds > step.chosen.seconds > 0
