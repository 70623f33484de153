"""Gradients are cascades like any other: the pass and the row skeleton take them as they are."""

from __future__ import annotations

import pytest

import tvm_cascade
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.transform.fuse_function import fuse_function

from ..transform.running import assert_close, build, read, run
from .emulator.run import compiler
from .gradient_programs import LENGTH, RELAX_GRADIENTS, ROWS, TE_GRADIENTS, norm_parameters_gradient, relax_gradient
from .test_row_kernels import assert_right, drawn

FUNCTIONS = {
    **{
        f"te {name}": (lambda n=name: TE_GRADIENTS[n](dtype="float32", rows=ROWS, length=LENGTH))
        for name in TE_GRADIENTS
    },
    **{f"relax {name}": (lambda n=name: relax_gradient(n)) for name in RELAX_GRADIENTS},
}


APART = "relax rms_norm"
"""Its two sums read each other nowhere: the pass leaves them apart, and a row kernel reads memory once for both."""


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != APART])
def test_the_pass_takes_gradients_as_one_cascade_each(name: str) -> None:
    unfused = read(FUNCTIONS[name]())
    (decision,) = fuse_function(unfused.func, FuseOptions(force=True)).decisions
    assert decision.reason.code == "fold" and len(decision.candidate.names) >= 2
    unfused.check(drawn(unfused.func), tile=8, segments=2)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_row_skeleton_takes_gradients(name: str) -> None:
    assert isinstance(assert_right(FUNCTIONS[name]()).program, RowProgram)


def test_sums_that_share_a_row_alone_are_one_kernel() -> None:
    (report,) = tvm_cascade.explain(FUNCTIONS[APART](), target={"kind": "cuda", "arch": "sm_80"}).functions
    assert "memory-bound kernel `row`" in report.lowering


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", TE_GRADIENTS)
def test_gradients_of_half_precision(name: str) -> None:
    assert_right(TE_GRADIENTS[name](dtype="float16", rows=2, length=264))


def test_gradients_of_parameters_are_sums_of_columns() -> None:
    """Neighbours on their axis are not contiguous in memory: lanes hold neighbouring columns."""
    func = norm_parameters_gradient()
    inputs = drawn(func)
    compiled = tvm_cascade.compile(func)
    assert_close(run(compiled, func, inputs), func, inputs, run(build(func), func, inputs), ROWS)
    (report,) = tvm_cascade.explain(func, target={"kind": "cuda", "arch": "sm_90a"}).functions
    assert "is not contiguous in memory" in report.lowering and "neighbouring rows" in report.lowering
