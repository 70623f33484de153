// A number of a launch that its blocks take: see tile_schedule.py.

// [memory]
#ifndef ${name}_COUNTER  // each of the functions below brings it along
#define ${name}_COUNTER
__device__ unsigned ${name}_taken[${sets}];
#endif

// [take]
__device__ __forceinline__ int ${name}_take(int set, int count) {
  return (int)atomicInc(&${name}_taken[set], (unsigned)count - 1);  // after the last one it is zero again
}
