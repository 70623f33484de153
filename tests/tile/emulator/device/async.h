// Copies of a few bytes by each thread (cp.async): what comes is there once the thread has waited for its group, and what
// was there before is lost at once.
#pragma once

#include "memory.h"

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

}  // namespace emulator

namespace ptx {

void copy_async(uint32_t target, const void* source, uint32_t bytes, uint32_t given) {
  const char* who = "cp.async";
  if (target % bytes || (given && reinterpret_cast<uintptr_t>(source) % bytes)) {
    emulator::fault("%s: %u bytes from %p to shared address %u, which are not aligned", who, bytes, source, target);
  }
  if (given > bytes) emulator::fault("%s: %u bytes are given for %u", who, given, bytes);
  std::memset(emulator::shared.at(target, bytes, who), 0xff, bytes);
  emulator::async_groups[emulator::self().index].open.push_back({source, target, bytes, given});
}

void async_commit_group() {
  emulator::AsyncGroups& groups = emulator::async_groups[emulator::self().index];
  groups.committed.push_back(std::move(groups.open));
  groups.open.clear();
}

void async_wait_group(int pending) {
  auto& committed = emulator::async_groups[emulator::self().index].committed;
  for (; int(committed.size()) > pending; committed.pop_front()) {
    for (const emulator::SmallCopy& copy : committed.front()) {
      unsigned char* target = emulator::shared.at(copy.target, copy.bytes, "cp.async");
      std::memset(target, 0, copy.bytes);
      if (copy.given) std::memcpy(target, copy.source, copy.given);
    }
  }
}

}  // namespace ptx
