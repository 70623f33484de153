"""Barriers: in shared memory (mbarrier), of a cluster, and the named ones of a block (bar).

Those of a ring of pipeline stages are full after the copies, and empty after the reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import ptx, put, registers, when

BARRIER_BYTES = 8
"""Of a barrier."""


def fence_barriers() -> None:
    """Makes barriers that a thread has initialised known to the other blocks of its cluster."""
    ptx("fence.mbarrier_init.release.cluster")


def cluster_arrive(relaxed: bool = False) -> None:
    """Arrives at the barrier of the cluster.

    Parameters
    ----------
    relaxed : no writes before it need be seen behind it.
    """
    ptx(f"barrier.cluster.arrive.{'relaxed' if relaxed else 'release'}")


def cluster_wait() -> None:
    ptx("barrier.cluster.wait.acquire")


def cluster_sync() -> None:
    cluster_arrive()
    cluster_wait()


def in_block(pointer: ir.Expr, block: ir.Expr) -> ir.Expr:
    """The address of a place of shared memory in another block of the cluster."""
    mapped = registers("address_in_block", 1, "uint32")
    ptx("mapa.shared::cluster.u32", mapped[0], T.cuda.cvta_generic_to_shared(pointer), T.cast(block, "uint32"))
    return mapped[0]


_NAMED = {
    "fix-up": 1,
    "turns": 2,
    "lifting turns": 5,
    "fix-up of a part": 6,
    "all consumers": 7,
    "a consumer's own": 8,
    "votes": 11,
    "sharing": 13,
}
"""The numbers of named barriers by their use, from which on it has as many as it asks for; 0 is of the whole block."""

_LAST_NAMED = 15


@dataclass(frozen=True)
class NamedBarrier:
    """Barriers of warps of a block by number, of one use: `first`, and those that follow it."""

    first: int

    def sync(self, threads: int, number: ir.Expr | int | None = None) -> None:
        """Waits for so many threads, this one included, at a number; the first by default."""
        ptx("bar.sync", self.operand(number), T.uint32(threads))

    def arrive(self, threads: int, number: ir.Expr | int | None = None) -> None:
        ptx("bar.arrive", self.operand(number), T.uint32(threads))

    def operand(self, number: ir.Expr | int | None) -> ir.Expr:
        return T.uint32(self.first) if number is None else T.cast(number, "uint32")


class NamedBarriers:
    """The named barriers of a kernel, by use: no two uses have one in common."""

    def __init__(self) -> None:
        self.taken: dict[str, range] = {}

    def take(self, use: str, count: int = 1) -> NamedBarrier:
        """The barriers of a use; the same whenever it asks."""
        own = range(_NAMED[use], _NAMED[use] + count)
        others = [other for other, numbers in self.taken.items() if other != use and set(numbers) & set(own)]
        assert not others and own[-1] <= _LAST_NAMED, f"named barriers {own} of {use} are those of {others}"
        self.taken[use] = max(own, self.taken.get(use, own), key=len)
        return NamedBarrier(own.start)


class Barriers:
    """`count` barriers, each of which completes a phase after `arrivals` arrivals and the bytes that were announced."""

    def __init__(self, pool: Any, count: int, arrivals: int) -> None:
        self.count, self.arrivals = count, arrivals
        self.buffer = pool.alloc((count,), "uint64", align=8)

    def initialise(self) -> None:
        """Initialises the barriers; called by one thread, before a block-wide barrier and any other use."""
        for k in range(self.count):
            ptx("mbarrier.init.shared.b64", self.buffer.ptr_to([k]), T.uint32(self.arrivals))

    def pointer(self, stage: ir.Expr | int) -> ir.Expr:
        return self.buffer.ptr_to([stage])

    def announce(self, stage: ir.Expr | int, size: int | ir.Expr) -> None:
        """Arrives, and announces the bytes of copies that complete the phase."""
        ptx("mbarrier.arrive.expect_tx.shared.b64", self.pointer(stage), T.uint32(size))

    def arrive(self, stage: ir.Expr | int) -> None:
        ptx("mbarrier.arrive.shared.b64", self.pointer(stage), T.uint32(1))

    def of_block(self, block: ir.Expr) -> ir.Expr:
        return in_block(self.pointer(0), block)

    def arrive_at(self, first: ir.Expr, stage: ir.Expr) -> None:
        """Arrives at a stage's barrier in the block whose first one has that address."""
        at = first + T.cast(stage, "uint32") * T.uint32(BARRIER_BYTES)
        ptx("mbarrier.arrive.shared::cluster.b64", at, T.uint32(1))

    def wait(self, stage: ir.Expr | int, parity: ir.Expr | int) -> None:
        T.evaluate(T.cuda.mbarrier_wait(self.pointer(stage), parity))


class Ring:
    """A position in a ring of pipeline stages: the next stage, and its phase."""

    def __init__(self, name: str, stages: int, parity: int) -> None:
        self.stages = stages
        self._state = registers(name, 2, "int32")
        put(self._state, 0, T.int32(0))
        put(self._state, 1, T.int32(parity))

    @property
    def stage(self) -> ir.Expr:
        return self._state[0]

    @property
    def parity(self) -> ir.Expr:
        return self._state[1]

    def advance(self) -> None:
        put(self._state, 0, self._state[0] + 1)
        with when(self._state[0] == self.stages):
            put(self._state, 0, T.int32(0))
            put(self._state, 1, self._state[1] ^ 1)

    def join(self, other: Ring) -> None:
        put(self._state, 0, other.stage)
        put(self._state, 1, other.parity)
