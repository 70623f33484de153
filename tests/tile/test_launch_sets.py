"""Sets of static memory for launches in flight: each has one of its own, and the same one for all of its blocks.

The text that kernels have is compiled for the host, and called in any order, and by several threads at once.
"""

from __future__ import annotations

import ctypes
import random
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

import pytest

from tvm_cascade.tile.merge import grid

from .emulator.run import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

SETS = 4
_HOST = """
#include <atomic>
#include <thread>
#define __device__ static
#define __forceinline__ inline
static thread_local unsigned long long number;
static thread_local struct { unsigned x; } gridDim;
template <typename T> T atomicCAS(T* place, T expected, T value) {
  __atomic_compare_exchange_n(place, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
template <typename T> void atomicAdd(T* place, T value) { __atomic_fetch_add(place, value, __ATOMIC_SEQ_CST); }
template <typename T> void atomicExch(T* place, T value) { __atomic_store_n(place, value, __ATOMIC_SEQ_CST); }
template <typename T> T __ldcg(T* place) { return __atomic_load_n(place, __ATOMIC_SEQ_CST); }
template <typename T> void __stcg(T* place, T value) { __atomic_store_n(place, value, __ATOMIC_SEQ_CST); }
static void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
static void __nanosleep(unsigned) { std::this_thread::yield(); }
"""
_ENTRIES = """
extern "C" unsigned long long request(unsigned long long launch, unsigned blocks) {
  number = launch, gridDim.x = blocks;
  return k_request();
}
extern "C" int obtain(unsigned long long launch, unsigned blocks, unsigned long long found) {
  number = launch, gridDim.x = blocks;
  return k_obtain(found);
}
extern "C" void give_back(unsigned long long launch, int set) { number = launch, k_release(set); }
extern "C" unsigned long long word(int set) { return k_owned[set]; }
"""


def host_text() -> str:
    """The functions of a kernel, with the host's instructions for those of the device."""
    whole = Template("".join(grid._SETS.values()))
    text = whole.substitute(name="k", sets=SETS, claims=1, left_bits=grid.LEFT_BITS)
    text, numbers = re.subn(r'asm volatile\("mov\.u64[^;]*;[^;]*;', "grid = number;", text)
    assert numbers == 1
    return _HOST + text + _ENTRIES


def built(folder: Path, text: str) -> ctypes.CDLL:
    source, library = folder / "sets.cpp", folder / "sets.so"
    source.write_text(text)
    subprocess.run([str(compiler()), "-std=c++17", "-O1", "-fPIC", "-shared", source, "-o", library], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.request.restype = loaded.word.restype = ctypes.c_uint64
    loaded.request.argtypes = [ctypes.c_uint64, ctypes.c_uint]
    loaded.obtain.argtypes = [ctypes.c_uint64, ctypes.c_uint, ctypes.c_uint64]
    loaded.give_back.argtypes = [ctypes.c_uint64, ctypes.c_int]
    return loaded


@pytest.fixture
def sets(tmp_path: Path) -> Iterator[ctypes.CDLL]:
    loaded = built(tmp_path, host_text())
    yield loaded
    assert all(loaded.word(set_) >> 1 == 0 for set_ in range(SETS)), "a set is still owned"


@dataclass
class Launch:
    """A launch in flight, with the sets that its blocks have been told of."""

    library: ctypes.CDLL
    number: int
    blocks: int
    told: list[int] = field(default_factory=list)

    def start(self) -> int:
        """One block's set."""
        found = self.library.request(self.number, self.blocks)
        self.told.append(self.library.obtain(self.number, self.blocks, found))
        return self.told[-1]

    def end(self) -> None:
        """The end of one block."""
        self.library.give_back(self.number, self.told[-1])


def in_flight(library: ctypes.CDLL, numbers: Sequence[int], blocks: int, order: random.Random) -> None:
    """Launches whose blocks start and end in any order; asserts that each has a set of its own."""
    running = [Launch(library, number, blocks) for number in numbers]
    events = [launch for launch in running for _ in range(2 * blocks)]
    order.shuffle(events)
    ended = dict.fromkeys(numbers, 0)
    for launch in events:
        open_blocks = len(launch.told) - ended[launch.number]
        if len(launch.told) < blocks and (open_blocks == 0 or order.random() < 0.5):
            launch.start()
        else:
            launch.end()
            ended[launch.number] += 1
        owned = [one.told[0] for one in running if one.told and ended[one.number] < blocks]
        assert len(set(owned)) == len(owned), "two launches have one set"
        assert all(len(set(one.told)) <= 1 for one in running), "a launch has two sets"


@pytest.mark.parametrize("distance", [1, SETS, 1 << 32], ids=["next to each other", "of one home", "far apart"])
def test_launches_in_flight_have_sets_of_their_own(sets: ctypes.CDLL, distance: int) -> None:
    """As many as there are sets, in random orders; numbers come again, as those of a graph's nodes do."""
    order = random.Random(0)
    for _ in range(300):
        in_flight(sets, [7 + distance * k for k in range(SETS)], order.choice([1, 2, 5]), order)


def late_block(library: ctypes.CDLL) -> tuple[int, int]:
    """The sets of two blocks, one before and one after the launch that has their home ends."""
    first, other = Launch(library, SETS, 1), Launch(library, 2 * SETS, 2)
    first.start()
    early = other.start()
    first.end()
    late = other.start()
    other.end()
    other.end()
    return early, late


def test_a_block_that_comes_once_the_home_is_free_follows_those_before_it(sets: ctypes.CDLL) -> None:
    early, late = late_block(sets)
    assert early == late != 0


def test_without_the_mark_it_would_not(tmp_path: Path) -> None:
    unmarked = host_text().replace("at_home, at_home | 1ull", "at_home, at_home")
    assert unmarked != host_text()
    early, late = late_block(built(tmp_path, unmarked))
    assert early != late


def test_the_mark_goes_with_the_next_claim_of_the_home(sets: ctypes.CDLL) -> None:
    late_block(sets)
    assert sets.word(0) == 1
    again = Launch(sets, 3 * SETS, 1)
    assert again.start() == 0
    again.end()
    assert sets.word(0) == 0


def test_more_launches_than_sets_wait_for_one(sets: ctypes.CDLL) -> None:
    """Threads run blocks in the order of their launches, as a device does."""
    blocks, queue, lock = 3, iter(range(600)), threading.Lock()
    owners: dict[int, int] = {}
    ended: Counter[int] = Counter()
    wrong: list[str] = []

    def work() -> None:
        while True:
            with lock:
                block = next(queue, None)
            if block is None:
                return
            launch = Launch(sets, block // blocks * SETS, blocks)
            own = launch.start()
            with lock:
                if owners.setdefault(own, launch.number) != launch.number:
                    wrong.append(f"{owners[own]} and {launch.number} in {own}")
            time.sleep(1e-4)
            with lock:
                ended[launch.number] += 1
                if ended[launch.number] == blocks:
                    del owners[own]
            launch.end()

    workers = [threading.Thread(target=work) for _ in range(3 * SETS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not any(worker.is_alive() for worker in workers)
    assert not wrong and not owners
