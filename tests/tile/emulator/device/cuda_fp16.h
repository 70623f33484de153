#pragma once

#include "half.h"

using half = Half<Float16>;
using __half = half;
struct __half2 {
  half x, y;
};
using half2 = __half2;

inline float __half2float(half a) { return a; }
inline half __float2half(float a) { return half(a); }
inline half __float2half_rn(float a) { return half(a); }
