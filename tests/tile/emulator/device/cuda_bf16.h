#pragma once

#include "half.h"

using nv_bfloat16 = Half<Bfloat16>;
using __nv_bfloat16 = nv_bfloat16;
struct nv_bfloat162 {
  nv_bfloat16 x, y;
  nv_bfloat162(nv_bfloat16 a, nv_bfloat16 b) : x(a), y(b) {}
};

inline float __bfloat162float(nv_bfloat16 a) { return a; }
inline nv_bfloat16 __float2bfloat16(float a) { return nv_bfloat16(a); }
inline nv_bfloat16 __float2bfloat16_rn(float a) { return nv_bfloat16(a); }
