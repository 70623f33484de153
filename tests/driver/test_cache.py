"""Compiled code on disk: found by later processes, never for another program; and what users save and pickle."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx
from tvm.target import Target

import tvm_cascade
from benchmarks.check import __main__ as check
from tvm_cascade.driver import cache, compilation, targets
from tvm_cascade.driver.bundle import packed, unpacked
from tvm_cascade.driver.cache import CacheWarning, kept
from tvm_cascade.driver.compiled import Compiled
from tvm_cascade.errors import DeviceError, InputError, OptionError
from tvm_cascade.evaluate.tolerance import assert_close
from tvm_cascade.relax import get_pipeline
from tvm_cascade.relax.pipeline import Pipeline

ROWS, LENGTH = 8, 64
ARM = {"mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where code is kept, empty at first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(cache.VARIABLE)
    return tmp_path / "tvm-cascade" / "code"


def program(scale: float = 1.0) -> tirx.PrimFunc:
    """The logarithm of the sum of exp(scale·x) of each row."""
    x, k = te.placeholder((ROWS, LENGTH), "float32", name="x"), te.reduce_axis((0, LENGTH), "k")
    j = te.reduce_axis((0, LENGTH), "j")
    highest = te.compute((ROWS,), lambda i: te.max(x[i, k] * tirx.const(scale, "float32"), k), name="highest")
    sums = te.compute((ROWS,), lambda i: te.sum(te.exp(x[i, j] * scale - highest[i]), j), name="sums")
    return te.create_prim_func([x, te.compute((ROWS,), lambda i: te.log(sums[i]) + highest[i], name="out")])


def assert_right(compiled: Any, scale: float = 1.0) -> None:
    x, out = np.random.default_rng(0).standard_normal((ROWS, LENGTH), np.float32), np.full(ROWS, np.nan, np.float32)
    compiled(x, out)
    assert_close(out, np.log(np.exp(scale * x.astype("float64")).sum(-1)), length=LENGTH, dtype="float32")


def compiles_nothing(*_: object) -> Any:
    raise AssertionError("it compiles, and the code is on disk")


def entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_the_same_program_is_not_compiled_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tvm_cascade.compile(program(), cache=False)
    tvm_cascade.compile(program())
    monkeypatch.setattr(compilation, "_built", compiles_nothing)
    again = tvm_cascade.compile(program(), progress=False)  # which the code does not depend on
    assert_right(again)
    assert again.report == first.report and again.report.fused
    assert repr(again) == repr(first) and again.replaced_math == first.replaced_math != {}
    assert "fmul" in again.runtime_module.mod.inspect_source("ll")
    again.export_library(folder / "library.so")
    assert_right(tvm.runtime.load_module(str(folder / "library.so"))["main"])


@pytest.mark.parametrize(
    "changed",
    [
        lambda: tvm_cascade.compile(program(2.0)),
        lambda: tvm_cascade.compile(program(), tile=16),
        lambda: tvm_cascade.compile(program(), {"kind": "llvm", "num-cores": 1}),
        lambda: tvm_cascade.compile(program(), database=False),
        lambda: tvm_cascade.compile_unfused(program()),
    ],
    ids=["program", "option", "target", "database", "unfused"],
)
def test_what_differs_in_anything_is_compiled(folder: Path, changed: Callable[[], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)
        tvm_cascade.compile(program())
        changed()
    assert len(entries(folder)) == 2


def test_code_of_another_release_is_not_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tvm_cascade.compile(program())
    monkeypatch.setattr(cache, "_sources", lambda: "another state of the package")
    tvm_cascade.compile(program())
    assert len(entries(folder)) == 2


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:-9], lambda b: b[:99] + bytes([b[99] ^ 1]) + b[100:]])
def test_a_damaged_file_is_made_anew(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    tvm_cascade.compile(program())
    (file,) = entries(folder)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    with pytest.warns(CacheWarning, match="damaged, and made anew"):
        assert_right(tvm_cascade.compile(program()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)
        assert_right(tvm_cascade.compile(program()))


def test_two_processes_at_once(folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    both = context.Barrier(2)
    other = context.Process(target=_compile_often, args=(both,))
    other.start()
    _compile_often(both)
    other.join(300)
    assert other.exitcode == 0
    assert [path.suffix for path in entries(folder)] == [".zip"] * 2


def _compile_often(both: Any) -> None:
    both.wait(300)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)
        for scale in (1.0, 0.5):
            for _ in range(2):
                assert_right(tvm_cascade.compile(program(scale)), scale)


def _kept(name: str, size: int = 1 << 19) -> None:
    made = np.random.default_rng(len(name)).bytes(size)
    assert kept(name, lambda: made, lambda made: {"part": made}, lambda files: files["part"]) == made


def test_what_was_used_longest_ago_goes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, "2")
    for age, name in enumerate(("a", "bb", "ccc")):
        _kept(name)
        os.utime(folder / f"{name}.zip", (time.time() - 100 + age,) * 2)
    _kept("a")
    _kept("dddd")
    assert [path.stem for path in entries(folder)] == ["a", "ccc", "dddd"]
    _kept("more than may be kept", 3 << 20)
    assert [path.stem for path in entries(folder)] == ["a", "ccc", "dddd"]


def test_what_a_process_left_behind_goes(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, age in (("old.part", 9000), ("new.part", 9)):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - age,) * 2)
    _kept("a")
    assert [path.name for path in entries(folder)] == ["a.zip", "new.part"]


def test_it_can_be_turned_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_right(tvm_cascade.compile(program(), cache=False))
    for variable, value in (("TVM_CASCADE_CACHE", "0"), (cache.VARIABLE, "0")):
        with monkeypatch.context() as changed:
            changed.setenv(variable, value)
            assert_right(tvm_cascade.compile(program()))
    assert not folder.exists() and cache.VARIABLE not in os.environ
    monkeypatch.setenv(cache.VARIABLE, "4 GiB")
    with pytest.raises(OptionError, match=r"(?s)number of MiB.*'4 GiB'.*CACHE_MIB"):
        tvm_cascade.compile(program())


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.delenv(cache.VARIABLE)
    with pytest.warns(CacheWarning, match="CACHE_MIB=0 turns that off") as told:
        assert_right(tvm_cascade.compile(program()))
    assert len(told) == 1


@pytest.mark.parametrize("target", ["sm_90a", {"kind": "llvm", "mcpu": "znver5"}, {"kind": "llvm", **ARM}], ids=str)
def test_code_for_other_machines_is_not_kept(folder: Path, target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if target == "sm_90a" and tvm.cuda(0).exist:
        pytest.skip("it is for this machine")
    monkeypatch.setattr(targets, "host_target", lambda: Target({"kind": "llvm", "mcpu": "x86-64"}))
    tvm_cascade.compile(program(), target)
    assert not folder.exists()


def module() -> tvm.IRModule:
    """softmax(x)·w in Relax, with a constant."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((ROWS, LENGTH), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            weight = relax.const(np.linspace(-1, 1, LENGTH, dtype="float32"))
            out = builder.emit_output(relax.op.multiply(builder.emit(relax.op.nn.softmax(x)), weight))
        builder.emit_func_output(out)
    return builder.finalize()


