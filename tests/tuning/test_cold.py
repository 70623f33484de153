"""Cold times: a design runs behind what is read, and what it takes is the difference."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te

from tvm_cascade.devices.cards import H200
from tvm_cascade.devices.device import Gpu
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.driver.toolkit import find_nvcc
from tvm_cascade.tuning import cold
from tvm_cascade.tuning.measuring import Data

SMALL: Gpu = dataclasses.replace(H200, l2_bytes=1 << 16)
"""A card whose cache is so small that a CPU stands in for it."""


def doubled(name: str) -> tvm.IRModule:
    x = te.placeholder((8,), "float32", "x")
    func = te.create_prim_func([x, te.compute((8,), lambda i: 2.0 * x[i], name="y")])
    return tvm.IRModule({name: func.with_attr("global_symbol", name)})


def reading() -> tvm.IRModule:
    """A stand-in for the kernel that reads: it leaves the first column."""
    read = te.placeholder(cold.shape_of(SMALL), "float32", "read")
    func = te.create_prim_func([read, te.compute(read.shape[:1], lambda i: read[i, 0], name="largest")])
    return tvm.IRModule({cold.READ: func.with_attr("global_symbol", cold.READ)})


def exported(mod: tvm.IRModule, path: Path) -> Path:
    tvm.compile(mod, target="llvm").export_library(str(path))
    return path


def test_a_function_runs_behind_the_reading_one_that_its_library_imports(tmp_path: Path) -> None:
    mod = doubled("f")
    both = cold.with_cold(mod, "f", SMALL)
    assert "f_cold" not in [var.name_hint for var in mod.functions] and cold.behind("f") == "f_cold"
    module = tvm.runtime.load_module(str(exported(both, tmp_path / "design.so")))
    module.import_module(tvm.runtime.load_module(str(exported(reading(), tmp_path / "read.so"))))
    rows, columns = cold.shape_of(SMALL)
    arrays = np.full((rows, columns), 3.0, "float32"), np.zeros(rows, "float32"), np.arange(8.0, dtype="float32")
    read, largest, x, y = (tvm.runtime.tensor(array) for array in (*arrays, np.zeros(8, "float32")))
    module["f_cold"](read, largest, x, y)
    assert np.all(largest.numpy() == 3.0) and np.all(y.numpy() == 2 * arrays[-1])


def test_what_a_design_takes_is_beyond_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, asked = Data.__new__(Data), list[tuple[str, int]]()

    class Library(dict[str, Any]):
        def import_module(self, other: str) -> None:
            assert other == "reading library"

    design = Library(f_cold=lambda *arguments: asked.append(("warm", len(arguments))))
    vars(data).update(
        _task=SimpleNamespace(name="f"),
        _arguments=["x"],
        _read=["read", "largest"],
        _reading="reading library",
        _load=lambda _path: design,
    )

    def timed(module: Any, name: str, arguments: list[str], how: dict[str, int]) -> list[float]:
        asked.append((name, len(arguments)))
        return [10.0] * how["repeat"] if name == cold.READ else [12.5] * how["repeat"]

    monkeypatch.setattr(data, "_timed", timed)
    assert data.in_turns([tmp_path]) == [2.5]
    turn = [("warm", 3), *[(cold.READ, 2), ("f_cold", 3)] * 5]
    assert asked == turn * (len(asked) // len(turn)) and len(asked) > 2 * 20


def test_the_reading_library_is_built_for_a_card_that_is_not_here() -> None:
    if find_nvcc() is None:
        pytest.skip("no nvcc to compile for Hopper")
    library = cold.reading_library(resolve_target({"kind": "cuda", "arch": "sm_90a"}))
    assert library.startswith(b"\x7fELF") and cold.READ.encode() in library
    rows, columns = cold.shape_of(H200)
    assert 4 * rows * columns >= 2 * H200.l2_bytes
