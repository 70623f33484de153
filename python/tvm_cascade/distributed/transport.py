"""Tensors between the ranks of a process group: collectives of torch.distributed on bytes.

NCCL and Gloo reduce by sums and extrema alone. States are merged by the fold instead, in the order of ranks, after a
collective that only moves them: so that all ranks have the same bits, in every run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from tvm_cascade.distributed.order import Share, size_of
from tvm_cascade.errors import CascadeError, DistributedError, InputError


@dataclass(frozen=True)
class Link:
    """What moves bytes between ranks.

    Attributes
    ----------
    bytes_per_second : that a rank receives.
    seconds : of a collective, beside its bytes.
    memory_bytes_per_second : at which ranks read memory of their own.
    """

    bytes_per_second: float
    seconds: float
    memory_bytes_per_second: float


LINKS = {"nccl": Link(300e9, 25e-6, 3e12), "gloo": Link(1e9, 200e-6, 10e9)}
"""By backend: NVLink of four GPUs of one host (355 GB/s of bus bandwidth measured on H100), and sockets of one host."""


@dataclass(frozen=True)
class Cut:
    """A tensor of which each rank has a share along a dimension."""

    tensor: torch.Tensor
    dimension: int
    shares: Sequence[Share]

    @property
    def length(self) -> int:
        """Of the whole along the dimension."""
        return sum(map(size_of, self.shares))

    def shape(self, rank: int) -> tuple[int, ...]:
        """Extents of a rank's share."""
        shape = list(self.tensor.shape)
        shape[self.dimension] = size_of(self.shares[rank])
        return tuple(shape)


