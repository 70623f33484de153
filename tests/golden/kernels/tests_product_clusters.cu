extern "C" __global__ void __launch_bounds__(384, 1) main_kernel(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, const __grid_constant__ CUtensorMap out_map) {
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
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[24576]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[24577]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[24578]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[24579]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[24580]))), (uint)4);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[24581]))), (uint)4);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[24582]))), (uint)4);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[24583]))), (uint)4);
  }
  tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
  tvm_builtin_ptx_fence_mbarrier_init_mbarrier_init_release_cluster();
  tvm_builtin_ptx_barrier_cluster_arrive_cluster_arrive_release();
  tvm_builtin_ptx_barrier_cluster_wait_cluster_wait_acquire();
  int cse_v4 = (((int)blockIdx.x) >> 1);
  int cse_v5 = (((int)tvm_builtin_cluster_ctaid_x()) * 128);
  int cse_v10 = ((((int)blockIdx.x) >> 2) * 256);
  int cse_v14 = ((7 - (((int)blockIdx.x) >> 1)) >> 2);
  int cse_v20 = ((((((int)blockIdx.x) & 3) >> 1) * 256) + (((int)tvm_builtin_cluster_ctaid_x()) * 128));
  if ((warp_id_in_cta >> 2) == 0) {
    tvm_builtin_ptx_setmaxnreg_dec_sync_aligned_u32_40();
    if (warp_id_in_cta == 0) {
      if (tvm_builtin_elect_one_sync_op()) {
        tvm_builtin_ptx_prefetch_tensormap(((void*)((unsigned long long)(&(a_map)))));
        tvm_builtin_ptx_prefetch_tensormap(((void*)((unsigned long long)(&(b_map)))));
        tvm_builtin_ptx_prefetch_tensormap(((void*)((unsigned long long)(&(out_map)))));
        alignas(64) int produced_ptr[2];
        produced_ptr[0] = 0;
        produced_ptr[1] = 1;
        for (int v = 0; v < ((7 - (((int)blockIdx.x) >> 1)) >> 2); ++v) {
          int cse_v9 = ((v * 4) + (((int)blockIdx.x) >> 1));
          int share = ((v * 4) + (((int)blockIdx.x) >> 1));
          int index = ((v * 4) + (((int)blockIdx.x) >> 1));
          int band = 0;
          int height = 2;
          int inside = ((v * 4) + (((int)blockIdx.x) >> 1));
          int first_row = ((((((int)blockIdx.x) & 3) >> 1) * 256) + (((int)tvm_builtin_cluster_ctaid_x()) * 128));
          int cse_v15 = ((v * 512) + ((((int)blockIdx.x) >> 2) * 256));
          int first_column = ((v * 512) + ((((int)blockIdx.x) >> 2) * 256));
          for (int v_1 = 0; v_1 < 8; ++v_1) {
            tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[(produced_ptr[0] + 24580)])), produced_ptr[1]);
            tvm_builtin_ptx_mbarrier_arrive_expect_tx_arrive_expect_tx_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 24576)]))), (uint)49152);
            int cse_v6 = (v_1 * 64);
            tvm_builtin_ptx_cp_async_bulk_tensor_g2s_cluster_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes(tvm_builtin_cuda_cvta_generic_to_shared((&(((nv_bfloat16*)_ptr)[(produced_ptr[0] * 8192)]))), ((void*)((unsigned long long)(&(a_map)))), (v_1 * 64), ((((((int)blockIdx.x) & 3) >> 1) * 256) + (((int)tvm_builtin_cluster_ctaid_x()) * 128)), tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 24576)]))));
            tvm_builtin_ptx_cp_async_bulk_tensor_g2s_cluster_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes_multicast__cluster(tvm_builtin_cuda_cvta_generic_to_shared((&(((nv_bfloat16*)_ptr)[(((produced_ptr[0] * 16384) + (((int)tvm_builtin_cluster_ctaid_x()) * 8192)) + 32768)]))), ((void*)((unsigned long long)(&(b_map)))), (v_1 * 64), (((v * 512) + ((((int)blockIdx.x) >> 2) * 256)) + (((int)tvm_builtin_cluster_ctaid_x()) * 128)), tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 24576)]))), (ushort)3);
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
    alignas(64) float sums_0_ptr[128];
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
    alignas(64) uint address_in_block_ptr[1];
    tvm_builtin_ptx_mapa_u32_shared__cluster_u32(address_in_block_ptr[0], tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[24580]))), ((uint)min((warp_id_in_cta & 3), 1)));
    for (int v_2 = 0; v_2 < ((7 - (((int)blockIdx.x) >> 1)) >> 2); ++v_2) {
      int cse_v11 = ((v_2 * 4) + (((int)blockIdx.x) >> 1));
      int share_1 = ((v_2 * 4) + (((int)blockIdx.x) >> 1));
      int index_1 = ((v_2 * 4) + (((int)blockIdx.x) >> 1));
      int band_1 = 0;
      int height_1 = 2;
      int inside_1 = ((v_2 * 4) + (((int)blockIdx.x) >> 1));
      int first_row_1 = ((((((int)blockIdx.x) & 3) >> 1) * 256) + (((int)tvm_builtin_cluster_ctaid_x()) * 128));
      int cse_v16 = ((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 256));
      int first_column_1 = ((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 256));
      tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[(filled_ptr[0] + 24576)])), filled_ptr[1]);
      tvm_builtin_ptx_wgmma_fence_fence_sync_aligned();
      tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n256k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35], sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39], sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43], sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47], sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51], sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55], sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59], sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63], sums_0_ptr[64], sums_0_ptr[65], sums_0_ptr[66], sums_0_ptr[67], sums_0_ptr[68], sums_0_ptr[69], sums_0_ptr[70], sums_0_ptr[71], sums_0_ptr[72], sums_0_ptr[73], sums_0_ptr[74], sums_0_ptr[75], sums_0_ptr[76], sums_0_ptr[77], sums_0_ptr[78], sums_0_ptr[79], sums_0_ptr[80], sums_0_ptr[81], sums_0_ptr[82], sums_0_ptr[83], sums_0_ptr[84], sums_0_ptr[85], sums_0_ptr[86], sums_0_ptr[87], sums_0_ptr[88], sums_0_ptr[89], sums_0_ptr[90], sums_0_ptr[91], sums_0_ptr[92], sums_0_ptr[93], sums_0_ptr[94], sums_0_ptr[95], sums_0_ptr[96], sums_0_ptr[97], sums_0_ptr[98], sums_0_ptr[99], sums_0_ptr[100], sums_0_ptr[101], sums_0_ptr[102], sums_0_ptr[103], sums_0_ptr[104], sums_0_ptr[105], sums_0_ptr[106], sums_0_ptr[107], sums_0_ptr[108], sums_0_ptr[109], sums_0_ptr[110], sums_0_ptr[111], sums_0_ptr[112], sums_0_ptr[113], sums_0_ptr[114], sums_0_ptr[115], sums_0_ptr[116], sums_0_ptr[117], sums_0_ptr[118], sums_0_ptr[119], sums_0_ptr[120], sums_0_ptr[121], sums_0_ptr[122], sums_0_ptr[123], sums_0_ptr[124], sums_0_ptr[125], sums_0_ptr[126], sums_0_ptr[127], (_ptr_1[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), (_ptr_2[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)2048ULL)), (uint)0);
      tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n256k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35], sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39], sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43], sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47], sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51], sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55], sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59], sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63], sums_0_ptr[64], sums_0_ptr[65], sums_0_ptr[66], sums_0_ptr[67], sums_0_ptr[68], sums_0_ptr[69], sums_0_ptr[70], sums_0_ptr[71], sums_0_ptr[72], sums_0_ptr[73], sums_0_ptr[74], sums_0_ptr[75], sums_0_ptr[76], sums_0_ptr[77], sums_0_ptr[78], sums_0_ptr[79], sums_0_ptr[80], sums_0_ptr[81], sums_0_ptr[82], sums_0_ptr[83], sums_0_ptr[84], sums_0_ptr[85], sums_0_ptr[86], sums_0_ptr[87], sums_0_ptr[88], sums_0_ptr[89], sums_0_ptr[90], sums_0_ptr[91], sums_0_ptr[92], sums_0_ptr[93], sums_0_ptr[94], sums_0_ptr[95], sums_0_ptr[96], sums_0_ptr[97], sums_0_ptr[98], sums_0_ptr[99], sums_0_ptr[100], sums_0_ptr[101], sums_0_ptr[102], sums_0_ptr[103], sums_0_ptr[104], sums_0_ptr[105], sums_0_ptr[106], sums_0_ptr[107], sums_0_ptr[108], sums_0_ptr[109], sums_0_ptr[110], sums_0_ptr[111], sums_0_ptr[112], sums_0_ptr[113], sums_0_ptr[114], sums_0_ptr[115], sums_0_ptr[116], sums_0_ptr[117], sums_0_ptr[118], sums_0_ptr[119], sums_0_ptr[120], sums_0_ptr[121], sums_0_ptr[122], sums_0_ptr[123], sums_0_ptr[124], sums_0_ptr[125], sums_0_ptr[126], sums_0_ptr[127], ((_ptr_1[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), ((_ptr_2[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)2048ULL)), (uint)1);
      tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n256k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35], sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39], sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43], sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47], sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51], sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55], sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59], sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63], sums_0_ptr[64], sums_0_ptr[65], sums_0_ptr[66], sums_0_ptr[67], sums_0_ptr[68], sums_0_ptr[69], sums_0_ptr[70], sums_0_ptr[71], sums_0_ptr[72], sums_0_ptr[73], sums_0_ptr[74], sums_0_ptr[75], sums_0_ptr[76], sums_0_ptr[77], sums_0_ptr[78], sums_0_ptr[79], sums_0_ptr[80], sums_0_ptr[81], sums_0_ptr[82], sums_0_ptr[83], sums_0_ptr[84], sums_0_ptr[85], sums_0_ptr[86], sums_0_ptr[87], sums_0_ptr[88], sums_0_ptr[89], sums_0_ptr[90], sums_0_ptr[91], sums_0_ptr[92], sums_0_ptr[93], sums_0_ptr[94], sums_0_ptr[95], sums_0_ptr[96], sums_0_ptr[97], sums_0_ptr[98], sums_0_ptr[99], sums_0_ptr[100], sums_0_ptr[101], sums_0_ptr[102], sums_0_ptr[103], sums_0_ptr[104], sums_0_ptr[105], sums_0_ptr[106], sums_0_ptr[107], sums_0_ptr[108], sums_0_ptr[109], sums_0_ptr[110], sums_0_ptr[111], sums_0_ptr[112], sums_0_ptr[113], sums_0_ptr[114], sums_0_ptr[115], sums_0_ptr[116], sums_0_ptr[117], sums_0_ptr[118], sums_0_ptr[119], sums_0_ptr[120], sums_0_ptr[121], sums_0_ptr[122], sums_0_ptr[123], sums_0_ptr[124], sums_0_ptr[125], sums_0_ptr[126], sums_0_ptr[127], ((_ptr_1[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), ((_ptr_2[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)2048ULL)), (uint)1);
      tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n256k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35], sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39], sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43], sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47], sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51], sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55], sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59], sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63], sums_0_ptr[64], sums_0_ptr[65], sums_0_ptr[66], sums_0_ptr[67], sums_0_ptr[68], sums_0_ptr[69], sums_0_ptr[70], sums_0_ptr[71], sums_0_ptr[72], sums_0_ptr[73], sums_0_ptr[74], sums_0_ptr[75], sums_0_ptr[76], sums_0_ptr[77], sums_0_ptr[78], sums_0_ptr[79], sums_0_ptr[80], sums_0_ptr[81], sums_0_ptr[82], sums_0_ptr[83], sums_0_ptr[84], sums_0_ptr[85], sums_0_ptr[86], sums_0_ptr[87], sums_0_ptr[88], sums_0_ptr[89], sums_0_ptr[90], sums_0_ptr[91], sums_0_ptr[92], sums_0_ptr[93], sums_0_ptr[94], sums_0_ptr[95], sums_0_ptr[96], sums_0_ptr[97], sums_0_ptr[98], sums_0_ptr[99], sums_0_ptr[100], sums_0_ptr[101], sums_0_ptr[102], sums_0_ptr[103], sums_0_ptr[104], sums_0_ptr[105], sums_0_ptr[106], sums_0_ptr[107], sums_0_ptr[108], sums_0_ptr[109], sums_0_ptr[110], sums_0_ptr[111], sums_0_ptr[112], sums_0_ptr[113], sums_0_ptr[114], sums_0_ptr[115], sums_0_ptr[116], sums_0_ptr[117], sums_0_ptr[118], sums_0_ptr[119], sums_0_ptr[120], sums_0_ptr[121], sums_0_ptr[122], sums_0_ptr[123], sums_0_ptr[124], sums_0_ptr[125], sums_0_ptr[126], sums_0_ptr[127], ((_ptr_1[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), ((_ptr_2[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)2048ULL)), (uint)1);
      tvm_builtin_ptx_wgmma_commit_group_commit_group_sync_aligned();
      filled_ptr[0] = (filled_ptr[0] + 1);
      if (filled_ptr[0] == 4) {
        filled_ptr[0] = 0;
        filled_ptr[1] = (filled_ptr[1] ^ 1);
      }
      for (int v_3 = 0; v_3 < 7; ++v_3) {
        tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[(filled_ptr[0] + 24576)])), filled_ptr[1]);
        tvm_builtin_ptx_wgmma_fence_fence_sync_aligned();
        tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n256k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35], sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39], sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43], sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47], sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51], sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55], sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59], sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63], sums_0_ptr[64], sums_0_ptr[65], sums_0_ptr[66], sums_0_ptr[67], sums_0_ptr[68], sums_0_ptr[69], sums_0_ptr[70], sums_0_ptr[71], sums_0_ptr[72], sums_0_ptr[73], sums_0_ptr[74], sums_0_ptr[75], sums_0_ptr[76], sums_0_ptr[77], sums_0_ptr[78], sums_0_ptr[79], sums_0_ptr[80], sums_0_ptr[81], sums_0_ptr[82], sums_0_ptr[83], sums_0_ptr[84], sums_0_ptr[85], sums_0_ptr[86], sums_0_ptr[87], sums_0_ptr[88], sums_0_ptr[89], sums_0_ptr[90], sums_0_ptr[91], sums_0_ptr[92], sums_0_ptr[93], sums_0_ptr[94], sums_0_ptr[95], sums_0_ptr[96], sums_0_ptr[97], sums_0_ptr[98], sums_0_ptr[99], sums_0_ptr[100], sums_0_ptr[101], sums_0_ptr[102], sums_0_ptr[103], sums_0_ptr[104], sums_0_ptr[105], sums_0_ptr[106], sums_0_ptr[107], sums_0_ptr[108], sums_0_ptr[109], sums_0_ptr[110], sums_0_ptr[111], sums_0_ptr[112], sums_0_ptr[113], sums_0_ptr[114], sums_0_ptr[115], sums_0_ptr[116], sums_0_ptr[117], sums_0_ptr[118], sums_0_ptr[119], sums_0_ptr[120], sums_0_ptr[121], sums_0_ptr[122], sums_0_ptr[123], sums_0_ptr[124], sums_0_ptr[125], sums_0_ptr[126], sums_0_ptr[127], (_ptr_1[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), (_ptr_2[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)2048ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n256k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35], sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39], sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43], sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47], sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51], sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55], sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59], sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63], sums_0_ptr[64], sums_0_ptr[65], sums_0_ptr[66], sums_0_ptr[67], sums_0_ptr[68], sums_0_ptr[69], sums_0_ptr[70], sums_0_ptr[71], sums_0_ptr[72], sums_0_ptr[73], sums_0_ptr[74], sums_0_ptr[75], sums_0_ptr[76], sums_0_ptr[77], sums_0_ptr[78], sums_0_ptr[79], sums_0_ptr[80], sums_0_ptr[81], sums_0_ptr[82], sums_0_ptr[83], sums_0_ptr[84], sums_0_ptr[85], sums_0_ptr[86], sums_0_ptr[87], sums_0_ptr[88], sums_0_ptr[89], sums_0_ptr[90], sums_0_ptr[91], sums_0_ptr[92], sums_0_ptr[93], sums_0_ptr[94], sums_0_ptr[95], sums_0_ptr[96], sums_0_ptr[97], sums_0_ptr[98], sums_0_ptr[99], sums_0_ptr[100], sums_0_ptr[101], sums_0_ptr[102], sums_0_ptr[103], sums_0_ptr[104], sums_0_ptr[105], sums_0_ptr[106], sums_0_ptr[107], sums_0_ptr[108], sums_0_ptr[109], sums_0_ptr[110], sums_0_ptr[111], sums_0_ptr[112], sums_0_ptr[113], sums_0_ptr[114], sums_0_ptr[115], sums_0_ptr[116], sums_0_ptr[117], sums_0_ptr[118], sums_0_ptr[119], sums_0_ptr[120], sums_0_ptr[121], sums_0_ptr[122], sums_0_ptr[123], sums_0_ptr[124], sums_0_ptr[125], sums_0_ptr[126], sums_0_ptr[127], ((_ptr_1[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), ((_ptr_2[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)2048ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n256k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35], sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39], sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43], sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47], sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51], sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55], sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59], sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63], sums_0_ptr[64], sums_0_ptr[65], sums_0_ptr[66], sums_0_ptr[67], sums_0_ptr[68], sums_0_ptr[69], sums_0_ptr[70], sums_0_ptr[71], sums_0_ptr[72], sums_0_ptr[73], sums_0_ptr[74], sums_0_ptr[75], sums_0_ptr[76], sums_0_ptr[77], sums_0_ptr[78], sums_0_ptr[79], sums_0_ptr[80], sums_0_ptr[81], sums_0_ptr[82], sums_0_ptr[83], sums_0_ptr[84], sums_0_ptr[85], sums_0_ptr[86], sums_0_ptr[87], sums_0_ptr[88], sums_0_ptr[89], sums_0_ptr[90], sums_0_ptr[91], sums_0_ptr[92], sums_0_ptr[93], sums_0_ptr[94], sums_0_ptr[95], sums_0_ptr[96], sums_0_ptr[97], sums_0_ptr[98], sums_0_ptr[99], sums_0_ptr[100], sums_0_ptr[101], sums_0_ptr[102], sums_0_ptr[103], sums_0_ptr[104], sums_0_ptr[105], sums_0_ptr[106], sums_0_ptr[107], sums_0_ptr[108], sums_0_ptr[109], sums_0_ptr[110], sums_0_ptr[111], sums_0_ptr[112], sums_0_ptr[113], sums_0_ptr[114], sums_0_ptr[115], sums_0_ptr[116], sums_0_ptr[117], sums_0_ptr[118], sums_0_ptr[119], sums_0_ptr[120], sums_0_ptr[121], sums_0_ptr[122], sums_0_ptr[123], sums_0_ptr[124], sums_0_ptr[125], sums_0_ptr[126], sums_0_ptr[127], ((_ptr_1[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), ((_ptr_2[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)2048ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_bf16_ss_mma_async_sync_aligned_m64n256k16_f32_bf16_bf16_1_1_0_0(sums_0_ptr[0], sums_0_ptr[1], sums_0_ptr[2], sums_0_ptr[3], sums_0_ptr[4], sums_0_ptr[5], sums_0_ptr[6], sums_0_ptr[7], sums_0_ptr[8], sums_0_ptr[9], sums_0_ptr[10], sums_0_ptr[11], sums_0_ptr[12], sums_0_ptr[13], sums_0_ptr[14], sums_0_ptr[15], sums_0_ptr[16], sums_0_ptr[17], sums_0_ptr[18], sums_0_ptr[19], sums_0_ptr[20], sums_0_ptr[21], sums_0_ptr[22], sums_0_ptr[23], sums_0_ptr[24], sums_0_ptr[25], sums_0_ptr[26], sums_0_ptr[27], sums_0_ptr[28], sums_0_ptr[29], sums_0_ptr[30], sums_0_ptr[31], sums_0_ptr[32], sums_0_ptr[33], sums_0_ptr[34], sums_0_ptr[35], sums_0_ptr[36], sums_0_ptr[37], sums_0_ptr[38], sums_0_ptr[39], sums_0_ptr[40], sums_0_ptr[41], sums_0_ptr[42], sums_0_ptr[43], sums_0_ptr[44], sums_0_ptr[45], sums_0_ptr[46], sums_0_ptr[47], sums_0_ptr[48], sums_0_ptr[49], sums_0_ptr[50], sums_0_ptr[51], sums_0_ptr[52], sums_0_ptr[53], sums_0_ptr[54], sums_0_ptr[55], sums_0_ptr[56], sums_0_ptr[57], sums_0_ptr[58], sums_0_ptr[59], sums_0_ptr[60], sums_0_ptr[61], sums_0_ptr[62], sums_0_ptr[63], sums_0_ptr[64], sums_0_ptr[65], sums_0_ptr[66], sums_0_ptr[67], sums_0_ptr[68], sums_0_ptr[69], sums_0_ptr[70], sums_0_ptr[71], sums_0_ptr[72], sums_0_ptr[73], sums_0_ptr[74], sums_0_ptr[75], sums_0_ptr[76], sums_0_ptr[77], sums_0_ptr[78], sums_0_ptr[79], sums_0_ptr[80], sums_0_ptr[81], sums_0_ptr[82], sums_0_ptr[83], sums_0_ptr[84], sums_0_ptr[85], sums_0_ptr[86], sums_0_ptr[87], sums_0_ptr[88], sums_0_ptr[89], sums_0_ptr[90], sums_0_ptr[91], sums_0_ptr[92], sums_0_ptr[93], sums_0_ptr[94], sums_0_ptr[95], sums_0_ptr[96], sums_0_ptr[97], sums_0_ptr[98], sums_0_ptr[99], sums_0_ptr[100], sums_0_ptr[101], sums_0_ptr[102], sums_0_ptr[103], sums_0_ptr[104], sums_0_ptr[105], sums_0_ptr[106], sums_0_ptr[107], sums_0_ptr[108], sums_0_ptr[109], sums_0_ptr[110], sums_0_ptr[111], sums_0_ptr[112], sums_0_ptr[113], sums_0_ptr[114], sums_0_ptr[115], sums_0_ptr[116], sums_0_ptr[117], sums_0_ptr[118], sums_0_ptr[119], sums_0_ptr[120], sums_0_ptr[121], sums_0_ptr[122], sums_0_ptr[123], sums_0_ptr[124], sums_0_ptr[125], sums_0_ptr[126], sums_0_ptr[127], ((_ptr_1[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), ((_ptr_2[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)2048ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_commit_group_commit_group_sync_aligned();
        filled_ptr[0] = (filled_ptr[0] + 1);
        if (filled_ptr[0] == 4) {
          filled_ptr[0] = 0;
          filled_ptr[1] = (filled_ptr[1] ^ 1);
        }
        tvm_builtin_ptx_wgmma_wait_group_wait_group_sync_aligned_1();
        if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta & 3) < 2)) {
          tvm_builtin_ptx_mbarrier_arrive_arrive_shared__cluster_b64((address_in_block_ptr[0] + (((uint)read_ptr[0]) * (uint)8)), (uint)1);
        }
        read_ptr[0] = (read_ptr[0] + 1);
        if (read_ptr[0] == 4) {
          read_ptr[0] = 0;
          read_ptr[1] = (read_ptr[1] ^ 1);
        }
      }
      tvm_builtin_ptx_wgmma_wait_group_wait_group_sync_aligned_0();
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta & 3) < 2)) {
        tvm_builtin_ptx_mbarrier_arrive_arrive_shared__cluster_b64((address_in_block_ptr[0] + (((uint)read_ptr[0]) * (uint)8)), (uint)1);
      }
      read_ptr[0] = (read_ptr[0] + 1);
      if (read_ptr[0] == 4) {
        read_ptr[0] = 0;
        read_ptr[1] = (read_ptr[1] ^ 1);
      }
      int lane_column = ((((int)threadIdx.x) & 3) * 2);
      int cse_v23 = ((((((((int)blockIdx.x) & 3) >> 1) * 256) + (((int)tvm_builtin_cluster_ctaid_x()) * 128)) + ((warp_id_in_cta >> 2) * 64)) - 64);
      int first_own_row = ((((((((int)blockIdx.x) & 3) >> 1) * 256) + (((int)tvm_builtin_cluster_ctaid_x()) * 128)) + ((warp_id_in_cta >> 2) * 64)) - 64);
      int cse_v24 = ((((((((int)blockIdx.x) & 3) >> 1) * 256) + (((int)tvm_builtin_cluster_ctaid_x()) * 128)) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2));
      int cse_v30 = (((((((((int)blockIdx.x) & 3) >> 1) * 256) + (((int)tvm_builtin_cluster_ctaid_x()) * 128)) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64);
      int row = (((((((((int)blockIdx.x) & 3) >> 1) * 256) + (((int)tvm_builtin_cluster_ctaid_x()) * 128)) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64);
      int inside_row = min((((((((((int)blockIdx.x) & 3) >> 1) * 256) + (((int)tvm_builtin_cluster_ctaid_x()) * 128)) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64), 511);
      int inside_row_1 = min((((((((((int)blockIdx.x) & 3) >> 1) * 256) + (((int)tvm_builtin_cluster_ctaid_x()) * 128)) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 56), 511);
      int cse_v7 = (((int)threadIdx.x) & 15);
      int stored_row = (((warp_id_in_cta & 3) * 16) + (((int)threadIdx.x) & 15));
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_cp_async_bulk_wait_group_async_bulk_wait_group_read_1();
      }
      uint cse_v17 = ((uint)((warp_id_in_cta >> 2) + 7));
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      alignas(64) uint stored_ptr[4];
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[0], sums_0_ptr[1], sums_0_ptr[0]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[1], sums_0_ptr[3], sums_0_ptr[2]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[2], sums_0_ptr[5], sums_0_ptr[4]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[3], sums_0_ptr[7], sums_0_ptr[6]);
      int cse_v8 = (((int)threadIdx.x) & 7);
      int cse_v12 = ((warp_id_in_cta >> 2) * 8192);
      int cse_v13 = ((((int)threadIdx.x) & 31) >> 4);
      int cse_v21 = ((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64));
      int cse_v22 = (((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + ((((((int)threadIdx.x) & 31) >> 4) ^ (((int)threadIdx.x) & 7)) * 8));
      int cse_v25 = ((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + ((((((int)threadIdx.x) & 31) >> 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 90624);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + ((((((int)threadIdx.x) & 31) >> 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 90624)]))), stored_ptr[0], stored_ptr[1], stored_ptr[2], stored_ptr[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[0], sums_0_ptr[9], sums_0_ptr[8]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[1], sums_0_ptr[11], sums_0_ptr[10]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[2], sums_0_ptr[13], sums_0_ptr[12]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[3], sums_0_ptr[15], sums_0_ptr[14]);
      int cse_v26 = (((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 2) ^ (((int)threadIdx.x) & 7)) * 8));
      int cse_v31 = ((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 2) ^ (((int)threadIdx.x) & 7)) * 8)) + 90624);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 2) ^ (((int)threadIdx.x) & 7)) * 8)) + 90624)]))), stored_ptr[0], stored_ptr[1], stored_ptr[2], stored_ptr[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[0], sums_0_ptr[17], sums_0_ptr[16]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[1], sums_0_ptr[19], sums_0_ptr[18]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[2], sums_0_ptr[21], sums_0_ptr[20]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[3], sums_0_ptr[23], sums_0_ptr[22]);
      int cse_v27 = (((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 4) ^ (((int)threadIdx.x) & 7)) * 8));
      int cse_v32 = ((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 90624);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 90624)]))), stored_ptr[0], stored_ptr[1], stored_ptr[2], stored_ptr[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[0], sums_0_ptr[25], sums_0_ptr[24]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[1], sums_0_ptr[27], sums_0_ptr[26]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[2], sums_0_ptr[29], sums_0_ptr[28]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[3], sums_0_ptr[31], sums_0_ptr[30]);
      int cse_v28 = (((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 6) ^ (((int)threadIdx.x) & 7)) * 8));
      int cse_v33 = ((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 6) ^ (((int)threadIdx.x) & 7)) * 8)) + 90624);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 6) ^ (((int)threadIdx.x) & 7)) * 8)) + 90624)]))), stored_ptr[0], stored_ptr[1], stored_ptr[2], stored_ptr[3]);
      tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      int cse_v18 = (((warp_id_in_cta >> 2) * 8192) + 90624);
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_cp_async_bulk_tensor_s2g_async_bulk_tensor_2d_global_shared__cta_tile_bulk_group(((void*)((unsigned long long)(&(out_map)))), ((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 256)), ((((((((int)blockIdx.x) & 3) >> 1) * 256) + (((int)tvm_builtin_cluster_ctaid_x()) * 128)) + ((warp_id_in_cta >> 2) * 64)) - 64), tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[(((warp_id_in_cta >> 2) * 8192) + 90624)]))));
        tvm_builtin_ptx_cp_async_bulk_commit_group_async_bulk_commit_group();
      }
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_cp_async_bulk_wait_group_async_bulk_wait_group_read_1();
      }
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      alignas(64) uint stored_ptr_1[4];
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[0], sums_0_ptr[33], sums_0_ptr[32]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[1], sums_0_ptr[35], sums_0_ptr[34]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[2], sums_0_ptr[37], sums_0_ptr[36]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[3], sums_0_ptr[39], sums_0_ptr[38]);
      int cse_v29 = ((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + ((((((int)threadIdx.x) & 31) >> 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 94720);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + ((((((int)threadIdx.x) & 31) >> 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 94720)]))), stored_ptr_1[0], stored_ptr_1[1], stored_ptr_1[2], stored_ptr_1[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[0], sums_0_ptr[41], sums_0_ptr[40]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[1], sums_0_ptr[43], sums_0_ptr[42]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[2], sums_0_ptr[45], sums_0_ptr[44]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[3], sums_0_ptr[47], sums_0_ptr[46]);
      int cse_v34 = ((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 2) ^ (((int)threadIdx.x) & 7)) * 8)) + 94720);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 2) ^ (((int)threadIdx.x) & 7)) * 8)) + 94720)]))), stored_ptr_1[0], stored_ptr_1[1], stored_ptr_1[2], stored_ptr_1[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[0], sums_0_ptr[49], sums_0_ptr[48]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[1], sums_0_ptr[51], sums_0_ptr[50]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[2], sums_0_ptr[53], sums_0_ptr[52]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[3], sums_0_ptr[55], sums_0_ptr[54]);
      int cse_v35 = ((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 94720);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 94720)]))), stored_ptr_1[0], stored_ptr_1[1], stored_ptr_1[2], stored_ptr_1[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[0], sums_0_ptr[57], sums_0_ptr[56]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[1], sums_0_ptr[59], sums_0_ptr[58]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[2], sums_0_ptr[61], sums_0_ptr[60]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[3], sums_0_ptr[63], sums_0_ptr[62]);
      int cse_v36 = ((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 6) ^ (((int)threadIdx.x) & 7)) * 8)) + 94720);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 6) ^ (((int)threadIdx.x) & 7)) * 8)) + 94720)]))), stored_ptr_1[0], stored_ptr_1[1], stored_ptr_1[2], stored_ptr_1[3]);
      tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      int cse_v19 = (((warp_id_in_cta >> 2) * 8192) + 94720);
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_cp_async_bulk_tensor_s2g_async_bulk_tensor_2d_global_shared__cta_tile_bulk_group(((void*)((unsigned long long)(&(out_map)))), (((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 256)) + 64), ((((((((int)blockIdx.x) & 3) >> 1) * 256) + (((int)tvm_builtin_cluster_ctaid_x()) * 128)) + ((warp_id_in_cta >> 2) * 64)) - 64), tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[(((warp_id_in_cta >> 2) * 8192) + 94720)]))));
        tvm_builtin_ptx_cp_async_bulk_commit_group_async_bulk_commit_group();
      }
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_cp_async_bulk_wait_group_async_bulk_wait_group_read_1();
      }
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      alignas(64) uint stored_ptr_2[4];
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[0], sums_0_ptr[65], sums_0_ptr[64]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[1], sums_0_ptr[67], sums_0_ptr[66]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[2], sums_0_ptr[69], sums_0_ptr[68]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[3], sums_0_ptr[71], sums_0_ptr[70]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + ((((((int)threadIdx.x) & 31) >> 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 90624)]))), stored_ptr_2[0], stored_ptr_2[1], stored_ptr_2[2], stored_ptr_2[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[0], sums_0_ptr[73], sums_0_ptr[72]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[1], sums_0_ptr[75], sums_0_ptr[74]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[2], sums_0_ptr[77], sums_0_ptr[76]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[3], sums_0_ptr[79], sums_0_ptr[78]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 2) ^ (((int)threadIdx.x) & 7)) * 8)) + 90624)]))), stored_ptr_2[0], stored_ptr_2[1], stored_ptr_2[2], stored_ptr_2[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[0], sums_0_ptr[81], sums_0_ptr[80]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[1], sums_0_ptr[83], sums_0_ptr[82]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[2], sums_0_ptr[85], sums_0_ptr[84]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[3], sums_0_ptr[87], sums_0_ptr[86]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 90624)]))), stored_ptr_2[0], stored_ptr_2[1], stored_ptr_2[2], stored_ptr_2[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[0], sums_0_ptr[89], sums_0_ptr[88]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[1], sums_0_ptr[91], sums_0_ptr[90]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[2], sums_0_ptr[93], sums_0_ptr[92]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[3], sums_0_ptr[95], sums_0_ptr[94]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 6) ^ (((int)threadIdx.x) & 7)) * 8)) + 90624)]))), stored_ptr_2[0], stored_ptr_2[1], stored_ptr_2[2], stored_ptr_2[3]);
      tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_cp_async_bulk_tensor_s2g_async_bulk_tensor_2d_global_shared__cta_tile_bulk_group(((void*)((unsigned long long)(&(out_map)))), (((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 256)) + 128), ((((((((int)blockIdx.x) & 3) >> 1) * 256) + (((int)tvm_builtin_cluster_ctaid_x()) * 128)) + ((warp_id_in_cta >> 2) * 64)) - 64), tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[(((warp_id_in_cta >> 2) * 8192) + 90624)]))));
        tvm_builtin_ptx_cp_async_bulk_commit_group_async_bulk_commit_group();
      }
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_cp_async_bulk_wait_group_async_bulk_wait_group_read_1();
      }
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      alignas(64) uint stored_ptr_3[4];
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_3[0], sums_0_ptr[97], sums_0_ptr[96]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_3[1], sums_0_ptr[99], sums_0_ptr[98]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_3[2], sums_0_ptr[101], sums_0_ptr[100]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_3[3], sums_0_ptr[103], sums_0_ptr[102]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + ((((((int)threadIdx.x) & 31) >> 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 94720)]))), stored_ptr_3[0], stored_ptr_3[1], stored_ptr_3[2], stored_ptr_3[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_3[0], sums_0_ptr[105], sums_0_ptr[104]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_3[1], sums_0_ptr[107], sums_0_ptr[106]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_3[2], sums_0_ptr[109], sums_0_ptr[108]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_3[3], sums_0_ptr[111], sums_0_ptr[110]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 2) ^ (((int)threadIdx.x) & 7)) * 8)) + 94720)]))), stored_ptr_3[0], stored_ptr_3[1], stored_ptr_3[2], stored_ptr_3[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_3[0], sums_0_ptr[113], sums_0_ptr[112]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_3[1], sums_0_ptr[115], sums_0_ptr[114]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_3[2], sums_0_ptr[117], sums_0_ptr[116]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_3[3], sums_0_ptr[119], sums_0_ptr[118]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 94720)]))), stored_ptr_3[0], stored_ptr_3[1], stored_ptr_3[2], stored_ptr_3[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_3[0], sums_0_ptr[121], sums_0_ptr[120]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_3[1], sums_0_ptr[123], sums_0_ptr[122]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_3[2], sums_0_ptr[125], sums_0_ptr[124]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_3[3], sums_0_ptr[127], sums_0_ptr[126]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 6) ^ (((int)threadIdx.x) & 7)) * 8)) + 94720)]))), stored_ptr_3[0], stored_ptr_3[1], stored_ptr_3[2], stored_ptr_3[3]);
      tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_cp_async_bulk_tensor_s2g_async_bulk_tensor_2d_global_shared__cta_tile_bulk_group(((void*)((unsigned long long)(&(out_map)))), (((v_2 * 512) + ((((int)blockIdx.x) >> 2) * 256)) + 192), ((((((((int)blockIdx.x) & 3) >> 1) * 256) + (((int)tvm_builtin_cluster_ctaid_x()) * 128)) + ((warp_id_in_cta >> 2) * 64)) - 64), tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[(((warp_id_in_cta >> 2) * 8192) + 94720)]))));
        tvm_builtin_ptx_cp_async_bulk_commit_group_async_bulk_commit_group();
      }
    }
    if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
      tvm_builtin_ptx_cp_async_bulk_wait_group_async_bulk_wait_group_0();
    }
  }
  tvm_builtin_ptx_barrier_cluster_arrive_cluster_arrive_release();
  tvm_builtin_ptx_barrier_cluster_wait_cluster_wait_acquire();
}
