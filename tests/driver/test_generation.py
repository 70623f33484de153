"""Exported libraries: machine code that loads where there is TVM's runtime alone."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.target import Target

import tvm_cascade
from corpus import workloads
from tvm_cascade.driver import cuda
from tvm_cascade.driver.toolkit import find_nvcc
from tvm_cascade.errors import CompilerError, InputError

from ..tile.checked import attention_case
from .test_compilation import outputs_of

CUDA = 190
"""The machine of an ELF file that holds code for a CUDA device."""

_LOAD = """
import ctypes, sys
import tvm_ffi
for name in ("libtvm_runtime.so", "libtvm_runtime_cuda.so"):
    ctypes.CDLL(f"{sys.argv[1]}/{name}", ctypes.RTLD_GLOBAL)
library = tvm_ffi.load_module(sys.argv[2])
print([imported.kind for imported in library.imports], library["main"] is not None, "tvm" in sys.modules)
"""


def needs_toolkit(test):  # type: ignore[no-untyped-def]
    return pytest.mark.skipif(not (find_nvcc() and shutil.which("cc")), reason="no nvcc or no C compiler")(test)


def machines(data: bytes) -> set[int]:
    """The machines of the ELF files that are in a file."""
    starts = [at for at in range(len(data)) if data.startswith(b"\x7fELF", at)]
    return {struct.unpack_from("<H", data, at + 18)[0] for at in starts}


def doubled(dtype: str = "float32") -> tirx.PrimFunc:
    """Of each row, twice its elements: on a GPU an S-TIR function."""
    x = te.placeholder((4, 32), dtype, name="x")
    out = te.compute((4, 32), lambda i, j: x[i, j] * tirx.const(2, dtype), name="out")
    return te.create_prim_func([x, out])


def test_a_library_is_refused_where_the_runtime_is_not(tmp_path: Path) -> None:
    """Its code would call the runtime by pointers that nobody has set."""
    library = tmp_path / "doubled.so"
    tvm_cascade.compile(doubled()).export_library(library)
    load = "import sys, tvm_ffi; tvm_ffi.load_module(sys.argv[1])"
    alone = subprocess.run([sys.executable, "-c", load, library], capture_output=True, text=True, check=False)
    assert alone.returncode == 1
    assert "undefined symbol: TVMBackend" in alone.stderr
    subprocess.run([sys.executable, "-c", f"import tvm; {load}", library], check=True)


def test_a_library_for_the_cpu_does_what_the_compiled_program_does(tmp_path: Path) -> None:
    workload = workloads.get("softmax_stats").cpu
    func, inputs = workload.build(), workload.inputs(np.random.default_rng(0))
    compiled = tvm_cascade.compile(func)
    compiled.export_library(tmp_path / "stats.so")
    loaded = tvm_ffi.load_module(str(tmp_path / "stats.so"))["main"]
    here, there = outputs_of(compiled, func, inputs), outputs_of(loaded, func, inputs)
    assert all(np.array_equal(here[name], there[name]) and np.isfinite(here[name]).all() for name in here)


@needs_toolkit
@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda: attention_case("causal").build(), id="tensor cores", marks=pytest.mark.slow),
        pytest.param(doubled, id="S-TIR"),
    ],
)
def test_a_library_for_a_gpu_holds_machine_code_and_needs_the_runtime_alone(build, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "kernel.so"
    tvm_cascade.compile(build(), {"kind": "cuda", "arch": "sm_90a"}).export_library(path)
    data = path.read_bytes()
    assert CUDA in machines(data) and b"__global__" not in data
    runtime = Path(tvm.__file__).parent / "lib"
    searched = os.environ.get("LD_LIBRARY_PATH", "")
    if not tvm.cuda(0).exist:
        folders = cuda._driver_without_device(tmp_path), cuda._runtime_folder()
        searched = os.pathsep.join(map(str, [*folders, searched]))
    environment = {**os.environ, "LD_LIBRARY_PATH": searched, "PATH": ""}
    command = [sys.executable, "-c", _LOAD, str(runtime), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.split("\n")[0] == "['cuda'] True False", done.stderr


@needs_toolkit
@pytest.mark.skipif(tvm.cuda(0).exist, reason="a driver is here, and nothing else is asked for")
def test_what_is_missing_is_named_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tvm_cascade.compile(doubled(), {"kind": "cuda", "arch": "sm_90a"})
    monkeypatch.setattr(cuda, "_RUNTIME", "libcudart.so.1")
    with pytest.raises(CompilerError, match=r"libcudart\.so\.1 of a CUDA toolkit"):
        compiled.export_library(tmp_path / "kernel.so")
    assert not (tmp_path / "kernel.so").exists()


@pytest.mark.parametrize("path", ["kernel.tar", "no such folder/kernel.so"])
def test_a_path_that_cannot_be_written_is_refused_before_anything_is_made(path: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.so, in a folder that exists"):
        tvm_cascade.compile(doubled()).export_library(tmp_path / path)


def test_kernels_are_compiled_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact ones beside those that may be approximated, each once, under the caller's pass context and target."""
    all_of_them, told = threading.Barrier(4, timeout=60), list[tuple[set[str], str, int]]()

    def compiled(part: tvm.IRModule, target: Target) -> Any:
        if target.kind.name == "cuda":
            all_of_them.wait()  # which raises where one is compiled after another
            context = tvm.transform.PassContext.current()
            told.append(({v.name_hint for v in part.get_global_vars()}, str(Target.current().arch), context.opt_level))
        return generated(part, target)

    generated = cuda.codegen_build
    monkeypatch.setattr(cuda, "codegen_build", compiled)
    monkeypatch.setattr(cuda, "core_count", lambda: 4)
    functions = {f"f{k}": doubled(("float32", "float16")[k % 2]) for k in range(4)}
    with tvm.transform.PassContext(opt_level=1):
        tvm_cascade.compile(tvm.IRModule(functions), {"kind": "cuda", "arch": "sm_90a"}, cache=False)
    assert sorted(len(names) for names, _, _ in told) == [1, 1, 1, 1]
    assert set[str]().union(*(names for names, _, _ in told)) == {f"f{k}_kernel" for k in range(4)}
    assert {(arch, level) for _, arch, level in told} == {("sm_90a", 1)}


def test_there_are_no_more_texts_of_a_kind_than_cores() -> None:
    kernels = tvm.IRModule({f"f{k}": doubled() for k in range(5)})
    assert sorted(len(part.functions) for _, part in cuda._shared_out(kernels, 2)) == [2, 3]
