// Sets of static device memory, one for each launch of a kernel in flight: see launches.py.

// [memory]
#ifndef ${name}_SETS  // each of the functions below brings it along
#define ${name}_SETS
__device__ unsigned long long ${name}_owned[${sets}];
__device__ unsigned ${name}_home_of[${sets}];  // and 1 more, of a launch that settled elsewhere
__device__ unsigned ${name}_lock;
__device__ __forceinline__ unsigned long long ${name}_number() {
  unsigned long long grid;
  asm volatile("mov.u64 %0, %%gridid;" : "=l"(grid));
  return grid;
}
__device__ __forceinline__ unsigned long long ${name}_unit() { return ${name}_number() << ${left_bits} + 1 | 2; }
__device__ __forceinline__ unsigned long long ${name}_left(unsigned long long word) {
  return word >> 1 & (1ull << ${left_bits}) - 1;
}
__device__ __forceinline__ bool ${name}_is_own(unsigned long long word) {
  return ${name}_left(word) && (word & ~1ull) == ${name}_left(word) * ${name}_unit();
}
#endif

// [request]
__device__ __forceinline__ unsigned long long ${name}_request() {
  return atomicCAS(&${name}_owned[${name}_number() % ${sets}], 0ull, gridDim.x * ${claims}ull * ${name}_unit());
}

// [obtain]
#ifndef ${name}_SEEK
#define ${name}_SEEK
__device__ __forceinline__ int ${name}_claim(int home) {  // under the lock; -1 where none is free
  unsigned long long at_home = 0, at_free = 0, own = gridDim.x * ${claims}ull * ${name}_unit();
  int free = -1, marked = 0;
#pragma unroll 1
  for (int k = 0; k < ${sets}; ++k) {
    int set = (home + k) % ${sets};
    unsigned long long word = __ldcg(&${name}_owned[set]);
    if (${name}_is_own(word)) return set;
    if (k == 0) at_home = word;
    if (${name}_left(word) == 0 && free < 0) free = set, at_free = word;
    if (${name}_left(word) != 0 && k > 0 && __ldcg(&${name}_home_of[set]) == home + 1) marked = 1;
  }
  if (free < 0) return -1;
  if (free == home) own |= marked;
  if (free != home) {
    if (atomicCAS(&${name}_owned[home], at_home, at_home | 1ull) != at_home) return -1;
    own |= at_free & 1ull;
  }
  __stcg(&${name}_home_of[free], free == home ? 0u : home + 1u);
  return atomicCAS(&${name}_owned[free], at_free, own) == at_free ? free : -1;
}
__device__ __forceinline__ int ${name}_seek() {
  int set = -1;
#pragma unroll 1
  while (set < 0) {
    if (atomicCAS(&${name}_lock, 0u, 1u) == 0u) {
      __threadfence();
      set = ${name}_claim((int)(${name}_number() % ${sets}));
      __threadfence();
      atomicExch(&${name}_lock, 0u);
    }
    if (set < 0) __nanosleep(200);
  }
  return set;
}
#endif

__device__ __forceinline__ int ${name}_obtain(unsigned long long found) {
  int set = (int)(${name}_number() % ${sets});
  if (__builtin_expect(found != 0 && !${name}_is_own(found), 0)) set = ${name}_seek();  // out of the way of all others
  return set;
}

// [release]
__device__ __forceinline__ void ${name}_release(int set) {
  atomicAdd(&${name}_owned[set], 0ull - ${name}_unit());
}
