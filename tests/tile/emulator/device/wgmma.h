// Products by warp groups: started by 128 threads, done as late as their wait allows. Until then their accumulators are
// NaN, and nothing that they read may change.
#pragma once

#include <array>
#include <limits>

#include "barrier.h"

namespace emulator {

constexpr int kRows = 64;
constexpr int kStep = 32;  // bytes of a row that a product sums over

inline int size_of(ptx::Dtype dtype) {
  if (dtype == ptx::Dtype::tf32) return 4;
  return dtype == ptx::Dtype::f16 || dtype == ptx::Dtype::bf16 ? 2 : 1;
}

inline float widen(ptx::Dtype dtype, uint32_t bits) {
  switch (dtype) {
    case ptx::Dtype::f16: return Float16::widen(uint16_t(bits));
    case ptx::Dtype::bf16: return Bfloat16::widen(uint16_t(bits));
    case ptx::Dtype::tf32: return float_of(bits & ~0x1fffu);  // ten bits behind the leading one: the rest is cut off
    case ptx::Dtype::e4m3: return Float8E4m3::widen(uint8_t(bits));
    default: return Float8E5m2::widen(uint8_t(bits));
  }
}

// A matrix in shared memory, as a descriptor says: boxes of 128 bytes a row, in atoms of 8 rows.
struct Matrix {
  uint32_t start, leading, stride;
  bool transposed;
  ptx::Dtype dtype;
  int size, depth;

  Matrix(uint64_t descriptor, bool across, ptx::Dtype dtype)
      : transposed(across), dtype(dtype), size(size_of(dtype)), depth(kStep / size) {
    if (transposed && size != 2) fault("wgmma: only elements of 16 bits are transposed");
    start = uint32_t(descriptor & 0x3fff) << 4;
    leading = uint32_t(descriptor >> 16 & 0x3fff) << 4;
    stride = uint32_t(descriptor >> 32 & 0x3fff) << 4;
    if (descriptor >> 62 != 1) fault("wgmma: the emulator knows the 128-byte swizzle alone");
    if (descriptor >> 49 & 7) fault("wgmma: the emulator knows atoms at multiples of 1024 bytes alone");
  }

  // Where element k of row or column `outer` is.
  uint32_t address(uint32_t outer, uint32_t k) const {
    uint32_t row = transposed ? k : outer, column = transposed ? outer : k;
    uint32_t boxes = transposed ? column / 64 * leading : 0;
    return swizzled(start + boxes + row / 8 * stride + row % 8 * 128 + (transposed ? column % 64 : column) * size);
  }

  template <typename F>
  void each_unit(int outer, F visit) const {
    int rows = transposed ? depth : outer, columns = transposed ? outer : depth;
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; column += int(kUnit) / size) {
        visit(transposed ? address(column, row) : address(row, column));
      }
    }
  }
};

struct Product {
  int columns;
  ptx::Dtypes dtypes;
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
    return columns == other.columns && dtypes.left == other.dtypes.left && dtypes.right == other.dtypes.right &&
           add == other.add && descriptors == other.descriptors;
  }
  int depth() const { return operands.back().depth; }

  template <typename F>
  void each_unit(F visit) const {
    if (!left_in_registers()) operands.front().each_unit(kRows, visit);
    operands.back().each_unit(columns, visit);
  }
};

