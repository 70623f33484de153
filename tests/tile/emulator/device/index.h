// Which thread runs, of which block, of how many.
#pragma once

struct Index3 {
  unsigned x, y, z;
};

extern Index3 threadIdx, blockIdx, gridDim;
