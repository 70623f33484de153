extern "C" __global__ void __launch_bounds__(384, 1) main_kernel(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, nv_bfloat16* __restrict__ out_ptr) {
  int warp_id_in_cta = __shfl_sync((uint)4294967295, (((int)threadIdx.x) >> 5), 0, 32);
  int block = ((int)blockIdx.x);
  int rank = ((int)tvm_builtin_cluster_ctaid_x());
  int cse_v1 = (warp_id_in_cta >> 2);
  int group = (warp_id_in_cta >> 2);
  int cse_v2 = (warp_id_in_cta & 3);
  int warp = (warp_id_in_cta & 3);
  int cse_v3 = (((int)threadIdx.x) & 31);
  int lane = (((int)threadIdx.x) & 31);
  int thread = ((int)threadIdx.x);
  extern __shared__ __align__(64) uchar _ptr[];
  if (((int)threadIdx.x) == 0) {
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[16384]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[16385]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[16386]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[16387]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[16388]))), (uint)2);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[16389]))), (uint)2);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[16390]))), (uint)2);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[16391]))), (uint)2);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[24592]))), (uint)1);
    tvm_builtin_ptx_mbarrier_arrive_expect_tx_arrive_expect_tx_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[24592]))), (uint)49152);
  }
  tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
  tvm_builtin_ptx_fence_mbarrier_init_mbarrier_init_release_cluster();
  tvm_builtin_ptx_barrier_cluster_arrive_cluster_arrive_release();
  tvm_builtin_ptx_barrier_cluster_wait_cluster_wait_acquire();
  int cse_v4 = (((int)blockIdx.x) >> 2);
  int cse_v5 = (((int)tvm_builtin_cluster_ctaid_x()) * 16);
  int cse_v9 = ((((int)blockIdx.x) >> 2) * 128);
  int cse_v20 = ((7 - (((int)blockIdx.x) >> 2)) >> 2);
  if ((warp_id_in_cta >> 2) == 0) {
    tvm_builtin_ptx_setmaxnreg_dec_sync_aligned_u32_40();
    if (warp_id_in_cta == 0) {
      if (tvm_builtin_elect_one_sync_op()) {
        tvm_builtin_ptx_prefetch_tensormap(((void*)((unsigned long long)(&(a_map)))));
        tvm_builtin_ptx_prefetch_tensormap(((void*)((unsigned long long)(&(b_map)))));
        alignas(64) int produced_ptr[2];
        produced_ptr[0] = 0;
        produced_ptr[1] = 1;
        for (int v = 0; v < ((7 - (((int)blockIdx.x) >> 2)) >> 2); ++v) {
          int cse_v8 = ((v * 4) + (((int)blockIdx.x) >> 2));
          int share = ((v * 4) + (((int)blockIdx.x) >> 2));
          int index = ((v * 4) + (((int)blockIdx.x) >> 2));
          int band = 0;
          int height = 1;
          int inside = ((v * 4) + (((int)blockIdx.x) >> 2));
          int first_row = 0;
          int cse_v21 = ((v * 512) + ((((int)blockIdx.x) >> 2) * 128));
          int first_column = ((v * 512) + ((((int)blockIdx.x) >> 2) * 128));
          int first_step = (((int)tvm_builtin_cluster_ctaid_x()) * 16);
          int own_steps = 16;
          for (int v_1 = 0; v_1 < 16; ++v_1) {
            tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[(produced_ptr[0] + 16388)])), produced_ptr[1]);
            tvm_builtin_ptx_mbarrier_arrive_expect_tx_arrive_expect_tx_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 16384)]))), (uint)32768);
            int cse_v10 = ((((int)tvm_builtin_cluster_ctaid_x()) * 1024) + (v_1 * 64));
            tvm_builtin_ptx_cp_async_bulk_tensor_g2s_cluster_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes(tvm_builtin_cuda_cvta_generic_to_shared((&(((nv_bfloat16*)_ptr)[(produced_ptr[0] * 8192)]))), ((void*)((unsigned long long)(&(a_map)))), ((((int)tvm_builtin_cluster_ctaid_x()) * 1024) + (v_1 * 64)), 0, tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 16384)]))));
            tvm_builtin_ptx_cp_async_bulk_tensor_g2s_cluster_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes(tvm_builtin_cuda_cvta_generic_to_shared((&(((nv_bfloat16*)_ptr)[((produced_ptr[0] * 8192) + 32768)]))), ((void*)((unsigned long long)(&(b_map)))), ((((int)tvm_builtin_cluster_ctaid_x()) * 1024) + (v_1 * 64)), ((v * 512) + ((((int)blockIdx.x) >> 2) * 128)), tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 16384)]))));
            produced_ptr[0] = (produced_ptr[0] + 1);
            if (produced_ptr[0] == 4) {
              produced_ptr[0] = 0;
              produced_ptr[1] = (produced_ptr[1] ^ 1);
            }
          }
        }
      }
    }
  } else {
    tvm_builtin_ptx_setmaxnreg_inc_sync_aligned_u32_232();
    int consumer = ((warp_id_in_cta >> 2) - 1);
    alignas(64) float sums_0_ptr[64];
    alignas(64) uint64_t _ptr_1[1];
    ptx_wgmma_encode_matrix_descriptor((&(_ptr_1[0])), (&(((nv_bfloat16*)_ptr)[(((warp_id_in_cta >> 2) * 4096) - 4096)])), 1, 64, 3);
    alignas(64) uint64_t _ptr_2[1];
    ptx_wgmma_encode_matrix_descriptor((&(_ptr_2[0])), (&(((nv_bfloat16*)_ptr)[32768])), 1, 64, 3);
    alignas(64) int filled_ptr[2];
    filled_ptr[0] = 0;
    filled_ptr[1] = 0;
    alignas(64) int read_ptr[2];
    read_ptr[0] = 0;
    read_ptr[1] = 0;
    for (int v_2 = 0; v_2 < ((7 - (((int)blockIdx.x) >> 2)) >> 2); ++v_2) {
      int cse_v11 = ((v_2 * 4) + (((int)blockIdx.x) >> 2));
      int share_1 = ((v_2 * 4) + (((int)blockIdx.x) >> 2));
      int index_1 = ((v_2 * 4) + (((int)blockIdx.x) >> 2));
      int band_1 = 0;
      int height_1 = 1;
      int inside_1 = ((v_2 * 4) + (((int)blockIdx.x) >> 2));
      int first_row_1 = 0;
      int cse_v6 = (v_2 * 512);
      int cse_v22 = ((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 128));
      int first_column_1 = ((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 128));
      int first_step_1 = (((int)tvm_builtin_cluster_ctaid_x()) * 16);
      int own_steps_1 = 16;
      tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[(filled_ptr[0] + 16384)])), filled_ptr[1]);
      tvm_builtin_ptx_wgmma_fence_fence_sync_aligned();
      tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n128k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35], sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39], sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43], sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47], sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51], sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55], sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59], sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63], (_ptr_1[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), (_ptr_2[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), (uint)0);
      tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n128k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35], sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39], sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43], sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47], sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51], sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55], sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59], sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63], ((_ptr_1[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), ((_ptr_2[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), (uint)1);
      tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n128k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35], sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39], sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43], sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47], sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51], sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55], sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59], sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63], ((_ptr_1[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), ((_ptr_2[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), (uint)1);
      tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n128k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35], sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39], sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43], sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47], sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51], sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55], sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59], sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63], ((_ptr_1[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), ((_ptr_2[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), (uint)1);
      tvm_builtin_ptx_wgmma_commit_group_commit_group_sync_aligned();
      filled_ptr[0] = (filled_ptr[0] + 1);
      if (filled_ptr[0] == 4) {
        filled_ptr[0] = 0;
        filled_ptr[1] = (filled_ptr[1] ^ 1);
      }
      for (int v_3 = 0; v_3 < 15; ++v_3) {
        tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[(filled_ptr[0] + 16384)])), filled_ptr[1]);
        tvm_builtin_ptx_wgmma_fence_fence_sync_aligned();
        tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n128k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35], sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39], sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43], sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47], sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51], sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55], sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59], sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63], (_ptr_1[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), (_ptr_2[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n128k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35], sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39], sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43], sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47], sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51], sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55], sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59], sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63], ((_ptr_1[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), ((_ptr_2[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n128k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35], sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39], sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43], sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47], sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51], sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55], sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59], sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63], ((_ptr_1[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), ((_ptr_2[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n128k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35], sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39], sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43], sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47], sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51], sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55], sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59], sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63], ((_ptr_1[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), ((_ptr_2[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_commit_group_commit_group_sync_aligned();
        filled_ptr[0] = (filled_ptr[0] + 1);
        if (filled_ptr[0] == 4) {
          filled_ptr[0] = 0;
          filled_ptr[1] = (filled_ptr[1] ^ 1);
        }
        tvm_builtin_ptx_wgmma_wait_group_wait_group_sync_aligned_1();
        if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
          tvm_builtin_ptx_mbarrier_arrive_arrive_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(read_ptr[0] + 16388)]))), (uint)1);
        }
        read_ptr[0] = (read_ptr[0] + 1);
        if (read_ptr[0] == 4) {
          read_ptr[0] = 0;
          read_ptr[1] = (read_ptr[1] ^ 1);
        }
      }
      tvm_builtin_ptx_wgmma_wait_group_wait_group_sync_aligned_0();
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_mbarrier_arrive_arrive_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(read_ptr[0] + 16388)]))), (uint)1);
      }
      read_ptr[0] = (read_ptr[0] + 1);
      if (read_ptr[0] == 4) {
        read_ptr[0] = 0;
        read_ptr[1] = (read_ptr[1] ^ 1);
      }
      int cse_v12 = ((warp_id_in_cta & 3) * 32);
      int thread_of_consumer = (((warp_id_in_cta & 3) * 32) + (((int)threadIdx.x) & 31));
      tvm_builtin_ptx_bar_sync_count_sync((uint)7, (uint)256);
      int cse_v27 = ((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31));
      leave_sums((&(((nv_bfloat16*)_ptr)[32768])), (&(((float*)_ptr)[32800])), (((int)tvm_builtin_cluster_ctaid_x()) == 0), (((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31)) - 512), sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3]);
      leave_sums((&(((nv_bfloat16*)_ptr)[32768])), (&(((float*)_ptr)[32800])), (((int)tvm_builtin_cluster_ctaid_x()) == 0), (((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31)) - 384), sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7]);
      leave_sums((&(((nv_bfloat16*)_ptr)[32768])), (&(((float*)_ptr)[32800])), (((int)tvm_builtin_cluster_ctaid_x()) == 0), (((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31)) - 256), sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11]);
      leave_sums((&(((nv_bfloat16*)_ptr)[32768])), (&(((float*)_ptr)[32800])), (((int)tvm_builtin_cluster_ctaid_x()) == 0), (((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31)) - 128), sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15]);
      leave_sums((&(((nv_bfloat16*)_ptr)[32768])), (&(((float*)_ptr)[32800])), (((int)tvm_builtin_cluster_ctaid_x()) == 1), (((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31)) + 512), sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19]);
      leave_sums((&(((nv_bfloat16*)_ptr)[32768])), (&(((float*)_ptr)[32800])), (((int)tvm_builtin_cluster_ctaid_x()) == 1), (((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31)) + 640), sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23]);
      leave_sums((&(((nv_bfloat16*)_ptr)[32768])), (&(((float*)_ptr)[32800])), (((int)tvm_builtin_cluster_ctaid_x()) == 1), (((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31)) + 768), sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27]);
      leave_sums((&(((nv_bfloat16*)_ptr)[32768])), (&(((float*)_ptr)[32800])), (((int)tvm_builtin_cluster_ctaid_x()) == 1), (((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31)) + 896), sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31]);
      leave_sums((&(((nv_bfloat16*)_ptr)[32768])), (&(((float*)_ptr)[32800])), (((int)tvm_builtin_cluster_ctaid_x()) == 2), (((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31)) + 1536), sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35]);
      leave_sums((&(((nv_bfloat16*)_ptr)[32768])), (&(((float*)_ptr)[32800])), (((int)tvm_builtin_cluster_ctaid_x()) == 2), (((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31)) + 1664), sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39]);
      leave_sums((&(((nv_bfloat16*)_ptr)[32768])), (&(((float*)_ptr)[32800])), (((int)tvm_builtin_cluster_ctaid_x()) == 2), (((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31)) + 1792), sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43]);
      leave_sums((&(((nv_bfloat16*)_ptr)[32768])), (&(((float*)_ptr)[32800])), (((int)tvm_builtin_cluster_ctaid_x()) == 2), (((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31)) + 1920), sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47]);
      leave_sums((&(((nv_bfloat16*)_ptr)[32768])), (&(((float*)_ptr)[32800])), (((int)tvm_builtin_cluster_ctaid_x()) == 3), (((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31)) + 2560), sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51]);
      leave_sums((&(((nv_bfloat16*)_ptr)[32768])), (&(((float*)_ptr)[32800])), (((int)tvm_builtin_cluster_ctaid_x()) == 3), (((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31)) + 2688), sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55]);
      leave_sums((&(((nv_bfloat16*)_ptr)[32768])), (&(((float*)_ptr)[32800])), (((int)tvm_builtin_cluster_ctaid_x()) == 3), (((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31)) + 2816), sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59]);
      leave_sums((&(((nv_bfloat16*)_ptr)[32768])), (&(((float*)_ptr)[32800])), (((int)tvm_builtin_cluster_ctaid_x()) == 3), (((((warp_id_in_cta >> 2) * 512) + ((warp_id_in_cta & 3) * 32)) + (((int)threadIdx.x) & 31)) + 2944), sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63]);
      tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      int cse_v14 = ((warp_id_in_cta >> 2) * 2048);
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        uint sums_address = tvm_builtin_cuda_cvta_generic_to_shared((&(((nv_bfloat16*)_ptr)[32768])));
        int cse_v13 = ((((int)tvm_builtin_cluster_ctaid_x()) + 1) & 3);
        int owner = ((((int)tvm_builtin_cluster_ctaid_x()) + 1) & 3);
        alignas(64) uint address_in_block_ptr[1];
        uint cse_v23 = ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 1) & 3));
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[24592]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 1) & 3)));
        alignas(64) uint address_in_block_ptr_1[1];
        int cse_v28 = (((((int)tvm_builtin_cluster_ctaid_x()) * 4096) + ((warp_id_in_cta >> 2) * 2048)) + 30752);
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_1[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((float*)_ptr)[(((((int)tvm_builtin_cluster_ctaid_x()) * 4096) + ((warp_id_in_cta >> 2) * 2048)) + 30752)]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 1) & 3)));
        int cse_v15 = ((warp_id_in_cta >> 2) * 8192);
        tvm_builtin_ptx_cp_async_bulk_s2c_async_bulk_shared__cluster_shared__cta_mbarrier__complete_tx__bytes(address_in_block_ptr_1[0], (sums_address + ((uint)(((((((int)tvm_builtin_cluster_ctaid_x()) + 1) & 3) * 16384) + ((warp_id_in_cta >> 2) * 8192)) - 8192))), (uint)8192, address_in_block_ptr[0]);
        int cse_v16 = ((((int)tvm_builtin_cluster_ctaid_x()) + 2) & 3);
        int owner_1 = ((((int)tvm_builtin_cluster_ctaid_x()) + 2) & 3);
        alignas(64) uint address_in_block_ptr_2[1];
        uint cse_v24 = ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 2) & 3));
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_2[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[24592]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 2) & 3)));
        alignas(64) uint address_in_block_ptr_3[1];
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_3[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((float*)_ptr)[(((((int)tvm_builtin_cluster_ctaid_x()) * 4096) + ((warp_id_in_cta >> 2) * 2048)) + 30752)]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 2) & 3)));
        tvm_builtin_ptx_cp_async_bulk_s2c_async_bulk_shared__cluster_shared__cta_mbarrier__complete_tx__bytes(address_in_block_ptr_3[0], (sums_address + ((uint)(((((((int)tvm_builtin_cluster_ctaid_x()) + 2) & 3) * 16384) + ((warp_id_in_cta >> 2) * 8192)) - 8192))), (uint)8192, address_in_block_ptr_2[0]);
        int cse_v17 = ((((int)tvm_builtin_cluster_ctaid_x()) + 3) & 3);
        int owner_2 = ((((int)tvm_builtin_cluster_ctaid_x()) + 3) & 3);
        alignas(64) uint address_in_block_ptr_4[1];
        uint cse_v25 = ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 3) & 3));
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_4[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[24592]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 3) & 3)));
        alignas(64) uint address_in_block_ptr_5[1];
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_5[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((float*)_ptr)[(((((int)tvm_builtin_cluster_ctaid_x()) * 4096) + ((warp_id_in_cta >> 2) * 2048)) + 30752)]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 3) & 3)));
        tvm_builtin_ptx_cp_async_bulk_s2c_async_bulk_shared__cluster_shared__cta_mbarrier__complete_tx__bytes(address_in_block_ptr_5[0], (sums_address + ((uint)(((((((int)tvm_builtin_cluster_ctaid_x()) + 3) & 3) * 16384) + ((warp_id_in_cta >> 2) * 8192)) - 8192))), (uint)8192, address_in_block_ptr_4[0]);
      }
      tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[24592])), 0);
      tvm_builtin_ptx_barrier_cluster_arrive_cluster_arrive_relaxed();
      int cse_v29 = ((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4));
      sums_0_ptr[0] = (((((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 30752)] + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 34848)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 38944)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 43040)]);
      sums_0_ptr[1] = (((((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 30753)] + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 34849)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 38945)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 43041)]);
      sums_0_ptr[2] = (((((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 30754)] + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 34850)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 38946)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 43042)]);
      sums_0_ptr[3] = (((((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 30755)] + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 34851)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 38947)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 43043)]);
      sums_0_ptr[4] = (((((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 31264)] + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 35360)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 39456)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 43552)]);
      sums_0_ptr[5] = (((((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 31265)] + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 35361)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 39457)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 43553)]);
      sums_0_ptr[6] = (((((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 31266)] + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 35362)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 39458)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 43554)]);
      sums_0_ptr[7] = (((((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 31267)] + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 35363)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 39459)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 43555)]);
      sums_0_ptr[8] = (((((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 31776)] + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 35872)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 39968)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 44064)]);
      sums_0_ptr[9] = (((((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 31777)] + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 35873)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 39969)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 44065)]);
      sums_0_ptr[10] = (((((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 31778)] + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 35874)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 39970)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 44066)]);
      sums_0_ptr[11] = (((((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 31779)] + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 35875)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 39971)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 44067)]);
      sums_0_ptr[12] = (((((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 32288)] + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 36384)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 40480)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 44576)]);
      sums_0_ptr[13] = (((((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 32289)] + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 36385)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 40481)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 44577)]);
      sums_0_ptr[14] = (((((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 32290)] + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 36386)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 40482)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 44578)]);
      sums_0_ptr[15] = (((((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 32291)] + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 36387)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 40483)]) + ((float*)_ptr)[(((((warp_id_in_cta >> 2) * 2048) + ((warp_id_in_cta & 3) * 128)) + ((((int)threadIdx.x) & 31) * 4)) + 44579)]);
      int cse_v18 = ((((int)threadIdx.x) & 3) * 2);
      int lane_column = ((((int)threadIdx.x) & 3) * 2);
      int first_own_row = (((warp_id_in_cta >> 2) * 64) - 64);
      int cse_v19 = ((((int)threadIdx.x) & 31) >> 2);
      int cse_v26 = ((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 2));
      int cse_v30 = (((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 2)) - 64);
      int row = (((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 2)) - 64);
      int inside_row = min((((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 2)) - 64), 127);
      int inside_row_1 = min((((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 2)) - 56), 127);
      int cse_v7 = (((int)tvm_builtin_cluster_ctaid_x()) * 32);
      int cse_v31 = ((((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2));
      int cse_v32 = (((((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 8);
      int cse_v33 = (((((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 16);
      int cse_v34 = (((((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 24);
      int cse_v35 = ((((((warp_id_in_cta * 8192) + (((((int)threadIdx.x) & 31) >> 2) * 512)) + (v_2 * 512)) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2));
      if (warp_id_in_cta < 12) {
        int stored_column = ((((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2));
        alignas(64) uint stored_pair_ptr[1];
        tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_pair_ptr[0], sums_0_ptr[1], sums_0_ptr[0]);
        tvm_builtin_ptx_st_global_b32((&(out_ptr[(((((((warp_id_in_cta * 8192) + (((((int)threadIdx.x) & 31) >> 2) * 512)) + (v_2 * 512)) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) - 32768)])), stored_pair_ptr[0]);
        int stored_column_1 = (((((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 8);
        alignas(64) uint stored_pair_ptr_1[1];
        tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_pair_ptr_1[0], sums_0_ptr[5], sums_0_ptr[4]);
        tvm_builtin_ptx_st_global_b32((&(out_ptr[(((((((warp_id_in_cta * 8192) + (((((int)threadIdx.x) & 31) >> 2) * 512)) + (v_2 * 512)) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) - 32760)])), stored_pair_ptr_1[0]);
        int stored_column_2 = (((((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 16);
        alignas(64) uint stored_pair_ptr_2[1];
        tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_pair_ptr_2[0], sums_0_ptr[9], sums_0_ptr[8]);
        tvm_builtin_ptx_st_global_b32((&(out_ptr[(((((((warp_id_in_cta * 8192) + (((((int)threadIdx.x) & 31) >> 2) * 512)) + (v_2 * 512)) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) - 32752)])), stored_pair_ptr_2[0]);
        int stored_column_3 = (((((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 24);
        alignas(64) uint stored_pair_ptr_3[1];
        tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_pair_ptr_3[0], sums_0_ptr[13], sums_0_ptr[12]);
        tvm_builtin_ptx_st_global_b32((&(out_ptr[(((((((warp_id_in_cta * 8192) + (((((int)threadIdx.x) & 31) >> 2) * 512)) + (v_2 * 512)) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) - 32744)])), stored_pair_ptr_3[0]);
      }
      if (warp_id_in_cta < 12) {
        int stored_column_4 = ((((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2));
        alignas(64) uint stored_pair_ptr_4[1];
        tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_pair_ptr_4[0], sums_0_ptr[3], sums_0_ptr[2]);
        tvm_builtin_ptx_st_global_b32((&(out_ptr[(((((((warp_id_in_cta * 8192) + (((((int)threadIdx.x) & 31) >> 2) * 512)) + (v_2 * 512)) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) - 28672)])), stored_pair_ptr_4[0]);
        int stored_column_5 = (((((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 8);
        alignas(64) uint stored_pair_ptr_5[1];
        tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_pair_ptr_5[0], sums_0_ptr[7], sums_0_ptr[6]);
        tvm_builtin_ptx_st_global_b32((&(out_ptr[(((((((warp_id_in_cta * 8192) + (((((int)threadIdx.x) & 31) >> 2) * 512)) + (v_2 * 512)) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) - 28664)])), stored_pair_ptr_5[0]);
        int stored_column_6 = (((((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 16);
        alignas(64) uint stored_pair_ptr_6[1];
        tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_pair_ptr_6[0], sums_0_ptr[11], sums_0_ptr[10]);
        tvm_builtin_ptx_st_global_b32((&(out_ptr[(((((((warp_id_in_cta * 8192) + (((((int)threadIdx.x) & 31) >> 2) * 512)) + (v_2 * 512)) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) - 28656)])), stored_pair_ptr_6[0]);
        int stored_column_7 = (((((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 24);
        alignas(64) uint stored_pair_ptr_7[1];
        tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_pair_ptr_7[0], sums_0_ptr[15], sums_0_ptr[14]);
        tvm_builtin_ptx_st_global_b32((&(out_ptr[(((((((warp_id_in_cta * 8192) + (((((int)threadIdx.x) & 31) >> 2) * 512)) + (v_2 * 512)) + ((((int)blockIdx.x) >> 2) * 128)) + (((int)tvm_builtin_cluster_ctaid_x()) * 32)) + ((((int)threadIdx.x) & 3) * 2)) - 28648)])), stored_pair_ptr_7[0]);
      }
    }
    if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
      tvm_builtin_ptx_cp_async_bulk_wait_group_async_bulk_wait_group_0();
    }
    tvm_builtin_ptx_barrier_cluster_wait_cluster_wait_acquire();
  }
}
