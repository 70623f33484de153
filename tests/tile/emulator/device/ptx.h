// The instructions that a kernel may have in place of its inline PTX, and the launch of a kernel.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "cuda.h"
#include "float8.h"
#include "half.h"

namespace ptx {

// Within a warp.
int32_t greatest_of_warp(int32_t value, uint32_t mask);
uint32_t elect_sync(uint32_t mask);
void ldmatrix(bool turned, std::initializer_list<uint32_t*> registers, uint32_t row);
void stmatrix_x4(uint32_t row, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3);
void setmaxnreg(bool more, int count);

// Of 16 bytes of shared memory.
void load_shared_x4(uint32_t& r0, uint32_t& r1, uint32_t& r2, uint32_t& r3, uint32_t address);
void store_shared_x4(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3);

// From global memory.
uint32_t load_global(const void* address);
void load_global_pair(uint32_t& first, uint32_t& second, const void* address);

// To shared memory.
void store_shared_vector(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d);
void store_shared(uint32_t address, uint32_t value);
void store_shared_pair(uint32_t address, float first, float second);

// The word at an address of global memory, after others have had the time to write it.
uint32_t look(const void* address);

// To global memory.
void store_global(const void* address, uint32_t value);
void store_global_pair(const void* address, float first, float second);
void store_global_words(const void* address, uint32_t first, uint32_t second);

// Barriers of threads.
void bar_sync(uint32_t barrier, uint32_t threads);
void bar_arrive(uint32_t barrier, uint32_t threads);
uint32_t bar_red_popc(uint32_t barrier, uint32_t threads, uint32_t vote);

// Of the cluster.
void cluster_arrive();
void cluster_wait();
inline uint32_t map_to_block(uint32_t address, uint32_t block) { return block << 24 | address; }

// Barriers in shared memory.
void mbarrier_init(uint32_t address, uint32_t arrivals);
void mbarrier_arrive(uint32_t address, uint32_t count);
void mbarrier_arrive_at_block(uint32_t address, uint32_t count);
void mbarrier_arrive_expect_tx(uint32_t address, uint32_t bytes);
void mbarrier_wait(uint32_t address, int parity);

// Bulk copies. `rank` coordinates, the innermost dimension's first.
void prefetch_tensormap(const void* map);
void prefetch_tensor(const void* map, std::initializer_list<int32_t> place);
void copy_tensor_to_shared(uint32_t target, const void* map, std::initializer_list<int32_t> place, uint32_t barrier);
void copy_tensor_to_blocks(
    uint32_t target, const void* map, std::initializer_list<int32_t> place, uint32_t barrier, uint32_t blocks);
void send_to_block(uint32_t target, std::initializer_list<float> values, uint32_t barrier);
void copy_to_block(uint32_t target, uint32_t source, uint32_t bytes, uint32_t barrier);
void copy_to_shared(uint32_t target, const void* source, uint32_t bytes, uint32_t barrier);
void copy_tensor_to_global(const void* map, std::initializer_list<int32_t> place, uint32_t source);
void bulk_commit_group();
void bulk_wait_group(int pending);
void fence_proxy_async();

// Copies of 4, 8 or 16 bytes, of which so many are given and the others are zeros.
void copy_async(uint32_t target, const void* source, uint32_t bytes, uint32_t given);
void async_arrive(uint32_t barrier);  // once the thread's copies have landed
void async_commit_group();
void async_wait_group(int pending);

// Products by warp groups.
using Registers = float*;  // the first of half as many as the product has columns
using Packed = std::initializer_list<const uint32_t*>;
enum class Dtype { f16, bf16, e4m3, e5m2, tf32 };
struct Dtypes {
  Dtype left, right;
};
struct Signs {  // of the operands, and which of them are transposed
  int left, right;
  bool left_transposed, right_transposed;
};
void wgmma_fence();
void wgmma_commit_group();
void wgmma_wait_group(int pending);
void wgmma_shared(int columns, Dtypes dtypes, Registers d, uint64_t left, uint64_t right, uint32_t add, Signs signs);
void wgmma_registers(int columns, Dtypes dtypes, Registers d, Packed left, uint64_t right, uint32_t add, Signs signs);

// A product of a warp: of its own registers.
void mma_sync(Dtype dtype, std::initializer_list<float*> d, std::initializer_list<uint32_t> a,
              std::initializer_list<uint32_t> b, std::initializer_list<float> c);

// Two floats in a register, the second in its lower half.
template <typename Format>
uint32_t pack(float upper, float lower) {
  return uint32_t{Format::narrow(upper)} << 16 | Format::narrow(lower);
}

template <typename Format>
uint32_t multiply_pairs(uint32_t a, uint32_t b) {
  return pack<Format>(Format::widen(a >> 16) * Format::widen(b >> 16), Format::widen(a & 0xffff) * Format::widen(b & 0xffff));
}

// Of a number and NaN, the number.
template <typename Format>
uint32_t larger_pairs(uint32_t a, uint32_t b) {
  const auto larger = [](uint32_t one, uint32_t other) { return std::fmax(Format::widen(one), Format::widen(other)); };
  return pack<Format>(larger(a >> 16, b >> 16), larger(a & 0xffff, b & 0xffff));
}

template <typename Format>
uint16_t pack_bytes(float upper, float lower) {
  return uint16_t(Format::narrow(upper) << 8 | Format::narrow(lower));
}

// Two floats of 8 bits as two of 16.
template <typename Format>
uint32_t widen(uint16_t pair) {
  return pack<Float16>(Format::widen(uint8_t(pair >> 8)), Format::widen(uint8_t(pair)));
}

// Four bytes of two registers: of each, the lowest four bits of a digit of the selector say which.
inline uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (int k = 0; k < 4; ++k) result |= uint32_t(bytes >> 8 * (selector >> 4 * k & 7) & 0xff) << 8 * k;
  return result;
}

// A launch. Arguments come as tvm-ffi passes them; the grid, the block and the bytes of shared memory are the last.
struct Argument {
  int32_t type;
  uint32_t unused;
  union {
    int64_t integer;
    double real;
    void* pointer;
  };
};

template <typename T>
T argument(const Argument& a) {
  if constexpr (std::is_same_v<T, CUtensorMap>) {
    return *static_cast<CUtensorMap*>(a.pointer);
  } else if constexpr (std::is_pointer_v<T>) {
    return static_cast<T>(a.pointer);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(a.real);
  } else {
    return static_cast<T>(a.integer);
  }
}

struct Launch {
  void (*kernel)(const Argument*);  // of a thread
  const Argument* arguments;
  int parameters, count;  // the kernel's, and all arguments
  int threads;
  uint64_t number;
};

int launch(const Launch& launch);

static uint64_t launches = 0;  // of this library

template <auto kernel, typename... P, size_t... I>
int launch_with(void (*)(P...), const Argument* arguments, int count, int threads, std::index_sequence<I...>) {
  auto thread = [](const Argument* a) { kernel(argument<P>(a[I])...); };
  return launch({thread, arguments, sizeof...(P), count, threads, ++launches});
}

template <auto kernel, typename... P>
int enter(void (*)(P...), const Argument* a, int count, int threads) {
  return launch_with<kernel>(kernel, a, count, threads, std::index_sequence_for<P...>{});
}

}  // namespace ptx
