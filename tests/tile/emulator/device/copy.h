// Bulk copies of boxes of a tensor to and from shared memory, with the 128-byte swizzle.
#pragma once

#include <map>

#include "barrier.h"

namespace emulator {

// What this project keeps in the 128 bytes of a tensor map. Dimensions are counted from the innermost.
struct Map {
  uint32_t magic;
  int32_t rank;
  unsigned char* data;
  int64_t extents[5], strides[5];
  int16_t box[5], steps[5];  // elements that are copied, and from each to the next
  int32_t element;  // bytes
};
static_assert(sizeof(Map) <= sizeof(CUtensorMap), "fits");
constexpr uint32_t kMagic = 0x7ab1e5;

inline Map map_of(const void* pointer, const char* who) {
  Map map;
  std::memcpy(&map, pointer, sizeof map);
  if (map.magic != kMagic) fault("%s: no tensor map", who);
  return map;
}

struct Box {
  Map map;
  int64_t first[5] = {};
  uint32_t address;

  Box(const void* pointer, std::initializer_list<int32_t> place, uint32_t where, const char* who)
      : map(map_of(pointer, who)), address(where) {
    if (int(place.size()) != map.rank) fault("%s: %zu coordinates of a tensor of rank %d", who, place.size(), map.rank);
    if (where % 128) fault("%s: shared address %u is no multiple of 128", who, where);
    std::copy(place.begin(), place.end(), first);
  }

  int64_t rows() const {
    int64_t count = 1;
    for (int d = 1; d < map.rank; ++d) count *= map.box[d];
    return count;
  }
  int64_t row_bytes() const { return int64_t{map.box[0]} * map.element; }
  int per_unit() const { return int(kUnit) / map.element; }
  int64_t bytes() const { return rows() * row_bytes(); }

  template <typename F>
  void each_unit(F visit) const {  // shared address, row, column of the unit's first element
    for (int64_t row = 0; row < rows(); ++row) {
      for (int64_t column = 0; column < map.box[0]; column += per_unit()) {
        visit(swizzled(uint32_t(address + row * row_bytes() + column * map.element)), row, column);
      }
    }
  }

  // Where an element lies in global memory; null outside of the tensor.
  unsigned char* element(int64_t row, int64_t column) const {
    int64_t at[5] = {first[0] + column}, offset = 0;
    for (int d = 1; d < map.rank; ++d) {
      at[d] = first[d] + row % map.box[d] * map.steps[d];
      row /= map.box[d];
    }
    for (int d = 0; d < map.rank; ++d) {
      if (at[d] < 0 || at[d] >= map.extents[d]) return nullptr;
      offset += at[d] * map.strides[d];
    }
    return map.data + offset;
  }
};

struct BulkGroups {  // of one thread: stores that it has started, and those that it has committed
  std::vector<Box> open;
  std::deque<std::vector<Box>> committed;
};

inline std::vector<BulkGroups> bulk_groups;

inline void brought(uint32_t barrier, int64_t bytes) {
  MemoryBarrier& b = memory_barrier(barrier, "a copy");
  b.bytes -= bytes;  // what another block of the cluster copies may come before it is expected
  if (b.bytes < 0 && !b.missing) fault("copies of %d bytes more than their barrier expects", int(-b.bytes));
  b.advance();
}

inline void check_barrier(uint32_t barrier, const char* who) {
  memory_barrier(barrier, who);
  if (int thread = shared.unit(barrier).unfenced; thread >= 0) {
    fault("a copy uses a barrier that thread %d initialised without a fence of the proxy", thread);
  }
}

inline void land(const Box& box, uint32_t barrier) {
  box.each_unit([&](uint32_t address, int64_t row, int64_t column) {
    shared.end_fill(address);
    const int size = box.map.element;
    for (int k = 0; k < box.per_unit(); ++k) {
      const unsigned char* source = box.element(row, column + k);
      unsigned char* target = shared.at(address + k * size, size, "a copy");
      source ? std::memcpy(target, source, size) : std::memset(target, 0, size);
    }
  });
  brought(barrier, box.bytes());
}

inline void start_copy(const Box& box, uint32_t barrier, int block) {
  check_barrier(barrier, "cp.async.bulk.tensor");
  box.each_unit([](uint32_t address, int64_t, int64_t) { shared.start_fill(address, "cp.async.bulk.tensor"); });
  scheduler.copies.push_back({block, [box, barrier] { land(box, barrier); }});
}

inline void store(const Box& box) {
  box.each_unit([&](uint32_t address, int64_t row, int64_t column) {
    shared.end_read(address);
    const int size = box.map.element;
    for (int k = 0; k < box.per_unit(); ++k) {
      unsigned char* target = box.element(row, column + k);
      if (target) std::memcpy(target, shared.at(address + k * size, size, "a store"), size);
    }
  });
}

}  // namespace emulator

