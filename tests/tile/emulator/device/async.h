// Copies of a few bytes by each thread (cp.async): what comes is there once the thread has waited for its group, or a
// barrier has its arrival, and what was there before is lost at once.
#pragma once

#include "barrier.h"

namespace emulator {

struct SmallCopy {
  const void* source;
  uint32_t target, bytes, given;  // the rest of the bytes are zeros
};

struct AsyncGroups {  // of one thread: copies that it has started, and those that it has committed
  std::vector<SmallCopy> open;
  std::deque<std::vector<SmallCopy>> committed;
};

inline std::vector<AsyncGroups> async_groups;

inline void land(const SmallCopy& copy) {
  unsigned char* target = shared.at(copy.target, copy.bytes, "cp.async");
  std::memset(target, 0, copy.bytes);
  if (copy.given) std::memcpy(target, copy.source, copy.given);
}

}  // namespace emulator

namespace ptx {

void copy_async(uint32_t target, const void* source, uint32_t bytes, uint32_t given) {
  const char* who = "cp.async";
  if (target % bytes || (given && reinterpret_cast<uintptr_t>(source) % bytes)) {
    emulator::fault("%s: %u bytes from %p to shared address %u, which are not aligned", who, bytes, source, target);
  }
  if (given > bytes) emulator::fault("%s: %u bytes are given for %u", who, given, bytes);
  std::memset(emulator::shared.at(target, bytes, who), 0xff, bytes);
  if (emulator::shared.unit(target).read_by) {
    emulator::fault("%s fills shared address %u while it is read", who, target - emulator::kBase);
  }
  emulator::async_groups[emulator::self().index].open.push_back({source, target, bytes, given});
}

void async_arrive(uint32_t barrier) {
  emulator::AsyncGroups& groups = emulator::async_groups[emulator::self().index];
  groups.committed.push_back(std::move(groups.open));
  groups.open.clear();
  std::vector<emulator::SmallCopy> all;
  for (auto& group : groups.committed) all.insert(all.end(), group.begin(), group.end());
  groups.committed.clear();
  emulator::memory_barrier(barrier, "cp.async.mbarrier.arrive");
  emulator::scheduler.copies.push_back({emulator::self().block, [all, barrier] {
    for (const emulator::SmallCopy& copy : all) {
      emulator::land(copy);
      emulator::shared.mark_copied(copy.target);
    }
    emulator::arrive_at_memory(barrier, 1, 0, "cp.async.mbarrier.arrive");
  }});
}

void async_commit_group() {
  emulator::AsyncGroups& groups = emulator::async_groups[emulator::self().index];
  groups.committed.push_back(std::move(groups.open));
  groups.open.clear();
}

void async_wait_group(int pending) {
  auto& committed = emulator::async_groups[emulator::self().index].committed;
  for (; int(committed.size()) > pending; committed.pop_front()) {
    for (const emulator::SmallCopy& copy : committed.front()) emulator::land(copy);
  }
}

}  // namespace ptx
