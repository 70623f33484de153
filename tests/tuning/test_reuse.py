"""Records go where users take them: databases merge, some are shipped, and reports say where a design comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import tvm

import tvm_cascade
from benchmarks.ship import main, ship
from corpus import workloads
from tvm_cascade import cli
from tvm_cascade.driver.gpu_space import space_of
from tvm_cascade.driver.lowering import goal_of
from tvm_cascade.driver.space import Design
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.options import FuseOptions
from tvm_cascade.tuning import shipping
from tvm_cascade.tuning.records import Records
from tvm_cascade.tuning.report import FunctionTuning, TuningReport

from .fakes import FakeBuilder, FakeRunner

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


@pytest.fixture(scope="module")
def softmax() -> tvm.tirx.PrimFunc:
    return workloads.get("softmax").with_shape(rows=4096).build()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty place for what is shipping."""
    monkeypatch.setattr(shipping, "ROOT", tmp_path / "shipped")
    yield tmp_path / "shipped"
    shipping.read.cache_clear()


def fast(best: Design) -> FakeRunner:
    """A runner on which a plan with a configuration of its first kernel takes half the time of all else."""
    return FakeRunner(lambda design: 0.5 if design[:2] == best else 1.0)


def tuned(func: tvm.tirx.PrimFunc, folder: Path, runner: FakeRunner, trials: int = 4) -> FunctionTuning:
    report = tvm_cascade.tune(func, HOPPER, trials, work_dir=folder, builder=FakeBuilder(), runner=runner)
    return report.functions[0]


def chosen_by(func: tvm.tirx.PrimFunc, **options: object) -> str:
    return tvm_cascade.explain(func, HOPPER, **options).functions[0].design