namespace ptx {

void prefetch_tensormap(const void* map) { map_of(map, "prefetch.tensormap"); }

void prefetch_tensor(const void* map, std::initializer_list<int32_t> place) {
  Box(map, place, 0, "cp.async.bulk.prefetch.tensor");
}

void copy_tensor_to_shared(uint32_t target, const void* map, std::initializer_list<int32_t> place, uint32_t barrier) {
  start_copy(Box(map, place, target, "cp.async.bulk.tensor"), barrier, self().block);
}

void copy_tensor_to_blocks(
    uint32_t target, const void* map, std::initializer_list<int32_t> place, uint32_t barrier, uint32_t blocks) {
  if (!blocks || blocks >> cluster) fault("a copy to the blocks %x of a cluster of %u", blocks, cluster);
  for (uint32_t k = 0; k < cluster; ++k) {
    if (blocks >> k & 1) in_block(k, [&] { start_copy(Box(map, place, target, "cp.async.bulk.tensor"), barrier, k); });
  }
}

void copy_to_shared(uint32_t target, const void* source, uint32_t bytes, uint32_t barrier) {
  const char* who = "cp.async.bulk";
  if (target % kUnit || reinterpret_cast<uintptr_t>(source) % kUnit || bytes % kUnit || !bytes) {
    fault("%s: %u bytes from %p to shared address %u; all are multiples of %u", who, bytes, source, target, kUnit);
  }
  check_barrier(barrier, who);
  for (uint32_t k = 0; k < bytes; k += kUnit) shared.start_fill(target + k, who);
  scheduler.add(scheduler.copies, [=] {
    for (uint32_t k = 0; k < bytes; k += kUnit) shared.end_fill(target + k);
    std::memcpy(shared.at(target, bytes, who), source, bytes);
    brought(barrier, bytes);
  });
}

void copy_to_block(uint32_t target, uint32_t source, uint32_t bytes, uint32_t barrier) {
  const char* who = "cp.async.bulk.shared::cluster.shared::cta";
  const uint32_t to = target & kInBlock, block = target / (kInBlock + 1), completes = barrier & kInBlock;
  if (barrier / (kInBlock + 1) != block) fault("%s: the barrier is in block %u, not %u", who, barrier >> 24, block);
  if (to % kUnit || source % kUnit || bytes % kUnit || !bytes) fault("%s: %u bytes from %u to %u", who, bytes, source, to);
  for (uint32_t k = 0; k < bytes; k += kUnit) shared.start_read(source + k, who);
  in_block(block, [&] {
    check_barrier(completes, who);
    for (uint32_t k = 0; k < bytes; k += kUnit) shared.start_fill(to + k, who);
  });
  scheduler.add(scheduler.copies, [=] {
    const unsigned char* first = shared.at(source, bytes, who);
    const std::vector<unsigned char> data(first, first + bytes);
    for (uint32_t k = 0; k < bytes; k += kUnit) shared.end_read(source + k);
    scheduler.enter(int(block));
    for (uint32_t k = 0; k < bytes; k += kUnit) shared.end_fill(to + k);
    std::memcpy(shared.at(to, bytes, who), data.data(), bytes);
    brought(completes, bytes);
  });
}

struct Send {
  uint32_t to;
  std::vector<float> data;
};

constexpr size_t kTogether = 64;

void send_to_block(uint32_t target, std::initializer_list<float> values, uint32_t barrier) {
  const char* who = "st.async";
  const uint32_t to = target & kInBlock, block = target / (kInBlock + 1), completes = barrier & kInBlock;
  const uint32_t bytes = values.size() * sizeof(float);
  if (barrier / (kInBlock + 1) != block) fault("%s: the barrier is in block %u, not %u", who, barrier >> 24, block);
  if (to % bytes) fault("%s: %u bytes to %u", who, bytes, to);
  memory_barrier_of(block, completes, who);
  static std::map<uint32_t, std::shared_ptr<std::vector<Send>>> under_way;  // those to one barrier land together
  auto& last = under_way[barrier];
  if (!last || last.use_count() < 2 || last->size() == kTogether) {
    last = std::make_shared<std::vector<Send>>();
    scheduler.add(scheduler.copies, [=, sends = last] {
      scheduler.enter(int(block));
      for (const Send& send : *sends) {
        const uint32_t size = send.data.size() * sizeof(float);
        std::memcpy(shared.at(send.to, size, who), send.data.data(), size);
        brought(completes, size);
      }
    });
  }
  last->push_back({to, values});
}

void copy_tensor_to_global(const void* map, std::initializer_list<int32_t> place, uint32_t source) {
  Box box(map, place, source, "cp.async.bulk.tensor");
  box.each_unit([](uint32_t address, int64_t, int64_t) { shared.start_read(address, "cp.async.bulk.tensor"); });
  bulk_groups[self().index].open.push_back(box);
}

void bulk_commit_group() {
  BulkGroups& groups = bulk_groups[self().index];
  groups.committed.push_back(std::move(groups.open));
  groups.open.clear();
}

// Stores of a thread are done when it waits for them, and no earlier than all else has come to a halt.
void bulk_wait_group(int pending) {
  auto& committed = bulk_groups[self().index].committed;
  if (int(committed.size()) <= pending) return;
  bool done = false;
  scheduler.add(scheduler.copies, [&] {
    for (; int(committed.size()) > pending; committed.pop_front()) {
      for (const Box& box : committed.front()) store(box);
    }
    done = true;
  });
  scheduler.wait([&done] { return done; }, "cp.async.bulk.wait_group");
}

void fence_proxy_async() { shared.fence(); }

}  // namespace ptx
