"""A skeleton: reads a group of its shape, configures, and emits a kernel.

    group → read → program → alternatives → configuration → emit → TIRx function

All but the last may say that a group does not fit (`Unfit`). Emission does not: whether there is a kernel is known
before any of it is written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.program import Program
from tvm_cascade.devices.device import Gpu, Instructions
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.cost import Counts, seconds
from tvm_cascade.tile.estimate import Work, count_work
from tvm_cascade.tile.launch.dependent import BY_ITSELF, Launch
from tvm_cascade.tile.operand import Operand, Unfit, check_allowed

P = TypeVar("P")
C = TypeVar("C")


@dataclass(frozen=True)
class Setting:
    """The device and options that kernels are generated for."""

    gpu: Gpu
    options: FuseOptions = field(default_factory=FuseOptions)


class Skeleton(ABC, Generic[P, C]):
    """A skeleton: data movement and division of labour, over a program P and a configuration C.

    Attributes
    ----------
    kind : of its kernels, in words.
    covers : the folds that it is for, in words.
    instructions : of which its kernels need one family.
    option : that turns it off; empty where none does.
    joint : it also takes all reductions of a function as one group, such as a minimum beside a maximum.
    last : its kernels are taken only where no other skeleton has one.
    guards : its kernels decide upon guarded results by value, and fold a row that fails again.
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    covers: ClassVar[str]
    instructions: ClassVar[frozenset[Instructions]]
    option: ClassVar[str] = ""
    joint: ClassVar[bool] = False
    last: ClassVar[bool] = False
    guards: ClassVar[bool] = False

    def unavailable(self, setting: Setting) -> str:
        """Why it is unavailable in a setting, for any function; empty where it is available."""
        if not self.instructions & setting.gpu.instructions:
            needed = " or ".join(sorted(one.value for one in self.instructions))
            return f"its kernels are written in {needed}, not for {setting.gpu.arch}"
        on = not self.option or getattr(setting.options, self.option)
        return "" if on else f"the option {self.option} is off"

    @abstractmethod
    def read(self, program: Program, group: Group, options: FuseOptions) -> P:
        """What a group that has the skeleton's shape does, as data; the shape itself where it says all.

        Unfit where the group does not have it, the function has more to do than the group and maps of its results, or
        elements or shifts are of no form that it takes.
        """

    @abstractmethod
    def alternatives(self, program: P, setting: Setting) -> list[C]:
        """Configurations (tile sizes, pipeline stages) that fit, from the least estimated time on; at least one.

        Unfit where none fits the hardware.
        """

    @abstractmethod
    def lacks(self, program: P, config: C, setting: Setting) -> str:
        """Why the program cannot be emitted in a configuration, ours or a user's, in words; empty where it can."""

    def operands(self, program: P) -> Iterable[Operand]:
        """What tensor cores multiply."""
        return ()

    def check(self, program: P, config: C, setting: Setting) -> None:
        """Checks that the program can be emitted, and that sums of products are as exact as the options ask.

        Unfit where it cannot, or they are not.
        """
        if lacking := self.lacks(program, config, setting):
            raise Unfit(lacking)
        for operand in self.operands(program):
            check_allowed(operand, setting.options)

    @abstractmethod
    def emit(self, program: P, config: C, name: str, launch: Launch) -> tirx.PrimFunc:
        """The kernel with its launch, over the parameters of the unfused function; never refuses.

        Parameters
        ----------
        launch : by itself, unless a method below says that there are others.
        """

    @abstractmethod
    def counts(self, program: P, config: C, work: Work, setting: Setting) -> Counts:
        """What a kernel does, of a function that asks for so much work."""

    def fetches_ahead(self, config: C) -> bool:
        """Whether its kernels, in a configuration, bring into the cache what a later kernel reads."""
        return False

    def leaving_room(self, program: P, setting: Setting) -> list[C]:
        """Configurations of fewer blocks with equal work, which leave multiprocessors to the next kernel."""
        return []

    def beside(self, program: P, config: C, processors: int, setting: Setting) -> C | None:
        """The configuration on so many multiprocessors, while another kernel has the rest; None where it has none."""
        return None

    def may_begin_early(self, program: P, given: Sequence[tirx.Var]) -> bool:
        """Whether its kernels copy what they read of some tensors before they wait for the kernel before them."""
        return False

    def may_wait_late(self, program: P, config: C, read: Sequence[tirx.Var]) -> bool:
        """Whether its kernels can wait for those that write some tensors where results are stored, and not before."""
        return False

    @abstractmethod
    def fast_math(self, program: P) -> bool:
        """Whether approximate hardware functions are exact enough."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of a fold, fully planned; its text is emitted lazily.

    Attributes
    ----------
    program : what a tile, or a chunk of a row, does.
    work : what the function asks for.
    seconds : that it is estimated to take, without its launch.
    launch_seconds : of its launch by itself.
    launch : how it meets those before and after it.
    """

    skeleton: Skeleton[Any, Any]
    program: Any
    config: Any
    name: str
    work: Work
    seconds: float
    launch_seconds: float = 0.0
    launch: Launch = BY_ITSELF

    @cached_property
    def func(self) -> tirx.PrimFunc:
        return self.skeleton.emit(self.program, self.config, self.name, self.launch)

    @property
    def guarded(self) -> str:
        """The results that it decides upon by value, by name; empty where there are none."""
        return getattr(self.program, "guarded", "")

    @property
    def fast_math(self) -> bool:
        return self.skeleton.fast_math(self.program)

    def __str__(self) -> str:
        guarded = f", with guards of {self.guarded}" if self.guarded else ""
        return f"the {self.skeleton.kind} `{self.skeleton.name}`, {self.config}{guarded}"


def build_kernel(
    skeleton: Skeleton[P, C], program: Program, group: Group, name: str, setting: Setting, config: C | None = None
) -> Kernel:
    """The kernel of a function that is one group of a skeleton's shape.

    Unfit where the function is not of that shape, or the kernel would not fit the hardware.

    Parameters
    ----------
    config : the skeleton's own choice by default.
    """
    read = skeleton.read(program, group, setting.options)
    chosen = skeleton.alternatives(read, setting)[0] if config is None else config
    skeleton.check(read, chosen, setting)
    work = count_work(program)
    time = seconds(skeleton.counts(read, chosen, work, setting), setting.gpu)
    return Kernel(skeleton, read, chosen, name, work, time, setting.gpu.launch_seconds)


def reconfigured(kernel: Kernel, config: Any, setting: Setting) -> Kernel:
    """The kernel in another configuration of its skeleton; Unfit where it would not fit the hardware."""
    kernel.skeleton.check(kernel.program, config, setting)
    counts = kernel.skeleton.counts(kernel.program, config, kernel.work, setting)
    return replace(kernel, config=config, seconds=seconds(counts, setting.gpu))
