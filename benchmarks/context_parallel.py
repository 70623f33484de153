"""How others shard a causal attention over ranks: each gives a run, and the rows that this rank has of its result.

| peer                     | what moves                                        | rows of a rank |
|--------------------------|---------------------------------------------------|----------------|
| all-gather + SDPA        | keys and values, to all                           | zigzag         |
| torch, all-gather        | the same, after what a rank has of its own        | zigzag         |
| torch, all-to-all        | the same, from rank to rank                       | zigzag         |
| Ulysses                  | all inputs to ranks by heads, and the result back | blocks         |

torch's own is `torch.distributed.tensor.experimental.context_parallel`, whose operators are those of GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from tvm_cascade.distributed.order import ORDERS


class Own(NamedTuple):
    """What a peer has on a rank: a run that gives parts of the result, along rows, and their positions on the whole."""

    run: Callable[[], Sequence[Tensor]]
    positions: Tensor


Peer = Callable[[Tensor, Tensor, Tensor], AbstractContextManager[Own]]
"""From whole queries [batch, heads, positions, features], keys and values."""


def positions(length: int, order: str, like: Tensor) -> Tensor:
    """What this rank has of a sequence."""
    share = ORDERS[order](length, dist.get_world_size())[dist.get_rank()]
    return torch.cat([torch.arange(one.start, one.start + one.length, device=like.device) for one in share])


def _fast(like: Tensor) -> AbstractContextManager[None]:
    """On a GPU the kernels that keep no scores."""
    return sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]) if like.is_cuda else nullcontext()


@contextmanager
def gathered(q: Tensor, k: Tensor, v: Tensor) -> Iterator[Own]:
    """Keys and values gathered at once, then a kernel for each span of rows."""
    ranks, rank, length = dist.get_world_size(), dist.get_rank(), q.shape[2]
    shares = ORDERS["zigzag"](length, ranks)
    own_rows = positions(length, "zigzag", q)
    spans = [(one.start, one.start + one.length) for one in shares[rank]]
    own_q = [q[:, :, start:end].contiguous() for start, end in spans]
    own = torch.stack([one[:, :, own_rows] for one in (k, v)]).contiguous()
    whole = own.new_empty((ranks, *own.shape))

    def run() -> Sequence[Tensor]:
        dist.all_gather_into_tensor(whole.view(-1), own.view(-1))
        keys, values = torch.empty_like(k), torch.empty_like(v)
        for other, share in enumerate(shares):
            for at, one in enumerate(share):
                piece = slice(at * one.length, (at + 1) * one.length)
                keys[:, :, one.start : one.start + one.length] = whole[other, 0, :, :, piece]
                values[:, :, one.start : one.start + one.length] = whole[other, 1, :, :, piece]
        return [
            F.scaled_dot_product_attention(
                own, keys[:, :, :end], values[:, :, :end], causal_lower_right(end - start, end), enable_gqa=True
            )
            for own, (start, end) in zip(own_q, spans, strict=True)
        ]

    with _fast(q):
        yield Own(run, own_rows)


@contextmanager
def of_torch(method: str, q: Tensor, k: Tensor, v: Tensor) -> Iterator[Own]:
    """torch's own, by one of its ways to move keys."""
    buffers, own_rows = [one.clone() for one in (q, k, v)], positions(q.shape[2], "zigzag", q)
    set_rotate_method(method)
    mesh = init_device_mesh(q.device.type, (dist.get_world_size(),))
    with _fast(q), context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2] * 3):
        queries, keys, values = buffers

        def run() -> Sequence[Tensor]:
            return [F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)]

        yield Own(run, own_rows)


@contextmanager
def ulysses(q: Tensor, k: Tensor, v: Tensor) -> Iterator[Own]:
    """Sequences of some heads on each rank in place of some positions of all heads.

    Raises
    ------
    ValueError
        When ranks do not divide heads of keys, or positions.
    """
    ranks, own_rows = dist.get_world_size(), positions(q.shape[2], "blocks", q)
    if k.shape[1] % ranks or q.shape[2] % ranks:
        raise ValueError(f"{k.shape[1]} heads of {q.shape[2]} positions on {ranks} ranks")
    own = [one[:, :, own_rows].contiguous() for one in (q, k, v)]

    def exchanged(sent: Tensor) -> Tensor:
        found = torch.empty_like(sent)
        dist.all_to_all_single(found, sent)
        return found

    def run() -> Sequence[Tensor]:
        by_rank = [exchanged(one.unflatten(1, (ranks, -1)).movedim(1, 0).contiguous()) for one in own]
        heads = [one.movedim(0, 2).flatten(2, 3) for one in by_rank]
        out = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        return [exchanged(out.unflatten(2, (ranks, -1)).movedim(2, 0).contiguous()).movedim(0, 1).flatten(1, 2)]

    with _fast(q):
        yield Own(run, own_rows)


PEERS: dict[str, Peer] = {
    "all-gather + SDPA": gathered,
    "torch, all-gather": partial(of_torch, "allgather"),
    "torch, all-to-all": partial(of_torch, "alltoall"),
    "Ulysses": ulysses,
}