def test_a_module_of_relax_is_not_compiled_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = get_pipeline(cache=False), get_pipeline()
    first.build(module())
    get_pipeline().build(module())
    monkeypatch.setattr(Pipeline, "made", compiles_nothing)
    executable = again.build(module())
    assert again.report == first.report and again.report.functions
    assert again.apart == first.apart
    x = np.random.default_rng(0).standard_normal((ROWS, LENGTH), np.float32)
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
    exact = np.exp(x.astype("float64"))
    exact *= np.linspace(-1, 1, LENGTH, dtype="float32") / exact.sum(-1, keepdims=True)
    assert_close(found, exact, length=LENGTH, dtype="float32")


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return tvm_cascade.compile(program())


def test_a_compiled_program_is_saved_and_pickled(tmp_path: Path, compiled: Compiled) -> None:
    tvm_cascade.save(compiled, tmp_path / "program")
    for again in (tvm_cascade.load(tmp_path / "program"), pickle.loads(pickle.dumps(compiled))):
        assert_right(again)
        assert repr(again) == repr(compiled) and again.report == compiled.report
        assert str(again.target) == str(compiled.target)
        tvm_cascade.save(again, tmp_path / "again")
        assert_right(tvm_cascade.load(tmp_path / "again"))
    assert_right(copy.deepcopy(compiled))
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["again", "program"]


def test_what_is_no_saved_program_is_not_loaded(tmp_path: Path, compiled: Compiled) -> None:
    path = tmp_path / "program"
    with pytest.raises(InputError, match=r"(?s)found int.*compile or tvm_cascade.optimize"):
        tvm_cascade.save(3, path)
    with pytest.raises(InputError, match="folder that exists"):
        tvm_cascade.save(compiled, tmp_path / "nowhere" / "program")
    tvm_cascade.save(compiled, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(InputError, match=r"(?s)program: its digest.*save it anew"):
        tvm_cascade.load(path)
    path.write_bytes(packed({**unpacked(whole), "versions": b"tvm-cascade 0.0.1, apache-tvm 0.27.0"}))
    with pytest.raises(InputError, match=r"found one of tvm-cascade 0\.0\.1"):
        tvm_cascade.load(path)
    with pytest.raises(FileNotFoundError):
        tvm_cascade.load(tmp_path / "nothing")


def test_code_for_another_machine_is_not_run(
    tmp_path: Path, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    tvm_cascade.save(compiled, tmp_path / "program")
    monkeypatch.setattr(targets, "host_target", lambda: Target({"kind": "llvm", "mcpu": "x86-64"}))
    with pytest.raises(DeviceError, match=r"(?s)a processor with .*compile the program on this machine"):
        tvm_cascade.load(tmp_path / "program")


def test_commands_that_test_and_measure_compile_anew(folder: Path) -> None:
    assert check.main(["softmax_stats", "--small", "--inputs", "normal"]) == 0
    assert not folder.exists()
