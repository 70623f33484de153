// What blocks of a cluster store in each other's shared memory: see cluster.py.

// [cluster_leave]
__device__ __forceinline__ void cluster_leave_${dtype}(void* own, int block, ${c} value) {
  *reinterpret_cast<${c}*>(__cluster_map_shared_rank(own, block)) = value;  // the same place in another block's memory
}

// [cluster_send_four]
__device__ __forceinline__ void cluster_send_four(void* own, void* arrived, int block, float a, float b, float c,
                                                  float d) {
  unsigned place = __cvta_generic_to_shared(own), barrier = __cvta_generic_to_shared(arrived);
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(place) : "r"(place), "r"(block));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(barrier), "r"(block));
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
               : : "r"(place), "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier) : "memory");
}

// [leave_pair]
__device__ __forceinline__ void leave_pair(void* memory, void* own, bool is_own, int place, float a, float b) {
  float2 pair = {a, b};
  reinterpret_cast<float2*>(is_own ? own : memory)[place] = pair;
}

// [leave_sums]
__device__ __forceinline__ void leave_sums(void* memory, void* own, bool is_own, int place, float a, float b, float c,
                                           float d) {
  float4 sums = {a, b, c, d};
  reinterpret_cast<float4*>(is_own ? own : memory)[place] = sums;
}
