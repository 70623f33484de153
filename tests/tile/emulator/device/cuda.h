// What the text of a kernel takes from CUDA's own headers, for the host.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "index.h"

#define __host__
#define __device__
#define __global__
#define __shared__
#define __grid_constant__
#define __restrict__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct alignas(64) CUtensorMap {
  char opaque[128];
};

// Vectors that are loaded and stored at once, from addresses that are multiples of their size.
void check_aligned(const void* pointer, size_t bytes);

template <typename T, int count>
struct alignas(sizeof(T) * count) Vector {
  T values[count];
  Vector& operator=(const Vector& other) {
    check_aligned(this, sizeof *this);
    check_aligned(&other, sizeof *this);
    std::memcpy(values, other.values, sizeof values);
    return *this;
  }
};

using uchar2 = Vector<uint8_t, 2>;
using uchar4 = Vector<uint8_t, 4>;
using ushort2 = Vector<uint16_t, 2>;
using ushort4 = Vector<uint16_t, 4>;
using uint1 = Vector<uint32_t, 1>;
using uint2 = Vector<uint32_t, 2>;
using uint4 = Vector<uint32_t, 4>;
using int2 = Vector<int32_t, 2>;
using int4 = Vector<int32_t, 4>;
using float2 = Vector<float, 2>;
using float4 = Vector<float, 4>;
using double2 = Vector<double, 2>;
using longlong2 = Vector<int64_t, 2>;

namespace ptx {
uint32_t shared_address(const void* pointer);
uint64_t shuffle(uint64_t bits, int from_lane, const char* name);
bool any(bool vote);
uint32_t ballot(bool vote);
void warp_sync();
int lane();
void sync_block();
void sleep();  // while others go on; a fault where that has been for too long
void cluster_arrive();
void cluster_wait();
extern uint32_t cluster;        // blocks of each
extern uint64_t launch_number;  // of those of a library
void* mapped(void* own, uint32_t block);
}  // namespace ptx

inline void __syncthreads() { ptx::sync_block(); }

inline void* __cluster_map_shared_rank(void* own, uint32_t block) { return ptx::mapped(own, block); }

inline uint32_t __cvta_generic_to_shared(const void* pointer) { return ptx::shared_address(pointer); }

template <typename T>
T exchanged(T value, int from_lane, const char* name) {
  static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = ptx::shuffle(bits, from_lane, name);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// Blocks run one after the other, so that what one has written is there for those that follow.
inline void __threadfence() {}

template <typename T>
T __ldcg(const T* pointer) {
  return *pointer;
}

template <typename T>
void __stcg(T* pointer, T value) {
  *pointer = value;
}

inline unsigned atomicInc(unsigned* counter, unsigned last) {
  unsigned before = *counter;
  *counter = before >= last ? 0 : before + 1;
  return before;
}

template <typename T>
T atomicAdd(T* counter, T value) {
  T before = *counter;
  *counter = before + value;
  return before;
}

template <typename T>
T atomicCAS(T* place, T expected, T value) {
  T before = *place;
  if (before == expected) *place = value;
  return before;
}

inline int atomicMax(int* place, int value) {
  const int before = *place;
  *place = before < value ? value : before;
  return before;
}
inline void atomicExch(unsigned* place, unsigned value) { *place = value; }
inline void __nanosleep(unsigned) { ptx::sleep(); }

template <typename T>
T __shfl_sync(unsigned, T value, int from_lane, int) {
  return exchanged(value, from_lane, "shfl.sync.idx");
}

template <typename T>
T __shfl_xor_sync(unsigned, T value, int distance, int) {
  return exchanged(value, ptx::lane() ^ distance, "shfl.sync.bfly");
}

inline void __syncwarp() { ptx::warp_sync(); }
inline int __any_sync(unsigned, int vote) { return ptx::any(vote != 0); }
inline unsigned __ballot_sync(unsigned, int vote) { return ptx::ballot(vote != 0); }
inline int __ffs(unsigned word) { return __builtin_ffs(static_cast<int>(word)); }

// CUDA's minimum and maximum of floats leave a NaN out.
inline float max(float a, float b) { return std::fmax(a, b); }
inline float min(float a, float b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline int max(int a, int b) { return a > b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }
inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
inline double __longlong_as_double(int64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline float rsqrtf(float a) { return 1.0f / std::sqrt(a); }
inline double rsqrt(double a) { return 1.0 / std::sqrt(a); }
inline float __expf(float a) { return std::exp(a); }
inline float __logf(float a) { return std::log(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __int_as_float(int bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline int __float_as_int(float value) {
  int bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __fdividef(float a, float b) { return a / b; }
