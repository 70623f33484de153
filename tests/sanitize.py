"""A kernel of every kind under compute-sanitizer. Run by hand on a machine with a Hopper GPU, for minutes.

`python tests/sanitize.py [WORD ...]` compiles a small program for each kind of kernel whose name holds one of the
words, and runs it under memcheck, racecheck and synccheck, each in a process of its own. What it computes is compared
with the float64 oracle there. It exits with 1 where a tool reports anything, or an output is wrong. `--list` names the
kinds. A kind belongs here where a kernel moves data, waits or merges in a way that no other one does.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if (_BESIDE := str(Path(__file__).resolve().parent)) in sys.path:  # as for a script, which needs torch, not its tests
    sys.path[sys.path.index(_BESIDE)] = str(Path(_BESIDE).parent)  # and the benchmarks

import numpy as np
import tvm

import tvm_cascade
from benchmarks import suites
from corpus import workloads
from corpus.workload import Workload
from tvm_cascade.evaluate import oracle, tolerance

TOOLS = ("memcheck", "racecheck", "synccheck")
HOPPER = {"kind": "cuda", "arch": "sm_90a"}
SECONDS = 120
"""After which a run under a tool is ended."""
_CLEAN = ("ERROR SUMMARY: 0 errors", "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)")


@dataclass(frozen=True)
class Kind:
    """A kernel of one kind, by a program that is lowered to it.

    Attributes
    ----------
    name : what it does that others do not.
    workload : the program, with its small shape.
    skeletons : of its plan's kernels in order; "" for one of an S-TIR schedule.
    told : words of what the function is lowered to.
    """

    name: str
    workload: Workload
    skeletons: tuple[str, ...]
    told: tuple[str, ...] = ()


def _of_suite(suite: str, label: str, **shape: int) -> Workload:
    return suites.entries(suite, [label])[0].workload.with_shape(**shape)


def _named(name: str, dtype: str | None = None, **shape: int) -> Workload:
    workload = workloads.get(name).with_shape(**shape)
    return workload if dtype is None else workload.with_dtype(dtype)


_STREAM, _HALVES, _PRODUCT, _ROW = ("stream",), ("stream halves",), ("product",), ("row",)
_QUERIES = {"batch": 1, "heads": 2, "queries": 300, "keys": 300}
_GROUPED = {"batch": 2, "heads": 16, "kv_heads": 2, "keys": 700}
_UNEVEN = {**_GROUPED, "batch": 5, "shortest": 20}

KINDS = (
    Kind("prefill", _of_suite("prefill", "d128s512c", **_QUERIES), _STREAM, ("StreamConfig", "ping_pong=True")),
    Kind("prefill of float8 scores", _of_suite("float8", "d128s512c", **_QUERIES), _STREAM, ("StreamConfig",)),
    Kind(
        "pieces merged over a cluster",
        _named("DC_CAUSAL", heads=4, kv_heads=4, keys=1100),
        _STREAM,
        ("PiecesConfig", "cluster=8"),
    ),
    Kind("packed query heads", _named("DC_GQA", heads=16, kv_heads=2, keys=1500), _STREAM, ("PiecesConfig",)),
    Kind("packed queries", _named("decode_draft", **_GROUPED), _STREAM, ("PiecesConfig",)),
    Kind("mask in a tensor", _named("decode_tree", **_GROUPED), _STREAM, ("PiecesConfig",)),
    Kind(
        "pieces merged by all that left them", _named("decode_lengths", **_UNEVEN), _STREAM, ("blocks=132", "cluster=1")
    ),
    Kind("pages of 16", _named("decode_paged", **_UNEVEN), _STREAM, ("PiecesConfig",)),
    Kind("pages of 64", _named("decode_paged", **_UNEVEN, page=64), _STREAM, ("PiecesConfig",)),
    Kind("pages of 1", _named("decode_paged", **{**_UNEVEN, "keys": 300}, page=1), _STREAM, ("PiecesConfig",)),
    Kind("widened cache", _named("decode_float8", **_GROUPED), _STREAM, ("widening=2",)),
    Kind("halves of a state", _named("L7", batch=2, keys=400), _HALVES, ("HalvesConfig",)),
    Kind("halves of few heads", _named("L3", batch=3, keys=400, heads=16), _HALVES, ("HalvesConfig",)),
    Kind("halves of many pieces", _named("L3", batch=3, heads=100, keys=333), _HALVES, ("cluster=1",)),
    Kind(
        "halves by length",
        _named("mla_paged", batch=2, keys=400, shortest=20),
        _HALVES,
        ("cluster=1", "by_length=True"),
    ),
    Kind("product", _named("product", m=300, n=200, k=200), _PRODUCT, ("splits=1",)),
    Kind("product split over k", _named("product", m=100, n=128, k=1024), _PRODUCT, ("splits=8",)),
    Kind("product on CUDA cores", _named("product_float32", m=136, n=200, k=200), ("cores",)),
    Kind("row of a block", _named("softmax", "float16", rows=5, length=1000), _ROW, ("a block a row",)),
    Kind("row of a cluster", _named("softmax", "float16", rows=5, length=40000), _ROW, ("a cluster of 8 blocks",)),
    Kind("row of the grid", _named("variance", rows=1, length=2**20), _ROW, ("128 blocks a row",)),
    Kind(
        "row of a product, over the grid",
        _named("head_cross_entropy", tokens=20, classes=3000, hidden=128),
        ("folded",),
        ("LongConfig",),
    ),
    Kind(
        "row before a product",
        _named("rmsnorm_gemm", "float16", tokens=64, columns=128, hidden=256),
        ("row", "product"),
    ),
    Kind(
        "shared prefix",
        _named("decode_prefix", batch=8, heads=64, kv_heads=8, keys=700, prefix=600),
        ("stream", "stream"),
    ),
)


@dataclass(frozen=True)
class Job:
    """What a process runs: a library, its inputs, and what is right.

    Attributes
    ----------
    path : of a library whose `main` is the program.
    arrays : its inputs.
    exact, rounded : by output, in order: the oracle's values in float64, and as the dtypes of the program round them.
    dtypes : of the outputs.
    length : positions of the cascade axis.
    dtype : that tensors are stored in.
    """

    path: str
    arrays: list[Any]
    exact: list[Any]
    rounded: list[Any]
    dtypes: list[Any]
    length: int
    dtype: str


def lowered(kind: Kind) -> tvm_cascade.Compiled:
    """The program of a kind, compiled for Hopper.

    Raises
    ------
    ValueError
        Where it is lowered to another kind of kernel.
    """
    allowed = dict.fromkeys(kind.workload.allowances, True)
    alone = len(kind.skeletons) == 1  # which is declined for a shape so small
    compiled = tvm_cascade.compile(kind.workload.build(), HOPPER, force=alone, **allowed)
    (report,) = compiled.report.functions
    skeletons = tuple(step.skeleton for step in report.plan)
    if skeletons != kind.skeletons or any(word not in report.lowering for word in kind.told):
        raise ValueError(f"{kind.name}: {kind.skeletons} {kind.told} became {skeletons}: {report.lowering}")
    return compiled


def prepare(kind: Kind, folder: Path) -> Path:
    """Compiles a kind, and writes its library and its job there; gives the job's file."""
    library, workload = folder / f"{kind.name}.so".replace(" ", "_"), kind.workload
    lowered(kind).runtime_module.export_library(str(library))
    func, arrays = workload.build(), workload.inputs(np.random.default_rng(0))
    exact, rounded = (list(oracle.evaluate(func, arrays, rounding=flag).values()) for flag in (False, True))
    dtypes = [dtype for _, dtype in workload.outputs]
    file = library.with_suffix(".job")
    job = Job(str(library), arrays, exact, rounded, dtypes, workload.length, workload.dtype)
    file.write_bytes(pickle.dumps(vars(job)))
    return file


