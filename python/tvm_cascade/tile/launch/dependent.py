"""Programmatic dependent launch: a kernel is launched while the one before it ends, and waits for what that one wrote.

    griddepcontrol.wait        before anything else: all that earlier kernels of the stream wrote is there

Every kernel of a chain waits before it reads what others of the chain wrote, and before it writes, so that the end of
one implies the end of all before it; most do at first, those that say so themselves later. The first of a plan waits
for nothing and is launched as usual: it may overwrite what the call before it still reads. Blocks let the next kernel
come by ending. To let it come when they start (griddepcontrol.launch_dependents) saves 0.2 µs more where blocks are
few, but costs each block 0.9 µs: 3 kernels of 128 blocks take 5.4 instead of 5.8 µs (8.4 when launched as usual), those
of 8192 blocks 29 instead of 20 µs (measured on an H200). Behind rows, a product that copies its first weights before
it waits takes no less: it needs all registers of a multiprocessor, and so starts where rows have ended (4096 rows, 4096
to 4096 features: 196.8 instead of 196.0 µs, and 196.7 to 199.2 where the last 132 to 4096 blocks of rows let it start).
Short ones behind kernels of one wave of blocks that let them start do take less: eight layers of a decoder, 32 tokens
with 4096 keys each, 1959 instead of 2004 µs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import device_call, put, variable, when

# What a kernel that computes more than it moves brings into the L2 cache for the kernel after it.
#
# Every tensor is cut into a share for each tile that a block copies for itself, and the beginning of a share is
# fetched with its tile: the blocks' own copies come first, and whichever part the later kernel begins with, some of it
# is there.


_LINE = 128
"""Bytes of a line of the cache, which shares begin at."""

FILLING = 2
"""Tiles of a block that come before it fetches: the pipeline of its own copies fills first."""

_FETCH = """
__device__ __forceinline__ void fetch_ahead(const void* tensor, int unit, int bytes) {
  const char* from = (const char*)tensor + (long long)unit * 128;
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" : : "l"(from), "r"(bytes) : "memory");
}
"""


@dataclass(frozen=True)
class Ahead:
    """Tensors of a later kernel.

    Attributes
    ----------
    sizes : of the tensors, in bytes.
    fetched : bytes of all of them that are brought.
    """

    tensors: tuple[tirx.Var, ...]
    sizes: tuple[int, ...]
    fetched: int

    def __str__(self) -> str:
        names = ", ".join(tensor.name for tensor in self.tensors)
        return f"{self.fetched / 1e6:.1f} MB of {names} into the cache"


class Fetching:
    """Emits the fetches of one thread of a block."""

    def __init__(self, ahead: Ahead, tensors: list[Any], block: ir.Expr, blocks: int, steps: int) -> None:
        self.tensors, self.filling = tensors, min(FILLING, steps - 1)
        self.steps = steps - self.filling
        part = ahead.fetched / sum(ahead.sizes)
        self.shares = [size // (blocks * self.steps) // _LINE for size in ahead.sizes]
        self.each = [int(share * part) for share in self.shares]
        self.block, self.done = block, variable("fetched", T.int32(0))

    def step(self) -> None:
        step = self.done[0] - self.filling
        with when(tirx.And(step >= 0, step < self.steps)):
            for tensor, share, each in zip(self.tensors, self.shares, self.each, strict=True):
                if each:
                    self._fetch(tensor, (self.block * self.steps + step) * share, each * _LINE)
        put(self.done, 0, self.done[0] + 1)

    def _fetch(self, tensor: Any, unit: ir.Expr, count: int) -> None:
        start = tensor.ptr_to([0] * len(tensor.shape))
        device_call("fetch_ahead", _FETCH, start, unit, T.int32(count))


WAITS = "tvm_cascade.waits"
"""Function attribute: its kernels are launched while those before them still run, and wait for them."""

STARTS = "tvm_cascade.starts"
"""Function attribute: kernels of so many blocks at most let the next one be launched before they end: once all blocks
have waited."""

SHORT = 200e-6
"""Seconds of a kernel up to which its boundaries are worth overlapping further: where each takes 0.3 to 6 ms, products
that begin with their weights took 1.02 times as long (a decoder's 8 × 2048 positions, measured)."""

GIVEN = "tvm_cascade.given"
"""Function attribute: places among its parameters of tensors that no kernel before it writes, from the first of the
caller's function on."""


@dataclass(frozen=True)
class Launch:
    """How a kernel of a plan meets those before and after it; by default each waits for the end of the one before.

    Attributes
    ----------
    ahead : what it brings into the cache for the next one; None for nothing.
    early : the next one starts once all its blocks have started, on multiprocessors that it leaves.
    given : those before it write nothing that it reads but a left operand: the others are copied while they end.
    late : what those before it write. It starts while they end, and waits for them where results are stored; empty
        where it waits at first.
    """

    ahead: Ahead | None = None
    early: bool = False
    given: bool = False
    late: tuple[tirx.Var, ...] = ()


BY_ITSELF = Launch()

_LAUNCH_PARAMS = "tirx.kernel_launch_params"
_DEPENDENT = "tirx.use_programtic_dependent_launch"
"""TVM's name of the launch attribute; the runtime takes it from among a kernel's launch parameters."""

NO_ALIAS = "tirx.noalias"
"""TVM's attribute of functions whose pointers are `__restrict__`: nvcc reads through the non-coherent path what such a
kernel does not write. PTX demands that nobody writes it while the kernel lives, and behind `griddepcontrol.wait` old
values were read (an index of a scattered tensor, H200), so that kernels that start early do not have it."""


def is_dependent(func: tirx.PrimFunc) -> bool:
    return func.attrs is not None and bool(func.attrs.get(WAITS, False))


def with_dependence(lowered: tvm.IRModule, func: tirx.PrimFunc) -> tvm.IRModule:
    """A dependent function's host and device code, with the waits and the launch attributes of its kernels."""
    starts = int(func.attrs.get(STARTS, 0))
    functions = {
        name: _dependent(one, starts) if _LAUNCH_PARAMS in one.attrs else one for name, one in lowered.functions.items()
    }
    return tvm.IRModule(functions, attrs=lowered.attrs)


def wait_for_others() -> None:
    """Emits the wait where a kernel needs it."""
    T.evaluate(_control("wait"))


def let_others_start() -> None:
    """Emits what lets the next kernel start once all blocks have come here: for kernels of one wave of blocks."""
    T.evaluate(_control("launch_dependents"))


_READ_LATE = """
__device__ __forceinline__ float read_late(const float* from) {
  float value;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(from));
  return value;
}
"""
_READ_FOUR_LATE = """
__device__ __forceinline__ void read_four_late(const float* from, float* into) {
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(into[0]), "=f"(into[1]), "=f"(into[2]), "=f"(into[3]) : "l"(from));
}
"""


def read_late(value: ir.Expr, late: Sequence[Any]) -> ir.Expr:
    """A value with loads that stay behind the wait: compilers may move those of what a kernel never writes.

    Parameters
    ----------
    late : tensors of float32, in the kernel's own parameters, that kernels before it write.
    """

    def read(load: ir.TensorLoad) -> ir.Expr:
        own = next((tensor for tensor in late if tensor.same_as(load.source)), None)
        if own is None:
            return load
        return device_call("read_late", _READ_LATE, own.ptr_to(list(load.indices)), returned="float32")

    return tvm_ffi.structural_map(value, (ir.TensorLoad, read))


def read_four_late(address: ir.Expr, into: Any) -> None:
    """Loads four neighbours of such a tensor, which are aligned, into registers; it stays behind the wait."""
    device_call("read_four_late", _READ_FOUR_LATE, address, T.address_of(into[0]))


def _control(what: str) -> ir.Call:
    return ir.Call(ir.Op.get("tirx.ptx.griddepcontrol"), [what, ""], ret_ty="void")


def _waits_itself(kernel: tirx.PrimFunc) -> bool:
    found: list[ir.Call] = []
    tvm_ffi.structural_walk(kernel.body, (ir.Call, found.append))
    return any(tvm_ffi.structural_equal(call, _control("wait")) for call in found)


def _blocks(kernel: tirx.PrimFunc) -> float:
    found: dict[str, ir.Expr] = {}

    def note(attribute: tirx.AttrStmt) -> None:
        if attribute.attr_key == "thread_extent":
            found[str(attribute.node.thread_tag)] = attribute.value

    tvm_ffi.structural_walk(kernel.body, (tirx.AttrStmt, note))
    counts = [found[tag] for tag in ("blockIdx.x", "blockIdx.y", "blockIdx.z") if tag in found]
    if not counts or not all(isinstance(count, prim.IntImm) for count in counts):
        return math.inf
    return math.prod(int(count) for count in counts)


def _dependent(kernel: tirx.PrimFunc, starts: int) -> tirx.PrimFunc:
    waiting = kernel
    if not _waits_itself(kernel):
        controls = ["wait", *(["launch_dependents"] if _blocks(kernel) <= starts else [])]
        waiting = kernel.with_body(tirx.SeqStmt([*(tirx.Evaluate(_control(what)) for what in controls), kernel.body]))
    return waiting.with_attrs({_LAUNCH_PARAMS: [_DEPENDENT, *kernel.attrs[_LAUNCH_PARAMS]], NO_ALIAS: False})
