"""What the GPU schedules need to know of a target: how wide a block of threads is, and what memory it has."""

from __future__ import annotations

from dataclasses import dataclass

from tvm.target import Target

_STATIC_SHARED_BYTES = 48 * 1024
_THREADS = 256
_ACCUMULATORS = 128
_MULTIPROCESSORS = 132


@dataclass(frozen=True)
class Gpu:
    """A GPU as a schedule sees it.

    Attributes
    ----------
    warp : threads that run in step.
    threads : of the blocks that we launch.
    shared_bytes : of shared memory that a block may declare.
    accumulators : 32-bit registers of a thread that results may stay in; the rest is for operands and addresses.
    multiprocessors : blocks at least that keep the whole GPU busy.
    """

    warp: int
    threads: int
    shared_bytes: int
    accumulators: int
    multiprocessors: int


def gpu_of(target: Target) -> Gpu:
    """The GPU that a CUDA target describes; what it does not say is as on every GPU since 2017, or as on an H100."""
    attrs = target.attrs
    warp = int(attrs.get("thread_warp_size", 32) or 32)
    most = int(attrs.get("max_num_threads", _THREADS) or _THREADS)
    shared = int(attrs.get("max_shared_memory_per_block", 0) or _STATIC_SHARED_BYTES)
    return Gpu(warp, min(_THREADS, most), min(shared, _STATIC_SHARED_BYTES), _ACCUMULATORS, _MULTIPROCESSORS)
