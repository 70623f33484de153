"""A trial of a recorded function: the pass, `explain` and `compile`, compared with what TVM builds.

    python -m campaigns.recorded.trial functions.jsonl --state trials.jsonl

Outputs start as poison, twice: what TVM's own build leaves to that, or computes from it, is not compared. The rest is
compared with TVM's own build by the rule of `evaluate.tolerance`, whose baseline is the same build on inputs that
differ by a rounding in the narrowest float of the function.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

import tvm_cascade
from campaigns.campaign import TRIAL_SECONDS, State, Task, run_campaign
from campaigns.program import Array
from campaigns.summary import findings
from campaigns.trial import Record, first_line
from tvm_cascade.analysis.tir import REDUCTION
from tvm_cascade.devices.host import core_count, host_target
from tvm_cascade.driver.compilation import compile_unfused
from tvm_cascade.driver.generation import generate
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.evaluate import tolerance
from tvm_cascade.schedule.gpu import launch_serial
from tvm_cascade.transform.fuse_cascaded_reductions import FuseCascadedReductions

_MOST_ELEMENTS = 1 << 24
_EXTENT = 16
"""Of every dimension that has a name rather than a number."""

_THREADS = "4"
"""More than one, so that what must not run in parallel shows when it does."""

_CUDA = {"kind": "cuda", "arch": "sm_90a"}


@dataclass(frozen=True)
class Recorded:
    """A campaign over the functions of a file."""

    path: Path
    jobs: int
    budget: float | None = None

    def tasks(self) -> Iterator[Task]:
        """Every function, by its place in the file."""
        yield from ((str(self.path), position) for position in range(len(_lines(self.path))))


@cache
def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def work(tasks: Connection) -> None:
    """What a worker process does: trials, until there is none."""
    os.environ["TVM_NUM_THREADS"] = _THREADS
    while (task := tasks.recv()) is not None:
        path, position = task
        recorded = json.loads(_lines(Path(path))[position])
        try:
            finding, detail = trial(tvm.ir.load_json(recorded["function"]))
        except Exception as error:  # of the trial itself, such as data that cannot be made
            finding, detail = "", f"not tried: {first_line(error)}"
        tasks.send(Record(path, position, finding=finding, detail=f"{recorded['test']}: {detail}"))


def trial(func: tirx.PrimFunc) -> tuple[str, str]:
    """("wrong", "changed" or "error", what happened); the first is empty where all is well."""
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    text = mod.script()
    if mod.script() != text:
        return "", "its text is never the same"
    forms: dict[str, Callable[[], Any]] = {
        "explain": lambda: str(tvm_cascade.explain(mod)),
        "pass": lambda: _tvm_build(FuseCascadedReductions(force=True)(mod)),
        "compile": lambda: tvm_cascade.compile(mod).runtime_module,
        "compile_unfused": lambda: compile_unfused(mod).runtime_module,
        "compile for CUDA": lambda: tvm_cascade.compile(mod, _CUDA),
    }
    built, failed = {}, {}
    for name, build in forms.items():
        try:
            built[name] = build()
        except Exception as error:  # whatever is raised is what the trial looks for
            failed[name] = first_line(error)
        if mod.script() != text:
            return "changed", f"{name} changed the module"
    try:
        plain = _tvm_build(tvm.ir.load_json(tvm.ir.save_json(mod)))
    except Exception as error:  # a function that is no program for this machine
        own = {name: message for name, message in failed.items() if name == "explain"}
        return ("error", f"{own}") if own else ("", f"TVM does not build it: {first_line(error)}")
    own = {n: message for n, message in failed.items() if n != "compile for CUDA" or _builds_for_cuda(mod)}
    if own:
        return "error", f"{own}"
    for name in ("pass", "compile", "compile_unfused"):
        if message := difference(func, plain, built[name]):
            return "wrong", f"{name}: {message}"
    return "", "right"


def _tvm_build(mod: tvm.IRModule) -> tvm.runtime.Executable:
    return tvm.compile(mod, target=host_target())


def _builds_for_cuda(mod: tvm.IRModule) -> bool:
    """Whether TVM builds the module's function for CUDA with every nest in one thread."""
    try:
        generate(tvm.IRModule({"main": launch_serial(mod["main"])}), resolve_target(_CUDA))
    except Exception:  # whatever TVM raises means that it has no code for CUDA, so that ours need have none
        return False
    return True


def difference(func: tirx.PrimFunc, plain: tvm.runtime.Executable, ours: tvm.runtime.Executable) -> str:
    """What the two make different of equal arguments."""
    first, second, found = (_run(built, func, poison) for built, poison in ((plain, 77), (plain, 50), (ours, 77)))
    dtype, length = _narrowest_float(func), _longest_reduction(func)
    nearby = _run(plain, func, 77, 0.0 if dtype is None else float(ml_dtypes.finfo(dtype).eps))
    for param, one, two, other, mine in zip(func.params, first, second, nearby, found, strict=True):
        if not isinstance(one, np.ndarray):
            continue
        exact = one.dtype.kind in "iub"
        compared = np.where(_equal(one, two), mine, one)
        comparison = tolerance.check(
            compared, one, None if exact else other, length=length, dtype=str(one.dtype) if exact else str(dtype)
        )
        if not comparison.ok:
            return f"{param.name}: {comparison.message}"
    return ""


