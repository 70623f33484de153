"""Tensors that are read from the memory of other ranks, part after part: what comes later does so behind work.

PyTorch's symmetric memory maps a buffer of each rank into all ranks of a host. Copies of contiguous pieces between them
are those of a GPU's copy engines, which take no multiprocessor from kernels, and which put pieces where they belong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Protocol

import torch
from torch.distributed import _symmetric_memory as symmetric

from tvm_cascade.distributed.order import size_of
from tvm_cascade.distributed.parts import Ranges
from tvm_cascade.distributed.transport import ALIGNED, Copies, Cut, Transport, copy, pieces, resized

LEAST = 1 << 16
"""Bytes of contiguous pieces: a copy of fewer takes longer to start than to run."""


class Memory(Protocol):
    """A buffer on each rank that all of them read."""

    def of(self, rank: int, shape: Sequence[int], dtype: torch.dtype, start: int) -> torch.Tensor:
        """A rank's buffer from a byte on, as a tensor."""

    def barrier(self, channel: int) -> None:
        """Until all ranks have come so far, on the current stream."""


class SymmetricMemory:
    """PyTorch's: what is written to a buffer before a barrier is read on all ranks after it."""

    def __init__(self, size: int, transport: Transport) -> None:
        group, device = transport.known, transport.device
        self._handle = symmetric.rendezvous(symmetric.empty(size, dtype=torch.uint8, device=device), group)
        limit: timedelta = group._get_backend(device).options._timeout
        self._milliseconds = int(limit.total_seconds() * 1000)

    def of(self, rank: int, shape: Sequence[int], dtype: torch.dtype, start: int) -> torch.Tensor:
        return self._handle.get_buffer(rank, tuple(shape), dtype, start // dtype.itemsize)

    def barrier(self, channel: int) -> None:
        self._handle.barrier(channel, self._milliseconds)


def reads_peers(transport: Transport) -> bool:
    """Whether the ranks are GPUs that read each other's memory: of one host, and as PyTorch finds by trying."""
    if not transport.on_gpus:
        return False
    hosts = transport.agree(Path("/proc/sys/kernel/random/boot_id").read_text(), "name their hosts")
    if len({*hosts}) > 1:
        return False
    try:
        SymmetricMemory(ALIGNED, transport)
    except RuntimeError:
        return all(transport.agree(False, "read each other's memory"))
    return all(transport.agree(True, "read each other's memory"))


@dataclass(frozen=True)
class Pull:
    """Tensors of which ranks have shares, as each rank brings them together.

    Attributes
    ----------
    rank : this one.
    cuts : the tensors; those of a call are of the same extents and dtypes.
    parts : for each part in order, and each tensor, what of the whole has to be there. Together they are all of it.
    """

    memory: Memory
    rank: int
    cuts: tuple[Cut, ...]
    parts: tuple[tuple[Ranges, ...], ...]

    def brought(self, tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
        """The whole tensors, once for each part: what follows on the current stream may read that part."""
        for one, room in zip(tensors, self._views[self.rank], strict=True):
            copy(room, one)
        self.memory.barrier(0)
        for one, total, cut in zip(tensors, self._wholes, self.cuts, strict=True):
            for span, own in zip(share := cut.shares[self.rank], pieces(one, cut.dimension, share), strict=True):
                copy(total.narrow(cut.dimension, span.start, span.length), own)
        self._wait(for_copies=False)
        for part in self._copies:
            with self._aside():
                for to, given in part:
                    to.copy_(given)
            self._wait()
            yield self._wholes
        with self._aside():
            self.memory.barrier(1)  # after which ranks may write to their buffers again
        self._wait()

    @cached_property
    def _views(self) -> list[list[torch.Tensor]]:
        """The buffers of all ranks, as their tensors."""
        placed = [*zip(self.cuts, starts_of(map(bytes_of, self.cuts))[:-1], strict=True)]
        return [
            [self.memory.of(rank, cut.shape(rank), cut.tensor.dtype, start) for cut, start in placed]
            for rank in range(len(self.cuts[0].shares))
        ]

    @cached_property
    def _wholes(self) -> list[torch.Tensor]:
        """Of all calls, so that what is copied is known before them."""
        found = zip(self._views[self.rank], self.cuts, strict=True)
        return [resized(one, cut.dimension, cut.length) for one, cut in found]

    @cached_property
    def _copies(self) -> list[Copies]:
        """For each part what is copied: to where, and from where.

        Each rank begins with the next one, so that not all read one at the same time.
        """
        ranks, seen = len(self._views), set[tuple[int, int]]()
        found: list[Copies] = []
        for part in self.parts:
            found.append([])
            for k, (cut, ranges) in enumerate(zip(self.cuts, part, strict=True)):
                whole = self._wholes[k].flatten(0, cut.dimension)
                fresh = [row for row in _rows(cut, ranges) if (k, row) not in seen]
                seen |= {(k, row) for row in fresh}
                for owner in ((self.rank + hop) % ranks for hop in range(1, ranks)):
                    share, given = cut.shares[owner], self._views[owner][k].flatten(0, cut.dimension)
                    for row in fresh:
                        own = given[row * size_of(share) : (row + 1) * size_of(share)]
                        for span, piece in zip(share, pieces(own, 0, share), strict=True):
                            found[-1].append((whole.narrow(0, row * cut.length + span.start, span.length), piece))
        return found

    @cached_property
    def _stream(self) -> torch.cuda.Stream | None:
        """That of copies."""
        device = self._views[self.rank][0].device
        return torch.cuda.Stream(device) if device.type == "cuda" else None

    def _aside(self) -> AbstractContextManager[object]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def _wait(self, for_copies: bool = True) -> None:
        """What follows on the current stream waits for copies so far, or copies from now on for the current stream."""
        if self._stream is not None:
            current = torch.cuda.current_stream()
            waiting, other = (current, self._stream) if for_copies else (self._stream, current)
            waiting.wait_stream(other)


@dataclass(frozen=True)
class Gather:
    """Buffers of the same extents on each rank, of which all get those of all.

    Attributes
    ----------
    memory : makes memory of so many bytes that all ranks read.
    like : extents and dtypes.
    """

    memory: Callable[[int], Memory]
    rank: int
    ranks: int
    like: tuple[tuple[tuple[int, ...], torch.dtype], ...]

    def all(self) -> list[torch.Tensor]:
        """Those of all ranks along a new first dimension, once this one's are written."""
        self._memory.barrier(0)
        found = [torch.stack([views[k] for views in self._views]) for k in range(len(self.like))]
        self._memory.barrier(1)
        return found

    @property
    def own(self) -> list[torch.Tensor]:
        """To be written on this rank."""
        return self._views[self.rank]

    @cached_property
    def _starts(self) -> list[int]:
        return starts_of(math.prod(shape) * dtype.itemsize for shape, dtype in self.like)

    @cached_property
    def _memory(self) -> Memory:
        return self.memory(self._starts[-1])

    @cached_property
    def _views(self) -> list[list[torch.Tensor]]:
        placed = [*zip(self.like, self._starts[:-1], strict=True)]
        return [[self._memory.of(rank, *one, start) for one, start in placed] for rank in range(self.ranks)]


def starts_of(sizes: Iterable[int]) -> list[int]:
    """Where each of several tensors begins in a buffer, and where the last one ends, in bytes."""
    starts = [0]
    for size in sizes:
        starts.append(-(-(starts[-1] + size) // ALIGNED) * ALIGNED)
    return starts


def bytes_of(cut: Cut) -> int:
    """Of the largest share that a rank has."""
    return max(math.prod(cut.shape(rank)) for rank in range(len(cut.shares))) * cut.tensor.element_size()


def is_worthwhile(cuts: Sequence[Cut]) -> bool:
    """Whether all pieces that are copied are long."""
    return all(
        min(span.length for share in cut.shares for span in share if span.length) * _bytes_of_a_position(cut) >= LEAST
        for cut in cuts
    )


def _bytes_of_a_position(cut: Cut) -> int:
    return math.prod(cut.tensor.shape[cut.dimension + 1 :]) * cut.tensor.element_size()


def _rows(cut: Cut, ranges: Ranges) -> list[int]:
    """Which of the dimensions before the one that is cut, numbered in order, are in the ranges."""
    extents = cut.tensor.shape[: cut.dimension]
    numbers = torch.arange(math.prod(extents)).view(extents)
    for d, span in ranges.items():
        numbers = numbers.narrow(d, span.start, span.length)
    return numbers.flatten().tolist()
