"""A kernel's LLVM IR for AMD GPUs as LLVM IR for the host: memory is one space, instructions are calls.

    load volatile float, ptr addrspace(3) %p, align 4   ->   call void @lockstep()
                                                             load volatile float, ptr %p, align 4
    call i32 @llvm.amdgcn.ds.bpermute(i32 %a, i32 %b)   ->   call i32 @amdgcn_ds_bpermute(i32 %a, i32 %b)

The arithmetic stays as it is, and functions such as llvm.exp are the host's.
"""

from __future__ import annotations

import re

_GLOBAL, _LDS, _PRIVATE = "1", "3", "5"
_FLAT = {None, "0"}
_CAST = re.compile(r"addrspacecast\W+ptr(?: addrspace\((\d+)\))?.*?\bto ptr(?: addrspace\((\d+)\))?")
_TARGET = re.compile(r'^target (?:datalayout|triple) = ".*"$', re.MULTILINE)
_METADATA = re.compile(r'^!\d+ = (!\{i32 \d+, !"tvm_target", .*\})$', re.MULTILINE)


class MisplacedPointer(AssertionError):
    """A pointer to one memory is taken for one to another: the GPU would read elsewhere."""


def for_host(device: str, host: str) -> str:
    """The kernels of a module, for the machine that another one is for.

    Parameters
    ----------
    device : LLVM IR of the kernels.
    host : LLVM IR of any module for this machine, as TVM generates it.

    Raises
    ------
    MisplacedPointer
        Where a pointer is cast between memories that have no address in common.
    """
    for source, target in _CAST.findall(device):
        if target not in ("", "0") or source not in (_GLOBAL, _LDS, _PRIVATE):
            raise MisplacedPointer(f"a pointer to address space {source or 0} is cast to {target or 0}")
    machine = {line.split()[1]: line for line in _TARGET.findall(host)}
    placed = _TARGET.sub(lambda line: machine[line[0].split()[1]], device)
    lines = [_line(line) for line in placed.splitlines() if not line.startswith("attributes #")]
    known = _METADATA.search(host)
    assert known is not None
    flags = f"!llvm.module.flags = !{{!{_free(device)}}}\n!{_free(device)} = {known[1]}"
    return "\n".join([*lines, "declare void @lockstep()", flags])


def _line(line: str) -> str:
    if line.startswith("@") and f"addrspace({_LDS})" in line:
        line = re.sub(r"(, align \d+)?$", r', section "lds"\1', line)
    together = "volatile" in line and f"addrspace({_LDS})" in line
    line = re.sub(r" addrspace\(\d+\)", "", line)
    line = re.sub(r"addrspacecast", "bitcast", line)
    line = re.sub(r"@llvm\.amdgcn\.([\w.]+)", lambda name: "@amdgcn_" + name[1].replace(".", "_"), line)
    line = re.sub(r"@__(\w+f2)\b", r"@device_\1", line)  # conversions of halves, whose calls differ from the host's
    line = re.sub(r"\b(amdgpu_kernel|dllexport|tail) ", "", line)
    line = re.sub(r" #\d+", "", re.sub(r", ![\w.]+ !\d+", "", line))
    return f"  call void @lockstep()\n{line}" if together else line


def _free(device: str) -> int:
    """A number that no metadata of the module has."""
    return 1 + max([int(number) for number in re.findall(r"^!(\d+) =", device, re.MULTILINE)], default=-1)
