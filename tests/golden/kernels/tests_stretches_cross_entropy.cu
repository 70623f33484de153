extern "C" __global__ void __launch_bounds__(256, 1) main_kernel(int* __restrict__ label_ptr, float* __restrict__ loss_ptr, nv_bfloat16* __restrict__ w_ptr, const __grid_constant__ CUtensorMap w_map, nv_bfloat16* __restrict__ x_ptr, const __grid_constant__ CUtensorMap x_map) {
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
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[3072]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[3073]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[3074]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[3075]))), (uint)1);
  }
  tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
  tvm_builtin_cuda_cta_sync();
  int cse_v27 = (((((0 - ((int)blockIdx.x)) + 3) / 3) - 1) + 2);
  if ((warp_id_in_cta >> 2) == 0) {
    tvm_builtin_ptx_setmaxnreg_dec_sync_aligned_u32_56();
    if (warp_id_in_cta == 0) {
      if (tvm_builtin_elect_one_sync_op()) {
        tvm_builtin_ptx_prefetch_tensormap(((void*)((unsigned long long)(&(x_map)))));
        tvm_builtin_ptx_prefetch_tensormap(((void*)((unsigned long long)(&(w_map)))));
        alignas(64) int produced_ptr[2];
        produced_ptr[0] = 0;
        produced_ptr[1] = 1;
        for (int v = 0; v < (((((0 - ((int)blockIdx.x)) + 3) / 3) - 1) + 2); ++v) {
          int cse_v22 = ((v * 3) + ((int)blockIdx.x));
          int share = ((v * 3) + ((int)blockIdx.x));
          int cse_v28 = (((v * 3) + ((int)blockIdx.x)) & 3);
          int index = (((v * 3) + ((int)blockIdx.x)) & 3);
          int band = 0;
          int height = 2;
          int inside = (((v * 3) + ((int)blockIdx.x)) & 3);
          int cse_v29 = (((v * 3) + ((int)blockIdx.x)) & 1);
          int cse_v33 = ((((v * 3) + ((int)blockIdx.x)) & 1) * 64);
          int first_row = ((((v * 3) + ((int)blockIdx.x)) & 1) * 64);
          int cse_v34 = ((((v * 3) + ((int)blockIdx.x)) & 3) >> 1);
          int stretch = ((((v * 3) + ((int)blockIdx.x)) & 3) >> 1);
          int row_tile = (((((v * 3) + ((int)blockIdx.x)) >> 2) * 2) + (((v * 3) + ((int)blockIdx.x)) & 1));
          int cse_v38 = (((((v * 3) + ((int)blockIdx.x)) & 3) >> 1) * 2);
          int start = (((((v * 3) + ((int)blockIdx.x)) & 3) >> 1) * 2);
          int cse_v50 = ((((((((v * 3) + ((int)blockIdx.x)) & 3) >> 1) * 5) + 5) >> 1) - (((((v * 3) + ((int)blockIdx.x)) & 3) >> 1) * 2));
          int count = ((((((((v * 3) + ((int)blockIdx.x)) & 3) >> 1) * 5) + 5) >> 1) - (((((v * 3) + ((int)blockIdx.x)) & 3) >> 1) * 2));
          for (int v_1 = 0; v_1 < ((((((((v * 3) + ((int)blockIdx.x)) & 3) >> 1) * 5) + 5) >> 1) - (((((v * 3) + ((int)blockIdx.x)) & 3) >> 1) * 2)); ++v_1) {
            int cse_v43 = ((((((v * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_1 * 32));
            int first_column = ((((((v * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_1 * 32));
            tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[(produced_ptr[0] + 3074)])), produced_ptr[1]);
            tvm_builtin_ptx_mbarrier_arrive_expect_tx_arrive_expect_tx_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 3072)]))), (uint)12288);
            tvm_builtin_ptx_cp_async_bulk_tensor_g2s_cluster_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes(tvm_builtin_cuda_cvta_generic_to_shared((&(((nv_bfloat16*)_ptr)[(produced_ptr[0] * 4096)]))), ((void*)((unsigned long long)(&(x_map)))), 0, ((((v * 3) + ((int)blockIdx.x)) & 1) * 64), tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 3072)]))));
            tvm_builtin_ptx_cp_async_bulk_tensor_g2s_cluster_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes(tvm_builtin_cuda_cvta_generic_to_shared((&(((nv_bfloat16*)_ptr)[((produced_ptr[0] * 2048) + 8192)]))), ((void*)((unsigned long long)(&(w_map)))), 0, ((((((v * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_1 * 32)), tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 3072)]))));
            produced_ptr[0] = (produced_ptr[0] + 1);
            if (produced_ptr[0] == 2) {
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
    alignas(64) float sums_0_ptr[16];
    alignas(64) uint64_t _ptr_1[1];
    ptx_wgmma_encode_matrix_descriptor((&(_ptr_1[0])), (&(((nv_bfloat16*)_ptr)[(((warp_id_in_cta >> 2) * 4096) - 4096)])), 1, 64, 3);
    alignas(64) uint64_t _ptr_2[1];
    ptx_wgmma_encode_matrix_descriptor((&(_ptr_2[0])), (&(((nv_bfloat16*)_ptr)[8192])), 1, 64, 3);
    alignas(64) int filled_ptr[2];
    filled_ptr[0] = 0;
    filled_ptr[1] = 0;
    alignas(64) int read_ptr[2];
    read_ptr[0] = 0;
    read_ptr[1] = 0;
    alignas(64) float row_max_0_of_0_0_ptr[1];
    alignas(64) float row_sum_0_of_0_0_ptr[1];
    alignas(64) float picked_0_of_0_0_ptr[1];
    alignas(64) float c_row_max_of_0_0_ptr[1];
    alignas(64) int count_of_0_0_ptr[1];
    alignas(64) float row_max_0_of_0_1_ptr[1];
    alignas(64) float row_sum_0_of_0_1_ptr[1];
    alignas(64) float picked_0_of_0_1_ptr[1];
    alignas(64) float c_row_max_of_0_1_ptr[1];
    alignas(64) int count_of_0_1_ptr[1];
    alignas(64) uint64_t home_set_ptr[1];
    if ((((warp_id_in_cta >> 2) == 1) && ((((int)threadIdx.x) % 32) == 0)) && ((warp_id_in_cta % 4) == 0)) {
      home_set_ptr[0] = main_request();
    }
    for (int v_2 = 0; v_2 < (((((0 - ((int)blockIdx.x)) + 3) / 3) - 1) + 2); ++v_2) {
      int cse_v23 = ((v_2 * 3) + ((int)blockIdx.x));
      int share_1 = ((v_2 * 3) + ((int)blockIdx.x));
      int cse_v30 = (((v_2 * 3) + ((int)blockIdx.x)) & 3);
      int index_1 = (((v_2 * 3) + ((int)blockIdx.x)) & 3);
      int band_1 = 0;
      int height_1 = 2;
      int inside_1 = (((v_2 * 3) + ((int)blockIdx.x)) & 3);
      int cse_v31 = (((v_2 * 3) + ((int)blockIdx.x)) & 1);
      int cse_v35 = ((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64);
      int first_row_1 = ((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64);
      int cse_v36 = ((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1);
      int stretch_1 = ((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1);
      int cse_v32 = (((v_2 * 3) + ((int)blockIdx.x)) >> 2);
      int cse_v37 = ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 2);
      int row_tile_1 = (((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 2) + (((v_2 * 3) + ((int)blockIdx.x)) & 1));
      int cse_v39 = (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 2);
      int start_1 = (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 2);
      int cse_v51 = ((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 5) + 5) >> 1) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 2));
      int count_1 = ((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 5) + 5) >> 1) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 2));
      for (int v_3 = 0; v_3 < ((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 5) + 5) >> 1) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 2)); ++v_3) {
        int cse_v44 = ((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32));
        int first_column_1 = ((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32));
        tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[(filled_ptr[0] + 3072)])), filled_ptr[1]);
        tvm_builtin_ptx_wgmma_fence_fence_sync_aligned();
        tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n32k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], (_ptr_1[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), (_ptr_2[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)256ULL)), (uint)0);
        tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n32k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], ((_ptr_1[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), ((_ptr_2[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)256ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n32k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], ((_ptr_1[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), ((_ptr_2[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)256ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n32k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], ((_ptr_1[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)512ULL)), ((_ptr_2[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)256ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_commit_group_commit_group_sync_aligned();
        filled_ptr[0] = (filled_ptr[0] + 1);
        if (filled_ptr[0] == 2) {
          filled_ptr[0] = 0;
          filled_ptr[1] = (filled_ptr[1] ^ 1);
        }
        tvm_builtin_ptx_wgmma_wait_group_wait_group_sync_aligned_0();
        if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
          tvm_builtin_ptx_mbarrier_arrive_arrive_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(read_ptr[0] + 3074)]))), (uint)1);
        }
        read_ptr[0] = (read_ptr[0] + 1);
        if (read_ptr[0] == 2) {
          read_ptr[0] = 0;
          read_ptr[1] = (read_ptr[1] ^ 1);
        }
        int cse_v4 = (warp_id_in_cta * 16);
        int cse_v24 = ((((int)threadIdx.x) & 31) >> 2);
        int own_row = (((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 2)) - 64);
        int cse_v5 = (((int)threadIdx.x) & 3);
        int cse_v25 = ((((int)threadIdx.x) & 3) * 2);
        int cse_v47 = (((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2));
        int lane_column = (((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2));
        if (v_3 == 0) {
          row_max_0_of_0_0_ptr[0] = -0x1.fffffep+127f/*-3.402823e+38*/;
          row_sum_0_of_0_0_ptr[0] = 0x0p+0f/*0.000000e+00*/;
          picked_0_of_0_0_ptr[0] = 0x0p+0f/*0.000000e+00*/;
          c_row_max_of_0_0_ptr[0] = 0x0p+0f/*0.000000e+00*/;
          count_of_0_0_ptr[0] = 0;
          row_max_0_of_0_1_ptr[0] = -0x1.fffffep+127f/*-3.402823e+38*/;
          row_sum_0_of_0_1_ptr[0] = 0x0p+0f/*0.000000e+00*/;
          picked_0_of_0_1_ptr[0] = 0x0p+0f/*0.000000e+00*/;
          c_row_max_of_0_1_ptr[0] = 0x0p+0f/*0.000000e+00*/;
          count_of_0_1_ptr[0] = 0;
        }
        int cse_v40 = (((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16));
        int cse_v45 = ((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2));
        int cse_v52 = min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64), 69);
        int row = min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64), 69);
        int cse_v6 = (v_3 * 4);
        int cse_v41 = (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 8);
        int cse_v53 = max(min(((((157 - ((((int)threadIdx.x) & 3) * 2)) >> 3) - (v_3 * 4)) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 8)), 4), 0);
        int cse_v54 = max(min(((((156 - ((((int)threadIdx.x) & 3) * 2)) >> 3) - (v_3 * 4)) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 8)), 4), 0);
        int cse_v58 = (max(min(((((157 - ((((int)threadIdx.x) & 3) * 2)) >> 3) - (v_3 * 4)) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 8)), 4), 0) + max(min(((((156 - ((((int)threadIdx.x) & 3) * 2)) >> 3) - (v_3 * 4)) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 8)), 4), 0));
        int existing = (max(min(((((157 - ((((int)threadIdx.x) & 3) * 2)) >> 3) - (v_3 * 4)) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 8)), 4), 0) + max(min(((((156 - ((((int)threadIdx.x) & 3) * 2)) >> 3) - (v_3 * 4)) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 8)), 4), 0));
        int count_before = count_of_0_0_ptr[0];
        int cse_v59 = (max(min(((((156 - ((((int)threadIdx.x) & 3) * 2)) >> 3) - (v_3 * 4)) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 8)), 4), 0) + max(min(((((157 - ((((int)threadIdx.x) & 3) * 2)) >> 3) - (v_3 * 4)) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 8)), 4), 0));
        count_of_0_0_ptr[0] = ((max(min(((((156 - ((((int)threadIdx.x) & 3) * 2)) >> 3) - (v_3 * 4)) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 8)), 4), 0) + max(min(((((157 - ((((int)threadIdx.x) & 3) * 2)) >> 3) - (v_3 * 4)) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 8)), 4), 0)) + count_before);
        alignas(64) float row_max_0_parts_ptr[4];
        row_max_0_parts_ptr[0] = -0x1.fffffep+127f/*-3.402823e+38*/;
        row_max_0_parts_ptr[1] = -0x1.fffffep+127f/*-3.402823e+38*/;
        row_max_0_parts_ptr[2] = -0x1.fffffep+127f/*-3.402823e+38*/;
        row_max_0_parts_ptr[3] = -0x1.fffffep+127f/*-3.402823e+38*/;
        float logits = sums_0_ptr[0];
        int cse_v48 = (((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3));
        row_max_0_parts_ptr[0] = max(row_max_0_parts_ptr[0], (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 75) ? logits : -0x1.fffffep+127f/*-3.402823e+38*/));
        float logits_1 = sums_0_ptr[1];
        row_max_0_parts_ptr[1] = max(row_max_0_parts_ptr[1], (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 75) ? logits_1 : -0x1.fffffep+127f/*-3.402823e+38*/));
        float logits_2 = sums_0_ptr[4];
        row_max_0_parts_ptr[2] = max(row_max_0_parts_ptr[2], (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 71) ? logits_2 : -0x1.fffffep+127f/*-3.402823e+38*/));
        float logits_3 = sums_0_ptr[5];
        row_max_0_parts_ptr[3] = max(row_max_0_parts_ptr[3], (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 71) ? logits_3 : -0x1.fffffep+127f/*-3.402823e+38*/));
        float logits_4 = sums_0_ptr[8];
        row_max_0_parts_ptr[0] = max(row_max_0_parts_ptr[0], (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 67) ? logits_4 : -0x1.fffffep+127f/*-3.402823e+38*/));
        float logits_5 = sums_0_ptr[9];
        row_max_0_parts_ptr[1] = max(row_max_0_parts_ptr[1], (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 67) ? logits_5 : -0x1.fffffep+127f/*-3.402823e+38*/));
        float logits_6 = sums_0_ptr[12];
        row_max_0_parts_ptr[2] = max(row_max_0_parts_ptr[2], (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 63) ? logits_6 : -0x1.fffffep+127f/*-3.402823e+38*/));
        float logits_7 = sums_0_ptr[13];
        row_max_0_parts_ptr[3] = max(row_max_0_parts_ptr[3], (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 63) ? logits_7 : -0x1.fffffep+127f/*-3.402823e+38*/));
        alignas(64) float row_max_0_chunk_ptr[1];
        row_max_0_chunk_ptr[0] = max(max(max(row_max_0_parts_ptr[0], row_max_0_parts_ptr[1]), row_max_0_parts_ptr[2]), row_max_0_parts_ptr[3]);
        row_max_0_of_0_0_ptr[0] = max(row_max_0_of_0_0_ptr[0], row_max_0_chunk_ptr[0]);
        float target = row_max_0_of_0_0_ptr[0];
        float moved = target;
        alignas(64) float step_c_row_max_ptr[1];
        step_c_row_max_ptr[0] = ((count_before == 0) ? 0x0p+0f/*0.000000e+00*/ : max(min((target - c_row_max_of_0_0_ptr[0]), 0x1p+8f/*2.560000e+02*/), -0x1p+8f/*-2.560000e+02*/));
        c_row_max_of_0_0_ptr[0] = target;
        alignas(64) float scale_c_row_max_0_ptr[1];
        scale_c_row_max_0_ptr[0] = expf((0x0p+0f/*0.000000e+00*/ - step_c_row_max_ptr[0]));
        alignas(64) float row_sum_0_parts_ptr[4];
        row_sum_0_parts_ptr[0] = 0x0p+0f/*0.000000e+00*/;
        row_sum_0_parts_ptr[1] = 0x0p+0f/*0.000000e+00*/;
        row_sum_0_parts_ptr[2] = 0x0p+0f/*0.000000e+00*/;
        row_sum_0_parts_ptr[3] = 0x0p+0f/*0.000000e+00*/;
        alignas(64) float picked_0_parts_ptr[4];
        picked_0_parts_ptr[0] = 0x0p+0f/*0.000000e+00*/;
        picked_0_parts_ptr[1] = 0x0p+0f/*0.000000e+00*/;
        picked_0_parts_ptr[2] = 0x0p+0f/*0.000000e+00*/;
        picked_0_parts_ptr[3] = 0x0p+0f/*0.000000e+00*/;
        float logits_8 = sums_0_ptr[0];
        int cse_v55 = min((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)), 149);
        float condval;
        if (label_ptr[min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64), 69)] == min((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)), 149)) {
          condval = sums_0_ptr[0];
        } else {
          condval = 0x0p+0f/*0.000000e+00*/;
        }
        float label_1 = condval;
        row_sum_0_parts_ptr[0] = (row_sum_0_parts_ptr[0] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 75) ? expf((logits_8 - c_row_max_of_0_0_ptr[0])) : 0x0p+0f/*0.000000e+00*/));
        picked_0_parts_ptr[0] = (picked_0_parts_ptr[0] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 75) ? label_1 : 0x0p+0f/*0.000000e+00*/));
        float logits_9 = sums_0_ptr[1];
        int cse_v60 = min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 1), 149);
        float condval_1;
        if (label_ptr[min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64), 69)] == min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 1), 149)) {
          condval_1 = sums_0_ptr[1];
        } else {
          condval_1 = 0x0p+0f/*0.000000e+00*/;
        }
        float label_1_1 = condval_1;
        row_sum_0_parts_ptr[1] = (row_sum_0_parts_ptr[1] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 75) ? expf((logits_9 - c_row_max_of_0_0_ptr[0])) : 0x0p+0f/*0.000000e+00*/));
        picked_0_parts_ptr[1] = (picked_0_parts_ptr[1] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 75) ? label_1_1 : 0x0p+0f/*0.000000e+00*/));
        float logits_10 = sums_0_ptr[4];
        int cse_v61 = min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 8), 149);
        float condval_2;
        if (label_ptr[min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64), 69)] == min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 8), 149)) {
          condval_2 = sums_0_ptr[4];
        } else {
          condval_2 = 0x0p+0f/*0.000000e+00*/;
        }
        float label_1_2 = condval_2;
        row_sum_0_parts_ptr[2] = (row_sum_0_parts_ptr[2] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 71) ? expf((logits_10 - c_row_max_of_0_0_ptr[0])) : 0x0p+0f/*0.000000e+00*/));
        picked_0_parts_ptr[2] = (picked_0_parts_ptr[2] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 71) ? label_1_2 : 0x0p+0f/*0.000000e+00*/));
        float logits_11 = sums_0_ptr[5];
        int cse_v62 = min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 9), 149);
        float condval_3;
        if (label_ptr[min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64), 69)] == min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 9), 149)) {
          condval_3 = sums_0_ptr[5];
        } else {
          condval_3 = 0x0p+0f/*0.000000e+00*/;
        }
        float label_1_3 = condval_3;
        row_sum_0_parts_ptr[3] = (row_sum_0_parts_ptr[3] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 71) ? expf((logits_11 - c_row_max_of_0_0_ptr[0])) : 0x0p+0f/*0.000000e+00*/));
        picked_0_parts_ptr[3] = (picked_0_parts_ptr[3] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 71) ? label_1_3 : 0x0p+0f/*0.000000e+00*/));
        float logits_12 = sums_0_ptr[8];
        int cse_v63 = min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 16), 149);
        float condval_4;
        if (label_ptr[min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64), 69)] == min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 16), 149)) {
          condval_4 = sums_0_ptr[8];
        } else {
          condval_4 = 0x0p+0f/*0.000000e+00*/;
        }
        float label_1_4 = condval_4;
        row_sum_0_parts_ptr[0] = (row_sum_0_parts_ptr[0] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 67) ? expf((logits_12 - c_row_max_of_0_0_ptr[0])) : 0x0p+0f/*0.000000e+00*/));
        picked_0_parts_ptr[0] = (picked_0_parts_ptr[0] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 67) ? label_1_4 : 0x0p+0f/*0.000000e+00*/));
        float logits_13 = sums_0_ptr[9];
        int cse_v64 = min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 17), 149);
        float condval_5;
        if (label_ptr[min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64), 69)] == min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 17), 149)) {
          condval_5 = sums_0_ptr[9];
        } else {
          condval_5 = 0x0p+0f/*0.000000e+00*/;
        }
        float label_1_5 = condval_5;
        row_sum_0_parts_ptr[1] = (row_sum_0_parts_ptr[1] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 67) ? expf((logits_13 - c_row_max_of_0_0_ptr[0])) : 0x0p+0f/*0.000000e+00*/));
        picked_0_parts_ptr[1] = (picked_0_parts_ptr[1] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 67) ? label_1_5 : 0x0p+0f/*0.000000e+00*/));
        float logits_14 = sums_0_ptr[12];
        int cse_v65 = min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 24), 149);
        float condval_6;
        if (label_ptr[min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64), 69)] == min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 24), 149)) {
          condval_6 = sums_0_ptr[12];
        } else {
          condval_6 = 0x0p+0f/*0.000000e+00*/;
        }
        float label_1_6 = condval_6;
        row_sum_0_parts_ptr[2] = (row_sum_0_parts_ptr[2] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 63) ? expf((logits_14 - c_row_max_of_0_0_ptr[0])) : 0x0p+0f/*0.000000e+00*/));
        picked_0_parts_ptr[2] = (picked_0_parts_ptr[2] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 63) ? label_1_6 : 0x0p+0f/*0.000000e+00*/));
        float logits_15 = sums_0_ptr[13];
        int cse_v66 = min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 25), 149);
        float condval_7;
        if (label_ptr[min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64), 69)] == min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 25), 149)) {
          condval_7 = sums_0_ptr[13];
        } else {
          condval_7 = 0x0p+0f/*0.000000e+00*/;
        }
        float label_1_7 = condval_7;
        row_sum_0_parts_ptr[3] = (row_sum_0_parts_ptr[3] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 63) ? expf((logits_15 - c_row_max_of_0_0_ptr[0])) : 0x0p+0f/*0.000000e+00*/));
        picked_0_parts_ptr[3] = (picked_0_parts_ptr[3] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 63) ? label_1_7 : 0x0p+0f/*0.000000e+00*/));
        alignas(64) float row_sum_0_chunk_ptr[1];
        row_sum_0_chunk_ptr[0] = (((row_sum_0_parts_ptr[0] + row_sum_0_parts_ptr[1]) + row_sum_0_parts_ptr[2]) + row_sum_0_parts_ptr[3]);
        alignas(64) float picked_0_chunk_ptr[1];
        picked_0_chunk_ptr[0] = (((picked_0_parts_ptr[0] + picked_0_parts_ptr[1]) + picked_0_parts_ptr[2]) + picked_0_parts_ptr[3]);
        row_sum_0_of_0_0_ptr[0] = ((row_sum_0_of_0_0_ptr[0] * scale_c_row_max_0_ptr[0]) + row_sum_0_chunk_ptr[0]);
        picked_0_of_0_0_ptr[0] = (picked_0_of_0_0_ptr[0] + picked_0_chunk_ptr[0]);
        int cse_v56 = min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 56), 69);
        int row_1 = min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 56), 69);
        int existing_1 = (max(min(((((157 - ((((int)threadIdx.x) & 3) * 2)) >> 3) - (v_3 * 4)) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 8)), 4), 0) + max(min(((((156 - ((((int)threadIdx.x) & 3) * 2)) >> 3) - (v_3 * 4)) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 8)), 4), 0));
        int count_before_1 = count_of_0_1_ptr[0];
        count_of_0_1_ptr[0] = ((max(min(((((156 - ((((int)threadIdx.x) & 3) * 2)) >> 3) - (v_3 * 4)) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 8)), 4), 0) + max(min(((((157 - ((((int)threadIdx.x) & 3) * 2)) >> 3) - (v_3 * 4)) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 8)), 4), 0)) + count_before_1);
        alignas(64) float row_max_0_parts_ptr_1[4];
        row_max_0_parts_ptr_1[0] = -0x1.fffffep+127f/*-3.402823e+38*/;
        row_max_0_parts_ptr_1[1] = -0x1.fffffep+127f/*-3.402823e+38*/;
        row_max_0_parts_ptr_1[2] = -0x1.fffffep+127f/*-3.402823e+38*/;
        row_max_0_parts_ptr_1[3] = -0x1.fffffep+127f/*-3.402823e+38*/;
        float logits_16 = sums_0_ptr[2];
        row_max_0_parts_ptr_1[0] = max(row_max_0_parts_ptr_1[0], (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 75) ? logits_16 : -0x1.fffffep+127f/*-3.402823e+38*/));
        float logits_17 = sums_0_ptr[3];
        row_max_0_parts_ptr_1[1] = max(row_max_0_parts_ptr_1[1], (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 75) ? logits_17 : -0x1.fffffep+127f/*-3.402823e+38*/));
        float logits_18 = sums_0_ptr[6];
        row_max_0_parts_ptr_1[2] = max(row_max_0_parts_ptr_1[2], (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 71) ? logits_18 : -0x1.fffffep+127f/*-3.402823e+38*/));
        float logits_19 = sums_0_ptr[7];
        row_max_0_parts_ptr_1[3] = max(row_max_0_parts_ptr_1[3], (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 71) ? logits_19 : -0x1.fffffep+127f/*-3.402823e+38*/));
        float logits_20 = sums_0_ptr[10];
        row_max_0_parts_ptr_1[0] = max(row_max_0_parts_ptr_1[0], (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 67) ? logits_20 : -0x1.fffffep+127f/*-3.402823e+38*/));
        float logits_21 = sums_0_ptr[11];
        row_max_0_parts_ptr_1[1] = max(row_max_0_parts_ptr_1[1], (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 67) ? logits_21 : -0x1.fffffep+127f/*-3.402823e+38*/));
        float logits_22 = sums_0_ptr[14];
        row_max_0_parts_ptr_1[2] = max(row_max_0_parts_ptr_1[2], (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 63) ? logits_22 : -0x1.fffffep+127f/*-3.402823e+38*/));
        float logits_23 = sums_0_ptr[15];
        row_max_0_parts_ptr_1[3] = max(row_max_0_parts_ptr_1[3], (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 63) ? logits_23 : -0x1.fffffep+127f/*-3.402823e+38*/));
        alignas(64) float row_max_0_chunk_ptr_1[1];
        row_max_0_chunk_ptr_1[0] = max(max(max(row_max_0_parts_ptr_1[0], row_max_0_parts_ptr_1[1]), row_max_0_parts_ptr_1[2]), row_max_0_parts_ptr_1[3]);
        row_max_0_of_0_1_ptr[0] = max(row_max_0_of_0_1_ptr[0], row_max_0_chunk_ptr_1[0]);
        float target_1 = row_max_0_of_0_1_ptr[0];
        float moved_1 = target_1;
        alignas(64) float step_c_row_max_ptr_1[1];
        step_c_row_max_ptr_1[0] = ((count_before_1 == 0) ? 0x0p+0f/*0.000000e+00*/ : max(min((target_1 - c_row_max_of_0_1_ptr[0]), 0x1p+8f/*2.560000e+02*/), -0x1p+8f/*-2.560000e+02*/));
        c_row_max_of_0_1_ptr[0] = target_1;
        alignas(64) float scale_c_row_max_0_ptr_1[1];
        scale_c_row_max_0_ptr_1[0] = expf((0x0p+0f/*0.000000e+00*/ - step_c_row_max_ptr_1[0]));
        alignas(64) float row_sum_0_parts_ptr_1[4];
        row_sum_0_parts_ptr_1[0] = 0x0p+0f/*0.000000e+00*/;
        row_sum_0_parts_ptr_1[1] = 0x0p+0f/*0.000000e+00*/;
        row_sum_0_parts_ptr_1[2] = 0x0p+0f/*0.000000e+00*/;
        row_sum_0_parts_ptr_1[3] = 0x0p+0f/*0.000000e+00*/;
        alignas(64) float picked_0_parts_ptr_1[4];
        picked_0_parts_ptr_1[0] = 0x0p+0f/*0.000000e+00*/;
        picked_0_parts_ptr_1[1] = 0x0p+0f/*0.000000e+00*/;
        picked_0_parts_ptr_1[2] = 0x0p+0f/*0.000000e+00*/;
        picked_0_parts_ptr_1[3] = 0x0p+0f/*0.000000e+00*/;
        float logits_24 = sums_0_ptr[2];
        float condval_8;
        if (label_ptr[min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 56), 69)] == min((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)), 149)) {
          condval_8 = sums_0_ptr[2];
        } else {
          condval_8 = 0x0p+0f/*0.000000e+00*/;
        }
        float label_1_8 = condval_8;
        row_sum_0_parts_ptr_1[0] = (row_sum_0_parts_ptr_1[0] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 75) ? expf((logits_24 - c_row_max_of_0_1_ptr[0])) : 0x0p+0f/*0.000000e+00*/));
        picked_0_parts_ptr_1[0] = (picked_0_parts_ptr_1[0] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 75) ? label_1_8 : 0x0p+0f/*0.000000e+00*/));
        float logits_25 = sums_0_ptr[3];
        float condval_9;
        if (label_ptr[min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 56), 69)] == min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 1), 149)) {
          condval_9 = sums_0_ptr[3];
        } else {
          condval_9 = 0x0p+0f/*0.000000e+00*/;
        }
        float label_1_9 = condval_9;
        row_sum_0_parts_ptr_1[1] = (row_sum_0_parts_ptr_1[1] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 75) ? expf((logits_25 - c_row_max_of_0_1_ptr[0])) : 0x0p+0f/*0.000000e+00*/));
        picked_0_parts_ptr_1[1] = (picked_0_parts_ptr_1[1] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 75) ? label_1_9 : 0x0p+0f/*0.000000e+00*/));
        float logits_26 = sums_0_ptr[6];
        float condval_10;
        if (label_ptr[min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 56), 69)] == min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 8), 149)) {
          condval_10 = sums_0_ptr[6];
        } else {
          condval_10 = 0x0p+0f/*0.000000e+00*/;
        }
        float label_1_10 = condval_10;
        row_sum_0_parts_ptr_1[2] = (row_sum_0_parts_ptr_1[2] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 71) ? expf((logits_26 - c_row_max_of_0_1_ptr[0])) : 0x0p+0f/*0.000000e+00*/));
        picked_0_parts_ptr_1[2] = (picked_0_parts_ptr_1[2] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 71) ? label_1_10 : 0x0p+0f/*0.000000e+00*/));
        float logits_27 = sums_0_ptr[7];
        float condval_11;
        if (label_ptr[min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 56), 69)] == min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 9), 149)) {
          condval_11 = sums_0_ptr[7];
        } else {
          condval_11 = 0x0p+0f/*0.000000e+00*/;
        }
        float label_1_11 = condval_11;
        row_sum_0_parts_ptr_1[3] = (row_sum_0_parts_ptr_1[3] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 71) ? expf((logits_27 - c_row_max_of_0_1_ptr[0])) : 0x0p+0f/*0.000000e+00*/));
        picked_0_parts_ptr_1[3] = (picked_0_parts_ptr_1[3] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 71) ? label_1_11 : 0x0p+0f/*0.000000e+00*/));
        float logits_28 = sums_0_ptr[10];
        float condval_12;
        if (label_ptr[min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 56), 69)] == min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 16), 149)) {
          condval_12 = sums_0_ptr[10];
        } else {
          condval_12 = 0x0p+0f/*0.000000e+00*/;
        }
        float label_1_12 = condval_12;
        row_sum_0_parts_ptr_1[0] = (row_sum_0_parts_ptr_1[0] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 67) ? expf((logits_28 - c_row_max_of_0_1_ptr[0])) : 0x0p+0f/*0.000000e+00*/));
        picked_0_parts_ptr_1[0] = (picked_0_parts_ptr_1[0] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 67) ? label_1_12 : 0x0p+0f/*0.000000e+00*/));
        float logits_29 = sums_0_ptr[11];
        float condval_13;
        if (label_ptr[min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 56), 69)] == min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 17), 149)) {
          condval_13 = sums_0_ptr[11];
        } else {
          condval_13 = 0x0p+0f/*0.000000e+00*/;
        }
        float label_1_13 = condval_13;
        row_sum_0_parts_ptr_1[1] = (row_sum_0_parts_ptr_1[1] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 67) ? expf((logits_29 - c_row_max_of_0_1_ptr[0])) : 0x0p+0f/*0.000000e+00*/));
        picked_0_parts_ptr_1[1] = (picked_0_parts_ptr_1[1] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 67) ? label_1_13 : 0x0p+0f/*0.000000e+00*/));
        float logits_30 = sums_0_ptr[14];
        float condval_14;
        if (label_ptr[min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 56), 69)] == min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 24), 149)) {
          condval_14 = sums_0_ptr[14];
        } else {
          condval_14 = 0x0p+0f/*0.000000e+00*/;
        }
        float label_1_14 = condval_14;
        row_sum_0_parts_ptr_1[2] = (row_sum_0_parts_ptr_1[2] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 63) ? expf((logits_30 - c_row_max_of_0_1_ptr[0])) : 0x0p+0f/*0.000000e+00*/));
        picked_0_parts_ptr_1[2] = (picked_0_parts_ptr_1[2] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 63) ? label_1_14 : 0x0p+0f/*0.000000e+00*/));
        float logits_31 = sums_0_ptr[15];
        float condval_15;
        if (label_ptr[min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 56), 69)] == min(((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 64) + (v_3 * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 25), 149)) {
          condval_15 = sums_0_ptr[15];
        } else {
          condval_15 = 0x0p+0f/*0.000000e+00*/;
        }
        float label_1_15 = condval_15;
        row_sum_0_parts_ptr_1[3] = (row_sum_0_parts_ptr_1[3] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 63) ? expf((logits_31 - c_row_max_of_0_1_ptr[0])) : 0x0p+0f/*0.000000e+00*/));
        picked_0_parts_ptr_1[3] = (picked_0_parts_ptr_1[3] + (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 32) + (v_3 * 16)) + (((int)threadIdx.x) & 3)) < 63) ? label_1_15 : 0x0p+0f/*0.000000e+00*/));
        alignas(64) float row_sum_0_chunk_ptr_1[1];
        row_sum_0_chunk_ptr_1[0] = (((row_sum_0_parts_ptr_1[0] + row_sum_0_parts_ptr_1[1]) + row_sum_0_parts_ptr_1[2]) + row_sum_0_parts_ptr_1[3]);
        alignas(64) float picked_0_chunk_ptr_1[1];
        picked_0_chunk_ptr_1[0] = (((picked_0_parts_ptr_1[0] + picked_0_parts_ptr_1[1]) + picked_0_parts_ptr_1[2]) + picked_0_parts_ptr_1[3]);
        row_sum_0_of_0_1_ptr[0] = ((row_sum_0_of_0_1_ptr[0] * scale_c_row_max_0_ptr_1[0]) + row_sum_0_chunk_ptr_1[0]);
        picked_0_of_0_1_ptr[0] = (picked_0_of_0_1_ptr[0] + picked_0_chunk_ptr_1[0]);
        if (v_3 == (((((((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 5) + 5) >> 1) - (((((v_2 * 3) + ((int)blockIdx.x)) & 3) >> 1) * 2)) - 1)) {
          int row_2 = min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64), 69);
          alignas(64) float row_max_0_whole_ptr[1];
          alignas(64) float row_sum_0_whole_ptr[1];
          alignas(64) float picked_0_whole_ptr[1];
          alignas(64) float c_row_max_whole_ptr[1];
          alignas(64) int count_whole_ptr[1];
          int own = count_of_0_0_ptr[0];
          int other = __shfl_xor_sync((uint)4294967295, own, 2, 32);
          int cse_v7 = (own + other);
          int own_1 = (own + other);
          int other_1 = __shfl_xor_sync((uint)4294967295, (own + other), 1, 32);
          count_whole_ptr[0] = ((own + other) + other_1);
          float own_2 = row_max_0_of_0_0_ptr[0];
          float other_2 = __shfl_xor_sync((uint)4294967295, own_2, 2, 32);
          float cse_v8 = max(own_2, other_2);
          float own_3 = max(own_2, other_2);
          float other_3 = __shfl_xor_sync((uint)4294967295, max(own_2, other_2), 1, 32);
          row_max_0_whole_ptr[0] = max(max(own_2, other_2), other_3);
          c_row_max_whole_ptr[0] = row_max_0_whole_ptr[0];
          float step = max(min((c_row_max_whole_ptr[0] - c_row_max_of_0_0_ptr[0]), 0x1p+8f/*2.560000e+02*/), -0x1p+8f/*-2.560000e+02*/);
          float cse_v9 = (0x0p+0f/*0.000000e+00*/ - step);
          float scale_c_row_max_0 = expf((0x0p+0f/*0.000000e+00*/ - step));
          float own_4 = ((count_of_0_0_ptr[0] == 0) ? 0x0p+0f/*0.000000e+00*/ : (row_sum_0_of_0_0_ptr[0] * expf((0x0p+0f/*0.000000e+00*/ - step))));
          float other_4 = __shfl_xor_sync((uint)4294967295, own_4, 2, 32);
          float cse_v10 = (own_4 + other_4);
          float own_5 = (own_4 + other_4);
          float other_5 = __shfl_xor_sync((uint)4294967295, (own_4 + other_4), 1, 32);
          row_sum_0_whole_ptr[0] = ((own_4 + other_4) + other_5);
          float own_6 = picked_0_of_0_0_ptr[0];
          float other_6 = __shfl_xor_sync((uint)4294967295, own_6, 2, 32);
          float cse_v11 = (own_6 + other_6);
          float own_7 = (own_6 + other_6);
          float other_7 = __shfl_xor_sync((uint)4294967295, (own_6 + other_6), 1, 32);
          picked_0_whole_ptr[0] = ((own_6 + other_6) + other_7);
          row_max_0_of_0_0_ptr[0] = row_max_0_whole_ptr[0];
          row_sum_0_of_0_0_ptr[0] = row_sum_0_whole_ptr[0];
          picked_0_of_0_0_ptr[0] = picked_0_whole_ptr[0];
          c_row_max_of_0_0_ptr[0] = c_row_max_whole_ptr[0];
          count_of_0_0_ptr[0] = count_whole_ptr[0];
          int row_3 = min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 56), 69);
          alignas(64) float row_max_0_whole_ptr_1[1];
          alignas(64) float row_sum_0_whole_ptr_1[1];
          alignas(64) float picked_0_whole_ptr_1[1];
          alignas(64) float c_row_max_whole_ptr_1[1];
          alignas(64) int count_whole_ptr_1[1];
          int own_8 = count_of_0_1_ptr[0];
          int other_8 = __shfl_xor_sync((uint)4294967295, own_8, 2, 32);
          int cse_v12 = (own_8 + other_8);
          int own_9 = (own_8 + other_8);
          int other_9 = __shfl_xor_sync((uint)4294967295, (own_8 + other_8), 1, 32);
          count_whole_ptr_1[0] = ((own_8 + other_8) + other_9);
          float own_10 = row_max_0_of_0_1_ptr[0];
          float other_10 = __shfl_xor_sync((uint)4294967295, own_10, 2, 32);
          float cse_v13 = max(own_10, other_10);
          float own_11 = max(own_10, other_10);
          float other_11 = __shfl_xor_sync((uint)4294967295, max(own_10, other_10), 1, 32);
          row_max_0_whole_ptr_1[0] = max(max(own_10, other_10), other_11);
          c_row_max_whole_ptr_1[0] = row_max_0_whole_ptr_1[0];
          float step_1 = max(min((c_row_max_whole_ptr_1[0] - c_row_max_of_0_1_ptr[0]), 0x1p+8f/*2.560000e+02*/), -0x1p+8f/*-2.560000e+02*/);
          float cse_v14 = (0x0p+0f/*0.000000e+00*/ - step_1);
          float scale_c_row_max_0_1 = expf((0x0p+0f/*0.000000e+00*/ - step_1));
          float own_12 = ((count_of_0_1_ptr[0] == 0) ? 0x0p+0f/*0.000000e+00*/ : (row_sum_0_of_0_1_ptr[0] * expf((0x0p+0f/*0.000000e+00*/ - step_1))));
          float other_12 = __shfl_xor_sync((uint)4294967295, own_12, 2, 32);
          float cse_v15 = (own_12 + other_12);
          float own_13 = (own_12 + other_12);
          float other_13 = __shfl_xor_sync((uint)4294967295, (own_12 + other_12), 1, 32);
          row_sum_0_whole_ptr_1[0] = ((own_12 + other_12) + other_13);
          float own_14 = picked_0_of_0_1_ptr[0];
          float other_14 = __shfl_xor_sync((uint)4294967295, own_14, 2, 32);
          float cse_v16 = (own_14 + other_14);
          float own_15 = (own_14 + other_14);
          float other_15 = __shfl_xor_sync((uint)4294967295, (own_14 + other_14), 1, 32);
          picked_0_whole_ptr_1[0] = ((own_14 + other_14) + other_15);
          row_max_0_of_0_1_ptr[0] = row_max_0_whole_ptr_1[0];
          row_sum_0_of_0_1_ptr[0] = row_sum_0_whole_ptr_1[0];
          picked_0_of_0_1_ptr[0] = picked_0_whole_ptr_1[0];
          c_row_max_of_0_1_ptr[0] = c_row_max_whole_ptr_1[0];
          count_of_0_1_ptr[0] = count_whole_ptr_1[0];
          if ((((warp_id_in_cta >> 2) == 1) && ((((int)threadIdx.x) % 32) == 0)) && ((warp_id_in_cta % 4) == 0)) {
            ((int*)_ptr)[6152] = main_obtain(home_set_ptr[0]);
          }
          tvm_builtin_ptx_bar_sync_count_sync((uint)7, (uint)128);
          int set_of_states = ((int*)_ptr)[6152];
          int first_row_of_all = (((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 128) + ((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64));
          int cse_v17 = (warp_id_in_cta * 80);
          int cse_v42 = ((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640));
          if ((((int)threadIdx.x) % 4) == 0) {
            int cse_v57 = (((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 3) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 2) * 5));
              float v_ = row_max_0_of_0_0_ptr[0];
            main_put(((((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 3) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 2) * 5)) - 320), ((uint64_t)(*(uint *)(&(v_)))));
              float v__1 = row_sum_0_of_0_0_ptr[0];
            main_put(((((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 3) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 2) * 5)) - 319), ((uint64_t)(*(uint *)(&(v__1)))));
              float v__2 = picked_0_of_0_0_ptr[0];
            main_put(((((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 3) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 2) * 5)) - 318), ((uint64_t)(*(uint *)(&(v__2)))));
              float v__3 = c_row_max_of_0_0_ptr[0];
            main_put(((((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 3) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 2) * 5)) - 317), ((uint64_t)(*(uint *)(&(v__3)))));
            main_put(((((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 3) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 2) * 5)) - 316), ((uint64_t)count_of_0_0_ptr[0]));
              float v__4 = row_max_0_of_0_1_ptr[0];
            main_put(((((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 3) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 2) * 5)) - 280), ((uint64_t)(*(uint *)(&(v__4)))));
              float v__5 = row_sum_0_of_0_1_ptr[0];
            main_put(((((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 3) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 2) * 5)) - 279), ((uint64_t)(*(uint *)(&(v__5)))));
              float v__6 = picked_0_of_0_1_ptr[0];
            main_put(((((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 3) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 2) * 5)) - 278), ((uint64_t)(*(uint *)(&(v__6)))));
              float v__7 = c_row_max_of_0_1_ptr[0];
            main_put(((((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 3) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 2) * 5)) - 277), ((uint64_t)(*(uint *)(&(v__7)))));
            main_put(((((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 3) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 2) * 5)) - 276), ((uint64_t)count_of_0_1_ptr[0]));
          }
          tvm_builtin_ptx_bar_sync_count_sync((uint)7, (uint)128);
          if ((((warp_id_in_cta >> 2) == 1) && ((((int)threadIdx.x) % 32) == 0)) && ((warp_id_in_cta % 4) == 0)) {
            ((int*)_ptr)[6153] = main_arrive((((set_of_states * 128) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 2)) + (((v_2 * 3) + ((int)blockIdx.x)) & 1)));
          }
          tvm_builtin_ptx_bar_sync_count_sync((uint)7, (uint)128);
          if (((int*)_ptr)[6153] != 0) {
            int thread_of_all = (((warp_id_in_cta * 32) + (((int)threadIdx.x) & 31)) - 128);
            int cse_v18 = (((int)threadIdx.x) & 1);
            int member = (((int)threadIdx.x) & 1);
            int cse_v26 = ((((int)threadIdx.x) & 31) >> 1);
            int merged_row = (((warp_id_in_cta * 16) + ((((int)threadIdx.x) & 31) >> 1)) - 64);
            int cse_v46 = ((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 1));
            int cse_v49 = (((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 1)) - 64);
            int row_4 = min((((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 1)) - 64), 69);
            alignas(64) float row_max_0_merged_ptr[1];
            alignas(64) float row_sum_0_merged_ptr[1];
            alignas(64) float picked_0_merged_ptr[1];
            alignas(64) float c_row_max_merged_ptr[1];
            alignas(64) int count_merged_ptr[1];
            row_max_0_merged_ptr[0] = -0x1.fffffep+127f/*-3.402823e+38*/;
            row_sum_0_merged_ptr[0] = 0x0p+0f/*0.000000e+00*/;
            picked_0_merged_ptr[0] = 0x0p+0f/*0.000000e+00*/;
            c_row_max_merged_ptr[0] = 0x0p+0f/*0.000000e+00*/;
            count_merged_ptr[0] = 0;
            alignas(64) float row_max_0_other_0_ptr[1];
            alignas(64) float row_sum_0_other_0_ptr[1];
            alignas(64) float picked_0_other_0_ptr[1];
            alignas(64) float c_row_max_other_0_ptr[1];
            alignas(64) int count_other_0_ptr[1];
            int number = (((int)threadIdx.x) & 1);
            row_max_0_other_0_ptr[0] = -0x1.fffffep+127f/*-3.402823e+38*/;
            row_sum_0_other_0_ptr[0] = 0x0p+0f/*0.000000e+00*/;
            picked_0_other_0_ptr[0] = 0x0p+0f/*0.000000e+00*/;
            c_row_max_other_0_ptr[0] = 0x0p+0f/*0.000000e+00*/;
            count_other_0_ptr[0] = 0;
            int cse_v67 = ((((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((int)threadIdx.x) & 1) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 1) * 5));
              uint v__8 = (uint)main_get((((((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((int)threadIdx.x) & 1) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 1) * 5)) - 320));
            row_max_0_other_0_ptr[0] = (*(float *)(&(v__8)));
              uint v__9 = (uint)main_get((((((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((int)threadIdx.x) & 1) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 1) * 5)) - 319));
            row_sum_0_other_0_ptr[0] = (*(float *)(&(v__9)));
              uint v__10 = (uint)main_get((((((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((int)threadIdx.x) & 1) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 1) * 5)) - 318));
            picked_0_other_0_ptr[0] = (*(float *)(&(v__10)));
              uint v__11 = (uint)main_get((((((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((int)threadIdx.x) & 1) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 1) * 5)) - 317));
            c_row_max_other_0_ptr[0] = (*(float *)(&(v__11)));
            count_other_0_ptr[0] = ((int)main_get((((((((set_of_states * 1280) + ((((v_2 * 3) + ((int)blockIdx.x)) >> 2) * 640)) + ((((int)threadIdx.x) & 1) * 640)) + ((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 320)) + (warp_id_in_cta * 80)) + (((((int)threadIdx.x) & 31) >> 1) * 5)) - 316)));
            alignas(64) float row_max_0_whole_ptr_2[1];
            alignas(64) float row_sum_0_whole_ptr_2[1];
            alignas(64) float picked_0_whole_ptr_2[1];
            alignas(64) float c_row_max_whole_ptr_2[1];
            alignas(64) int count_whole_ptr_2[1];
            count_whole_ptr_2[0] = (count_merged_ptr[0] + count_other_0_ptr[0]);
            row_max_0_whole_ptr_2[0] = max(row_max_0_merged_ptr[0], row_max_0_other_0_ptr[0]);
            c_row_max_whole_ptr_2[0] = row_max_0_whole_ptr_2[0];
            float step_2 = max(min((c_row_max_whole_ptr_2[0] - c_row_max_merged_ptr[0]), 0x1p+8f/*2.560000e+02*/), -0x1p+8f/*-2.560000e+02*/);
            float step_3 = max(min((c_row_max_whole_ptr_2[0] - c_row_max_other_0_ptr[0]), 0x1p+8f/*2.560000e+02*/), -0x1p+8f/*-2.560000e+02*/);
            float cse_v19 = (0x0p+0f/*0.000000e+00*/ - step_2);
            float scale_c_row_max_0_2 = expf((0x0p+0f/*0.000000e+00*/ - step_2));
            float cse_v20 = (0x0p+0f/*0.000000e+00*/ - step_3);
            float scale_c_row_max_0_3 = expf((0x0p+0f/*0.000000e+00*/ - step_3));
            row_sum_0_whole_ptr_2[0] = (((count_merged_ptr[0] == 0) ? 0x0p+0f/*0.000000e+00*/ : (row_sum_0_merged_ptr[0] * expf((0x0p+0f/*0.000000e+00*/ - step_2)))) + ((count_other_0_ptr[0] == 0) ? 0x0p+0f/*0.000000e+00*/ : (row_sum_0_other_0_ptr[0] * expf((0x0p+0f/*0.000000e+00*/ - step_3)))));
            picked_0_whole_ptr_2[0] = (picked_0_merged_ptr[0] + picked_0_other_0_ptr[0]);
            row_max_0_merged_ptr[0] = row_max_0_whole_ptr_2[0];
            row_sum_0_merged_ptr[0] = row_sum_0_whole_ptr_2[0];
            picked_0_merged_ptr[0] = picked_0_whole_ptr_2[0];
            c_row_max_merged_ptr[0] = c_row_max_whole_ptr_2[0];
            count_merged_ptr[0] = count_whole_ptr_2[0];
            alignas(64) float row_max_0_whole_ptr_3[1];
            alignas(64) float row_sum_0_whole_ptr_3[1];
            alignas(64) float picked_0_whole_ptr_3[1];
            alignas(64) float c_row_max_whole_ptr_3[1];
            alignas(64) int count_whole_ptr_3[1];
            int own_16 = count_merged_ptr[0];
            int other_16 = __shfl_xor_sync((uint)4294967295, own_16, 1, 32);
            count_whole_ptr_3[0] = (own_16 + other_16);
            float own_17 = row_max_0_merged_ptr[0];
            float other_17 = __shfl_xor_sync((uint)4294967295, own_17, 1, 32);
            row_max_0_whole_ptr_3[0] = max(own_17, other_17);
            c_row_max_whole_ptr_3[0] = row_max_0_whole_ptr_3[0];
            float step_4 = max(min((c_row_max_whole_ptr_3[0] - c_row_max_merged_ptr[0]), 0x1p+8f/*2.560000e+02*/), -0x1p+8f/*-2.560000e+02*/);
            float cse_v21 = (0x0p+0f/*0.000000e+00*/ - step_4);
            float scale_c_row_max_0_4 = expf((0x0p+0f/*0.000000e+00*/ - step_4));
            float own_18 = ((count_merged_ptr[0] == 0) ? 0x0p+0f/*0.000000e+00*/ : (row_sum_0_merged_ptr[0] * expf((0x0p+0f/*0.000000e+00*/ - step_4))));
            float other_18 = __shfl_xor_sync((uint)4294967295, own_18, 1, 32);
            row_sum_0_whole_ptr_3[0] = (own_18 + other_18);
            float own_19 = picked_0_merged_ptr[0];
            float other_19 = __shfl_xor_sync((uint)4294967295, own_19, 1, 32);
            picked_0_whole_ptr_3[0] = (own_19 + other_19);
            row_max_0_merged_ptr[0] = row_max_0_whole_ptr_3[0];
            row_sum_0_merged_ptr[0] = row_sum_0_whole_ptr_3[0];
            picked_0_merged_ptr[0] = picked_0_whole_ptr_3[0];
            c_row_max_merged_ptr[0] = c_row_max_whole_ptr_3[0];
            count_merged_ptr[0] = count_whole_ptr_3[0];
            if (((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 1)) <= 133) {
              float row_max = row_max_0_merged_ptr[0];
              float row_sum = row_sum_0_merged_ptr[0];
              float picked = picked_0_merged_ptr[0];
              if ((((int)threadIdx.x) % 2) == 0) {
                loss_ptr[(((((((v_2 * 3) + ((int)blockIdx.x)) & 1) * 64) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 1)) - 64)] = ((logf(row_sum) + row_max) - picked);
              }
            }
          }
        }
      }
    }
    tvm_builtin_ptx_bar_sync_count_sync((uint)7, (uint)128);
    if ((((warp_id_in_cta >> 2) == 1) && ((((int)threadIdx.x) % 32) == 0)) && ((warp_id_in_cta % 4) == 0)) {
      main_release(main_obtain(home_set_ptr[0]));
    }
  }
}
