"""What a checker of types says of a user's program: each line that is marked with a code is an error of it."""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
import typing
from pathlib import Path

import tvm_cascade
from tvm_cascade.options import FuseOptions, Options

_PROGRAM = """
import tvm_cascade
from tvm_cascade.distributed import shard
from tvm_cascade.relax import FuseCascades, get_pipeline

program = object()
tvm_cascade.compile(program, "llvm", tile=64, lanes=None, guards="off", rescalable_casts=("float16",))
tvm_cascade.compile(program, tile="64")  # arg-type
tvm_cascade.compile(program, tyle=64)  # call-arg
tvm_cascade.compile(program, guards="sometimes")  # arg-type
tvm_cascade.compile(program, rescalable_casts=("float32",))  # arg-type
tvm_cascade.compile_unfused(program, tf32="on")  # arg-type
tvm_cascade.explain(program, segments=None)  # arg-type
tvm_cascade.jit(lambda x: x, force=1)  # arg-type
tvm_cascade.tune(program, trials=4, buckets="4")  # arg-type
tvm_cascade.numerics(program, seed=0, sizes={"n": 3}, forced=True)  # call-arg
tvm_cascade.split(program, 2, reference="near")  # arg-type
tvm_cascade.FuseCascadedReductions(tile=64, segment=2)  # call-arg
tvm_cascade.FuseOptions(tile=64, cache=3)  # arg-type
FuseCascades("cuda", tensor_cores="no")  # arg-type
get_pipeline("cuda", narrow_sums=2)  # arg-type
shard(program, axis="j", fast=True)  # call-arg
"""


def test_a_wrong_type_and_an_unknown_option_are_told_before_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(_PROGRAM)
    packages = Path(tvm_cascade.__file__).parent.parent
    flags = ["--config-file=", "--follow-imports=silent", "--ignore-missing-imports", "--hide-error-context"]
    told = subprocess.run(
        [sys.executable, "-m", "mypy", *flags, "user.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": "" if str(packages) in site.getsitepackages() else str(packages)},
        capture_output=True,
        text=True,
    )
    found = re.findall(r"^user\.py:(\d+): error: .*\[([a-z-]+)\]$", told.stdout, re.M)
    lines = enumerate(_PROGRAM.splitlines(), start=1)
    assert found == [(str(n), line.partition("  # ")[2]) for n, line in lines if "  # " in line], told.stdout


def test_options_of_a_call_are_the_fields_of_the_options() -> None:
    assert typing.get_type_hints(Options) == typing.get_type_hints(FuseOptions)