def _narrowest_float(func: tirx.PrimFunc) -> str | None:
    """The float with the largest rounding among those that a function computes with; None where it has none."""
    found: set[str] = {str(param.ty.dtype) for param in func.params if tirx.is_buffer_var(param)}
    kinds = (ir.TensorLoad, ir.prim.Cast, ir.Call)
    tvm_ffi.structural_walk(
        func.body, [(kind, lambda node: found.add(str(getattr(node.ty, "dtype", "")))) for kind in kinds]
    )
    floats = [dtype for dtype in found if dtype.startswith(("float", "bfloat"))]
    return max(floats, key=lambda dtype: float(ml_dtypes.finfo(dtype).eps), default=None)


def _longest_reduction(func: tirx.PrimFunc) -> int:
    """Positions that the longest reduction of a function runs over."""
    blocks: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, blocks.append))
    reduced = [[iv.dom.extent for iv in block.iter_vars if iv.iter_type == REDUCTION] for block in blocks]
    sizes = ([int(e) if isinstance(e, ir.prim.IntImm) else _EXTENT for e in extents] for extents in reduced)
    return max(map(math.prod, sizes), default=1)


def _equal(left: Array, right: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return (left == right) | ((left != left) & (right != right))


def _run(built: tvm.runtime.Executable, func: tirx.PrimFunc, poison: int, moved: float = 0.0) -> list[Any]:
    """The arguments as they are after a call, in which floats were moved by so much of themselves at most."""
    rng, noise = np.random.default_rng(0), np.random.default_rng(1)
    stores: list[tirx.BufferStore] = []
    loads: list[ir.TensorLoad] = []
    tvm_ffi.structural_walk(func.body, [(tirx.BufferStore, stores.append), (ir.TensorLoad, loads.append)])
    read = [load.source for load in loads]
    outputs = [s.buffer for s in stores if not any(s.buffer.same_as(other) for other in read)]
    sizes: dict[str, int] = {}
    arguments: list[Any] = []
    for param in func.params:
        drawn = _argument(param, rng, sizes)
        if any(param.same_as(output) for output in outputs):
            drawn = np.full(drawn.shape, poison).astype(drawn.dtype)
        elif moved and isinstance(drawn, np.ndarray) and drawn.dtype.kind not in "iub":
            drawn = (drawn * (1 + moved * noise.uniform(-1, 1, drawn.shape))).astype(drawn.dtype)
        arguments.append(drawn)
    tensors = [tvm.runtime.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments]
    built["main"](*tensors)
    return [t.numpy() if isinstance(a, np.ndarray) else a for a, t in zip(arguments, tensors, strict=True)]


def _argument(param: tirx.Var, rng: np.random.Generator, sizes: dict[str, int]) -> Any:
    """Numbers for a parameter: small integers, which may be positions, and normal numbers."""
    if not tirx.is_buffer_var(param):
        return _EXTENT if "int" in str(param.ty) else 0.5
    shape = tuple(int(e) if isinstance(e, ir.prim.IntImm) else _EXTENT for e in param.ty.shape)
    if np.prod(shape, dtype="int64") > _MOST_ELEMENTS:
        raise ValueError("an array that is too large for a trial")
    name = str(param.ty.dtype)
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    if dtype.kind in "iub":
        return rng.integers(0, 2 if dtype.kind == "b" else 4, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _dies_plain(path: str, position: int) -> bool:
    """Whether a process ends when it runs what TVM itself builds of a function."""
    process = multiprocessing.get_context("spawn").Process(target=_run_plain, args=(path, position))
    process.start()
    process.join(TRIAL_SECONDS)
    process.kill()
    return process.exitcode != 0


def _run_plain(path: str, position: int) -> None:
    func = tvm.ir.load_json(json.loads(_lines(Path(path))[position])["function"])
    _run(_tvm_build(tvm.IRModule({"main": func.with_attr("global_symbol", "main")})), func, 0)


def main() -> int:
    """Tries the functions of a file; 1 where there are findings."""
    parser = argparse.ArgumentParser(description="Try recorded functions.")
    parser.add_argument("functions", type=Path, help="what the recorder wrote")
    parser.add_argument("--state", type=Path, help="JSON lines, one a trial: where to go on from")
    parser.add_argument("--jobs", type=int, default=core_count())
    args = parser.parse_args()
    state = State(args.state)
    run_campaign(Recorded(args.functions, args.jobs), state, target=work)
    found = findings(state.records.values())
    found = [r for r in found if r.finding not in ("crash", "timeout") or not _dies_plain(r.kind, r.seed)]
    for record in found:
        print(f"{record.seed}: {record.finding}: {record.detail}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
