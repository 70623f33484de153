"""What a card takes for the parts of a kernel: the numbers of the one cost model, `tile.cost`, which counts them."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tvm_cascade.errors import InputError

VARIABLE = "TVM_CASCADE_RATES"
"""Names a file that `benchmarks.calibrate` wrote: its card has those rates, in place of the row's own."""


@dataclass(frozen=True)
class Rates:
    """The numbers of a card that are measured by kernels; all of them positive.

    Those of a row that gives no others are of an H200, where most were fitted to products: 640 kernels of 17
    configurations, 64 to 4096 rows, 7 % off in the mean square; to folds of few rows: 21 shapes of 1 to 64 rows and 512
    to 16384 positions; to routers: 90 kernels of 1 to 2048 tokens and 64 to 640 experts.

    Attributes
    ----------
    memory_share, compute_share : of the bandwidth and of the arithmetic on paper, what threads reach that load and
        compute.
    bulk_memory_share : of the bandwidth, what bulk copies of a pipeline reach, and stores of its results.
    tensor_short, tensor_long_rows, tensor_narrow_rows, tensor_one_row, tensor_two_rows : rate of products over
        `Gpu.tensor_flops_per_second`: of products too short to heat the card to its power limit (860 Tflop/s of 720);
        of folds of many rows, with what hides exponentials, where operands are wide, and at most 64 wide; of a consumer
        by itself, whose threads have one row, or two.
    instruction_seconds : of an instruction of the tensor cores, however few its columns.
    fragment_bytes_per_second : from a processor's shared memory to registers.
    promotion_seconds : of one of a thread's sums that leaves the tensor cores. Promoted every 128 positions, products
        of 4096 rows took 1.12 to 1.19 of their time, of 128 × 176 tiles.
    busy_share : by how much a consumer by itself takes longer where all processors are at work.
    copied_bytes_per_second : that a processor gets from the second-level cache where others copy the same.
    own_bytes_per_second, two_stage_bytes_per_second : that it gets of what no other copies; and with two stages.
    gathered_bytes_per_second : that the threads of a processor copy one by one.
    realigned_bytes_per_second : that they copy and move, of rows that start anywhere.
    unaligned_share, unshared_share : of the rate of copies: of rows that start within a cache line (of ten tiles of
        3000³); of blocks beside each other that copy different things.
    copy_seconds : from a bulk copy to its arrival, under load.
    step_seconds : between the copies of two steps of a pipeline, at least.
    block_seconds : from a block's start to its first product, and from its last to its end.
    lone_block_seconds : the same where one group of threads is all of the block.
    stored_sum_seconds : of a consumer for a sum of a tile that it stores before it has the next.
    multicast_seconds : that sharing an operand by a cluster adds before the first product.
    exchange_seconds, pair_exchange_seconds : of an exchange of partial sums in a cluster, by one consumer and by two.
    exchanged_bytes_per_second : of partial sums that all clusters exchange.
    statistics_seconds, scale_seconds, lift_seconds, operation_seconds : that a step of a product takes longer for sums
        of its rows, a factor along the sum, any other element, and each of its operations.
    gather_seconds, parts_seconds : until a block has its rows in shared memory; that each doubling of the parts adds.
    sum_seconds, swap_seconds, packed_swap_seconds, shuffle_seconds, function_seconds : of a thread, for a sum, an
        exchange of two selected elements, of two packed ones, a shuffle, and a function that is not approximated.
    code_bytes_per_second : of instructions that a processor fetches: 256 rows of samples took 55 µs a tile for 190 KB
        of them; the 32 best of 128 took 15.9 µs where the cache was cold and 10.8 where it was warm.
    packing_seconds : for packing the elements of a row and reading the best again.
    tile_seconds, two_row_tile_seconds : of a tile by one consumer, whose latencies nothing hides, by rows of a thread.
    combine_seconds : of a combination through memory: to claim states, arrive, learn that all have, and merge a few.
    contention_seconds : by the square of the pieces of an item: each block reads a share of every state.
    read_round_seconds : of a round of reads of states of several stretches.
    cluster_combine_seconds, crowded_seconds, crowded_share : of a combination by the blocks of a cluster; where some of
        them share a processor; and the time of all else then over that of others.
    state_bytes_per_second, two_state_bytes_per_second : of states that a block leaves or merges, by its consumers (of
        two, of an H100: 32 heads of 128 rows and 1024 positions, one of 512 rows and 16384).
    item_seconds : at the end of an item that a block has whole.
    thread_seconds : of a thread at least (1.6 to 3.1 µs in rows of 32 to 128 elements).
    merge_seconds : of an operation of a merge, which waits for the one before (of the best six and eight of 64 to 256).
    scheduled_memory_share, scheduled_compute_share : of the rates on paper, what S-TIR schedules reach, about.
    beside_share : time of kernels side by side over that of the longer: they share memory, cache and power (1.14 for 32
        sequences, 1.27 to 1.29 for 64, 1.20 for 128).
    """

    memory_share: float = 0.85
    bulk_memory_share: float = 0.91
    compute_share: float = 0.8
    tensor_short: float = 1.194
    tensor_long_rows: float = 1 / 0.78
    tensor_narrow_rows: float = 1 / 1.15
    tensor_one_row: float = 1.252
    tensor_two_rows: float = 1.018
    instruction_seconds: float = 25.8e-9
    fragment_bytes_per_second: float = 2.035e11
    promotion_seconds: float = 0.88e-9
    busy_share: float = 0.3
    copied_bytes_per_second: float = 0.124e12
    own_bytes_per_second: float = 62e9
    two_stage_bytes_per_second: float = 57e9
    gathered_bytes_per_second: float = 0.028e12
    realigned_bytes_per_second: float = 0.016e12
    unaligned_share: float = 0.42
    unshared_share: float = 0.75
    copy_seconds: float = 0.8e-6
    step_seconds: float = 0.166e-6
    block_seconds: float = 1.1e-6
    lone_block_seconds: float = 0.6e-6
    stored_sum_seconds: float = 0.76e-6 / (64 * 256)
    multicast_seconds: float = 1.4e-6
    exchange_seconds: float = 1.1e-6
    pair_exchange_seconds: float = 0.3e-6
    exchanged_bytes_per_second: float = 2.1e12
    statistics_seconds: float = 0.015e-6
    scale_seconds: float = 0.12e-6
    lift_seconds: float = 0.17e-6
    operation_seconds: float = 0.03e-6
    gather_seconds: float = 0.5e-6
    parts_seconds: float = 0.2e-6
    sum_seconds: float = 1.0e-8
    swap_seconds: float = 7.2e-9
    packed_swap_seconds: float = 1.0e-9
    shuffle_seconds: float = 1.0e-7
    function_seconds: float = 2.5e-8
    code_bytes_per_second: float = 3.5e9
    packing_seconds: float = 0.6e-6
    tile_seconds: float = 0.19e-6
    two_row_tile_seconds: float = 0.27e-6
    combine_seconds: float = 4.0e-6
    contention_seconds: float = 1.3e-6 / 64**2
    read_round_seconds: float = 1.0e-6
    cluster_combine_seconds: float = 0.6e-6
    crowded_seconds: float = 0.8e-6
    crowded_share: float = 1.05
    state_bytes_per_second: float = 50e9
    two_state_bytes_per_second: float = 27e9
    item_seconds: float = 2.0e-6
    thread_seconds: float = 2.0e-6
    merge_seconds: float = 3.3e-9
    scheduled_memory_share: float = 0.5
    scheduled_compute_share: float = 0.2
    beside_share: float = 1.25