struct Held {  // a thread's part of an accumulator while products are under way
  float* registers;
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
inline Elements fetch(const Matrix& matrix, int outer) {
  Elements found(size_t(outer) * matrix.depth);
  for (int i = 0; i < outer; ++i) {
    for (int k = 0; k < matrix.depth; ++k) {
      uint32_t bits = 0;
      std::memcpy(&bits, shared.at(matrix.address(i, k), matrix.size, "wgmma"), matrix.size);
      found[i * matrix.depth + k] = widen(matrix.dtype, bits);
    }
  }
  return found;
}

// [row][depth] of a left operand in registers: of each thread two rows, twice the neighbours of 32 bits of each.
inline Elements fetch_packed(const Product& product) {
  const int depth = product.depth(), size = kStep / depth, count = 4 / size;
  Elements found(kRows * depth);
  for (int thread = 0; thread < kGroup; ++thread) {
    for (int r = 0; r < 4; ++r) {
      uint32_t now = *product.packed[thread][r];
      if (now != product.packed_then[thread][r]) fault("wgmma: a left register was written under a product");
      for (int k = 0; k < count; ++k) {
        const int column = r / 2 * (depth / 2) + thread % 4 * count + k;
        found[row_of(thread, 2 * r) * depth + column] = widen(product.dtypes.left, now >> 8 * size * k);
      }
    }
  }
  return found;
}

// What the tensor cores make of products of 8 bits and of what they are added to: numbers with 13 bits behind the
// leading one of the largest, cut off there, and added exactly.
// Source: DeepSeek-V3 Technical Report (2024), section 3.3.2, on the accumulation of float8 products on Hopper.
inline float cut_sum(const Elements& terms) {
  double largest = 0, sum = 0, plain = 0;
  for (float term : terms) largest = std::max(largest, std::fabs(double(term))), plain += term;
  if (!std::isfinite(plain) || largest == 0) return float(plain);
  int exponent;
  std::frexp(largest, &exponent);
  for (float term : terms) sum += std::trunc(std::ldexp(double(term), 14 - exponent));
  return float(std::ldexp(sum, exponent - 14));
}

inline float dot(const float* a, const float* b, int depth, int sign, float before) {
  if (depth == kStep) {
    Elements terms(depth + 1);
    for (int k = 0; k < depth; ++k) terms[k] = float(sign) * a[k] * b[k];
    terms[depth] = before;
    return cut_sum(terms);
  }
  float sum = 0;
  for (int k = 0; k < depth; ++k) sum += a[k] * b[k];
  return before + float(sign) * sum;
}

inline void release(Held& held) {
  for (size_t k = 0; k < held.values.size(); ++k) {
    if (bits_of(held.registers[k]) != kPoison) fault("wgmma: an accumulator was written under a product");
    held.registers[k] = held.values[k];
  }
}

inline void perform(WarpGroup& group, const Product& product) {
  int sign = product.signs.left * product.signs.right, depth = product.depth();
  Elements left = product.left_in_registers() ? fetch_packed(product) : fetch(product.operands.front(), kRows);
  Elements right = fetch(product.operands.back(), product.columns);
  for (int thread = 0; thread < kGroup; ++thread) {
    auto& table = group.threads[thread].held;
    Held& held = table.at(product.accumulator[thread]);
    for (int index = 0; index < product.columns / 2; ++index) {
      const float* a = &left[row_of(thread, index) * depth];
      const float* b = &right[column_of(thread, index) * depth];
      held.values[index] = dot(a, b, depth, sign, product.add ? held.values[index] : 0.0f);
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
  Held& held = thread.held[d];
  if (held.pending++ == 0) {
    if (!thread.fenced) fault("wgmma: no wgmma.fence since the accumulator was last waited for");
    held.registers = d;
    held.values.assign(d, d + product.columns / 2);
    std::fill_n(d, product.columns / 2, float_of(kPoison));
  }
  size_t position = size_t(thread.next++ - group.first);
  if (position == group.started.size()) group.started.push_back(product);
  Product& shared_product = group.started[position];
  if (!shared_product.same(product)) fault("wgmma: the threads of a warp group start different products");
  shared_product.accumulator[index] = d;
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
    scheduler.add(scheduler.products, [&group] {
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

void wgmma_shared(int columns, Dtypes dtypes, Registers d, uint64_t left, uint64_t right, uint32_t add, Signs signs) {
  meet("wgmma.mma_async");
  Matrix a(left, signs.left_transposed, dtypes.left), b(right, signs.right_transposed, dtypes.right);
  start(Product{columns, dtypes, add != 0, signs, {a, b}, {left, right}}, d, nullptr);
}

void wgmma_registers(int columns, Dtypes dtypes, Registers d, Packed left, uint64_t right, uint32_t add, Signs signs) {
  meet("wgmma.mma_async");
  Matrix b(right, signs.right_transposed, dtypes.right);
  start(Product{columns, dtypes, add != 0, signs, {b}, {right}}, d, &left);
}

}  // namespace ptx
