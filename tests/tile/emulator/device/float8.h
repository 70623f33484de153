// Floats of 8 bits, as the upper bits of float16: e5m2 is its upper half, e4m3 has one bit of the exponent less.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "half.h"

// Rounded to nearest, ties to even; what is larger than the largest number becomes that, NaNs stay NaNs.
template <int fraction, int smallest, int largest>  // bits of the fraction; exponent of the smallest subnormal number
struct Float8 {
  static float widen(uint8_t bits);
  static uint8_t narrow(float value) {
    const uint8_t sign = std::signbit(value) ? 0x80 : 0;
    if (std::isnan(value)) return 0x7f;
    if (value == 0) return sign;
    const float size = std::min(std::fabs(value), float(largest));
    int exponent;
    std::frexp(size, &exponent);
    const int last = std::max(exponent - 1 - fraction, smallest);
    const int units = int(std::nearbyint(std::ldexp(size, -last)));
    return uint8_t(sign | (((last - smallest) << fraction) + units));
  }
};

using Float8E4m3 = Float8<3, -9, 448>;
using Float8E5m2 = Float8<2, -16, 57344>;

template <>
inline float Float8E4m3::widen(uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return NAN;
  return Float16::widen(uint16_t((bits & 0x80) << 8 | (bits & 0x7f) << 7)) * 0x1p8f;
}

template <>
inline float Float8E5m2::widen(uint8_t bits) {
  return Float16::widen(uint16_t(bits << 8));
}
