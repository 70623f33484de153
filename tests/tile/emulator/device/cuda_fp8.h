// The names of CUDA's 8-bit floats, as bits: kernels convert them by arithmetic of their own.
#pragma once

#include <cstdint>

#include "cuda_fp16.h"

using __nv_fp8_storage_t = uint8_t;
using __nv_fp8x2_storage_t = uint16_t;

template <typename Bits, int kind>
struct Float8Bits {
  Bits __x;
  Float8Bits() = default;
  template <typename T>
  explicit Float8Bits(T);  // which TVM's preamble names, and nothing calls; neither this:
  operator float() const;
};

using __nv_fp8_e4m3 = Float8Bits<uint8_t, 0>;
using __nv_fp8_e5m2 = Float8Bits<uint8_t, 1>;
using __nv_fp8_e8m0 = Float8Bits<uint8_t, 2>;
using __nv_fp8x2_e4m3 = Float8Bits<uint16_t, 0>;
using __nv_fp8x2_e5m2 = Float8Bits<uint16_t, 1>;
using __nv_fp8x2_e8m0 = Float8Bits<uint16_t, 2>;
using __nv_fp8x4_e4m3 = Float8Bits<uint32_t, 0>;
using __nv_fp8x4_e5m2 = Float8Bits<uint32_t, 1>;
using __nv_fp8x4_e8m0 = Float8Bits<uint32_t, 2>;
