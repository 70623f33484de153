"""Which kernels come out for each function, and that they compute it."""

from __future__ import annotations

import pytest
from tvm import te

import tvm_cascade
from benchmarks.products.grammar import draw
from benchmarks.products.program import program
from corpus.programs.chain import Chain, chain
from corpus.programs.program import Precision
from tvm_cascade.tile.skeleton import Kernel
from tvm_cascade.transform import fuse_function

from ..tiers import slow_but
from ..tile.emulator.run import compiler
from . import functions, unread
from .run import as_written, assert_plan_right, emulated, plan_of, planned, skeletons

PATHS: dict[str, list[str]] = {
    "lone": ["product"],
    "lone_transposed": ["product"],
    "gram": ["product"],
    "batched": ["product"],
    "biased": ["product"],
    "residual": ["product"],
    "relu_first": ["prologue"],
    "chain": ["product", "product"],
    "wide_chain": ["product", "product"],
    "feed_forward": ["product", "product"],
    "gated": ["product", "product"],
    "rms_product": ["row", "product"],
    "residual_rms_product": ["row", "product"],
    "layer_norm_product": ["row", "product"],
    "residual_layer_norm": ["folded"],
    "product_softmax": ["folded"],
    "router": ["folded"],
    "cross_entropy": ["folded"],
    "quantised": ["row", "", "product"],
    "integer_weights": ["", "product"],
    "float8_weights": ["", "product"],
    "two_products": ["product"],
    "two_groups": ["folded", "row"],
    "normalised_rows": ["folded"],
    "row_extremes": ["folded"],
    "pointwise": ["product"],
    "convolution": ["product"],
    "attention": ["stream"],
    "projected_attention": ["product", "product", "product", "stream", "product"],
    "attention_layer_norm": ["stream", "row"],
    "rms_gated": ["row", "product", "product"],
    "split_weights": ["product", ""],
    "symmetrised": ["product", ""],
}
"""Skeletons in order; none for maps by themselves, which S-TIR schedules compute."""

QUICK = (
    "pointwise", "relu_first", "feed_forward", "normalised_rows", "quantised", "float8_weights", "two_groups",
    "attention_layer_norm", "rms_gated", "symmetrised",
)  # fmt: skip
"""One of each sequence of skeletons, but of those in a longer one here, and of a whole layer."""


def test_every_function_has_its_path() -> None:
    assert set(PATHS) == set(functions.FUNCTIONS)


@pytest.mark.parametrize("name", slow_but([name for name in PATHS if name != "router"], PATHS))  # see test_routers
def test_products_are_on_tensor_cores_and_parts_compute_the_function(name: str) -> None:
    func, plan = planned(name)
    assert skeletons(plan) == PATHS[name]
    multiplying = [k for s, k in zip(plan.steps, PATHS[name], strict=True) if s.work.flops]
    assert set(multiplying) <= {"product", "stream", "folded", "prologue"}
    assert_plan_right(func, plan, as_written, length=128)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", slow_but(QUICK, PATHS))
def test_kernels_of_a_plan_compute_the_function(name: str) -> None:
    assert_plan_right(*planned(name), emulated, length=128)


@pytest.mark.parametrize(
    "name", slow_but(["attention", "rms_gated"], ["attention", "projected_attention", "rms_gated"])
)
def test_paths_stay_at_the_extents_of_models(name: str) -> None:
    assert skeletons(plan_of(functions.FUNCTIONS[name](4096, 4096, 4096))) == PATHS[name]


@pytest.mark.parametrize("name", ["cross_entropy", "row_extremes"])
def test_long_rows_of_products_are_folded_where_storing_them_costs_more(name: str) -> None:
    assert skeletons(plan_of(functions.FUNCTIONS[name](4096, 4096, 4096))) == ["folded"]


def test_a_part_like_the_function_it_was_cut_from_is_cut_no_more() -> None:
    """A product of columns of one element, whose copy for bulk copies has the shape of what it copies."""
    case = draw(141)
    func = program(case, case.small)
    plan = plan_of(func)
    assert skeletons(plan)
    assert_plan_right(func, plan, as_written, length=16)


def test_a_residual_is_read_once_and_stored_where_it_is_normalised() -> None:
    row, product = plan_of(functions.residual_rms_product(4096, 4096, 4096)).steps
    assert len(row.results) == 2 and "added" in row.results
    assert row.work.bytes == (4 * 4096 * 4096 + 4096) * 2
    assert isinstance(row.chosen, Kernel)
    assert "added" in [output.buffer.name for output in row.chosen.program.row.position_outputs]
    assert not any(output.loops for output in row.chosen.program.row.outputs)
    assert product.results == ("out",)


def test_nothing_is_rounded_where_tensor_cores_are_off() -> None:
    func = functions.rms_product()
    plan = plan_of(func, tensor_cores=False)
    assert "product" not in skeletons(plan) and not any("float16" in b.name for b in plan.temporaries)
    assert_plan_right(func, plan, as_written, length=128)


def test_float8_operands_meet_as_float8_where_narrow_sums_are_allowed() -> None:
    plan = plan_of(functions.quantised(), narrow_sums=True)
    assert skeletons(plan) == ["row", "product"]
    assert [str(buffer.ty.dtype) for buffer in plan.temporaries] == ["float32", "float8_e4m3fn"]


def test_a_nest_that_cannot_be_read_runs_beside_kernels() -> None:
    func = unread.product_beside_scan
    plan = plan_of(func)
    assert skeletons(plan) == ["product", ""]
    assert [step.results for step in plan.steps] == [("out",), ("summed",)]
    assert plan.whole == "the function could not be read whole"


def test_lengths_known_at_launch_alone() -> None:
    plan = plan_of(functions.rms_product(te.var("m"), 96, 128))
    assert skeletons(plan) == ["row", "product"]
    assert [str(extent) for extent in plan.temporaries[0].ty.shape] == ["m", "128"]


def test_loops_that_no_kernel_needs_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    defect = RuntimeError("loops were written")
    monkeypatch.setattr(fuse_function, "rewrite", lambda *_: (_ for _ in ()).throw(defect))
    assert skeletons(plan_of(functions.attention())) == ["stream"]
    (step,) = plan_of(functions.attention(), tensor_cores=False, row_kernels=False).steps
    (decision,) = step.outcome.decisions
    assert not step.outcome.fused and decision.reason.code == "defect" and str(defect) in str(decision.reason)
    assert step.outcome.func.same_as(step.outcome.given)


def test_one_row_of_a_norm_goes_into_a_product() -> None:
    plan = plan_of(functions.first_row_of_a_norm())
    assert skeletons(plan) == ["cores", "row", "cores"]


def test_what_two_products_of_a_gradient_read_is_stored_once() -> None:
    """Adjoints of hidden layers are rounded once, for weights and for what stands before these."""
    form, shape = Chain("silu", gated=True), {"m": 64, "k": 64, "n": 64, "l": 64}
    func = tvm_cascade.gradient(chain(form)(shape, Precision("float16", "float32")).prim_func()).backward
    plan = plan_of(func)
    stored = [buffer.name for step in plan.steps for buffer in step.written]
    assert set(skeletons(plan)) == {"product"} and len(stored) == len({*stored})
    assert [name for name in stored if name.startswith("d_by_")] == ["d_by_up_float16", "d_by_gate_float16"]
    assert_plan_right(func, plan, as_written, length=64)