class Transport:
    """The ranks of a group, and what moves between them.

    Parameters
    ----------
    group : a ProcessGroup, a DeviceMesh of one dimension, or None for all ranks.
    """

    def __init__(self, group: dist.ProcessGroup | DeviceMesh | None) -> None:
        if not dist.is_available() or not dist.is_initialized():
            hint = "torch.distributed.init_process_group('gloo'), under torchrun"
            raise InputError("a process group of torch.distributed", "none that is initialised", "shard(group=…)", hint)
        if isinstance(group, DeviceMesh):
            if group.ndim != 1:
                raise InputError("one dimension of a DeviceMesh", f"{group.ndim}", "shard(group=…)", "mesh['name']")
            group = group.get_group()
        self.group: dist.ProcessGroup | None = group
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)

    @cached_property
    def link(self) -> Link:
        return LINKS.get(str(dist.get_backend(self.group)).split(",")[0], LINKS["gloo"])

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Names what failed where the group does: a rank that is gone, or that does not come in time."""
        try:
            yield
        except CascadeError:
            raise
        except (RuntimeError, dist.DistError) as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            hint = "see the other ranks' messages; how long a group waits is init_process_group(timeout=…)"
            found = lines[0] if lines else type(error).__name__
            raise DistributedError(f"all {self.ranks} ranks to {what}", found, f"rank {self.rank}", hint) from error

    def agree(self, mine: object, what: str) -> list[Any]:
        """What each rank says, in their order: objects that can be pickled."""
        found: list[Any] = [None] * self.ranks
        with self.told(what):
            dist.all_gather_object(found, mine, group=self.group)
        return found

    def gathered(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensors of all ranks, of one shape and dtype, along a new first dimension."""
        flat = _bytes(tensor)
        found = flat.new_empty(self.ranks * flat.numel())
        with self.told("give their tensors"):
            _gather(found, flat, group=self.group)
        return found.view(tensor.dtype).view(self.ranks, *tensor.shape)

    def any(self, mine: bool) -> bool:
        """Whether something is so on any rank."""
        found = torch.tensor([mine], dtype=torch.int32, device=self.device)
        with self.told("say whether results may be used"):
            dist.all_reduce(found, dist.ReduceOp.MAX, group=self.group)
        return bool(found.item())

    @property
    def device(self) -> torch.device:
        """The device of tensors that ranks tell each other numbers in."""
        return torch.device("cuda", torch.cuda.current_device()) if self.on_gpus else torch.device("cpu")

    @property
    def on_gpus(self) -> bool:
        return bool(dist.get_backend(self.group) == "nccl")

    def whole(self, cut: Sequence[Cut]) -> list[torch.Tensor]:
        """The tensors of which each rank has a share, from one collective."""
        sized = [_sized(one.tensor, one.dimension, max(map(size_of, one.shares))) for one in cut]
        found = []
        for one, parts in zip(cut, self.gathered_together(sized) if cut else (), strict=True):
            found.append(resized(one.tensor, one.dimension, one.length))
            for part, share in zip(parts, one.shares, strict=True):
                for span, piece in zip(share, pieces(part, one.dimension, share), strict=True):
                    copy(found[-1].narrow(one.dimension, span.start, span.length), piece)
        return found

    def gathered_together(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Several tensors of all ranks in one collective, each along a new first dimension, as views."""
        return _unpacked(self.gathered(_packed(tensors)), tensors)

    def exchanged(self, given: Sequence[Sequence[torch.Tensor]], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What all ranks have for this one, in one collective, each along a new first dimension.

        Parameters
        ----------
        given : for each rank some tensors, of shapes that ranks agree on.
        like : of the shapes that this rank gets from each.
        """
        packed = [_packed(tensors) for tensors in given]
        size = sum(_sizes(like))
        found = packed[0].new_empty(self.ranks * size)
        with self.told("exchange their states"):
            lengths = [one.numel() for one in packed]
            dist.all_to_all_single(found, torch.cat(packed), [size] * self.ranks, lengths, group=self.group)
        return _unpacked(found.view(self.ranks, size), like)

    def passed_on(self, tensors: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Starts to send tensors to the next rank, and to receive those of the one before; what to wait for."""
        following, before = (dist.get_global_rank(self.known, (self.rank + k) % self.ranks) for k in (1, -1))
        with self.told("pass their tensors on"):
            sent = [dist.P2POp(dist.isend, one, following, self.group) for one in tensors]
            received = [dist.P2POp(dist.irecv, one, before, self.group) for one in like]
            return tuple(dist.batch_isend_irecv([*sent, *received]))

    def wait(self, started: Sequence[Any]) -> None:
        """Until all that was started has come."""
        with self.told("pass their tensors on"):
            for one in started:
                one.wait()

    @property
    def known(self) -> dist.ProcessGroup:
        return self.group or dist.group.WORLD


_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
"""As torch calls it from 2.13 on, and before."""


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor as bytes, which all backends move."""
    return tensor.contiguous().view(-1).view(torch.uint8)


def _sized(tensor: torch.Tensor, dimension: int, size: int) -> torch.Tensor:
    """The tensor with zeros after it, up to a size along a dimension: collectives take tensors of one size."""
    missing = size - tensor.shape[dimension]
    if not missing:
        return tensor
    return torch.cat([tensor, resized(tensor, dimension, missing).zero_()], dimension)


ALIGNED = 64
"""Bytes that each of several packed tensors begins at a multiple of, as compiled code takes tensors of GPUs."""


def _packed(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Tensors as the bytes of one."""
    parts = [_bytes(one) for one in tensors]
    return torch.cat([_sized(part, 0, size) for part, size in zip(parts, _sizes(tensors), strict=True)])


def _sizes(tensors: Sequence[torch.Tensor]) -> list[int]:
    """The bytes of packed tensors, each with what comes after it."""
    return [-(-one.numel() * one.element_size() // ALIGNED) * ALIGNED for one in tensors]


def _unpacked(packed: torch.Tensor, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What was packed on each rank, as views: tensor by tensor, those of all ranks along a first dimension."""
    parts = zip(packed.split(_sizes(like), dim=1), like, strict=True)
    views = [(part[:, : one.numel() * one.element_size()], one) for part, one in parts]
    return [
        part.view(one.dtype).unflatten(1, one.shape) if one.numel() else one.new_empty((len(packed), *one.shape))
        for part, one in views
    ]


def pieces(tensor: torch.Tensor, dimension: int, share: Share) -> list[torch.Tensor]:
    """The spans of a rank's tensor, as views."""
    starts = [sum(span.length for span in share[:k]) for k in range(len(share))]
    return [tensor.narrow(dimension, start, span.length) for start, span in zip(starts, share, strict=True)]


def resized(tensor: torch.Tensor, dimension: int, size: int) -> torch.Tensor:
    """Memory for a tensor of another size along a dimension."""
    shape = list(tensor.shape)
    shape[dimension] = size
    return tensor.new_empty(shape)


Copies = list[tuple[torch.Tensor, torch.Tensor]]
"""To where, and from where."""


def laid_out(
    given: Mapping[str, torch.Tensor | int], written: Collection[str]
) -> tuple[dict[str, torch.Tensor | int], Copies]:
    """Arguments with contiguous tensors in the place of others, and of those that are written what to copy to where."""
    found, back = dict(given), Copies()
    for name, one in given.items():
        if isinstance(one, torch.Tensor) and not one.is_contiguous():
            found[name] = own = torch.empty_like(one, memory_format=torch.contiguous_format)
            if name in written:
                back.append((one, own))
            else:
                copy(own, one)
    return found, back


_WORDS = torch.complex128, torch.int64, torch.int32, torch.int16
"""From 16 bytes to 2."""


def copy(to: torch.Tensor, given: torch.Tensor) -> None:
    """Copies a tensor to another of its dtype, in the widest words that both consist of.

    Of tensors that are not contiguous PyTorch copies one element at a time: on an H200 some 0.9 TB/s of bfloat16.
    """
    word = next((one for one in _WORDS if _is_of(to, one) and _is_of(given, one)), None)
    if word is None or given.requires_grad:
        to.copy_(given)
    else:
        to.view(word).copy_(given.view(word))


def _is_of(tensor: torch.Tensor, word: torch.dtype) -> bool:
    """Whether a tensor can be read in words of another dtype."""
    *strides, last = tensor.stride() or (0,)
    if last != 1 or word.itemsize < tensor.element_size():
        return False
    places = (one * tensor.element_size() for one in (*strides, tensor.shape[-1], tensor.storage_offset()))
    return not any(one % word.itemsize for one in (tensor.data_ptr(), *places))
