"""What blocks do: units of work, such as tiles of rows, in some order; and the threads and registers that do it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tvm import ir, tirx

from tvm_cascade.tile.hopper.barrier import NamedBarriers
from tvm_cascade.tile.live import Passing, TileRange

WARP_GROUP = 128
"""Threads of a warp group."""

WARPS = 4
"""Of a warp group."""

MOST_REGISTERS = 255
"""Of a thread."""

GROUP_ROWS = 64
"""Rows of an accumulator that a warp group holds."""


@dataclass(frozen=True)
class Work:
    """One tile of rows.

    Attributes
    ----------
    batch : where it is in the batch.
    tiles : of the cascade axis that are visited.
    own, whole : of a warp group's own rows, the tiles that hold a live position and those that need no mask, where
        another warp has found them.
    passing : those that are visited, where not all of them are.
    """

    first_row: ir.Expr
    batch: dict[tirx.Var, ir.Expr]
    tiles: TileRange
    own: TileRange | None = field(default=None, kw_only=True)
    whole: TileRange | None = field(default=None, kw_only=True)
    passing: Passing | None = field(default=None, kw_only=True)


EachWork = Callable[[], AbstractContextManager[Work]]
"""A loop over the tiles of rows that a block has."""


@dataclass(frozen=True)
class Threads:
    """The coordinates of a thread in the launch.

    Attributes
    ----------
    group : its warp group in the block.
    warp : in the group.
    lane : in the warp.
    thread, count : in the block, and how many that has.
    named : the named barriers of the kernel.
    """

    block: ir.Expr
    group: ir.Expr
    warp: ir.Expr
    lane: ir.Expr
    thread: ir.Expr
    count: int
    named: NamedBarriers = field(default_factory=NamedBarriers, compare=False)

    @property
    def leads(self) -> ir.Expr:
        """Whether it is the elected thread of its group, which arrives for all."""
        return tirx.And(self.lane == 0, self.warp == 0)


Unit = TypeVar("Unit", covariant=True)


class Order(ABC, Generic[Unit]):
    """Which units of work each block has, one after the other."""

    @property
    @abstractmethod
    def grid(self) -> ir.Expr:
        """Blocks that are launched."""

    @abstractmethod
    def each(self, block: ir.Expr) -> AbstractContextManager[Unit]:
        """A loop over a block's units around the statements of the block."""

    def allocate(self, pool: Any) -> None:
        """Takes the shared memory that the order is found in, if any."""

    def find(self, threads: Threads) -> None:
        """Finds it, if that takes anything, with all threads of a block, before a barrier of it."""


@dataclass(frozen=True)
class Registers:
    """Registers of a thread of each role of a block.

    Attributes
    ----------
    moved : they move from those that copy to those that compute; else all threads keep what a launch gives them.
    """

    producer: int
    consumer: int
    converter: int = 0
    moved: bool = True

    def of_block(self, consumers: int, converters: int = 0) -> int:
        """Of all threads of a block of so many warp groups of each role, beside the producer's."""
        return WARP_GROUP * (self.producer + consumers * self.consumer + converters * self.converter)
