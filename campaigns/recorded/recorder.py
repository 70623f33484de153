"""A pytest plugin that records every PrimFunc made while tests run.

    python -m pytest -p campaigns.recorded.recorder --record-into functions.jsonl tests/

Functions come from TVMScript, from TE, from schedules and from passes over modules. A file holds one function a line,
as JSON, with the test that made it; equal ones are kept once.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.ir.transform import Pass
from tvm.script import ir as ir_script
from tvm.script import tirx as tir_script

_LARGEST = 300_000
"""Characters of a function that is kept."""


class Recorder:
    """Writes functions to a file as they come, each once."""

    def __init__(self, path: Path) -> None:
        self._path, self._seen = path, set[int]()

    def keep(self, made: Any) -> None:
        """Writes the functions of what was made; anything else is passed over."""
        functions = [made] if isinstance(made, tirx.PrimFunc) else []
        if isinstance(made, tvm.IRModule):
            functions = [func for _, func in made.functions_items() if isinstance(func, tirx.PrimFunc)]
        for func in functions:
            if "calling_conv" in (func.attrs or {}) or ("target" in (func.attrs or {}) and not _has_root(func)):
                continue  # on its way to machine code
            key = tvm_ffi.structural_hash(func)
            if key not in self._seen:
                self._seen.add(key)
                self._write(tvm.ir.save_json(func))

    def _write(self, text: str) -> None:
        if len(text) <= _LARGEST:
            test = os.environ.get("PYTEST_CURRENT_TEST", "an import").removesuffix(" (call)")
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"test": test, "function": text}) + "\n")

    def watching(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose results are kept."""

        @functools.wraps(make)
        def made(*args: Any, **kwargs: Any) -> Any:
            found = make(*args, **kwargs)
            self.keep(found)
            return found

        return made


def _has_root(func: tirx.PrimFunc) -> bool:
    return isinstance(func.body, s_tir.SBlockRealize)


def pytest_addoption(parser: Any) -> None:
    """Declares where functions go."""
    parser.addoption("--record-into", type=Path, required=True, metavar="FILE", help="JSON lines, one a function")


def pytest_configure(config: Any) -> None:
    """Watches all that makes functions, before any test is imported."""
    recorder = Recorder(config.getoption("--record-into"))
    for decorator in (tir_script.prim_func, ir_script.ir_module):
        namespace = decorator.__globals__  # TVM loads this module under two names: one of them is of no use
        namespace["parse"] = recorder.watching(namespace["parse"])
    te.create_prim_func = recorder.watching(te.create_prim_func)
    Pass.__call__ = recorder.watching(Pass.__call__)
    s_tir.Schedule.mod = property(recorder.watching(s_tir.Schedule.mod.fget))
