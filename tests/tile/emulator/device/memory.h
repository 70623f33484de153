// Shared memory of one block, with what is known of every 16 bytes of it: who reads or fills them by the asynchronous
// proxy at the moment, and which thread wrote them by the generic one without a fence since.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "fiber.h"

alignas(1024) unsigned char _ptr[232448];  // the name under which kernels declare their shared memory

namespace emulator {

constexpr uint32_t kBase = 1024;  // what lies below is the system's own
constexpr uint32_t kUnit = 16;
constexpr int kCopied = 1 << 20;  // in place of a thread: threads' copies (cp.async), which any thread may fence that sees them

struct Unit {
  uint16_t filled_by = 0;  // copies under way to here
  uint16_t read_by = 0;    // copies and products under way that read here
  int unfenced = -1;       // a thread
  bool barrier = false;
};

inline void swap_bytes(void* one, void* other, size_t bytes) {  // a page at a time: std::swap_ranges goes byte by byte
  unsigned char page[4096];
  auto *a = static_cast<unsigned char*>(one), *b = static_cast<unsigned char*>(other);
  for (size_t k = 0; k < bytes; k += sizeof page) {
    const size_t size = std::min(bytes - k, sizeof page);
    std::memcpy(page, a + k, size);
    std::memcpy(a + k, b + k, size);
    std::memcpy(b + k, page, size);
  }
}

struct SharedMemory {
  uint32_t size = 0;
  Unit units[sizeof _ptr / kUnit];
  std::vector<std::vector<uint32_t>> written;  // units with unfenced writes, by thread
  std::vector<uint32_t> copied;                // those that threads' copies wrote

  void reset(uint32_t bytes, int threads) {
    if (bytes > sizeof _ptr) fault("%u bytes of shared memory; a block may have %zu", bytes, sizeof _ptr);
    size = bytes;
    std::memset(_ptr, 0xff, sizeof _ptr);
    std::fill(std::begin(units), std::end(units), Unit{});
    written.assign(threads, {});
    copied.clear();
  }

  void swap(SharedMemory& other, uint32_t bytes) {
    std::swap(size, other.size);
    swap_bytes(units, other.units, (bytes + kUnit - 1) / kUnit * sizeof(Unit));
    std::swap(written, other.written);
    std::swap(copied, other.copied);
  }

  unsigned char* at(uint32_t address, uint32_t bytes, const char* who) {
    if (address < kBase || address + bytes > kBase + size) {
      fault("%s: %u bytes at shared address %d of %u", who, bytes, int(address) - int(kBase), size);
    }
    return _ptr + (address - kBase);
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
