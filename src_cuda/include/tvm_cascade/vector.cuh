/*!
 * \file vector.cuh
 * \brief Sixteen bytes of narrow floats as one load or store, and as float32 in registers.
 *
 * Conversions go in pairs, which is one instruction for two elements where the hardware has one.
 */
#ifndef TVM_CASCADE_VECTOR_CUH_
#define TVM_CASCADE_VECTOR_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace tvm_cascade {

/*! \brief Converts pairs of an element type. */
template <class Element>
struct Pair;

template <>
struct Pair<__half> {
  using Bits = unsigned;
  static __device__ float2 widen(Bits bits) {
    __half2 pair;
    memcpy(&pair, &bits, sizeof(bits));
    return __half22float2(pair);
  }
  static __device__ Bits narrow(float2 pair) {  // rounds to nearest even; out of range gives an infinity
    __half2 found = __float22half2_rn(pair);
    Bits bits;
    memcpy(&bits, &found, sizeof(bits));
    return bits;
  }
};

template <>
struct Pair<__nv_bfloat16> {
  using Bits = unsigned;
  static __device__ float2 widen(Bits bits) {
    return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000u));
  }
  static __device__ Bits narrow(float2 pair) {  // rounds to nearest even
    __nv_bfloat162 found = __float22bfloat162_rn(pair);
    Bits bits;
    memcpy(&bits, &found, sizeof(bits));
    return bits;
  }
};

/*! \brief Both kinds of float8: narrowing rounds to nearest even, and out of range gives the largest finite number. */
template <__nv_fp8_interpretation_t Kind>
struct PairOfFloat8 {
  using Bits = unsigned short;
  static __device__ float2 widen(Bits bits) { return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(bits, Kind))); }
  static __device__ Bits narrow(float2 pair) { return __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, Kind); }
};

template <>
struct Pair<__nv_fp8_e4m3> : PairOfFloat8<__NV_E4M3> {};

template <>
struct Pair<__nv_fp8_e5m2> : PairOfFloat8<__NV_E5M2> {};

/*!
 * \brief Sixteen bytes of elements, which one instruction loads or stores.
 * \tparam Element __half, __nv_bfloat16, __nv_fp8_e4m3 or __nv_fp8_e5m2.
 */
template <class Element>
struct alignas(16) Vector {
  using Bits = typename Pair<Element>::Bits;
  static constexpr int kElements = 16 / sizeof(Element);

  Bits pair[kElements / 2];

  /*! \brief The vector at an address that is a multiple of 16 bytes. */
  static __device__ Vector load(const Element* source) { return *reinterpret_cast<const Vector*>(source); }

  /*! \brief Writes the vector to an address that is a multiple of 16 bytes. */
  __device__ void store(Element* target) const { *reinterpret_cast<Vector*>(target) = *this; }

  /*! \brief The elements as float32, exactly. */
  __device__ void widen(float (&values)[kElements]) const {
#pragma unroll
    for (int k = 0; k < kElements / 2; ++k) {
      float2 two = Pair<Element>::widen(pair[k]);
      values[2 * k] = two.x;
      values[2 * k + 1] = two.y;
    }
  }

  /*! \brief float32 rounded to the elements' type. */
  static __device__ Vector narrow(const float (&values)[kElements]) {
    Vector found;
#pragma unroll
    for (int k = 0; k < kElements / 2; ++k) {
      found.pair[k] = Pair<Element>::narrow(make_float2(values[2 * k], values[2 * k + 1]));
    }
    return found;
  }
};

}  // namespace tvm_cascade

#endif  // TVM_CASCADE_VECTOR_CUH_
