// Products by warp groups: started by 128 threads, done as late as their wait allows. Until then their accumulators are
// NaN, and nothing that they read may change.
#pragma once

#include <array>
#include <limits>

#include "barrier.h"

namespace emulator {

constexpr int kRows = 64;
constexpr int kDepth = 16;

// A matrix in shared memory, as a descriptor says: boxes of 128 bytes a row, in atoms of 8 rows.
struct Matrix {
  uint32_t start, leading, stride;
  bool transposed;

  Matrix(uint64_t descriptor, bool across) : transposed(across) {
    start = uint32_t(descriptor & 0x3fff) << 4;
    leading = uint32_t(descriptor >> 16 & 0x3fff) << 4;
    stride = uint32_t(descriptor >> 32 & 0x3fff) << 4;
    if (descriptor >> 62 != 1) fault("wgmma: the emulator knows the 128-byte swizzle alone");
    if (descriptor >> 49 & 7) fault("wgmma: the emulator knows atoms at multiples of 1024 bytes alone");
  }

  // Where element `depth` of row or column `outer` is.
  uint32_t address(uint32_t outer, uint32_t depth) const {
    uint32_t row = transposed ? depth : outer, column = transposed ? outer : depth;
    uint32_t boxes = transposed ? column / 64 * leading : 0;
    return swizzled(start + boxes + row / 8 * stride + row % 8 * 128 + (transposed ? column % 64 : column) * 2);
  }

  template <typename F>
  void each_unit(int outer, F visit) const {
    int rows = transposed ? kDepth : outer, columns = transposed ? outer : kDepth;
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; column += 8) {
        visit(transposed ? address(column, row) : address(row, column));
      }
    }
  }
};

struct Product {
  int columns;
  ptx::Dtype dtype;
  bool add;
  ptx::Signs signs;
  std::vector<Matrix> operands;  // the right one, and before it the left one where that is in shared memory too
  std::vector<uint64_t> descriptors;
  int threads = 0;  // that have started it
  std::array<float*, kGroup> accumulator{};  // by thread, its first register
  std::array<std::array<const uint32_t*, 4>, kGroup> packed{};
  std::array<std::array<uint32_t, 4>, kGroup> packed_then{};

  bool left_in_registers() const { return operands.size() == 1; }
  bool same(const Product& other) const {
    return columns == other.columns && dtype == other.dtype && add == other.add && descriptors == other.descriptors;
  }
  float element(uint16_t bits) const { return dtype == ptx::Dtype::f16 ? Float16::widen(bits) : Bfloat16::widen(bits); }

  template <typename F>
  void each_unit(F visit) const {
    if (!left_in_registers()) operands.front().each_unit(kRows, visit);
    operands.back().each_unit(columns, visit);
  }
};

struct Held {  // a thread's part of an accumulator while products are under way
  std::vector<float*> registers;
  std::vector<float> values;
  int pending = 0;
};

struct GroupThread {
  int64_t next = 0;            // number of its next product
  std::vector<int64_t> ends;   // of its committed groups
  bool fenced = false;
  std::map<float*, Held> held;
};

struct WarpGroup {
  std::deque<Product> started;  // and not done
  int64_t first = 0;            // number of the first of them
  GroupThread threads[kGroup];
  int waiting = 0;              // threads at a wait
  int64_t until = 0;            // number of the product that they wait for
  int64_t waits = 0;            // that have ended
};

inline std::vector<WarpGroup> warp_groups;

inline int row_of(int thread, int index) { return thread / 32 * 16 + thread % 32 / 4 + 8 * (index / 2 % 2); }
inline int column_of(int thread, int index) { return index / 4 * 8 + thread % 4 * 2 + index % 2; }

constexpr uint32_t kPoison = 0xffffdead;

using Elements = std::vector<float>;

// [outer][depth] of an operand in shared memory.
inline Elements fetch(const Product& product, const Matrix& matrix, int outer) {
  Elements found(size_t(outer) * kDepth);
  for (int i = 0; i < outer; ++i) {
    for (int k = 0; k < kDepth; ++k) {
      uint16_t bits;
      std::memcpy(&bits, shared.at(matrix.address(i, k), 2, "wgmma"), 2);
      found[i * kDepth + k] = product.element(bits);
    }
  }
  return found;
}

// [row][depth] of a left operand in registers: of each thread two rows, twice two neighbours of each.
inline Elements fetch_packed(const Product& product) {
  Elements found(kRows * kDepth);
  for (int thread = 0; thread < kGroup; ++thread) {
    for (int k = 0; k < 8; ++k) {
      uint32_t now = *product.packed[thread][k / 2];
      if (now != product.packed_then[thread][k / 2]) fault("wgmma: a left register was written under a product");
      found[row_of(thread, k) * kDepth + column_of(thread, k)] = product.element(uint16_t(now >> 16 * (k % 2)));
    }
  }
  return found;
}

