// How TVM's host code enters a kernel: arguments as tvm-ffi passes them, and then the extents of the launch.
#pragma once

#include <cstdint>
#include <functional>

struct Argument {
  int32_t type;
  uint32_t unused;
  union {
    int64_t integer;
    double real;
    void* pointer;
  };
};

// Extents of the grid, x, y and z, and of a block.
int launch(const std::function<void()>& kernel, const int64_t extents[6]);
