// Instructions that the 32 lanes of a warp execute together.
#pragma once

#include <algorithm>

#include "memory.h"
#include "ptx.h"

namespace emulator {

struct Meeting {  // two in turn, so that values of one are read while the next fills
  int arrived = 0;
  const char* name = nullptr;
  uint64_t values[kWarp];
};

struct Warp {
  Meeting meetings[2];
  int64_t round[kWarp] = {};
};

inline std::vector<Warp> warps;
inline std::vector<int> registers_of_warp;

// Waits for the other lanes; the values of all of them.
inline const uint64_t* meet(const char* name, uint64_t value = 0) {
  Fiber& fiber = self();
  Warp& warp = warps[fiber.warp()];
  Meeting& meeting = warp.meetings[warp.round[fiber.lane()]++ & 1];
  if (meeting.arrived == kWarp) meeting.arrived = 0;
  if (meeting.arrived == 0) meeting.name = name;
  if (std::strcmp(meeting.name, name)) {
    fault("lanes of a warp part: %s here, %s in another lane", name, meeting.name);
  }
  meeting.values[fiber.lane()] = value;
  ++meeting.arrived;
  scheduler.wait([&meeting] { return meeting.arrived == kWarp; }, name, fiber.warp());
  return meeting.values;
}

}  // namespace emulator

void check_aligned(const void* pointer, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(pointer) % bytes) emulator::fault("%zu bytes at an address that is no multiple", bytes);
}

namespace ptx {
using namespace emulator;

int lane() { return self().lane(); }

uint32_t shared_address(const void* pointer) {
  auto offset = static_cast<const unsigned char*>(pointer) - _ptr;
  if (offset < 0 || offset >= int64_t(shared.size)) fault("the address of a thing outside of shared memory (%td)", offset);
  return kBase + uint32_t(offset);
}

uint64_t shuffle(uint64_t bits, int from_lane, const char* name) { return meet(name, bits)[from_lane & (kWarp - 1)]; }

bool any(bool vote) {
  const uint64_t* votes = meet("vote.sync.any", vote);
  return std::any_of(votes, votes + kWarp, [](uint64_t v) { return v != 0; });
}

uint32_t ballot(bool vote) {
  const uint64_t* votes = meet("vote.sync.ballot", vote);
  uint32_t found = 0;
  for (int lane = 0; lane < kWarp; ++lane) found |= uint32_t(votes[lane] != 0) << lane;
  return found;
}

int32_t greatest_of_warp(int32_t value, uint32_t mask) {
  if (mask != 0xffffffff) fault("redux.sync of the lanes %x alone", mask);
  const uint64_t* values = meet("redux.sync.max", uint32_t(value));
  return *std::max_element(reinterpret_cast<const int64_t*>(values), reinterpret_cast<const int64_t*>(values) + kWarp,
                           [](int64_t a, int64_t b) { return int32_t(a) < int32_t(b); });
}

void warp_sync() { meet("bar.warp.sync"); }

uint32_t elect_sync(uint32_t mask) {
  if (mask != 0xffffffff) fault("elect.sync of the lanes %x alone", mask);
  meet("elect.sync");
  return self().lane() == 0;
}

void stmatrix_x4(uint32_t row, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  if (row % 16) fault("stmatrix to an address that is no multiple of 16: %u", row);
  const uint64_t* rows = meet("stmatrix", row);
  const uint32_t values[4] = {r0, r1, r2, r3};
  for (int k = 0; k < 4; ++k) {
    uint32_t target = uint32_t(rows[8 * k + self().lane() / 4]) + 4 * (self().lane() % 4);
    shared.write(target, &values[k], 4, "stmatrix");
  }
}

void check_units(uint32_t address, const char* who) {
  if (address % kUnit) fault("%s at shared address %u, no multiple of %u", who, address - kBase, kUnit);
}

void load_shared_x4(uint32_t& r0, uint32_t& r1, uint32_t& r2, uint32_t& r3, uint32_t address) {
  check_units(address, "ld.shared.v4");
  uint32_t values[4];
  std::memcpy(values, shared.at(address, sizeof values, "ld.shared.v4"), sizeof values);
  if (shared.unit(address).filled_by) fault("ld.shared.v4 reads address %u into which a copy is under way", address - kBase);
  r0 = values[0], r1 = values[1], r2 = values[2], r3 = values[3];
}

void store_shared_x4(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  check_units(address, "st.shared.v4");
  const uint32_t values[4] = {r0, r1, r2, r3};
  shared.write(address, values, sizeof values, "st.shared.v4");
}

uint32_t load_global(const void* address) {
  uint32_t value;
  if (reinterpret_cast<uintptr_t>(address) % sizeof value) fault("ld.global of 4 bytes at %p", address);
  std::memcpy(&value, address, sizeof value);
  return value;
}

void load_global_pair(uint32_t& first, uint32_t& second, const void* address) {
  uint32_t values[2];
  check_aligned(address, sizeof values);
  std::memcpy(values, address, sizeof values);
  first = values[0], second = values[1];
}

void store_shared_vector(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t values[4] = {a, b, c, d};
  if (address % sizeof values) fault("st.shared of 16 bytes at shared address %u", address);
  shared.write(address, values, sizeof values, "st.shared");
}

void store_shared(uint32_t address, uint32_t value) {
  if (address % sizeof value) fault("st.shared of 4 bytes at shared address %u", address);
  shared.write(address, &value, sizeof value, "st.shared");
}

void store_shared_pair(uint32_t address, float first, float second) {
  const float values[2] = {first, second};
  if (address % sizeof values) fault("st.shared of 8 bytes at shared address %u", address);
  shared.write(address, values, sizeof values, "st.shared");
}

void store_global(const void* address, uint32_t value) {
  check_aligned(address, sizeof value);
  std::memcpy(const_cast<void*>(address), &value, sizeof value);
}

void store_global_pair(const void* address, float first, float second) {
  const float pair[2] = {first, second};
  check_aligned(address, sizeof pair);
  std::memcpy(const_cast<void*>(address), pair, sizeof pair);
}

void store_global_words(const void* address, uint32_t first, uint32_t second) {
  const uint32_t words[2] = {first, second};
  check_aligned(address, sizeof words);
  std::memcpy(const_cast<void*>(address), words, sizeof words);
}

void setmaxnreg(bool more, int count) {
  meet(more ? "setmaxnreg.inc" : "setmaxnreg.dec");
  if (count % 8 || count < 24 || count > 256) fault("setmaxnreg to %d registers", count);
  registers_of_warp[self().warp()] = count;
  int all = 0;
  for (int known : registers_of_warp) all += known * kWarp;
  const int threads = int(registers_of_warp.size()) * kWarp, pool = 65536 / threads / 8 * 8 * threads;
  if (all > pool) fault("%d registers in a block, which is launched with %d", all, pool);
}

}  // namespace ptx
