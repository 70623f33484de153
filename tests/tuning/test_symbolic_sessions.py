"""Sessions of functions with symbolic extents: measured at sizes, compiled for every length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, tirx

import tvm_cascade
from tvm_cascade.driver.lowering import goal_of
from tvm_cascade.driver.spaces import space_of
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import InputError
from tvm_cascade.options import FuseOptions

from .fakes import FakeBuilder, FakeRunner

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def softmax_stats() -> tvm.tirx.PrimFunc:
    """The maximum and the sum of exponentials of each of 8 rows of any length."""
    length = tirx.Var("n", "int64")
    x = te.placeholder((8, length), "float32", name="x")
    a, b = (te.reduce_axis((0, length), name) for name in "ab")
    top = te.compute((8,), lambda i: te.max(x[i, a], axis=a), name="top")
    return te.create_prim_func([x, top, te.compute((8,), lambda i: te.sum(te.exp(x[i, b] - top[i]), axis=b), "norm")])


def test_what_was_found_at_one_length_is_compiled_for_all(tmp_path: Path) -> None:
    func = softmax_stats()
    (found,) = tvm_cascade.tune(func, trials=3, work_dir=tmp_path, sizes={"n": 512}).functions
    assert found.tried == 3 and not found.failures and found.best is not None and found.best.sizes == {"n": 512}
    compiled = tvm_cascade.compile(func, database=tmp_path)
    assert "chosen by   a tuning session of 20" in str(compiled.report)
    for length in (1, 500, 512, 1000):
        x = np.random.default_rng(0).standard_normal((8, length)).astype("float32")
        top, norm = np.zeros(8, "float32"), np.zeros(8, "float32")
        compiled(x, top, norm)
        np.testing.assert_array_equal(top, x.max(1))
        assert np.all(np.abs(norm - np.exp(x - x.max(1, keepdims=True)).sum(1)) < 1e-4 * norm)


def test_the_kernel_that_is_measured_is_the_one_for_every_length() -> None:
    space = space_of(softmax_stats(), "main", goal_of(resolve_target("auto"), FuseOptions()))
    assert {"form", "tile"} <= {knob.name for knob in space.knobs}
    tiled = next(one for one in space.designs() if space.words(one).get("tile") == "256")
    _, lowered = space.lower(tiled)
    assert any(isinstance(extent, tvm.ir.Var) for extent in lowered.func.params[0].ty.shape)


def test_sessions_at_other_sizes_start_anew_and_the_last_one_counts(tmp_path: Path) -> None:
    func = softmax_stats()

    def best(length: int, chosen: int) -> dict[str, str]:
        class Runner(FakeRunner):
            def run(self, task, design, built, default):  # type: ignore[no-untyped-def]
                assert task.parameters[0].shape == (8, length)
                return length * (0.5 if design[1] == chosen else 1.0)

            def compare(self, task, designs):  # type: ignore[no-untyped-def]
                return [self.run(task, design, None, None) for design, _ in designs]

        report = tvm_cascade.tune(
            func, HOPPER, 6, work_dir=tmp_path, builder=FakeBuilder(), runner=Runner(), sizes={"n": length}
        )
        (found,) = report.functions
        assert found.known == 0 and found.best is not None
        return found.best.words

    first, second = best(64, 1), best(4096, 2)
    assert first != second
    from tvm_cascade.tuning.records import Records, workload_of
    from tvm_cascade.tuning.records import best as best_of

    goal = goal_of(resolve_target(HOPPER), FuseOptions())
    trial = best_of(Records(tmp_path).trials(workload_of(func.with_attr("global_symbol", "main"), goal)))
    assert trial is not None and trial.words == second


def test_extents_are_those_of_the_inputs_or_those_that_estimates_take() -> None:
    from tvm_cascade.tuning.task import sizes_of

    func = softmax_stats()
    assert sizes_of(func, "main", None, None) == (("n", 1024),)
    assert sizes_of(func, "main", None, [np.zeros((8, 33), "float32")]) == (("n", 33),)
    with pytest.raises(InputError, match="names among n"):
        sizes_of(func, "main", {"m": 4}, None)
    with pytest.raises(InputError, match="a positive integer"):
        sizes_of(func, "main", {"n": 0}, None)


def test_a_number_as_a_parameter_is_refused() -> None:
    count = tirx.Var("count", "int32")
    x = te.placeholder((8,), "float32", name="x")
    func = te.create_prim_func([x, count, te.compute((8,), lambda i: x[i] * count.astype("float32"), name="out")])
    with pytest.raises(InputError, match="the number count"):
        tvm_cascade.tune(func)
