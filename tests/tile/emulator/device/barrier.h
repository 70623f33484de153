// Barriers of threads (bar), and barriers in shared memory that count arrivals and bytes (mbarrier).
#pragma once

#include <map>

#include "warp.h"

namespace emulator {

struct NamedBarrier {
  uint32_t arrived = 0, expected = 0;
  int64_t generation = 0;
  uint32_t votes[2] = {};  // two in turn, so that those of one are read while the next are cast
};

struct MemoryBarrier {
  uint32_t arrivals, missing;
  int64_t bytes = 0, phase = 0;
  void advance() {
    if (missing || bytes) return;
    missing = arrivals;
    ++phase;
  }
};

inline NamedBarrier named_barriers[16];
inline std::vector<std::map<uint32_t, MemoryBarrier>> memory_barriers(1);  // by block of the cluster

struct ClusterBarrier {
  size_t arrived = 0;
  int64_t generation = 0;
  bool complete(int64_t before) {  // threads that have ended are not waited for
    if (generation == before && arrived >= scheduler.live) arrived = 0, ++generation;
    return generation > before;
  }
};

inline ClusterBarrier cluster_barrier;

inline int64_t arrive_at(uint32_t barrier, uint32_t threads) {
  if (barrier >= 16 || threads % kWarp || !threads) fault("barrier %u of %u threads", barrier, threads);
  NamedBarrier& b = named_barriers[barrier];
  if (b.arrived && b.expected != threads) fault("barrier %u of %u and of %u threads", barrier, b.expected, threads);
  b.expected = threads;
  int64_t generation = b.generation;
  if (++b.arrived == threads) {
    b.arrived = 0;
    b.votes[++b.generation & 1] = 0;
  }
  return generation;
}

constexpr uint32_t kInBlock = 0xffffff;  // bits of an address in the cluster's window that are a block's own

inline void check_block(uint32_t block) {
  if (block >= ptx::cluster) fault("block %u of a cluster of %u", block, ptx::cluster);
}

// Something with the state of another block of the cluster.
template <typename F>
void in_block(uint32_t block, F action) {
  check_block(block);
  const int own = self().block;
  scheduler.enter(int(block));
  action();
  scheduler.enter(own);
}

inline MemoryBarrier& memory_barrier_of(uint32_t block, uint32_t address, const char* who) {
  check_block(block);
  auto found = memory_barriers[block].find(address);
  if (found == memory_barriers[block].end()) fault("%s: no barrier at shared address %d", who, int(address) - int(kBase));
  return found->second;
}

inline MemoryBarrier& memory_barrier(uint32_t address, const char* who) {
  return memory_barrier_of(uint32_t(scheduler.entered), address, who);
}

inline void arrive_at(MemoryBarrier& b, uint32_t count, uint32_t bytes, const char* who) {
  if (count > b.missing) fault("%s: %u arrivals where %u are missing", who, count, b.missing);
  b.missing -= count;
  b.bytes += bytes;
  b.advance();
}

inline void arrive_at_memory(uint32_t address, uint32_t count, uint32_t bytes, const char* who) {
  arrive_at(memory_barrier(address, who), count, bytes, who);
}

}  // namespace emulator

namespace ptx {

void bar_sync(uint32_t barrier, uint32_t threads) {
  meet("bar.sync");
  int64_t generation = arrive_at(barrier, threads);
  NamedBarrier& b = named_barriers[barrier];
  scheduler.wait([&b, generation] { return b.generation > generation; }, "bar.sync", barrier);
}

uint32_t bar_red_popc(uint32_t barrier, uint32_t threads, uint32_t vote) {
  meet("bar.red");
  if (barrier < 16) named_barriers[barrier].votes[named_barriers[barrier].generation & 1] += vote != 0;
  int64_t generation = arrive_at(barrier, threads);
  NamedBarrier& b = named_barriers[barrier];
  scheduler.wait([&b, generation] { return b.generation > generation; }, "bar.red", barrier);
  return b.votes[generation & 1];
}

void cluster_arrive() {
  self().cluster_generation = cluster_barrier.generation;
  ++cluster_barrier.arrived;
}

void cluster_wait() {
  const int64_t before = self().cluster_generation;
  if (before < 0) fault("barrier.cluster.wait without an arrival before");
  scheduler.wait([before] { return cluster_barrier.complete(before); }, "barrier.cluster");
  self().cluster_generation = -1;
}

void sync_block() { bar_sync(0, uint32_t(scheduler.threads)); }

void bar_arrive(uint32_t barrier, uint32_t threads) {
  meet("bar.arrive");
  arrive_at(barrier, threads);
}

void mbarrier_init(uint32_t address, uint32_t arrivals) {
  if (address % 8) fault("a barrier at an address that is no multiple of 8: %u", address);
  shared.at(address, 8, "mbarrier.init");
  shared.mark(address);
  shared.unit(address).barrier = true;
  memory_barriers[scheduler.entered][address] = MemoryBarrier{arrivals, arrivals};
}

void mbarrier_arrive(uint32_t address, uint32_t count) { arrive_at_memory(address, count, 0, "mbarrier.arrive"); }

void mbarrier_arrive_at_block(uint32_t address, uint32_t count) {
  const char* who = "mbarrier.arrive.shared::cluster";
  arrive_at(memory_barrier_of(address / (kInBlock + 1), address & kInBlock, who), count, 0, who);
}

void mbarrier_arrive_expect_tx(uint32_t address, uint32_t bytes) {
  arrive_at_memory(address, 1, bytes, "mbarrier.arrive.expect_tx");
}

void mbarrier_wait(uint32_t address, int parity) {
  MemoryBarrier& b = memory_barrier(address, "mbarrier.try_wait");
  if (parity != 0 && parity != 1) fault("parity %d", parity);
  scheduler.wait([&b, parity] { return (b.phase & 1) != parity; },
                 parity ? "mbarrier, parity 1, at shared address" : "mbarrier, parity 0, at shared address",
                 address - kBase);
}

}  // namespace ptx
