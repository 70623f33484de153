extern "C" __global__ void __launch_bounds__(256, 1) main_kernel(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, const __grid_constant__ CUtensorMap out_map) {
  int warp_id_in_cta = __shfl_sync((uint)4294967295, (((int)threadIdx.x) >> 5), 0, 32);
  int block = ((int)blockIdx.x);
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
  }
  tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
  tvm_builtin_cuda_cta_sync();
  int cse_v7 = ((191 - ((int)blockIdx.x)) / 96);
  int cse_v9 = ((((int)blockIdx.x) & 7) * 64);
  int cse_v10 = ((((int)blockIdx.x) >> 3) * 64);
  if ((warp_id_in_cta >> 2) == 0) {
    tvm_builtin_ptx_setmaxnreg_dec_sync_aligned_u32_56();
    if (warp_id_in_cta == 0) {
      if (tvm_builtin_elect_one_sync_op()) {
        tvm_builtin_ptx_prefetch_tensormap(((void*)((unsigned long long)(&(a_map)))));
        tvm_builtin_ptx_prefetch_tensormap(((void*)((unsigned long long)(&(b_map)))));
        tvm_builtin_ptx_prefetch_tensormap(((void*)((unsigned long long)(&(out_map)))));
        alignas(64) int produced_ptr[2];
        produced_ptr[0] = 0;
        produced_ptr[1] = 1;
        for (int v = 0; v < ((191 - ((int)blockIdx.x)) / 96); ++v) {
          int cse_v8 = ((v * 96) + ((int)blockIdx.x));
          int share = ((v * 96) + ((int)blockIdx.x));
          int index = ((v * 96) + ((int)blockIdx.x));
          int band = 0;
          int height = 8;
          int inside = ((v * 96) + ((int)blockIdx.x));
          int first_row = ((((int)blockIdx.x) & 7) * 64);
          int cse_v14 = ((v * 768) + ((((int)blockIdx.x) >> 3) * 64));
          int first_column = ((v * 768) + ((((int)blockIdx.x) >> 3) * 64));
          for (int v_1 = 0; v_1 < 4; ++v_1) {
            tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[(produced_ptr[0] + 20490)])), produced_ptr[1]);
            tvm_builtin_ptx_mbarrier_arrive_expect_tx_arrive_expect_tx_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 20480)]))), (uint)16384);
            int cse_v4 = (v_1 * 64);
            tvm_builtin_ptx_cp_async_bulk_tensor_g2s_cluster_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes(tvm_builtin_cuda_cvta_generic_to_shared((&(((nv_bfloat16*)_ptr)[(produced_ptr[0] * 4096)]))), ((void*)((unsigned long long)(&(a_map)))), (v_1 * 64), ((((int)blockIdx.x) & 7) * 64), tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 20480)]))));
            tvm_builtin_ptx_cp_async_bulk_tensor_g2s_cluster_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes(tvm_builtin_cuda_cvta_generic_to_shared((&(((nv_bfloat16*)_ptr)[((produced_ptr[0] * 4096) + 40960)]))), ((void*)((unsigned long long)(&(b_map)))), ((v * 768) + ((((int)blockIdx.x) >> 3) * 64)), (v_1 * 64), tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 20480)]))));
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
    ptx_wgmma_encode_matrix_descriptor((&(_ptr_1[0])), (&(((nv_bfloat16*)_ptr)[(((warp_id_in_cta >> 2) * 4096) - 4096)])), 1, 64, 3);
    alignas(64) uint64_t _ptr_2[1];
    ptx_wgmma_encode_matrix_descriptor((&(_ptr_2[0])), (&(((nv_bfloat16*)_ptr)[40960])), 512, 64, 3);
    alignas(64) int filled_ptr[2];
    filled_ptr[0] = 0;
    filled_ptr[1] = 0;
    alignas(64) int read_ptr[2];
    read_ptr[0] = 0;
    read_ptr[1] = 0;
    for (int v_2 = 0; v_2 < ((191 - ((int)blockIdx.x)) / 96); ++v_2) {
      int cse_v11 = ((v_2 * 96) + ((int)blockIdx.x));
      int share_1 = ((v_2 * 96) + ((int)blockIdx.x));
      int index_1 = ((v_2 * 96) + ((int)blockIdx.x));
      int band_1 = 0;
      int height_1 = 8;
      int inside_1 = ((v_2 * 96) + ((int)blockIdx.x));
      int first_row_1 = ((((int)blockIdx.x) & 7) * 64);
      int cse_v15 = ((v_2 * 768) + ((((int)blockIdx.x) >> 3) * 64));
      int first_column_1 = ((v_2 * 768) + ((((int)blockIdx.x) >> 3) * 64));
      tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[(filled_ptr[0] + 20480)])), filled_ptr[1]);
      tvm_builtin_ptx_wgmma_fence_fence_sync_aligned();
      tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n64k16_f32_bf16_bf16_1_1_0_1(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], (_ptr_1[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (_ptr_2[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (uint)0);
      tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n64k16_f32_bf16_bf16_1_1_0_1(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], ((_ptr_1[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), ((_ptr_2[0] + (uint64_t)128ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (uint)1);
      tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n64k16_f32_bf16_bf16_1_1_0_1(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], ((_ptr_1[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), ((_ptr_2[0] + (uint64_t)256ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (uint)1);
      tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n64k16_f32_bf16_bf16_1_1_0_1(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], ((_ptr_1[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), ((_ptr_2[0] + (uint64_t)384ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (uint)1);
      tvm_builtin_ptx_wgmma_commit_group_commit_group_sync_aligned();
      filled_ptr[0] = (filled_ptr[0] + 1);
      if (filled_ptr[0] == 10) {
        filled_ptr[0] = 0;
        filled_ptr[1] = (filled_ptr[1] ^ 1);
      }
      for (int v_3 = 0; v_3 < 3; ++v_3) {
        tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[(filled_ptr[0] + 20480)])), filled_ptr[1]);
        tvm_builtin_ptx_wgmma_fence_fence_sync_aligned();
        tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n64k16_f32_bf16_bf16_1_1_0_1(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], (_ptr_1[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (_ptr_2[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n64k16_f32_bf16_bf16_1_1_0_1(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], ((_ptr_1[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), ((_ptr_2[0] + (uint64_t)128ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n64k16_f32_bf16_bf16_1_1_0_1(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], ((_ptr_1[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), ((_ptr_2[0] + (uint64_t)256ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n64k16_f32_bf16_bf16_1_1_0_1(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], ((_ptr_1[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), ((_ptr_2[0] + (uint64_t)384ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (uint)1);
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
      int lane_column = ((((int)threadIdx.x) & 3) * 2);
      int cse_v17 = ((((warp_id_in_cta >> 2) * 64) + ((((int)blockIdx.x) & 7) * 64)) - 64);
      int first_own_row = ((((warp_id_in_cta >> 2) * 64) + ((((int)blockIdx.x) & 7) * 64)) - 64);
      int cse_v18 = ((((((int)blockIdx.x) & 7) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2));
      int cse_v20 = (((((((int)blockIdx.x) & 7) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64);
      int row = (((((((int)blockIdx.x) & 7) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64);
      int inside_row = min((((((((int)blockIdx.x) & 7) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64), 511);
      int inside_row_1 = min((((((((int)blockIdx.x) & 7) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 56), 511);
      int cse_v5 = (((int)threadIdx.x) & 15);
      int stored_row = (((warp_id_in_cta & 3) * 16) + (((int)threadIdx.x) & 15));
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_cp_async_bulk_wait_group_async_bulk_wait_group_read_0();
      }
      uint cse_v16 = ((uint)((warp_id_in_cta >> 2) + 7));
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      alignas(64) uint stored_ptr[4];
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[0], sums_0_ptr[1], sums_0_ptr[0]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[1], sums_0_ptr[3], sums_0_ptr[2]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[2], sums_0_ptr[5], sums_0_ptr[4]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[3], sums_0_ptr[7], sums_0_ptr[6]);
      int cse_v6 = (((int)threadIdx.x) & 7);
      int cse_v12 = ((warp_id_in_cta >> 2) * 8192);
      int cse_v13 = ((((int)threadIdx.x) & 31) >> 4);
      int cse_v19 = ((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64));
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + ((((((int)threadIdx.x) & 31) >> 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 74240)]))), stored_ptr[0], stored_ptr[1], stored_ptr[2], stored_ptr[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[0], sums_0_ptr[9], sums_0_ptr[8]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[1], sums_0_ptr[11], sums_0_ptr[10]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[2], sums_0_ptr[13], sums_0_ptr[12]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[3], sums_0_ptr[15], sums_0_ptr[14]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 2) ^ (((int)threadIdx.x) & 7)) * 8)) + 74240)]))), stored_ptr[0], stored_ptr[1], stored_ptr[2], stored_ptr[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[0], sums_0_ptr[17], sums_0_ptr[16]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[1], sums_0_ptr[19], sums_0_ptr[18]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[2], sums_0_ptr[21], sums_0_ptr[20]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[3], sums_0_ptr[23], sums_0_ptr[22]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 74240)]))), stored_ptr[0], stored_ptr[1], stored_ptr[2], stored_ptr[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[0], sums_0_ptr[25], sums_0_ptr[24]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[1], sums_0_ptr[27], sums_0_ptr[26]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[2], sums_0_ptr[29], sums_0_ptr[28]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[3], sums_0_ptr[31], sums_0_ptr[30]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 6) ^ (((int)threadIdx.x) & 7)) * 8)) + 74240)]))), stored_ptr[0], stored_ptr[1], stored_ptr[2], stored_ptr[3]);
      tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_cp_async_bulk_tensor_s2g_async_bulk_tensor_2d_global_shared__cta_tile_bulk_group(((void*)((unsigned long long)(&(out_map)))), ((v_2 * 768) + ((((int)blockIdx.x) >> 3) * 64)), ((((warp_id_in_cta >> 2) * 64) + ((((int)blockIdx.x) & 7) * 64)) - 64), tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[(((warp_id_in_cta >> 2) * 8192) + 74240)]))));
        tvm_builtin_ptx_cp_async_bulk_commit_group_async_bulk_commit_group();
      }
    }
    if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
      tvm_builtin_ptx_cp_async_bulk_wait_group_async_bulk_wait_group_0();
    }
  }
}
