"""Sessions of functions with symbolic extents: measured at sizes, compiled for every length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, tirx

import tvm_cascade
from benchmarks.ship import ship
from tvm_cascade.analysis.program import at_sizes
from tvm_cascade.driver.gpu_space import space_of
from tvm_cascade.driver.lowering import Known, goal_of
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import InputError
from tvm_cascade.options import FuseOptions
from tvm_cascade.tuning import shipping
from tvm_cascade.tuning.known import known_designs
from tvm_cascade.tuning.report import TuningReport
from tvm_cascade.tuning.task import space_for

from .fakes import FakeBuilder, FakeRunner

CPU = {"kind": "llvm", "mcpu": "znver4", "num-cores": 2}
HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def softmax_stats() -> tvm.tirx.PrimFunc:
    """The maximum and the sum of exponentials of each of 8 rows of any length."""
    length = tirx.Var("n", "int64")
    x = te.placeholder((8, length), "float32", name="x")
    a, b = (te.reduce_axis((0, length), name) for name in "ab")
    top = te.compute((8,), lambda i: te.max(x[i, a], axis=a), name="top")
    return te.create_prim_func([x, top, te.compute((8,), lambda i: te.sum(te.exp(x[i, b] - top[i]), axis=b), "norm")])


@pytest.mark.usefixtures("kept_workers")
def test_what_was_found_at_one_length_is_compiled_for_all(tmp_path: Path) -> None:
    func = softmax_stats()
    (found,) = tvm_cascade.tune(func, trials=2, work_dir=tmp_path, sizes={"n": 512}).functions
    assert found.tried == 2 and not found.failures and found.best is not None and found.best.sizes == {"n": 512}
    compiled = tvm_cascade.compile(func, database=tmp_path)
    (function,) = compiled.report.functions
    assert "a tuning session at n = 512 of 20" in "".join([function.design, *function.buckets])
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


def tuned_at(folder: Path, fast: dict[int, str], target: object = CPU) -> TuningReport:
    """Sessions at sizes, in each of which tiles of so many positions take a hundredth of the estimate."""
    space = space_of(softmax_stats(), "main", goal_of(resolve_target(target), FuseOptions()))

    class Runner(FakeRunner):
        def run(self, task, design, built, default):  # type: ignore[no-untyped-def]
            best = space.words(design).get("tile") == fast[dict(task.sizes)["n"]]
            return space_for(task).seconds(design) * (0.01 if best else 1.0)

        def compare(self, task, designs):  # type: ignore[no-untyped-def]
            return [self.run(task, design, None, None) for design, _ in designs]

    how = {"builder": FakeBuilder(), "runner": Runner(), "sizes": [{"n": length} for length in fast]}
    return tvm_cascade.tune(softmax_stats(), target, "all", work_dir=folder, **how)


def test_a_session_at_each_of_several_sizes_gives_each_bucket_its_kernel(tmp_path: Path) -> None:
    report = tuned_at(tmp_path, {100: "64", 1000: "1024"})
    assert [one.label for one in report.functions] == ["main at n = 100", "main at n = 1000"]
    assert [one.best.words["tile"] for one in report.functions if one.best] == ["64", "1024"]
    assert all(trial.estimate > 0.0 for one in report.functions for trial in one.trials)
    compiled = tvm_cascade.compile(softmax_stats(), CPU, database=tmp_path)
    told = compiled.report.functions[0].buckets
    first = next(line for line in told if "a tuning session at n = 100 of 20" in line)
    second = next(line for line in told if "a tuning session at n = 1000 of 20" in line)
    assert "tile: 64" in first and "tile: 1024" in second and "us measured" in first


def test_other_buckets_take_what_the_nearest_session_says_by_estimates(tmp_path: Path) -> None:
    tuned_at(tmp_path, {100: "64"})
    goal = goal_of(resolve_target(CPU), FuseOptions())
    looked_up = known_designs(tmp_path, goal.target)
    assert looked_up is not None
    func = softmax_stats().with_attr("global_symbol", "main")
    own, far = looked_up(func, goal, {"n": 128}), looked_up(func, goal, {"n": 8192})
    assert isinstance(own, Known) and isinstance(far, Known)
    assert [words["tile"] for words, _ in own.designs] == ["64"] and "us measured" in own.origin
    assert len(far.designs) > 1 and far.origin == "a tuning session at n = 100"
    space = space_of(func, "main", goal).for_sizes({"n": 8192})
    taken = far.design(space)
    assert taken is not None
    predicted = {d: space.seconds(d) * (0.01 if space.words(d).get("tile") == "64" else 1.0) for d in space.designs()}
    assert predicted[taken] <= 1.01 * min(predicted.values())


def test_a_session_of_a_static_length_serves_its_bucket(tmp_path: Path) -> None:
    """It is of the kind of the function at that bucket, and of no other's."""
    static = at_sizes(softmax_stats(), {"n": 700})
    space = space_of(static, "main", goal_of(resolve_target(CPU), FuseOptions()))
    tile = next(k for k, knob in enumerate(space.knobs) if knob.name == "tile")
    runner = FakeRunner(lambda design: 0.01 if space.knobs[tile].values[design[tile]] == "128" else 1.0)
    tvm_cascade.tune(static, CPU, "all", work_dir=tmp_path, builder=FakeBuilder(), runner=runner)
    told = tvm_cascade.explain(softmax_stats(), CPU, database=tmp_path).functions[0].buckets
    (line,) = [line for line in told if "a tuning session of x 8×700" in line]
    assert line.startswith("n of 513 to 1024: main_") and "tile: 128" in line


def test_shipped_designs_of_several_sizes_serve_their_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "ROOT", tmp_path / "shipped")
    shipping.read.cache_clear()
    tuned_at(tmp_path / "sessions", {100: "64", 1000: "1024"})
    assert list(ship([tmp_path / "sessions"]).values()) == [1]
    told = tvm_cascade.explain(softmax_stats(), CPU).functions[0].buckets
    shipping.read.cache_clear()
    for size, tile in ((100, "64"), (1000, "1024")):
        line = next(line for line in told if f"at n = {size} of 20" in line)
        assert f"tile: {tile}" in line and "the database shipped with this package" in line


def test_inputs_are_of_one_size(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one size, since inputs are given"):
        tvm_cascade.tune(softmax_stats(), inputs=[np.zeros((8, 4), "float32")], sizes=[{"n": 4}, {"n": 8}])
    with pytest.raises(InputError, match="expected extents by name"):
        tvm_cascade.tune(softmax_stats(), sizes=[])


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
