"""Parallel loops of compiled functions on torch's OpenMP threads.

Compiled code starts its parallel loops through a pointer, `__TVMBackendParallelLaunch`, that is set when it is loaded.
TVM's own pool would contend with torch's for the cores: OpenMP threads go on spinning for milliseconds after each of
torch's operators, and a thread of another pool waits for its turn behind them. One pool has the number of threads that
`torch.set_num_threads` says, and they are awake when a compiled function follows one of torch's operators.
"""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path

import torch
import tvm
import tvm_ffi
from tvm import tirx

_OPENMP = ("GOMP_parallel", "omp_get_max_threads", "omp_get_num_threads", "omp_get_thread_num")

_LAUNCH = """
%task = type {{ ptr, ptr, i32, i32 }} ; the body of the loop, what it reads, how many parts it has, its first error
%environment = type {{ ptr, i32 }}

define private void @parts_of_this_thread(ptr %task) {{
entry:
  %body = load ptr, ptr %task
  %at.data = getelementptr %task, ptr %task, i32 0, i32 1
  %data = load ptr, ptr %at.data
  %at.parts = getelementptr %task, ptr %task, i32 0, i32 2
  %parts = load i32, ptr %at.parts
  %at.error = getelementptr %task, ptr %task, i32 0, i32 3
  %environment = alloca %environment
  store ptr null, ptr %environment
  %at.count = getelementptr %environment, ptr %environment, i32 0, i32 1
  store i32 %parts, ptr %at.count
  %first = call i32 inttoptr (i64 {omp_get_thread_num} to ptr)()
  %threads = call i32 inttoptr (i64 {omp_get_num_threads} to ptr)()
  br label %test
test:
  %part = phi i32 [ %first, %entry ], [ %next, %done ]
  %is.left = icmp slt i32 %part, %parts
  br i1 %is.left, label %work, label %end
work:
  %error = call i32 %body(i32 %part, ptr %environment, ptr %data)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %fail, label %done
fail:
  store atomic i32 %error, ptr %at.error monotonic, align 4
  br label %done
done:
  %next = add i32 %part, %threads
  br label %test
end:
  ret void
}}

define i32 @launch(ptr %body, ptr %data, i32 %asked) {{
  %most = call i32 inttoptr (i64 {omp_get_max_threads} to ptr)()
  %is.asked = icmp sgt i32 %asked, 0
  %parts = select i1 %is.asked, i32 %asked, i32 %most
  %task = alloca %task
  store ptr %body, ptr %task
  %at.data = getelementptr %task, ptr %task, i32 0, i32 1
  store ptr %data, ptr %at.data
  %at.parts = getelementptr %task, ptr %task, i32 0, i32 2
  store i32 %parts, ptr %at.parts
  %at.error = getelementptr %task, ptr %task, i32 0, i32 3
  store i32 0, ptr %at.error
  call void inttoptr (i64 {GOMP_parallel} to ptr)(ptr @parts_of_this_thread, ptr %task, i32 %parts, i32 0)
  %error = load i32, ptr %at.error
  ret i32 %error
}}

define i32 @__tvm_ffi_address(ptr %self, ptr %arguments, i32 %count, ptr %result) {{
  store i32 1, ptr %result ; kTVMFFIInt
  %at.value = getelementptr i8, ptr %result, i64 8
  store i64 ptrtoint (ptr @launch to i64), ptr %at.value
  ret i32 0
}}

!llvm.module.flags = !{{!0}}
!0 = !{{i32 4, !"tvm_target", !"{{\\22kind\\22: \\22llvm\\22}}"}}
"""
"""TVMBackendParallelLaunch in LLVM's assembly, by the addresses of OpenMP's functions.

The team may have fewer threads than were asked for, such as one inside another parallel region, so that each takes
several parts.
"""


def launch_by_openmp() -> tvm.runtime.Module | None:
    """Has what is loaded from now on run its parallel loops on torch's OpenMP threads.

    Returns
    -------
    The module of the code that starts them, to be kept for as long as anything runs; None where torch has other threads
    than OpenMP's, and TVM's own pool stays.
    """
    symbols = ctypes.CDLL(torch._C.__file__)  # its dependencies are searched too
    if not all(hasattr(symbols, name) for name in _OPENMP):
        return None
    addresses = {name: ctypes.cast(getattr(symbols, name), ctypes.c_void_p).value for name in _OPENMP}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "launch.ll"
        path.write_text(_machine() + _LAUNCH.format(**addresses))
        module = tvm.runtime.load_module(str(path))
    register = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi()).TVMFFIEnvModRegisterContextSymbol
    register(b"__TVMBackendParallelLaunch", ctypes.c_void_p(module["address"]()))
    return module


def _machine() -> str:
    """The lines in which LLVM's assembly names the machine that TVM generates code for."""
    nothing = tirx.PrimFunc([], tirx.Evaluate(0)).with_attr("global_symbol", "nothing")
    text = tvm.compile(tvm.IRModule({"nothing": nothing}), target="llvm").mod.inspect_source("ll")
    return "\n".join(line for line in text.splitlines() if line.startswith("target "))
