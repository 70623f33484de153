"""An instruction family as a value: what multiplies tiles of shared memory, and what a kernel has to do around it.

A kernel asks its family, and never for its name:

    products    from shared memory or registers into accumulators, with what orders, commits and awaits them
    threads     that multiply together, and so tell together that they have read a tile
    registers   whether they move between warp groups, or all threads keep what a launch gives them

Accumulators of all families have one layout: of sixteen rows of a warp and eight columns, lane q has rows q/4 and 8
below it, and the two columns from 2·(q mod 4) on (`tile.fragment`); packed left operands have that of sixteen columns.

To add a family: derive from `Family` in a module of its own, put it into `FAMILIES` (`tile.machine.table`), and name
its instructions in the rows of the cards that have them (`devices.cards`). What kernels cannot do with it, the
configurations refuse by what it says of itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.devices.device import Instructions
from tvm_cascade.tile.emit import when
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.operand import MATRIX_DTYPES
from tvm_cascade.tile.work import MOST_REGISTERS, WARP_GROUP, Registers, Threads


class Family(ABC):
    """What multiplies in a kernel.

    Attributes
    ----------
    instructions : that a card has to have.
    dtypes : of operands.
    threads : that multiply together.
    deferred : products are done once they are awaited; otherwise they are where they stand.
    moves_registers : warp groups give registers to others.
    through_registers : a warp loads of a right operand what it multiplies, instead of the tensor cores themselves.
    """

    instructions: ClassVar[Instructions]
    dtypes: ClassVar[tuple[str, ...]]
    threads: ClassVar[int]
    deferred: ClassVar[bool]
    moves_registers: ClassVar[bool]
    through_registers: ClassVar[bool]

    @property
    def arrivals(self) -> int:
        """Of a warp group that has read a tile."""
        return WARP_GROUP // self.threads

    @contextmanager
    def leading(self, threads: Threads) -> Iterator[None]:
        """Around what one thread does for all that multiply together, once they have read a tile."""
        if self.threads == WARP:
            T.evaluate(T.cuda.warp_sync())
        with when(threads.leads if self.threads == WARP_GROUP else threads.lane == 0):
            yield

    def registers(self, moved: Registers, groups: int) -> Registers:
        """Registers of the roles: as they move, or those of a processor shared out evenly among so many warp groups."""
        if self.moves_registers:
            return moved
        each = min(_REGISTERS // (WARP_GROUP * groups) // _UNIT * _UNIT, MOST_REGISTERS)
        return Registers(each, each, each, moved=False)

    @abstractmethod
    def matrix(self, pointer: ir.Expr, rows: int, transposed: bool, threads: Threads, left: bool = False) -> Any:
        """A tile [rows, columns] in boxes of 128 bytes a row, as products read it.

        Parameters
        ----------
        pointer : to it; of a left operand, to the rows of a warp group.
        transposed : products sum over its rows, of 16 bits then; over its columns otherwise.
        """

    @abstractmethod
    def offset(self, stage: ir.Expr, size: int, further: int = 0) -> ir.Expr:
        """The offset of a pipeline stage of `size` bytes in shared memory, and so many bytes further on."""

    @abstractmethod
    def fence(self) -> None:
        """Orders earlier register writes before later products."""

    @abstractmethod
    def commit(self) -> None:
        """Commits the products since the last commit as one group."""

    @abstractmethod
    def wait(self, pending: int) -> None:
        """Waits until at most so many groups are in flight."""

    @abstractmethod
    def multiply_shared(
        self, sums: Sequence[Sequence[Any]], columns: int, left: Any, rights: Sequence[Any], depth: int,
        dtypes: tuple[str, str], left_offsets: Sequence[ir.Expr], right_offsets: Sequence[ir.Expr],
        steps: range | None = None, add: bool = False,
    ) -> None:  # fmt: skip
        """sums[i][j] = left, from its offset i on, @ rights[j]ᵀ, all in shared memory.

        Parameters
        ----------
        depth : of the sums; the last step is zero past it.
        steps : of the sums, all by default.
        add : to what the accumulators have been before.
        """

    @abstractmethod
    def multiply_registers(
        self, accumulator: Any, columns: int, left: Any, right: Any, depth: int, dtypes: tuple[str, str],
        offset: ir.Expr, add: bool = True,
    ) -> None:  # fmt: skip
        """accumulator += left @ right, with the left operand in registers of 32 bits, whose elements are neighbours.

        Parameters
        ----------
        depth : of the sum; the last step is zero past it.
        add : to what the accumulator has; otherwise it is overwritten.
        """


_REGISTERS, _UNIT = 64 * 1024, 8
"""Registers of a processor, and what those of a thread are allocated in multiples of."""

WIDEST = 256
"""Columns of an instruction at most."""


def steps_of(depth: int, dtype: str) -> int:
    """Instructions that sum over so many elements of a dtype."""
    return -(-depth // MATRIX_DTYPES[dtype].step)
