"""What a kernel that computes more than it moves brings into the L2 cache for the kernel after it.

Every tensor is cut into a share for each tile that a block copies for itself, and the beginning of a share is fetched
with its tile: the blocks' own copies come first, and whichever part the later kernel begins with, some of it is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import put, registers, when

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
    tensors : that it reads.
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
    """Emits the fetches of one thread of a block.

    Parameters
    ----------
    tensors : in the kernel's own parameters.
    blocks : how many there are.
    steps : tiles that a block copies for itself.
    """

    def __init__(self, ahead: Ahead, tensors: list[Any], block: ir.Expr, blocks: int, steps: int) -> None:
        self.tensors, self.filling = tensors, min(FILLING, steps - 1)
        self.steps = steps - self.filling
        part = ahead.fetched / sum(ahead.sizes)
        self.shares = [size // (blocks * self.steps) // _LINE for size in ahead.sizes]
        self.each = [int(share * part) for share in self.shares]
        self.block, self.done = block, registers("fetched", 1, "int32")
        put(self.done, 0, T.int32(0))

    def step(self) -> None:
        step = self.done[0] - self.filling
        with when(tirx.And(step >= 0, step < self.steps)):
            for tensor, share, each in zip(self.tensors, self.shares, self.each, strict=True):
                if each:
                    self._fetch(tensor, (self.block * self.steps + step) * share, each * _LINE)
        put(self.done, 0, self.done[0] + 1)

    def _fetch(self, tensor: Any, unit: ir.Expr, count: int) -> None:
        start = tensor.ptr_to([0] * len(tensor.shape))
        T.evaluate(T.cuda.func_call("fetch_ahead", start, unit, T.int32(count), source_code=_FETCH, return_type="void"))
