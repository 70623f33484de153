"""The table of GPUs, a row each; a card is added by adding its row to `CARDS`."""

from __future__ import annotations

import dataclasses

from tvm_cascade.devices.device import Gpu, Instructions
from tvm_cascade.devices.rates import Rates

_KIB, _MIB = 1024, 1024 * 1024
_PTX = frozenset({Instructions.PTX})

H200 = Gpu(
    "NVIDIA H200",
    "sm_90a",
    processors=132,
    shared_bytes=228 * _KIB,
    block_shared_bytes=227 * _KIB,
    reserved_shared_bytes=1 * _KIB,
    largest_cluster=8,
    l2_bytes=50 * _MIB,
    memory_bytes_per_second=4.8e12,
    tensor_flops_per_second=7.2e14,
    product_flops_per_second=1.0e12,
    operations_per_second=3.0e13,
    functions_per_second=3.7e12,
    launch_seconds=4.0e-6,
    dependent_launch_seconds=1.2e-6,
    instructions=_PTX | {Instructions.WGMMA},
)
"""Products of bfloat16, 4096³, take 191 µs in cuBLAS; an RMSNorm before one took 137 ms in an S-TIR schedule. Kernels
lose 2.3 to 3.6 µs at each boundary, 0.8 to 1.2 where they are launched dependently; the first after a pause starts 2.2
µs after its launch, and waits for memory about as long (all measured)."""

H100 = dataclasses.replace(H200, name="NVIDIA H100 80GB HBM3", memory_bytes_per_second=3.35e12)

HOPPER = dataclasses.replace(
    H200, name="a Hopper GPU without its own instructions", arch="sm_90", tensor_flops_per_second=4.5e14,
    instructions=_PTX | {Instructions.MMA}, rates=Rates(instruction_seconds=41.3e-9),
)  # fmt: skip
"""What code for sm_90 finds on an H200: products by mma.sync reach 0.65 to 0.68 of those by WGMMA (on an H100)."""

RTX5090 = Gpu(
    "NVIDIA GeForce RTX 5090",
    "sm_120",
    processors=170,
    shared_bytes=100 * _KIB,
    block_shared_bytes=99 * _KIB,
    reserved_shared_bytes=1 * _KIB,
    l2_bytes=96 * _MIB,
    memory_bytes_per_second=1.79e12,
    tensor_flops_per_second=1.9e14,
    product_flops_per_second=1.0e12,
    operations_per_second=5.2e13,
    functions_per_second=6.5e12,
    launch_seconds=4.0e-6,
    dependent_launch_seconds=4.0e-6,
    instructions=_PTX | {Instructions.MMA},
    rates=Rates(instruction_seconds=126e-9),
)
"""On paper but for what it has in common with an H200: nothing was measured on it."""

MI300X = Gpu(
    "AMD Instinct MI300X",
    "gfx942",
    processors=304,
    warp=64,
    registers=128 * 1024,
    shared_bytes=64 * _KIB,
    block_shared_bytes=64 * _KIB,
    static_shared_bytes=64 * _KIB,
    l2_bytes=4 * _MIB,
    memory_bytes_per_second=5.3e12,
)

MI250X = Gpu(
    "AMD Instinct MI250X",
    "gfx90a",
    processors=110,
    warp=64,
    registers=128 * 1024,
    shared_bytes=64 * _KIB,
    block_shared_bytes=64 * _KIB,
    static_shared_bytes=64 * _KIB,
    l2_bytes=8 * _MIB,
    memory_bytes_per_second=1.6e12,
)
"""One of the card's two dies, each of which is a device."""

ANY_CUDA = Gpu("a CUDA GPU", "", processors=132, instructions=_PTX)
"""What every card since 2017 has; processors as of the largest."""

CARDS: tuple[Gpu, ...] = (H200, H100, HOPPER, RTX5090, MI300X, MI250X)
"""The cards that are known; of those of one architecture, the first stands for it."""

UNKNOWN: dict[str, Gpu] = {"cuda": ANY_CUDA}
"""By kind of target, what a card is taken for that has no row."""

ANY_GPU = Gpu("a GPU", "", processors=32)
"""A GPU of a kind that nothing is known of."""