inline void release(Held& held) {
  for (size_t k = 0; k < held.registers.size(); ++k) {
    if (bits_of(*held.registers[k]) != kPoison) fault("wgmma: an accumulator was written under a product");
    *held.registers[k] = held.values[k];
  }
}

inline void perform(WarpGroup& group, const Product& product) {
  int sign = product.signs.left * product.signs.right;
  Elements left = product.left_in_registers() ? fetch_packed(product) : fetch(product, product.operands.front(), kRows);
  Elements right = fetch(product, product.operands.back(), product.columns);
  for (int thread = 0; thread < kGroup; ++thread) {
    auto& table = group.threads[thread].held;
    Held& held = table.at(product.accumulator[thread]);
    for (int index = 0; index < product.columns / 2; ++index) {
      const float* a = &left[row_of(thread, index) * kDepth];
      const float* b = &right[column_of(thread, index) * kDepth];
      float sum = 0;
      for (int k = 0; k < kDepth; ++k) sum += a[k] * b[k];
      held.values[index] = (product.add ? held.values[index] : 0.0f) + float(sign) * sum;
    }
    if (--held.pending == 0) {
      release(held);
      table.erase(product.accumulator[thread]);
    }
  }
  product.each_unit([](uint32_t address) { shared.end_read(address); });
}

inline void start(Product product, ptx::Registers d, const ptx::Packed* packed) {
  WarpGroup& group = warp_groups[self().group()];
  int index = self().index % kGroup;
  GroupThread& thread = group.threads[index];
  Held& held = thread.held[*d.begin()];
  if (held.pending++ == 0) {
    if (!thread.fenced) fault("wgmma: no wgmma.fence since the accumulator was last waited for");
    held.registers = d;
    for (float* r : d) {
      held.values.push_back(*r);
      *r = float_of(kPoison);
    }
  }
  size_t position = size_t(thread.next++ - group.first);
  if (position == group.started.size()) group.started.push_back(product);
  Product& shared_product = group.started[position];
  if (!shared_product.same(product)) fault("wgmma: the threads of a warp group start different products");
  shared_product.accumulator[index] = *d.begin();
  if (packed) {
    std::copy(packed->begin(), packed->end(), shared_product.packed[index].begin());
    for (int k = 0; k < 4; ++k) shared_product.packed_then[index][k] = *shared_product.packed[index][k];
  }
  if (++shared_product.threads == kGroup) {
    shared_product.each_unit([](uint32_t address) { shared.start_read(address, "wgmma"); });
  }
}

}  // namespace emulator

namespace ptx {

void wgmma_fence() {
  meet("wgmma.fence");
  warp_groups[self().group()].threads[self().index % kGroup].fenced = true;
}

void wgmma_commit_group() {
  meet("wgmma.commit_group");
  GroupThread& thread = warp_groups[self().group()].threads[self().index % kGroup];
  thread.ends.push_back(thread.next);
}

void wgmma_wait_group(int pending) {
  WarpGroup& group = warp_groups[self().group()];
  GroupThread& thread = group.threads[self().index % kGroup];
  thread.fenced = false;
  int ended = int(thread.ends.size()) - pending;
  int64_t until = ended > 0 ? thread.ends[ended - 1] : 0;
  if (group.waiting++ == 0) group.until = until;
  if (group.until != until) fault("wgmma: the threads of a warp group wait for different products");
  if (group.waiting == kGroup) {
    scheduler.products.push_back([&group] {
      for (; group.first < group.until; ++group.first) {
        perform(group, group.started.front());
        group.started.pop_front();
      }
      group.waiting = 0;
      ++group.waits;
    });
  }
  int64_t wait = group.waits;
  scheduler.wait([&group, wait] { return group.waits > wait; }, "wgmma.wait_group");
}

void wgmma_shared(int columns, Dtype dtype, Registers d, uint64_t left, uint64_t right, uint32_t add, Signs signs) {
  meet("wgmma.mma_async");
  Matrix a(left, signs.left_transposed), b(right, signs.right_transposed);
  start(Product{columns, dtype, add != 0, signs, {a, b}, {left, right}}, d, nullptr);
}

void wgmma_registers(int columns, Dtype dtype, Registers d, Packed left, uint64_t right, uint32_t add, Signs signs) {
  meet("wgmma.mma_async");
  Matrix b(right, signs.right_transposed);
  start(Product{columns, dtype, add != 0, signs, {b}, {right}}, d, &left);
}

}  // namespace ptx