def run(file: Path) -> str:
    """Runs a job once on the GPU; what is wrong with its outputs, empty where nothing is."""
    job = Job(**pickle.loads(file.read_bytes()))
    device = tvm.cuda(0)
    inputs = [tvm.runtime.tensor(array, device) for array in job.arrays]
    outputs = []
    for exact, dtype in zip(job.exact, job.dtypes, strict=True):
        poison = np.nan if np.issubdtype(np.dtype(dtype), np.floating) or np.dtype(dtype).kind == "V" else -1
        outputs.append(tvm.runtime.tensor(np.full(exact.shape, poison).astype(dtype), device))
    tvm.runtime.load_module(job.path)["main"](*inputs, *outputs)
    device.sync()
    for output, exact, rounded in zip(outputs, job.exact, job.rounded, strict=True):
        found = output.numpy().astype(np.float64)
        compared = tolerance.check(found, exact, rounded, length=job.length, dtype=job.dtype)
        if not compared.ok:
            return compared.message
    return ""


def outcome(file: Path, tool: str, seconds: int = SECONDS) -> str:
    """ "clean", or what a tool or the comparison says of a job."""
    command = ["compute-sanitizer", "--tool", tool, "--print-limit", "4", sys.executable, __file__, "--run", str(file)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"not done in {seconds} s"
    if ran.returncode == 0 and any(line in ran.stdout for line in _CLEAN):
        return "clean"
    return f"exit code {ran.returncode}\n{ran.stdout}{ran.stderr}"


def wanted(words: Iterable[str], kinds: Iterable[Kind] = KINDS) -> list[Kind]:
    """The kinds whose names hold one of the words; all where there is none."""
    chosen = list(words)
    return [kind for kind in kinds if not chosen or any(word in kind.name for word in chosen)]


def sanitized(kinds: Iterable[Kind], tools: Iterable[str], folder: Path) -> dict[tuple[str, str], str]:
    """The outcome of every kind under every tool."""
    files = {kind.name: prepare(kind, folder) for kind in kinds}
    return {(name, tool): outcome(file, tool) for tool in tools for name, file in files.items()}


def main(
    arguments: list[str] | None = None,
    examine: Callable[[Iterable[Kind], Iterable[str], Path], Mapping[tuple[str, str], str]] = sanitized,
    say: Callable[[str], None] = print,
) -> int:
    """Examine the kinds; returns 1 where one of them is not clean, or none is meant."""
    parser = argparse.ArgumentParser(description="Run a kernel of every kind under compute-sanitizer.")
    parser.add_argument("words", nargs="*", help="of the names of the kinds to run (all)")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="one tool of several (all)")
    parser.add_argument("--list", action="store_true", help="name the kinds and stop")
    parser.add_argument("--run", type=Path, metavar="FILE", help="run a job that is prepared, as each process does")
    args = parser.parse_args(arguments)
    if args.run is not None:
        wrong = run(args.run)
        say(wrong or "right")
        return int(bool(wrong))
    kinds = wanted(args.words)
    if args.list:
        say("\n".join(kind.name for kind in kinds))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        found = examine(kinds, args.tool or TOOLS, Path(folder))
    for (name, tool), told in found.items():
        say(f"{tool:<10} {name}: {told}")
    return 1 if not found or any(told != "clean" for told in found.values()) else 0


if __name__ == "__main__":
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    sys.exit(main())
