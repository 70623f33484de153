// States of pieces of items in global memory, and how their blocks meet: see grid.py.

// [memory]
#ifndef ${name}_PIECES  // each of the functions below brings it along
#define ${name}_PIECES
__device__ __align__(16) float ${name}_pieces[${sets} * ${words}];
__device__ unsigned ${name}_met[${sets} * ${counters}];
#endif

// [put]
__device__ __forceinline__ void ${name}_put(int index, float value) { __stcg(&${name}_pieces[index], value); }

// [put_four]
__device__ __forceinline__ void ${name}_put_four(int index, float a, float b, float c, float d) {
  __align__(16) float four[4] = {a, b, c, d};
  __stcg((float4*)&${name}_pieces[index], *(float4*)four);
}

// [get]
__device__ __forceinline__ float ${name}_get(int index) { return __ldcg(&${name}_pieces[index]); }

// [get_four]
__device__ __forceinline__ void ${name}_get_four(int index, float* into) {
  __align__(16) float four[4];
  *(float4*)four = __ldcg((const float4*)&${name}_pieces[index]);
  into[0] = four[0], into[1] = four[1], into[2] = four[2], into[3] = four[3];
}

// [arrive]
__device__ __forceinline__ void ${name}_arrive(int item) {  // what the block has put comes before, for all the device
  unsigned* word = &${name}_met[item];
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" : : "l"(word), "r"(1u) : "memory");
}

// [await]
__device__ __forceinline__ int ${name}_await(int item, int pieces) {
  unsigned word;
#pragma unroll 1
  for (int look = 0; look < ${looks}; ++look) {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(&${name}_met[item]) : "memory");
    if ((word & 1023u) == pieces) return word >> 20 ? ${all} : ${share};
  }
  word = atomicAdd(&${name}_met[item], 1u << 20);
  __threadfence();
  return (word & 1023u) == pieces ? ${share} : ${nothing};
}

// [depart]
__device__ __forceinline__ int ${name}_depart(int item, int pieces) {
  return (atomicAdd(&${name}_met[item], 1u << 10) >> 10 & 1023u) == pieces - 1;
}

// [clear]
__device__ __forceinline__ void ${name}_clear(int item) {
  __stcg(&${name}_met[item], 0u);
  __threadfence();  // before the set has another launch
}