def measured_rates(card: str) -> Rates | None:
    """The rates of a card by the file that `VARIABLE` names; None where there is none, or it is of another card.

    Raises
    ------
    InputError
        Where the file is not one that `benchmarks.calibrate` wrote.
    """
    named = os.environ.get(VARIABLE, "").strip()
    if not named:
        return None
    of, rates = _read(Path(named))
    return rates if of == card else None


@lru_cache(maxsize=4)
def _read(path: Path) -> tuple[str, Rates]:
    """The card of a file, and its rates; a file is read once."""
    names = {field.name for field in dataclasses.fields(Rates)}
    hint = "write it anew, in a checkout: python -m benchmarks.calibrate --json FILE"
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        card, rates = str(told["card"]), dict(told["rates"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        told = f"{path}: {type(error).__name__}: {error}"
        raise InputError("a file of `benchmarks.calibrate`", told, f"environment variable {VARIABLE}", hint) from error
    wrong = names ^ rates.keys() or {n for n, one in rates.items() if not isinstance(one, (int, float)) or one <= 0}
    if wrong:
        found = f"{path}: {', '.join(sorted(wrong))} missing, unknown or not above 0"
        raise InputError("every rate, a number above 0", found, f"environment variable {VARIABLE}", hint)
    return card, Rates(**rates)
