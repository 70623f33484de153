// States of segments of rows in global memory: see grid.py.

// [memory]
#ifndef ${name}_STATES  // each of the functions below brings it along
#define ${name}_STATES
__device__ unsigned long long ${name}_states[${words}];
__device__ unsigned ${name}_arrived[${counters}];
#endif

// [put]
__device__ __forceinline__ void ${name}_put(int index, unsigned long long word) {
  __stcg(&${name}_states[index], word);
}

// [get]
__device__ __forceinline__ unsigned long long ${name}_get(int index) {
  return __ldcg(&${name}_states[index]);
}

// [arrive]
__device__ __forceinline__ int ${name}_arrive(int row) {
  __threadfence();  // what this thread has put comes before its arrival, for all the device
  unsigned before = atomicInc(&${name}_arrived[row], ${segments} - 1);
  __threadfence();  // and what others have put before theirs can be read after it
  return before == ${segments} - 1;
}
