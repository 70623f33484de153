"""`Pull`: tensors of which ranks have shares are put together from the memory of all, part after part."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("torch without torch.distributed", allow_module_level=True)

from tvm_cascade.distributed.order import ORDERS, Share, Span, size_of  # noqa: E402
from tvm_cascade.distributed.pull import Pull, bytes_of, is_worthwhile, starts_of  # noqa: E402
from tvm_cascade.distributed.transport import Cut, copy, pieces  # noqa: E402

SHARES: dict[str, tuple[Share, ...]] = {
    "zigzag": ORDERS["zigzag"](12, 3),
    "uneven": ORDERS["blocks"](7, 3),
    "empty": ORDERS["chunks"](4, 3),
}


class Buffers:
    """Those of ranks that are one process."""

    def __init__(self, size: int) -> None:
        self.bytes, self.barriers = torch.zeros(3, size, dtype=torch.uint8), list[int]()

    def of(self, rank: int, shape: Sequence[int], dtype: torch.dtype, start: int) -> torch.Tensor:
        flat = self.bytes[rank][start : start + math.prod(shape) * dtype.itemsize]
        return flat.view(dtype).view(tuple(shape))

    def barrier(self, channel: int) -> None:
        self.barriers.append(channel)


def own(whole: torch.Tensor, cut: Cut, rank: int) -> torch.Tensor:
    found = torch.empty(cut.shape(rank), dtype=whole.dtype)
    share = cut.shares[rank]
    for span, piece in zip(share, pieces(found, cut.dimension, share), strict=True):
        piece.copy_(whole.narrow(cut.dimension, span.start, span.length))
    return found


@pytest.mark.parametrize(("order", "rank"), [*itertools.product(SHARES, range(3))])
def test_what_a_part_reads_is_there_and_what_later_ones_read_comes_later(order: str, rank: int) -> None:
    shares, generator = SHARES[order], torch.Generator().manual_seed(rank)
    length = sum(map(size_of, shares))
    wholes = [
        torch.randn(2, 4, length, 8, generator=generator).bfloat16(),
        torch.randn(4, length, generator=generator),
        torch.randint(0, 99, (length, 3), generator=generator),
    ]
    cuts = tuple(Cut(one.to("meta"), d, shares) for one, d in zip(wholes, (2, 1, 0), strict=True))
    parts = (({1: Span(0, 1)}, {0: Span(0, 2)}, {}), ({1: Span(0, 4)}, {0: Span(1, 3)}, {}))
    memory = Buffers(starts_of(map(bytes_of, cuts))[-1])

    def fill(of_others: Sequence[torch.Tensor]) -> None:
        for other in {0, 1, 2} - {rank}:
            for one, cut, start in zip(of_others, cuts, starts_of(map(bytes_of, cuts)), strict=False):
                copy(memory.of(other, cut.shape(other), one.dtype, start), own(one, cut, other))

    pull = Pull(memory, rank, cuts, parts)
    for scale in (1, -1):  # a call after another one
        given, spoilt = [one * scale for one in wholes], [torch.full_like(one, 77) for one in wholes]
        first = [one.clone() for one in spoilt]
        first[0][:, :1], first[1][:2], first[2][:] = given[0][:, :1], given[1][:2], given[2]
        fill(first)
        calls = pull.brought([own(one, cut, rank) for one, cut in zip(given, cuts, strict=True)])
        early = next(calls)
        assert torch.equal(early[0][:, :1], given[0][:, :1]) and torch.equal(early[1][:2], given[1][:2])
        assert torch.equal(early[2], given[2]) and memory.barriers[-1] == 0
        fill(given)
        (late,) = calls
        assert all(map(torch.equal, late, given)) and memory.barriers[-2:] == [0, 1]


def test_short_pieces_are_left_to_collectives() -> None:
    """A token of 8 heads in 128 features takes 256 bytes of each head: 256 of them are long enough, 255 are not."""
    for length, expected in ((1024, True), (1020, False)):
        cut = Cut(torch.empty(1, 8, length, 128, dtype=torch.bfloat16, device="meta"), 2, ORDERS["zigzag"](length, 2))
        assert is_worthwhile([cut]) is expected