def test_explain_says_where_a_design_comes_from(
    softmax: tvm.tirx.PrimFunc, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chosen_by(softmax) == "the model's estimates"
    (tmp_path / "empty").mkdir()
    assert "nothing is on record" in chosen_by(softmax, database=tmp_path / "empty")
    found = tuned(softmax, tmp_path, fast((0, 2)))
    told = chosen_by(softmax, database=tmp_path)
    assert found.best is not None and found.best.seconds is not None
    assert told.startswith("a tuning session of 20") and f"{found.best.seconds * 1e6:.1f} us measured" in told
    assert "of 512 threads" in tvm_cascade.explain(softmax, HOPPER, database=tmp_path).functions[0].lowering
    command = ["explain", "softmax", "--shape", "rows=4096", "--target", "sm_90a", "--database"]
    assert cli.main([*command, str(tmp_path)], workloads.registry()) == 0
    assert f"chosen by   {told}" in capsys.readouterr().out
    assert cli.main([*command, str(tmp_path / "none")], workloads.registry()) == 2


def test_what_is_shipped_is_taken_unless_it_is_declined(softmax: tvm.tirx.PrimFunc, tmp_path: Path, root: Path) -> None:
    tuned(softmax, tmp_path, fast((0, 2)))
    ((folder, count),) = ship([tmp_path]).items()
    assert count == 1 and folder.parent == root / tvm_cascade.__version__ and "h200" in folder.name
    told = chosen_by(softmax)
    assert told.startswith("the database shipped with this package, of NVIDIA H200") and "of the model's choice" in told
    assert chosen_by(softmax, database=False) == "the model's estimates"
    assert chosen_by(softmax, reference="lazy") == "the model's estimates"
    tuned(softmax, tmp_path / "own", fast((0, 1)))
    assert chosen_by(softmax, database=tmp_path / "own").startswith("a tuning session")


def test_a_later_session_replaces_what_is_shipped_of_its_functions(
    softmax: tvm.tirx.PrimFunc, tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = workloads.get("softmax").with_shape(rows=2048).build()
    tuned(softmax, tmp_path / "first", fast((0, 1)))
    tuned(other, tmp_path / "first", fast((0, 1)))
    assert main([str(tmp_path / "first")]) == 0
    assert "knows 2 functions" in capsys.readouterr().out
    later = tuned(softmax, tmp_path / "later", fast((0, 2)))
    ((folder, count),) = ship([tmp_path / "later"]).items()
    kept = [trial for group in Records(folder).groups() for _, trial in group]
    assert count == 2 and len(kept) == 4
    assert later.best is not None and later.best.words in [trial.words for trial in kept]


def test_what_the_model_chooses_best_is_not_shipped(softmax: tvm.tirx.PrimFunc, tmp_path: Path, root: Path) -> None:
    tuned(softmax, tmp_path / "better", fast((0, 2)))
    ((folder, count),) = ship([tmp_path / "better"]).items()
    assert count == 1 and chosen_by(softmax).startswith("the database shipped")
    tuned(softmax, tmp_path / "best", FakeRunner())
    assert ship([tmp_path / "best"]) == {folder: 0}
    assert chosen_by(softmax) == "the model's estimates"


def test_what_is_faster_one_time_of_two_is_not_shipped(softmax: tvm.tirx.PrimFunc, tmp_path: Path, root: Path) -> None:
    class Unsteady(FakeRunner):
        def run(self, task, design, built, default):  # type: ignore[no-untyped-def]
            factor = 1.2 if design[:2] == (0, 2) else 2.0 if any(design) else 1.0
            return super().run(task, design, built, default) * factor

        def compare(self, task, designs):  # type: ignore[no-untyped-def]
            return [0.5 if design[:2] == (0, 2) else 1.0 for design, _ in designs]

    found = tuned(softmax, tmp_path, Unsteady())
    assert found.best is not None and found.gain == 2.0
    assert list(ship([tmp_path]).values()) == [0]


def test_of_shipped_records_sound_lines_are_read(softmax: tvm.tirx.PrimFunc, tmp_path: Path, root: Path) -> None:
    tuned(softmax, tmp_path, fast((0, 2)))
    ((folder, _),) = ship([tmp_path]).items()
    path = folder / "database_tuning_record.json"
    path.write_text(f"{path.read_text()}\nno JSON\n")
    with pytest.warns(UserWarning, match="1 lines are damaged"):
        assert chosen_by(softmax).startswith("the database shipped")


def test_the_report_draws_the_learning_curve(softmax: tvm.tirx.PrimFunc, tmp_path: Path) -> None:
    found = tuned(softmax, tmp_path, fast((0, 2)))
    assert len(found.curve) == found.tried and list(found.curve) == sorted(found.curve, reverse=True)
    assert found.best is not None and found.curve[-1] == found.best.seconds < found.curve[0]
    told = str(TuningReport((found,)))
    assert found.residuals[0] == 0.5 and found.residuals[-1] == 1.0
    assert "measured over estimated 1.00 (0.50 to 1.00)" in told
    assert "best so far █" in told and "▁" in told and "trials, as first measured" in told
    assert f"the best takes {1 / found.gain:.3f} of the time of the default" in told and found.gain > 1
    numbers = [int(line.split()[0]) for line in told.splitlines() if re.match(r" \d", line)]
    assert sorted(numbers) == list(range(found.tried))


def test_the_report_says_where_the_default_is_the_best(softmax: tvm.tirx.PrimFunc, tmp_path: Path) -> None:
    told = str(TuningReport((tuned(softmax, tmp_path, fast((0, 0))),)))
    assert "no design takes less than the default" in told and "the best takes" not in told


def test_databases_merge_without_doubles(
    softmax: tvm.tirx.PrimFunc, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, both = (tmp_path / name for name in ("one", "two", "both"))
    tuned(softmax, one, fast((0, 1)), trials=2)
    tuned(softmax, two, FakeRunner(lambda design: 0.6 if design[:2] == (0, 2) else 1.1), trials=4)
    counts = [sum(map(len, Records(folder).groups())) for folder in (one, two)]
    merge = ["tune", "--merge", str(one), str(two), "--work-dir", str(both)]
    assert cli.main(merge) == 0
    assert f"{sum(counts)} records" in capsys.readouterr().out
    assert cli.main(merge) == 0
    assert "0 records" in capsys.readouterr().out
    (group,) = Records(both).groups()
    assert len(group) == sum(counts)
    assert tuned(softmax, both, FakeRunner()).known == sum(counts)


SHIPPED = sorted(path for path in shipping.folder_of("any").parent.glob("*") if path.is_dir())


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_design_is_one_of_this_release_and_not_the_default(folder: Path) -> None:
    groups = Records(folder).groups()
    assert groups
    for group in groups:
        (record, default), (_, better) = group
        goal = goal_of(resolve_target(record.target), FuseOptions())
        space = space_of(record.workload.mod["main"], "main", goal, replayed=[default.words, better.words])
        assert space.find(default.words) == space.default and space.find(better.words) not in (None, space.default)
        assert (better.seconds or 1.0) < (default.seconds or 0.0) and better.in_turns


def test_a_shipped_design_is_compiled_and_told_by_default() -> None:
    job = workloads.get("I7")
    told = chosen_by(job.build())
    assert told.startswith("the database shipped with this package, of NVIDIA H200 sm_90a of 20")
    assert "of 128 threads" in tvm_cascade.explain(job.build(), HOPPER).functions[0].lowering
    assert "of 256 threads" in tvm_cascade.explain(job.build(), HOPPER, database=False).functions[0].lowering
