"""A device as a value: processors, threads, registers, memories and instructions of one machine.

A device is handed down from where the target is known; nothing that chooses tiles, threads or kernels looks for one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

import tvm

from tvm_cascade.devices.rates import Rates


class Instructions(Enum):
    """A family of instructions that kernels are written in, beyond what TVM generates for every GPU."""

    PTX = "PTX"
    """Warp shuffles, asynchronous copies and named barriers of NVIDIA's virtual machine."""

    WGMMA = "WGMMA"
    """Warp-group matrix products, TMA copies and transaction barriers: Hopper's own."""

    MMA = "mma.sync with TMA"
    """Matrix products of a warp, TMA copies and transaction barriers, as all cards since Hopper have them."""


@dataclass(frozen=True)
class Cpu:
    """A CPU.

    Attributes
    ----------
    name : as LLVM calls the processor; empty where the target does not say.
    cores : that a parallel loop is spread over.
    vector_bytes : of one vector register.
    vector_registers : their number.
    l1_bytes, l2_bytes : of the caches of one core.
    levels : (bytes that fit, bytes per ns of one core) of each level of memory, nearest first; the last holds all.
    """

    name: str = ""
    cores: int = 1
    vector_bytes: int = 16
    vector_registers: int = 16
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 2 * 1024 * 1024
    levels: tuple[tuple[float, float], ...] = ((2e6, 128.0), (200e6, 27.0), (math.inf, 9.0))

    def lanes(self, dtype: str) -> int:
        """Elements of a dtype in one vector register."""
        return max(1, self.vector_bytes // tvm.DataType(dtype).itemsize)

    @property
    def cached_bytes(self) -> float:
        """That some cache holds."""
        return self.levels[-2][0] if len(self.levels) > 1 else 0.0

    def bytes_per_ns(self, resident: float) -> float:
        """Of one core, from the first level of memory that holds so many bytes."""
        return next(speed for fits, speed in self.levels if resident <= fits)


@dataclass(frozen=True)
class Gpu:
    """A GPU. A *processor* is a streaming multiprocessor, or a compute unit.

    Attributes
    ----------
    name : the vendor's name of the card, as its driver reports it.
    arch : of its code, as compilers call it.
    processors : their number.
    warp : threads that run in lockstep.
    max_threads : of a block.
    registers : 32-bit registers of a processor.
    register_unit : a thread's registers are allocated in multiples of this.
    shared_bytes : shared memory of a processor.
    block_shared_bytes : that one block may ask for at launch.
    static_shared_bytes : that one block may declare.
    reserved_shared_bytes : that the system takes of each block's.
    largest_cluster : blocks of a cluster that reach each other's shared memory; 1 where there are no clusters.
    l2_bytes : of the cache that processors share.
    memory_bytes_per_second : bandwidth of the memory on paper.
    tensor_flops_per_second : of long products of half precision on tensor cores, measured.
    product_flops_per_second : of products of float32 in S-TIR schedules, measured.
    operations_per_second : additions and the like of float32, on paper.
    functions_per_second : exponentials and the like, on paper.
    launch_seconds : what a kernel takes beyond its work, from launch to the last of its blocks.
    dependent_launch_seconds : the same where it starts while the kernel before it ends.
    instructions : families that kernels may be written in.
    schedule_threads : of the blocks that S-TIR schedules launch, where so many are allowed.
    accumulators : registers of a thread that results may stay in there; the rest is for operands and addresses.
    resident_threads : of a processor, at most.
    code_bytes : of instructions that a processor keeps, whichever of its blocks run them.
    cluster_shares : (blocks, the share of the processors that clusters of so many reach), by their number.
    rates : what it takes for the parts of a kernel.
    """

    name: str
    arch: str
    processors: int
    warp: int = 32
    max_threads: int = 1024
    registers: int = 64 * 1024
    register_unit: int = 8
    shared_bytes: int = 48 * 1024
    block_shared_bytes: int = 48 * 1024
    static_shared_bytes: int = 48 * 1024
    reserved_shared_bytes: int = 0
    largest_cluster: int = 1
    l2_bytes: int = 4 * 1024 * 1024
    memory_bytes_per_second: float = 0.0
    tensor_flops_per_second: float = 0.0
    product_flops_per_second: float = 0.0
    operations_per_second: float = 0.0
    functions_per_second: float = 0.0
    launch_seconds: float = 3e-6
    dependent_launch_seconds: float = 3e-6
    instructions: frozenset[Instructions] = frozenset()
    schedule_threads: int = 256
    accumulators: int = 128
    resident_threads: int = 2048
    code_bytes: int = 128 * 1024
    cluster_shares: tuple[tuple[int, float], ...] = ((2, 1.0), (3, 126 / 132), (16, 120 / 132))
    rates: Rates = field(default_factory=Rates)

    def reached_by(self, cluster: int) -> int:
        """Processors that clusters of so many blocks fit on."""
        return math.floor(self.processors * next(share for most, share in self.cluster_shares if cluster <= most))

    @property
    def threads(self) -> int:
        """Of the blocks that S-TIR schedules launch here."""
        return min(self.schedule_threads, self.max_threads)

    @property
    def has_clusters(self) -> bool:
        """Whether blocks form clusters, bulk copies bring their data, and kernels wait for those before them."""
        return self.largest_cluster > 1


Device = Cpu | Gpu
