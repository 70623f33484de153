// Shared memory of one block, with what is known of every 16 bytes of it: who reads or fills them by the asynchronous
// proxy at the moment, and which thread wrote them by the generic one without a fence since.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "fiber.h"

unsigned char* _ptr;  // that of the current block, under the name by which kernels declare theirs

namespace emulator {

constexpr uint32_t kMostShared = 232448;
constexpr uint32_t kBase = 1024;  // what lies below is the system's own
constexpr uint32_t kUnit = 16;
constexpr int kCopied = 1 << 20;  // in place of a thread: threads' copies (cp.async), which any thread may fence that sees them

struct Unit {
  uint16_t filled_by = 0;  // copies under way to here
  uint16_t read_by = 0;    // copies and products under way that read here
  int unfenced = -1;       // a thread
  bool barrier = false;
};

struct Bytes {
  alignas(1024) unsigned char all[kMostShared];
};

struct SharedMemory {
  uint32_t size = 0;
  std::unique_ptr<Bytes> memory{new Bytes};
  std::vector<Unit> units;
  std::vector<std::vector<uint32_t>> written;  // units with unfenced writes, by thread
  std::vector<uint32_t> copied;                // those that threads' copies wrote

  void reset(uint32_t bytes, int threads) {
    if (bytes > kMostShared) fault("%u bytes of shared memory; a block may have %u", bytes, kMostShared);
    size = bytes;
    std::memset(memory->all, 0xff, sizeof memory->all);
    units.assign(kMostShared / kUnit, {});
    written.assign(threads, {});
    copied.clear();
  }

  unsigned char* at(uint32_t address, uint32_t bytes, const char* who) {
    if (address < kBase || address + bytes > kBase + size) {
      fault("%s: %u bytes at shared address %d of %u", who, bytes, int(address) - int(kBase), size);
    }
    return memory->all + (address - kBase);
  }

  Unit& unit(uint32_t address) { return units[(address - kBase) / kUnit]; }

  // The asynchronous proxy starts to read a unit.
  void start_read(uint32_t address, const char* who) {
    at(address, kUnit, who);
    Unit& u = unit(address);
    if (u.filled_by) fault("%s reads shared address %u into which a copy is under way", who, address - kBase);
    if (u.unfenced >= 0) {
      fault("%s reads shared address %u that thread %d wrote without a fence of the proxy", who, address - kBase, u.unfenced);
    }
    ++u.read_by;
  }
  void end_read(uint32_t address) { --unit(address).read_by; }

  // The asynchronous proxy starts to fill a unit: what is there is lost at once, what comes is there at the end.
  void start_fill(uint32_t address, const char* who) {
    unsigned char* bytes = at(address, kUnit, who);
    Unit& u = unit(address);
    if (u.barrier) fault("%s fills shared address %u, where a barrier is", who, address - kBase);
    if (u.filled_by) fault("%s fills shared address %u, as another copy does", who, address - kBase);
    if (u.read_by) fault("%s fills shared address %u while it is read", who, address - kBase);
    if (u.unfenced >= 0) {
      fault("%s fills shared address %u that thread %d wrote without a fence of the proxy", who, address - kBase, u.unfenced);
    }
    ++u.filled_by;
    std::memset(bytes, 0xff, kUnit);
  }
  void end_fill(uint32_t address) { --unit(address).filled_by; }

  void write(uint32_t address, const void* data, uint32_t bytes, const char* who) {
    unsigned char* target = at(address, bytes, who);
    Unit& u = unit(address);
    if (u.barrier) fault("%s writes shared address %u, where a barrier is", who, address - kBase);
    if (u.filled_by) fault("%s writes shared address %u into which a copy is under way", who, address - kBase);
    if (u.read_by) fault("%s writes shared address %u while it is read", who, address - kBase);
    mark(address);
    std::memcpy(target, data, bytes);
  }

  void mark(uint32_t address) {
    unit(address).unfenced = self().index;
    written[self().index].push_back((address - kBase) / kUnit);
  }

  void mark_copied(uint32_t address) {
    unit(address).unfenced = kCopied;
    copied.push_back((address - kBase) / kUnit);
  }

  void fence() {
    for (uint32_t k : written[self().index]) {
      if (units[k].unfenced == self().index) units[k].unfenced = -1;
    }
    written[self().index].clear();
    for (uint32_t k : copied) {
      if (units[k].unfenced == kCopied) units[k].unfenced = -1;
    }
    copied.clear();
  }
};

inline SharedMemory shared;

// The 128-byte swizzle: which 16 bytes of a row of 128 depends on the row.
inline uint32_t swizzled(uint32_t address) { return address ^ ((address >> 7 & 7) << 4); }

}  // namespace emulator
