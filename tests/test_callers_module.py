"""No entry point changes the module it was given, whatever becomes of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
import tvm_ffi
from tvm import tirx

import tvm_cascade
from corpus import workloads
from tvm_cascade.driver import compilation
from tvm_cascade.driver.compilation import compile_unfused
from tvm_cascade.transform.fuse_cascaded_reductions import FuseCascadedReductions

from .refusals.catalogue import CATALOGUE
from .schedule import test_independence
from .transform import programs, tuple_programs

CUDA = {"kind": "cuda", "arch": "sm_90a"}

ENTRIES: dict[str, Callable[[tvm.IRModule], object]] = {
    "pass": lambda mod: FuseCascadedReductions(force=True)(mod),
    "explain": lambda mod: str(tvm_cascade.explain(mod, CUDA)),
    "compile": lambda mod: tvm_cascade.compile(mod, force=True),
    "compile_unfused": lambda mod: compile_unfused(mod),
    "compile for a GPU": lambda mod: tvm_cascade.compile(mod, CUDA),
}

SETS: dict[str, Callable[[], dict[str, tirx.PrimFunc]]] = {
    "fused": lambda: {name: build() for name, build in programs.PROGRAMS.items()},
    "tuples": lambda: {name: build() for name, build in tuple_programs.PROGRAMS.items()},
    "refused": lambda: {name: refused.build() for name, refused in CATALOGUE.items()},
    "serial": lambda: {str(k): func for k, func in enumerate(test_independence.DEPENDENT)},
    "workloads": lambda: {name: workloads.get(name).cpu.build() for name in ("H1", "mla", "R4", "Q1", "inertia")},
}


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in SETS if name != "serial"]


@pytest.mark.parametrize("chosen", ["serial", *SLOW])
def test_the_callers_module_stays_as_it_was(chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code, which takes the time, is generated in other tests (`test_compilation`); all before it runs here."""
    monkeypatch.setattr(compilation, "generate", lambda mod, *_: mod)
    for name, func in SETS[chosen]().items():
        mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        given, text, copy = mod["main"], mod.script(), tvm.ir.load_json(tvm.ir.save_json(mod))
        for entry, call in ENTRIES.items():
            call(mod)
            assert mod.script() == text, f"{entry} changed {name}"
            assert mod["main"].same_as(given) and tvm_ffi.structural_equal(mod, copy), f"{entry} changed {name}"
