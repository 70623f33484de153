"""The driver of warp-specialised kernels: one warp group of a block copies tiles, the others compute.

    host        parameters; descriptors of tensors
    block       coordinates of its threads; shared memory; barriers; all threads meet
    group 0     producer: gives registers back; copies tiles
    groups 1…   consumers: take them; compute;    the last groups: converters, where a family has such

A family of kernels says what its roles do, and what they need to begin. Source: warp-specialised kernels of CUTLASS
(2023), and the template of ThunderKittens (Spector et al., 2024), which is cut alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import branches, named, parameter, ptx, shared_pool, when
from tvm_cascade.tile.launch.dependent import let_others_start, wait_for_others
from tvm_cascade.tile.work import WARP_GROUP, Order, Registers, Threads


class Initialised(Protocol):
    """What one thread initialises before the threads of a block meet: barriers, or what has some."""

    def initialise(self) -> None:
        """Emits that."""


class Driver(ABC):
    """Emits a kernel of roles.

    Attributes
    ----------
    resident : blocks of a multiprocessor.
    early : the next kernel is started with it.
    consumers : how many of them compute; the first of them is number 1.
    order, threads : of units of work, and the coordinates of a thread, once `place` has told them.
    """

    resident = 1
    early = False
    threads: Threads
    order: Order[Any]

    def __init__(self, params: Iterable[tirx.Var], consumers: int, converters: int = 0) -> None:
        self.params, self.consumers, self.groups = params, consumers, 1 + consumers + converters
        self.buffers: dict[tirx.Var, Any] = {}

    def build(self, name: str) -> tirx.PrimFunc:
        """The kernel with its launch, over the parameters of the unfused function."""
        self.name = name
        with IRBuilder() as builder, T.prim_func():
            T.func_name(name)
            T.func_attr({"global_symbol": name})
            for param in self.params:
                self.buffers[param] = parameter(param)
            self.describe()
            T.device_entry()
            with T.attr({"tirx.launch_bounds_min_blocks_per_sm": self.resident}):
                self.place()
                if self.early:
                    let_others_start()
                pool = shared_pool()
                self.allocate(pool)
                pool.commit()
                self.initialise()
                self.meet()
                self.roles()
        return builder.get()

    def place_threads(self, block: ir.Expr) -> None:
        self.threads = Threads(
            block,
            named("group", T.warpgroup_id([self.groups])),
            named("warp", T.warp_id_in_wg([4])),
            named("lane", T.lane_id([32])),
            named("thread", T.thread_id([self.groups * WARP_GROUP])),
            self.groups * WARP_GROUP,
        )

    def each_work(self) -> AbstractContextManager[Any]:
        """What is written within is done for every unit of work that the block has."""
        return self.order.each(self.threads.block)

    def roles(self) -> None:
        shares = self.registers()
        with branches(self.threads.group == 0) as (producer, others):
            with producer:
                if shares.moved:
                    ptx("setmaxnreg.dec.sync.aligned.u32", shares.producer)
                self.produce()
            with others:
                if self.groups == 1 + self.consumers:
                    self._consumers(shares)
                else:
                    with branches(self.threads.group <= self.consumers) as (consumer, converter):
                        with consumer:
                            self._consumers(shares)
                        with converter:
                            if shares.moved:
                                ptx("setmaxnreg.dec.sync.aligned.u32", shares.converter)
                            self.convert()

    def _consumers(self, shares: Registers) -> None:
        if shares.moved:
            ptx("setmaxnreg.inc.sync.aligned.u32", shares.consumer)
        if self.begins_early:
            wait_for_others()
            with when(self.threads.leads):
                let_others_start()
        self.consume()

    @abstractmethod
    def describe(self) -> None:
        """On the host: descriptors of tensors."""

    @abstractmethod
    def place(self) -> None:
        """The order, the grid, and with `place_threads` the coordinates of a thread."""

    @abstractmethod
    def allocate(self, pool: Any) -> None:
        """Shared memory of tiles and barriers."""

    def initialise(self) -> None:
        """Initialises barriers, by one thread; or whatever else has to come before all threads meet."""
        with when(self.threads.thread == 0):
            for one in self.barriers():
                one.initialise()
        ptx("fence.proxy.async.shared::cta")

    @abstractmethod
    def barriers(self) -> Iterable[Initialised]:
        """What is initialised."""

    def meet(self) -> None:
        """All threads of the block find the order, and wait for each other."""
        self.order.find(self.threads)
        T.evaluate(T.cuda.cta_sync())

    @abstractmethod
    def registers(self) -> Registers:
        """How the roles share registers."""

    @property
    def begins_early(self) -> bool:
        """Whether the producer copies before it waits for the kernels before this one, which consumers do at once."""
        return False

    @abstractmethod
    def produce(self) -> None:
        """What the warp group of the producer does."""

    @abstractmethod
    def consume(self) -> None:
        """What every warp group that computes does."""

    def convert(self) -> None:
        """What the warp groups after those do, where there are any."""
        raise NotImplementedError
