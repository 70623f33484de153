"""Kernels for buckets of a symbolic length, run by the emulator through the host's choice among them."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tvm_cascade.driver.gpu_space import space_of
from tvm_cascade.driver.lowering import goal_of, symbolic_extents
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.evaluate.oracle import evaluate
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.buckets import Split, dispatching

from .emulator.run import compiler, cuda_source, emulate

pytestmark = pytest.mark.skipif(compiler() is None, reason="the emulator needs a C++ compiler")

DEPTH, COLUMNS, NAMES = 16, 24, ("first", "second", "third")
BOUNDS = (3, 40)


def product() -> tirx.PrimFunc:
    """Of a matrix of n rows."""
    rows, d, c = tirx.Var("n", "int64"), tirx.IntImm("int64", DEPTH), tirx.IntImm("int64", COLUMNS)
    a, b = te.placeholder((rows, d), "float32", name="a"), te.placeholder((d, c), "float32", name="b")
    k = te.reduce_axis((0, d), "k")
    return te.create_prim_func([a, b, te.compute((rows, c), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="y")])


@pytest.fixture(scope="module")
def dispatched() -> tuple[tirx.PrimFunc, dict[str, tirx.PrimFunc]]:
    """The host's function, and three kernels in configurations of their own."""
    func = product()
    space = space_of(func, "main", goal_of(resolve_target({"kind": "cuda", "arch": "sm_90a"}), FuseOptions()))
    designs = [design for design in space.designs() if "cores" in str(space.words(design))][: len(NAMES)]
    called = {name: space.lower(design, name)[1].func for name, design in zip(NAMES, designs, strict=True)}
    tree = Split(0, BOUNDS[0], 0, Split(0, BOUNDS[1], 1, 2))
    return dispatching(func, symbolic_extents(func), tree, "main", NAMES), called


@pytest.mark.parametrize("rows", [1, 3, 4, 40, 41])
def test_a_call_runs_the_kernel_of_its_bucket_and_is_right(
    dispatched: tuple[tirx.PrimFunc, dict[str, tirx.PrimFunc]], rows: int
) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype("float32") for shape in ((rows, DEPTH), (DEPTH, COLUMNS)))
    host, called = dispatched
    (y,) = emulate(host, [a, b], called=called)
    np.testing.assert_array_equal(np.asarray(y), a @ b)


def test_each_bucket_has_a_kernel_of_its_own(dispatched: tuple[tirx.PrimFunc, dict[str, tirx.PrimFunc]]) -> None:
    _, text = cuda_source(dispatched[0], dispatched[1])
    assert all(f"{name}_kernel" in text for name in NAMES)
    assert len({str(func.body) for func in dispatched[1].values()}) == len(NAMES)


def test_the_host_asks_for_the_length(dispatched: tuple[tirx.PrimFunc, dict[str, tirx.PrimFunc]]) -> None:
    """Where one kernel does nothing, the lengths of its bucket alone are left as they were."""
    host, called = dispatched
    idle = tirx.PrimFunc(called["second"].params, tirx.Evaluate(0)).with_attr("global_symbol", "second")
    for name, rows in zip(NAMES, (2, 30, 50), strict=True):
        a, b = np.ones((rows, DEPTH), "float32"), np.ones((DEPTH, COLUMNS), "float32")
        (y,) = emulate(host, [a, b], called={**called, "second": idle})
        assert np.isnan(np.asarray(y)).all() if name == "second" else np.all(np.asarray(y) == DEPTH)


def test_names_that_are_words_of_cpp() -> None:
    """TVM writes names of variables into the text of kernels as they are."""
    x, k = te.placeholder((5, 100), "float32", name="new"), te.reduce_axis((0, 100), "typename")
    rows = te.compute((5,), lambda template: te.sum(te.exp(x[template, k]), axis=k), name="class")
    func = te.create_prim_func([x, rows])
    space = space_of(func, "main", goal_of(resolve_target({"kind": "cuda", "arch": "sm_90a"}), FuseOptions()))
    given = np.random.default_rng(0).standard_normal((5, 100)).astype("float32")
    (found,) = emulate(space.lower(space.default, "main")[1].func, [given])
    exact, usual = evaluate(func, [given])["class"], evaluate(func, [given], rounding=True)["class"]
    told = check(found, exact, usual, length=100, dtype="float32")
    assert told.ok, told.message
