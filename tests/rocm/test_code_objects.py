"""`compile` for ROCm without ROCm: code objects for AMD GPUs, or an error that says what is missing."""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, te, tirx

import tvm_cascade
from corpus import workloads
from tvm_cascade.driver import toolkit
from tvm_cascade.driver.compilation import compile_unfused
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import CompilerError, DeviceError, InputError

from .emulator.run import Kernels
from .programs import lowered, target_of
from .test_waves import distinct

_AMDGPU = 224
_MACHINE = {"gfx942": 0x4C, "gfx90a": 0x3F}
"""By architecture, the lowest byte of an AMD GPU's e_flags."""

needs_lld = pytest.mark.skipif(toolkit.find_lld() is None, reason="no LLD: python -m pip install 'tvm-cascade[rocm]'")


def code_object(compiled: tvm_cascade.Compiled, folder: Path) -> bytes:
    """The ELF file of the kernels in an exported library."""
    library = folder / "library.so"
    compiled.export_library(library)
    text = library.read_bytes()
    found = [text[at.start() :] for at in re.finditer(b"\x7fELF", text)]
    inner = [part for part in found if struct.unpack_from("<H", part, 18)[0] == _AMDGPU]
    assert len(inner) == 1
    return inner[0]


@needs_lld
@pytest.mark.parametrize("mcpu", _MACHINE)
def test_library_holds_a_code_object_for_the_card(mcpu: str, tmp_path: Path) -> None:
    compiled = tvm_cascade.compile(workloads.get("softmax").cpu.build(), target={"kind": "rocm", "mcpu": mcpu})
    elf = code_object(compiled, tmp_path)
    flags = struct.unpack_from("<I", elf, 48)[0]
    shared_object = 3
    assert struct.unpack_from("<H", elf, 16)[0] == shared_object
    assert flags & 0xFF == _MACHINE[mcpu]
    assert b"main_kernel.kd\0" in elf and b"main_kernel_1.kd\0" in elf
    assert "S-TIR schedule" in str(compiled.report) and mcpu in str(compiled.report)


@needs_lld
@pytest.mark.slow
def test_a_workload_of_every_family_compiles() -> None:
    """What all of them are lowered to is tested by `test_waves`."""
    for job in {job.family: job for job in distinct().values()}.values():
        compiled = tvm_cascade.compile(job.build(), target=target_of("gfx90a"))
        assert "S-TIR schedule, without tensor cores" in str(compiled.report), job.label


@needs_lld
def test_call_without_a_card() -> None:
    compiled = tvm_cascade.compile(workloads.get("sum_sum").cpu.build(), target=target_of())
    with pytest.raises(DeviceError, match="no ROCM device"):
        compiled(*[np.zeros(param.shape, "float32") for param in compiled.parameters["main"]])


@needs_lld
def test_build_leaves_the_callbacks_of_tvm_as_they_were() -> None:
    names = ("tvm_callback_rocm_link", "tvm_callback_rocm_bitcode_path")
    before = [tvm_ffi.get_global_func(name) for name in names]
    tvm_cascade.compile(workloads.get("sum_sum").cpu.build(), target=target_of())
    assert all(tvm_ffi.get_global_func(name).same_as(func) for name, func in zip(names, before, strict=True))


def test_error_without_a_linker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "_candidates", lambda: iter(()))
    with pytest.raises(CompilerError, match=r"ld\.lld, 19 or newer\n  found none(.|\n)*tvm-cascade\[rocm\]"):
        tvm_cascade.compile(workloads.get("sum_sum").cpu.build(), target=target_of())


def test_linker_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    old = (sys.executable, "-c", "print('LLD 14.0.6 (compatible with GNU linkers)')")
    monkeypatch.setattr(toolkit, "_candidates", lambda: iter([old]))
    with pytest.raises(CompilerError, match="of version 14"):
        toolkit.link_code_object(b"")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"kind": "rocm"}, "no ROCm device here"),
        ("rocm", "no ROCm device here"),
        ({"kind": "rocm", "mcpu": "gfx1100"}, "gfx942 or gfx90a"),
    ],
)
def test_target_that_is_no_known_card(target: str | dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve_target(target)


def unwaited(assembly: str) -> list[int]:
    """The lines of barriers that a wave may pass while what it wrote to LDS is on its way."""
    pending, found = False, []
    for number, line in enumerate(assembly.splitlines()):
        instruction = line.strip()
        if instruction.startswith("ds_write"):
            pending = True
        elif instruction.startswith("s_waitcnt") and "lgkmcnt(0)" in instruction:
            pending = False
        elif instruction == "s_barrier" and pending:
            found.append(number)
    return found


@pytest.mark.parametrize("name", ["attention", "softmax"])
def test_barriers_wait_for_what_was_written(name: str) -> None:
    """LLVM's own features for the card let a wave pass: that is what the target leaves out."""
    func, target = lowered(workloads.get(name).cpu.build()), target_of()
    described = {key: value for key, value in target.export().items() if key not in ("mattr", "host")}
    assert "s_barrier" in Kernels(func, target).assembly
    assert unwaited(Kernels(func, target).assembly) == []
    assert unwaited(Kernels(func, tvm.target.Target(described, host=target.host)).assembly)


@pytest.mark.parametrize("unfused", [False, True])
def test_function_that_the_card_does_not_compute(unfused: bool) -> None:
    """LLVM would end the process at a float64 sine."""
    x = te.placeholder((64,), "float64", name="x")
    func = te.create_prim_func([x, te.compute((64,), lambda i: te.sin(x[i]), name="y")])
    with pytest.raises(InputError, match=r"`sin` of float64(.|\n)*function `main`"):
        (compile_unfused if unfused else tvm_cascade.compile)(func, target=target_of())


def reversed_by_one_block(length: int, threads: int) -> tirx.PrimFunc:
    """A scheduled function that turns its input around in shared memory."""
    x = te.placeholder((length,), "float32", name="x")
    held = te.compute((length,), lambda i: x[i], name="held")
    sch = s_tir.Schedule(te.create_prim_func([x, te.compute((length,), lambda i: held[length - 1 - i], name="y")]))
    blocks = [sch.get_sblock(name) for name in ("held", "y")]
    whole = sch.add_unit_loop(sch.get_loops(blocks[1])[0])
    sch.compute_at(blocks[0], whole)
    sch.set_scope(blocks[0], 0, "shared")
    sch.bind(whole, "blockIdx.x")
    for block in blocks:
        _, lane = sch.split(sch.get_loops(block)[-1], [None, threads])
        sch.bind(lane, "threadIdx.x")
    return sch.mod["main"]


@needs_lld
@pytest.mark.parametrize(
    ("length", "threads", "message"),
    [
        (32768, 64, "at most 65536 bytes of shared memory of a block\n  found 131072"),
        (1024, 512, "at most 256 threads"),
    ],
)
def test_blocks_that_the_card_does_not_run(length: int, threads: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tvm_cascade.compile(reversed_by_one_block(length, threads), target=target_of())
