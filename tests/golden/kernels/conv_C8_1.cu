extern "C" __global__ void __launch_bounds__(256, 1) main_0_kernel(half* __restrict__ hidden_ptr, const __grid_constant__ CUtensorMap up_map, const __grid_constant__ CUtensorMap x_map) {
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
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20480]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20481]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20482]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20483]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20484]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20485]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20486]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20487]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20488]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20489]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20490]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20491]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20492]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20493]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20494]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20495]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20496]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20497]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20498]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[20499]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[22560]))), (uint)1);
    tvm_builtin_ptx_mbarrier_arrive_expect_tx_arrive_expect_tx_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[22560]))), (uint)14336);
  }
  tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
  tvm_builtin_ptx_fence_mbarrier_init_mbarrier_init_release_cluster();
  tvm_builtin_ptx_barrier_cluster_arrive_cluster_arrive_release();
  tvm_builtin_ptx_barrier_cluster_wait_cluster_wait_acquire();
  int cse_v4 = (((int)blockIdx.x) >> 3);
  int cse_v5 = (((int)tvm_builtin_cluster_ctaid_x()) * 9);
  int cse_v9 = ((((int)blockIdx.x) >> 3) * 64);
  int cse_v24 = ((15 - (((int)blockIdx.x) >> 3)) >> 3);
  if ((warp_id_in_cta >> 2) == 0) {
    tvm_builtin_ptx_setmaxnreg_dec_sync_aligned_u32_56();
    if (warp_id_in_cta == 0) {
      if (tvm_builtin_elect_one_sync_op()) {
        tvm_builtin_ptx_prefetch_tensormap(((void*)((unsigned long long)(&(x_map)))));
        tvm_builtin_ptx_prefetch_tensormap(((void*)((unsigned long long)(&(up_map)))));
        alignas(64) int produced_ptr[2];
        produced_ptr[0] = 0;
        produced_ptr[1] = 1;
        for (int v = 0; v < ((15 - (((int)blockIdx.x) >> 3)) >> 3); ++v) {
          int cse_v8 = ((v * 8) + (((int)blockIdx.x) >> 3));
          int share = ((v * 8) + (((int)blockIdx.x) >> 3));
          int index = ((v * 8) + (((int)blockIdx.x) >> 3));
          int band = 0;
          int height = 1;
          int inside = ((v * 8) + (((int)blockIdx.x) >> 3));
          int batch = 0;
          int first_row = 0;
          int cse_v25 = ((v * 512) + ((((int)blockIdx.x) >> 3) * 64));
          int first_column = ((v * 512) + ((((int)blockIdx.x) >> 3) * 64));
          int first_step = (((int)tvm_builtin_cluster_ctaid_x()) * 9);
          int own_steps = 9;
          for (int v_1 = 0; v_1 < 9; ++v_1) {
            int cse_v10 = ((((int)tvm_builtin_cluster_ctaid_x()) * 9) + v_1);
            int cse_v38 = ((((((int)tvm_builtin_cluster_ctaid_x()) * 9) + v_1) % 24) >> 3);
            int dq = ((((((int)tvm_builtin_cluster_ctaid_x()) * 9) + v_1) % 24) >> 3);
            int cse_v26 = (((((int)tvm_builtin_cluster_ctaid_x()) * 9) + v_1) / 24);
            int dp = (((((int)tvm_builtin_cluster_ctaid_x()) * 9) + v_1) / 24);
            tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[(produced_ptr[0] + 20490)])), produced_ptr[1]);
            tvm_builtin_ptx_mbarrier_arrive_expect_tx_arrive_expect_tx_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 20480)]))), (uint)14464);
            int cse_v39 = ((((((int)tvm_builtin_cluster_ctaid_x()) * 9) + v_1) & 7) * 64);
            tvm_builtin_ptx_cp_async_bulk_tensor_g2s_cluster_async_bulk_tensor_4d_shared__cluster_global_mbarrier__complete_tx__bytes(tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)_ptr)[(produced_ptr[0] * 4096)]))), ((void*)((unsigned long long)(&(x_map)))), ((((((int)tvm_builtin_cluster_ctaid_x()) * 9) + v_1) & 7) * 64), (((((((int)tvm_builtin_cluster_ctaid_x()) * 9) + v_1) % 24) >> 3) - 1), ((((((int)tvm_builtin_cluster_ctaid_x()) * 9) + v_1) / 24) - 1), 0, tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 20480)]))));
            tvm_builtin_ptx_cp_async_bulk_tensor_g2s_cluster_async_bulk_tensor_4d_shared__cluster_global_mbarrier__complete_tx__bytes(tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)_ptr)[((produced_ptr[0] * 4096) + 40960)]))), ((void*)((unsigned long long)(&(up_map)))), ((((((int)tvm_builtin_cluster_ctaid_x()) * 9) + v_1) & 7) * 64), ((((((int)tvm_builtin_cluster_ctaid_x()) * 9) + v_1) % 24) >> 3), (((((int)tvm_builtin_cluster_ctaid_x()) * 9) + v_1) / 24), ((v * 512) + ((((int)blockIdx.x) >> 3) * 64)), tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 20480)]))));
            produced_ptr[0] = (produced_ptr[0] + 1);
            if (produced_ptr[0] == 10) {
              produced_ptr[0] = 0;
              produced_ptr[1] = (produced_ptr[1] ^ 1);
            }
          }
        }
      }
    }
  } else {
    tvm_builtin_ptx_setmaxnreg_inc_sync_aligned_u32_240();
    int consumer = ((warp_id_in_cta >> 2) - 1);
    alignas(64) float sums_0_ptr[32];
    alignas(64) uint64_t _ptr_1[1];
    ptx_wgmma_encode_matrix_descriptor((&(_ptr_1[0])), (&(((half*)_ptr)[(((warp_id_in_cta >> 2) * 4096) - 4096)])), 1, 64, 3);
    alignas(64) uint64_t _ptr_2[1];
    ptx_wgmma_encode_matrix_descriptor((&(_ptr_2[0])), (&(((half*)_ptr)[40960])), 1, 64, 3);
    alignas(64) int filled_ptr[2];
    filled_ptr[0] = 0;
    filled_ptr[1] = 0;
    alignas(64) int read_ptr[2];
    read_ptr[0] = 0;
    read_ptr[1] = 0;
    for (int v_2 = 0; v_2 < ((15 - (((int)blockIdx.x) >> 3)) >> 3); ++v_2) {
      int cse_v11 = ((v_2 * 8) + (((int)blockIdx.x) >> 3));
      int share_1 = ((v_2 * 8) + (((int)blockIdx.x) >> 3));
      int index_1 = ((v_2 * 8) + (((int)blockIdx.x) >> 3));
      int band_1 = 0;
      int height_1 = 1;
      int inside_1 = ((v_2 * 8) + (((int)blockIdx.x) >> 3));
      int batch_1 = 0;
      int first_row_1 = 0;
      int cse_v6 = (v_2 * 512);
      int cse_v27 = ((v_2 * 512) + ((((int)blockIdx.x) >> 3) * 64));
      int first_column_1 = ((v_2 * 512) + ((((int)blockIdx.x) >> 3) * 64));
      int first_step_1 = (((int)tvm_builtin_cluster_ctaid_x()) * 9);
      int own_steps_1 = 9;
      tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[(filled_ptr[0] + 20480)])), filled_ptr[1]);
      tvm_builtin_ptx_wgmma_fence_fence_sync_aligned();
      tvm_builtin_ptx_wgmma_f16_ss_mma_async_sync_aligned_m64n64k16_f32_f16_f16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], (_ptr_1[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (_ptr_2[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (uint)0);
      tvm_builtin_ptx_wgmma_f16_ss_mma_async_sync_aligned_m64n64k16_f32_f16_f16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], ((_ptr_1[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), ((_ptr_2[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (uint)1);
      tvm_builtin_ptx_wgmma_f16_ss_mma_async_sync_aligned_m64n64k16_f32_f16_f16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], ((_ptr_1[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), ((_ptr_2[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (uint)1);
      tvm_builtin_ptx_wgmma_f16_ss_mma_async_sync_aligned_m64n64k16_f32_f16_f16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], ((_ptr_1[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), ((_ptr_2[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (uint)1);
      tvm_builtin_ptx_wgmma_commit_group_commit_group_sync_aligned();
      filled_ptr[0] = (filled_ptr[0] + 1);
      if (filled_ptr[0] == 10) {
        filled_ptr[0] = 0;
        filled_ptr[1] = (filled_ptr[1] ^ 1);
      }
      for (int v_3 = 0; v_3 < 8; ++v_3) {
        tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[(filled_ptr[0] + 20480)])), filled_ptr[1]);
        tvm_builtin_ptx_wgmma_fence_fence_sync_aligned();
        tvm_builtin_ptx_wgmma_f16_ss_mma_async_sync_aligned_m64n64k16_f32_f16_f16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], (_ptr_1[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (_ptr_2[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_f16_ss_mma_async_sync_aligned_m64n64k16_f32_f16_f16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], ((_ptr_1[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), ((_ptr_2[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_f16_ss_mma_async_sync_aligned_m64n64k16_f32_f16_f16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], ((_ptr_1[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), ((_ptr_2[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_f16_ss_mma_async_sync_aligned_m64n64k16_f32_f16_f16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], ((_ptr_1[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), ((_ptr_2[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_commit_group_commit_group_sync_aligned();
        filled_ptr[0] = (filled_ptr[0] + 1);
        if (filled_ptr[0] == 10) {
          filled_ptr[0] = 0;
          filled_ptr[1] = (filled_ptr[1] ^ 1);
        }
        tvm_builtin_ptx_wgmma_wait_group_wait_group_sync_aligned_1();
        if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
          tvm_builtin_ptx_mbarrier_arrive_arrive_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(read_ptr[0] + 20490)]))), (uint)1);
        }
        read_ptr[0] = (read_ptr[0] + 1);
        if (read_ptr[0] == 10) {
          read_ptr[0] = 0;
          read_ptr[1] = (read_ptr[1] ^ 1);
        }
      }
      tvm_builtin_ptx_wgmma_wait_group_wait_group_sync_aligned_0();
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_mbarrier_arrive_arrive_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(read_ptr[0] + 20490)]))), (uint)1);
      }
      read_ptr[0] = (read_ptr[0] + 1);
      if (read_ptr[0] == 10) {
        read_ptr[0] = 0;
        read_ptr[1] = (read_ptr[1] ^ 1);
      }
      int thread_of_consumer = (((warp_id_in_cta & 3) * 32) + (((int)threadIdx.x) & 31));
      tvm_builtin_ptx_bar_sync_count_sync((uint)7, (uint)128);
      int cse_v12 = ((warp_id_in_cta * 32) + (((int)threadIdx.x) & 31));
      leave_sums((&(((half*)_ptr)[40960])), (&(((float*)_ptr)[41024])), (((int)tvm_builtin_cluster_ctaid_x()) == 0), (((warp_id_in_cta * 32) + (((int)threadIdx.x) & 31)) - 128), sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3]);
      leave_sums((&(((half*)_ptr)[40960])), (&(((float*)_ptr)[41024])), (((int)tvm_builtin_cluster_ctaid_x()) == 1), ((warp_id_in_cta * 32) + (((int)threadIdx.x) & 31)), sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7]);
      leave_sums((&(((half*)_ptr)[40960])), (&(((float*)_ptr)[41024])), (((int)tvm_builtin_cluster_ctaid_x()) == 2), (((warp_id_in_cta * 32) + (((int)threadIdx.x) & 31)) + 128), sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11]);
      leave_sums((&(((half*)_ptr)[40960])), (&(((float*)_ptr)[41024])), (((int)tvm_builtin_cluster_ctaid_x()) == 3), (((warp_id_in_cta * 32) + (((int)threadIdx.x) & 31)) + 256), sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15]);
      leave_sums((&(((half*)_ptr)[40960])), (&(((float*)_ptr)[41024])), (((int)tvm_builtin_cluster_ctaid_x()) == 4), (((warp_id_in_cta * 32) + (((int)threadIdx.x) & 31)) + 384), sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19]);
      leave_sums((&(((half*)_ptr)[40960])), (&(((float*)_ptr)[41024])), (((int)tvm_builtin_cluster_ctaid_x()) == 5), (((warp_id_in_cta * 32) + (((int)threadIdx.x) & 31)) + 512), sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23]);
      leave_sums((&(((half*)_ptr)[40960])), (&(((float*)_ptr)[41024])), (((int)tvm_builtin_cluster_ctaid_x()) == 6), (((warp_id_in_cta * 32) + (((int)threadIdx.x) & 31)) + 640), sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27]);
      leave_sums((&(((half*)_ptr)[40960])), (&(((float*)_ptr)[41024])), (((int)tvm_builtin_cluster_ctaid_x()) == 7), (((warp_id_in_cta * 32) + (((int)threadIdx.x) & 31)) + 768), sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31]);
      tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        uint sums_address = tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)_ptr)[40960])));
        int cse_v13 = ((((int)tvm_builtin_cluster_ctaid_x()) + 1) & 7);
        int owner = ((((int)tvm_builtin_cluster_ctaid_x()) + 1) & 7);
        alignas(64) uint address_in_block_ptr[1];
        uint cse_v28 = ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 1) & 7));
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[22560]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 1) & 7)));
        alignas(64) uint address_in_block_ptr_1[1];
        int cse_v40 = ((((warp_id_in_cta >> 2) * 512) + (((int)tvm_builtin_cluster_ctaid_x()) * 512)) + 40512);
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_1[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((float*)_ptr)[((((warp_id_in_cta >> 2) * 512) + (((int)tvm_builtin_cluster_ctaid_x()) * 512)) + 40512)]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 1) & 7)));
        int cse_v14 = ((warp_id_in_cta >> 2) * 2048);
        tvm_builtin_ptx_cp_async_bulk_s2c_async_bulk_shared__cluster_shared__cta_mbarrier__complete_tx__bytes(address_in_block_ptr_1[0], (sums_address + ((uint)((((warp_id_in_cta >> 2) * 2048) + (((((int)tvm_builtin_cluster_ctaid_x()) + 1) & 7) * 2048)) - 2048))), (uint)2048, address_in_block_ptr[0]);
        int cse_v15 = ((((int)tvm_builtin_cluster_ctaid_x()) + 2) & 7);
        int owner_1 = ((((int)tvm_builtin_cluster_ctaid_x()) + 2) & 7);
        alignas(64) uint address_in_block_ptr_2[1];
        uint cse_v29 = ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 2) & 7));
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_2[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[22560]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 2) & 7)));
        alignas(64) uint address_in_block_ptr_3[1];
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_3[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((float*)_ptr)[((((warp_id_in_cta >> 2) * 512) + (((int)tvm_builtin_cluster_ctaid_x()) * 512)) + 40512)]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 2) & 7)));
        tvm_builtin_ptx_cp_async_bulk_s2c_async_bulk_shared__cluster_shared__cta_mbarrier__complete_tx__bytes(address_in_block_ptr_3[0], (sums_address + ((uint)((((warp_id_in_cta >> 2) * 2048) + (((((int)tvm_builtin_cluster_ctaid_x()) + 2) & 7) * 2048)) - 2048))), (uint)2048, address_in_block_ptr_2[0]);
        int cse_v16 = ((((int)tvm_builtin_cluster_ctaid_x()) + 3) & 7);
        int owner_2 = ((((int)tvm_builtin_cluster_ctaid_x()) + 3) & 7);
        alignas(64) uint address_in_block_ptr_4[1];
        uint cse_v30 = ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 3) & 7));
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_4[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[22560]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 3) & 7)));
        alignas(64) uint address_in_block_ptr_5[1];
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_5[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((float*)_ptr)[((((warp_id_in_cta >> 2) * 512) + (((int)tvm_builtin_cluster_ctaid_x()) * 512)) + 40512)]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 3) & 7)));
        tvm_builtin_ptx_cp_async_bulk_s2c_async_bulk_shared__cluster_shared__cta_mbarrier__complete_tx__bytes(address_in_block_ptr_5[0], (sums_address + ((uint)((((warp_id_in_cta >> 2) * 2048) + (((((int)tvm_builtin_cluster_ctaid_x()) + 3) & 7) * 2048)) - 2048))), (uint)2048, address_in_block_ptr_4[0]);
        int cse_v17 = ((((int)tvm_builtin_cluster_ctaid_x()) + 4) & 7);
        int owner_3 = ((((int)tvm_builtin_cluster_ctaid_x()) + 4) & 7);
        alignas(64) uint address_in_block_ptr_6[1];
        uint cse_v31 = ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 4) & 7));
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_6[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[22560]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 4) & 7)));
        alignas(64) uint address_in_block_ptr_7[1];
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_7[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((float*)_ptr)[((((warp_id_in_cta >> 2) * 512) + (((int)tvm_builtin_cluster_ctaid_x()) * 512)) + 40512)]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 4) & 7)));
        tvm_builtin_ptx_cp_async_bulk_s2c_async_bulk_shared__cluster_shared__cta_mbarrier__complete_tx__bytes(address_in_block_ptr_7[0], (sums_address + ((uint)((((warp_id_in_cta >> 2) * 2048) + (((((int)tvm_builtin_cluster_ctaid_x()) + 4) & 7) * 2048)) - 2048))), (uint)2048, address_in_block_ptr_6[0]);
        int cse_v18 = ((((int)tvm_builtin_cluster_ctaid_x()) + 5) & 7);
        int owner_4 = ((((int)tvm_builtin_cluster_ctaid_x()) + 5) & 7);
        alignas(64) uint address_in_block_ptr_8[1];
        uint cse_v32 = ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 5) & 7));
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_8[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[22560]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 5) & 7)));
        alignas(64) uint address_in_block_ptr_9[1];
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_9[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((float*)_ptr)[((((warp_id_in_cta >> 2) * 512) + (((int)tvm_builtin_cluster_ctaid_x()) * 512)) + 40512)]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 5) & 7)));
        tvm_builtin_ptx_cp_async_bulk_s2c_async_bulk_shared__cluster_shared__cta_mbarrier__complete_tx__bytes(address_in_block_ptr_9[0], (sums_address + ((uint)((((warp_id_in_cta >> 2) * 2048) + (((((int)tvm_builtin_cluster_ctaid_x()) + 5) & 7) * 2048)) - 2048))), (uint)2048, address_in_block_ptr_8[0]);
        int cse_v19 = ((((int)tvm_builtin_cluster_ctaid_x()) + 6) & 7);
        int owner_5 = ((((int)tvm_builtin_cluster_ctaid_x()) + 6) & 7);
        alignas(64) uint address_in_block_ptr_10[1];
        uint cse_v33 = ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 6) & 7));
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_10[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[22560]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 6) & 7)));
        alignas(64) uint address_in_block_ptr_11[1];
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_11[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((float*)_ptr)[((((warp_id_in_cta >> 2) * 512) + (((int)tvm_builtin_cluster_ctaid_x()) * 512)) + 40512)]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 6) & 7)));
        tvm_builtin_ptx_cp_async_bulk_s2c_async_bulk_shared__cluster_shared__cta_mbarrier__complete_tx__bytes(address_in_block_ptr_11[0], (sums_address + ((uint)((((warp_id_in_cta >> 2) * 2048) + (((((int)tvm_builtin_cluster_ctaid_x()) + 6) & 7) * 2048)) - 2048))), (uint)2048, address_in_block_ptr_10[0]);
        int cse_v20 = ((((int)tvm_builtin_cluster_ctaid_x()) + 7) & 7);
        int owner_6 = ((((int)tvm_builtin_cluster_ctaid_x()) + 7) & 7);
        alignas(64) uint address_in_block_ptr_12[1];
        uint cse_v34 = ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 7) & 7));
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_12[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[22560]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 7) & 7)));
        alignas(64) uint address_in_block_ptr_13[1];
        tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr_13[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((float*)_ptr)[((((warp_id_in_cta >> 2) * 512) + (((int)tvm_builtin_cluster_ctaid_x()) * 512)) + 40512)]))), ((uint)((((int)tvm_builtin_cluster_ctaid_x()) + 7) & 7)));
        tvm_builtin_ptx_cp_async_bulk_s2c_async_bulk_shared__cluster_shared__cta_mbarrier__complete_tx__bytes(address_in_block_ptr_13[0], (sums_address + ((uint)((((warp_id_in_cta >> 2) * 2048) + (((((int)tvm_builtin_cluster_ctaid_x()) + 7) & 7) * 2048)) - 2048))), (uint)2048, address_in_block_ptr_12[0]);
      }
      tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[22560])), 0);
      tvm_builtin_ptx_barrier_cluster_arrive_cluster_arrive_relaxed();
      int cse_v35 = ((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4));
      sums_0_ptr[0] = (((((((((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 40512)] + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 41024)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 41536)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 42048)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 42560)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 43072)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 43584)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 44096)]);
      sums_0_ptr[1] = (((((((((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 40513)] + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 41025)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 41537)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 42049)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 42561)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 43073)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 43585)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 44097)]);
      sums_0_ptr[2] = (((((((((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 40514)] + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 41026)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 41538)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 42050)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 42562)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 43074)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 43586)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 44098)]);
      sums_0_ptr[3] = (((((((((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 40515)] + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 41027)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 41539)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 42051)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 42563)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 43075)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 43587)]) + ((float*)_ptr)[(((warp_id_in_cta * 128) + ((((int)threadIdx.x) & 31) * 4)) + 44099)]);
      int cse_v21 = ((((int)threadIdx.x) & 3) * 2);
      int lane_column = ((((int)threadIdx.x) & 3) * 2);
      int first_own_row = (((warp_id_in_cta >> 2) * 64) - 64);
      int cse_v22 = ((((int)threadIdx.x) & 31) >> 2);
      int cse_v36 = ((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 2));
      int cse_v41 = (((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 2)) - 64);
      int row = (((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 2)) - 64);
      int inside_row = (((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 2)) - 64);
      int cse_v42 = (((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 2)) - 56);
      int inside_row_1 = (((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 2)) - 56);
      int cse_v7 = (((int)tvm_builtin_cluster_ctaid_x()) * 8);
      int cse_v23 = ((warp_id_in_cta >> 2) * 7);
      int cse_v37 = (((warp_id_in_cta & 3) * 16) + ((((int)threadIdx.x) & 31) >> 2));
      int cse_v43 = ((((v_2 * 512) + ((((int)blockIdx.x) >> 3) * 64)) + (((int)tvm_builtin_cluster_ctaid_x()) * 8)) + ((((int)threadIdx.x) & 3) * 2));
      if (((((warp_id_in_cta >> 2) * 7) + ((((warp_id_in_cta & 3) * 16) + ((((int)threadIdx.x) & 31) >> 2)) / 7)) < 14) && ((((warp_id_in_cta & 3) * 16) + ((((int)threadIdx.x) & 31) >> 2)) < 49)) {
        int stored_column = ((((v_2 * 512) + ((((int)blockIdx.x) >> 3) * 64)) + (((int)tvm_builtin_cluster_ctaid_x()) * 8)) + ((((int)threadIdx.x) & 3) * 2));
        alignas(64) uint stored_pair_ptr[1];
        tvm_builtin_ptx_cvt_f16x2_f32_rn_f16x2_f32(stored_pair_ptr[0], max(sums_0_ptr[1], 0x0p+0f/*0.000000e+00*/), max(sums_0_ptr[0], 0x0p+0f/*0.000000e+00*/));
        tvm_builtin_ptx_st_global_b32((&(hidden_ptr[(((((((((warp_id_in_cta >> 2) * 25088) + ((warp_id_in_cta & 3) * 8192)) + (((((int)threadIdx.x) & 31) >> 2) * 512)) + (v_2 * 512)) + ((((int)blockIdx.x) >> 3) * 64)) + (((int)tvm_builtin_cluster_ctaid_x()) * 8)) + ((((int)threadIdx.x) & 3) * 2)) - 25088)])), stored_pair_ptr[0]);
      }
      int cse_v44 = ((((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 2)) + 8) & 63);
      if ((((((((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 2)) - 56) >> 6) * 7) + (((((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 2)) + 8) & 63) / 7)) < 7) && (((((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 2)) + 8) & 63) < 49)) {
        int stored_column_1 = ((((v_2 * 512) + ((((int)blockIdx.x) >> 3) * 64)) + (((int)tvm_builtin_cluster_ctaid_x()) * 8)) + ((((int)threadIdx.x) & 3) * 2));
        alignas(64) uint stored_pair_ptr_1[1];
        tvm_builtin_ptx_cvt_f16x2_f32_rn_f16x2_f32(stored_pair_ptr_1[0], max(sums_0_ptr[3], 0x0p+0f/*0.000000e+00*/), max(sums_0_ptr[2], 0x0p+0f/*0.000000e+00*/));
        tvm_builtin_ptx_st_global_b32((&(hidden_ptr[((((((min(((((((((warp_id_in_cta & 3) * 16) + ((((int)threadIdx.x) & 31) >> 2)) - 56) >> 6) * 7) + ((warp_id_in_cta >> 2) * 7)) + (((((warp_id_in_cta & 3) * 16) + ((((int)threadIdx.x) & 31) >> 2)) + 8) / 7)), 6) * 3584) + (v_2 * 512)) + ((((((warp_id_in_cta & 3) * 16) + ((((int)threadIdx.x) & 31) >> 2)) + 1) % 7) * 512)) + ((((int)blockIdx.x) >> 3) * 64)) + (((int)tvm_builtin_cluster_ctaid_x()) * 8)) + ((((int)threadIdx.x) & 3) * 2))])), stored_pair_ptr_1[0]);
      }
    }
    if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
      tvm_builtin_ptx_cp_async_bulk_wait_group_async_bulk_wait_group_0();
    }
    tvm_builtin_ptx_barrier_cluster_wait_cluster_wait_acquire();
  }
}
