"""Pieces that meet in global memory: who merges what, with blocks that run together and with blocks that cannot."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tvm_cascade.tile.attention.pieces import most_pieces
from tvm_cascade.tile.merge.grid import LEFT_BITS
from tvm_cascade.tile.skeleton import Kernel
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig
from tvm_cascade.tile.skeletons.stream.skeleton import HalvesSkeleton

from ..tiers import slow_but
from .checked import assert_right, attention_case, kernel_of
from .emulator.run import Array, EmulationError, compiler, emulate
from .paged_programs import Paged
from .test_halves import cut, latent_case

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

FEW = attention_case("full", "bfloat16", heads=2, queries=3, keys=500, head_dim=40)
SEVERAL = attention_case("softcap", "bfloat16", heads=16, kv_heads=1, queries=7, keys=200)
UNEVEN = Paged(queries=2, heads=4, kv_heads=2, batch=3, keys=260)


def pieces(blocks: int, consumers: int = 1) -> PiecesConfig:
    """A configuration for so many blocks."""
    return PiecesConfig(64, consumers, 2, blocks)


def never_giving_up(text: str) -> str:
    """The CUDA text of a kernel whose blocks that have waited for long merge nothing, and nobody for them."""
    found, count = re.subn(r"word = atomicAdd\(&\w+_met\[item\], 1u << 20\);", "return 0;", text)
    assert count
    return found


def beside_others(text: str) -> str:
    """The CUDA text of a kernel while others have all sets but the last, and have arrived at all items there.

    The emulator's second launch waits for ever where a block of the first has kept the set.
    """
    owned = f"{2 * ((99 << LEFT_BITS + 1) + 2)}ull"  # by another launch, two blocks of which are left

    def first(value: str, count: int) -> str:
        return f" = {{{', '.join([value] * count)}}}"

    text, words = re.subn(r"_owned\[(\d+)\](?=;)", lambda m: m[0] + first(owned, int(m[1]) - 1), text)
    text, arrived = re.subn(
        r"_met\[(\d+) \* (\d+)\](?=;)", lambda m: m[0] + first("1", (int(m[1]) - 1) * int(m[2])), text
    )
    assert words and arrived
    return text


def halves() -> tuple[Kernel, list[Array]]:
    """Eight tiles of a wide state over three blocks: pieces that end at no item's end."""
    case = latent_case(70, 250, 1, 128)
    kernel = kernel_of(case.build(), cut(case, 3), skeleton=HalvesSkeleton())
    return kernel, list(case.inputs(np.random.default_rng(0)))


def attention(case: Any, config: PiecesConfig) -> tuple[Kernel, list[Array]]:
    """An attention of few rows."""
    return kernel_of(case.build(), config), list(case.inputs(np.random.default_rng(0)))


def uneven(lengths: list[int], blocks: int, size: int = 16) -> tuple[Kernel, list[Array]]:
    """Sequences of different lengths, shorter than a piece or empty, in pages of so many rows."""
    case = replace(UNEVEN, size=size)
    return kernel_of(case.func(), pieces(blocks)), case.inputs(lengths)


CASES: dict[str, Callable[[], tuple[Kernel, list[Array]]]] = {
    "items that cross to the next block": lambda: attention(FEW, pieces(3)),
    "an odd number of pieces, a tile each": lambda: attention(FEW, pieces(16)),
    "two blocks of each item": lambda: attention(FEW, pieces(4)),
    "two consumers": lambda: attention(SEVERAL, pieces(3, consumers=2)),
    "lengths, some empty": lambda: uneven([0, 260, 3], 3),
    "all warps of the producer copy rows": lambda: uneven([260, 70, 260], 5, size=1),
    "halves of a wide state": halves,
}
OTHERS = ("an odd number of pieces, a tile each", "two blocks of each item")
"""As those of items that cross to the next block, but for their number."""


@emulated
@pytest.mark.parametrize("name", slow_but([name for name in CASES if name not in OTHERS], CASES))
def test_each_block_merges_its_share(name: str) -> None:
    """Blocks that run together all find the others' states, and none leaves its share to the last to arrive."""
    kernel, inputs = CASES[name]()
    shared = emulate(kernel.func, inputs, change=never_giving_up, together=True)
    alone = emulate(kernel.func, inputs)
    for one, other in zip(shared, alone, strict=True):
        np.testing.assert_array_equal(one, other)


@emulated
@pytest.mark.parametrize("name", ["items that cross to the next block", "halves of a wide state"])
def test_launches_in_flight_keep_their_states_apart(name: str) -> None:
    kernel, inputs = CASES[name]()
    for one, other in zip(emulate(kernel.func, inputs), emulate(kernel.func, inputs, beside_others), strict=True):
        np.testing.assert_array_equal(one, other)


@emulated
def test_a_launch_that_shares_its_words_with_another_is_told_by_that() -> None:
    """The check above can fail."""
    kernel, inputs = attention(FEW, pieces(3))
    alone = emulate(kernel.func, inputs)
    try:
        shared = emulate(kernel.func, inputs, lambda text: beside_others(text).replace("found != 0", "false"))
    except EmulationError:
        return
    assert any((one != other).any() for one, other in zip(alone, shared, strict=True))


@emulated
def test_a_block_that_cannot_wait_leaves_its_share_to_the_last() -> None:
    """Blocks that run one after the other never see all others: without giving up, results stay unwritten."""
    kernel, inputs = attention(FEW, pieces(3))
    with pytest.raises(EmulationError, match="the result depends on the order"):
        emulate(kernel.func, inputs, change=never_giving_up)


@emulated
def test_results_of_blocks_together() -> None:
    inputs: list[Any] = list(FEW.inputs(np.random.default_rng(0)))
    assert_right(FEW.build(), inputs, pieces(5), length=500, together=True)


@pytest.mark.parametrize(
    "extents", [(1, 8, 1), (1, 8, 3), (3, 4, 5), (2, 64, 128), (8, 520, 132), (4, 7, 4), (5, 3, 7)]
)
def test_pieces_of_an_item_at_most(extents: tuple[int, int, int]) -> None:
    """As many as blocks have a tile of one item, where tiles are dealt out one by one."""
    items, tiles, blocks = extents
    longest = -(-items * tiles // blocks)
    blocks = -(-items * tiles // longest)
    shares = np.array_split(np.arange(items * tiles), blocks)
    owners = [{k for k, share in enumerate(shares) if (share // tiles == item).any()} for item in range(items)]
    assert most_pieces(*extents) == max(map(len, owners))
