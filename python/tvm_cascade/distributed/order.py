"""Orders: which positions of an axis each rank has.

| order    | 8 positions, 2 ranks    | for                                                     |
|----------|-------------------------|---------------------------------------------------------|
| `blocks` | 0 1 2 3 · 4 5 6 7       | any function                                            |
| `chunks` | 0 1 2 3 · 4 5 6 7       | tensors that `torch.chunk` has cut, as those of DTensor |
| `zigzag` | 0 1 6 7 · 2 3 4 5       | causal masks: each rank has early and late rows         |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm_cascade.errors import OptionError


@dataclass(frozen=True)
class Span:
    """Contiguous positions of an axis."""

    start: int
    length: int


Share = tuple[Span, ...]
"""What a rank has of an axis, in the order in which its tensors have it."""


def size_of(share: Share) -> int:
    """Positions of a share."""
    return sum(span.length for span in share)


def blocks(whole: int, ranks: int) -> tuple[Share, ...]:
    """One span a rank; the first ranks have one position more where they do not divide the axis."""
    least, more = divmod(whole, ranks)
    lengths = [least + (rank < more) for rank in range(ranks)]
    return tuple((Span(sum(lengths[:rank]), length),) for rank, length in enumerate(lengths))


def chunks(whole: int, ranks: int) -> tuple[Share, ...]:
    """One span a rank, all as long as the first one, up to the end of the axis: the last ranks may have none."""
    length = -(-whole // ranks)
    starts = (min(rank * length, whole) for rank in range(ranks))
    return tuple((Span(start, min(length, whole - start)),) for start in starts)


def zigzag(whole: int, ranks: int) -> tuple[Share, ...]:
    """Two spans a rank, as far from the start as from the end, so that causal work is the same on all ranks."""
    length, left = divmod(whole, 2 * ranks)
    if left:
        found = f"{whole} positions on {ranks} ranks"
        raise OptionError(f"an axis that {2 * ranks} spans divide", found, "shard(order='zigzag')", "order='blocks'")
    pairs = ((rank, 2 * ranks - 1 - rank) for rank in range(ranks))
    return tuple((Span(one * length, length), Span(other * length, length)) for one, other in pairs)


ORDERS: dict[str, Callable[[int, int], tuple[Share, ...]]] = {"blocks": blocks, "chunks": chunks, "zigzag": zigzag}
"""Shares by rank, from the length of an axis and the number of ranks."""
