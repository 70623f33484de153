"""The one cost model of kernels: the time that a GPU takes for what a kernel's family counts of it.

    multiplying   max(products, instructions, fragments) + folds                of a step of a multiprocessor's pipeline
    copying       max(bytes / rate, bytes · latency / bytes under way, a step at least)
    kernel        steps · (multiplying, copying) overlapped, and that with bytes / bandwidth; + what comes in between
                  but at least what the function's own bytes and arithmetic take

Of two that overlap, the time is the longer one, or a little more where both are long: (a^p + b^p)^(1/p). All numbers of
a card are in its row (`devices.rates`); counts are of the fold and the geometry alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.estimate import Work

_OVERLAP = 5.2
"""The exponent p of times that overlap."""

_NOTHING: Mapping[str, float] = {}


class Counts(NamedTuple):
    """What a kernel does in a geometry; all but `work`, `bytes` and `threads` is of the busiest multiprocessor.

    Attributes
    ----------
    work : of the function: what any kernel of it moves and computes.
    bytes : that the kernel moves from and to memory.
    threads : that run one after the other at each place of a multiprocessor's resident threads.
    issued : instructions of all threads, on CUDA cores.
    steps : of its pipeline.
    products : flops on tensor cores of a step; `products_rate` names the rate of theirs.
    instructions : of the tensor cores, of a step.
    fragments : bytes of a step that threads load from shared memory to multiply them.
    cores : products of a step on CUDA cores, where these do them.
    folds : by the name of a rate in seconds, how often a step has it, beside its products.
    load : the share of the multiprocessors that are at work, where that slows a step down.
    copied, unaligned, gathered, realigned : bytes of a step that bulk copies bring, in whole cache lines or not, and
        threads do, piece by piece to their places or from rows that start anywhere;
        `copies_rate` names the rate of the former.
    unshared : blocks beside each other copy different things.
    under_way : bytes that copies have under way; 0 for enough.
    paced : copies are made step by step, each a while after the one before.
    far_ahead : copies are, so that of what overlaps the longer counts alone.
    crowded : some blocks of clusters share a multiprocessor.
    between : what comes once or a few times, one after the other: by the name of a rate, seconds by how often, bytes
        per second by how many bytes.
    stored : bytes that the last tiles store, behind all that is computed.
    """

    work: Work = Work()
    bytes: float = 0.0
    threads: float = 0.0
    issued: float = 0.0
    steps: float = 0.0
    products: float = 0.0
    products_rate: str = "tensor_short"
    instructions: float = 0.0
    fragments: float = 0.0
    cores: float = 0.0
    folds: Mapping[str, float] = _NOTHING
    load: float = 0.0
    copied: float = 0.0
    unaligned: float = 0.0
    gathered: float = 0.0
    realigned: float = 0.0
    copies_rate: str = "copied_bytes_per_second"
    unshared: bool = False
    under_way: float = 0.0
    paced: bool = False
    far_ahead: bool = False
    crowded: bool = False
    between: Mapping[str, float] = _NOTHING
    stored: float = 0.0

    def and_then(self, **counts: float) -> Counts:
        between = dict(self.between)
        for name, count in counts.items():
            between[name] = between.get(name, 0.0) + count
        return self._replace(between=between)


def fetched_again(instructions: int, sums: int, tiles: float, gpu: Gpu) -> dict[str, float]:
    """What a processor fetches again for each tile, where the instructions for a thread's sums are more than it keeps.

    Sums are in registers, so that each has instructions of its own.

    Parameters
    ----------
    instructions : bytes of those for one sum.
    """
    code = sums * instructions
    return {"code_bytes_per_second": tiles * code} if code > gpu.code_bytes else {}


def in_turn(several: Sequence[Counts], times: float) -> Counts:
    """Like kernels after each other, each so many times; their steps are alike."""
    first, *others = several
    for other in others:
        first = first._replace(
            bytes=first.bytes + other.bytes, steps=first.steps + other.steps, stored=first.stored + other.stored
        ).and_then(**other.between)
    between = {name: times * count for name, count in first.between.items()}
    return first._replace(bytes=times * first.bytes, steps=times * first.steps, between=between)


def seconds(counts: Counts, gpu: Gpu) -> float:
    memory = gpu.memory_bytes_per_second * gpu.rates.bulk_memory_share
    one_by_one = added(counts.between, gpu) + (counts.stored / memory if memory else 0.0)
    moved, stepping = counts.bytes / memory if memory else 0.0, counts.steps * step_seconds(counts, gpu)
    computed = overlapped(stepping, moved, counts.far_ahead) * (gpu.rates.crowded_share if counts.crowded else 1.0)
    return max(computed + one_by_one, least_seconds(counts, gpu))


def least_seconds(counts: Counts, gpu: Gpu) -> float:
    """What the function's own bytes and arithmetic take, and its threads by themselves."""
    rates = gpu.rates
    issued = counts.issued / gpu.operations_per_second if gpu.operations_per_second else 0.0
    work = counts.work.seconds(gpu, rates.memory_share, rates.compute_share)
    return max(work, issued, counts.threads * rates.thread_seconds)


def step_seconds(counts: Counts, gpu: Gpu) -> float:
    rates, processors = gpu.rates, gpu.processors
    tensor = gpu.tensor_flops_per_second * getattr(rates, counts.products_rate) / processors
    products = max(
        counts.products / tensor if tensor else 0.0,
        counts.instructions * rates.instruction_seconds,
        counts.fragments / rates.fragment_bytes_per_second,
        counts.cores * processors / gpu.operations_per_second if counts.cores and gpu.operations_per_second else 0.0,
    )
    multiplying = (products + added(counts.folds, gpu)) * (1.0 + rates.busy_share * counts.load)
    bulk: float = getattr(rates, counts.copies_rate)
    copying = (counts.copied + counts.unaligned / rates.unaligned_share) / bulk
    copying += counts.gathered / rates.gathered_bytes_per_second
    copying += counts.realigned / rates.realigned_bytes_per_second
    if counts.under_way:
        copying = max(copying, copying * bulk * rates.copy_seconds / counts.under_way)
    if counts.unshared:
        copying /= rates.unshared_share
    copying = max(copying, rates.step_seconds if counts.paced else 0.0)
    return overlapped(multiplying, copying, counts.far_ahead)


def overlapped(one: float, other: float, far_ahead: bool = False) -> float:
    longer = max(one, other)
    if far_ahead or not longer:
        return longer
    return longer * (1.0 + (min(one, other) / longer) ** _OVERLAP) ** (1.0 / _OVERLAP)


def added(counts: Mapping[str, float], gpu: Gpu) -> float:
    total = 0.0
    for name, count in counts.items():
        rate = getattr(gpu.rates, name)
        total += count / rate if name.endswith("_per_second") else count * rate
    return total
