extern "C" __global__ void __launch_bounds__(384, 1) main_kernel(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, const __grid_constant__ CUtensorMap out_map) {
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
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[19456]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[19457]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[19458]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[19459]))), (uint)1);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[19460]))), (uint)2);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[19461]))), (uint)2);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[19462]))), (uint)2);
    tvm_builtin_ptx_mbarrier_init_init_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[19463]))), (uint)2);
  }
  tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
  tvm_builtin_cuda_cta_sync();
  int cse_v7 = ((419 - ((int)blockIdx.x)) / 132);
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
        for (int v = 0; v < ((419 - ((int)blockIdx.x)) / 132); ++v) {
          int cse_v8 = ((v * 132) + ((int)blockIdx.x));
          int share = ((v * 132) + ((int)blockIdx.x));
          int cse_v12 = (((v * 132) + ((int)blockIdx.x)) % 288);
          int index = (((v * 132) + ((int)blockIdx.x)) % 288);
          int cse_v18 = ((((v * 132) + ((int)blockIdx.x)) % 288) / 72);
          int band = ((((v * 132) + ((int)blockIdx.x)) % 288) / 72);
          int height = 8;
          int cse_v13 = (((v * 132) + ((int)blockIdx.x)) % 72);
          int inside = (((v * 132) + ((int)blockIdx.x)) % 72);
          int cse_v22 = ((((((v * 132) + ((int)blockIdx.x)) % 288) / 72) * 1024) + ((((v * 132) + ((int)blockIdx.x)) & 7) * 128));
          int first_row = ((((((v * 132) + ((int)blockIdx.x)) % 288) / 72) * 1024) + ((((v * 132) + ((int)blockIdx.x)) & 7) * 128));
          int cse_v23 = min((((((v * 132) + ((int)blockIdx.x)) % 72) >> 3) * 176), 1360);
          int first_column = min((((((v * 132) + ((int)blockIdx.x)) % 72) >> 3) * 176), 1360);
          for (int v_1 = 0; v_1 < 20; ++v_1) {
            tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[(produced_ptr[0] + 19460)])), produced_ptr[1]);
            tvm_builtin_ptx_mbarrier_arrive_expect_tx_arrive_expect_tx_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 19456)]))), (uint)38912);
            int cse_v4 = (v_1 * 128);
            tvm_builtin_ptx_cp_async_bulk_tensor_g2s_cluster_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes(tvm_builtin_cuda_cvta_generic_to_shared((&(_ptr[(produced_ptr[0] * 16384)]))), ((void*)((unsigned long long)(&(a_map)))), (v_1 * 128), ((((((v * 132) + ((int)blockIdx.x)) % 288) / 72) * 1024) + ((((v * 132) + ((int)blockIdx.x)) & 7) * 128)), tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 19456)]))));
            tvm_builtin_ptx_cp_async_bulk_tensor_g2s_cluster_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes(tvm_builtin_cuda_cvta_generic_to_shared((&(_ptr[((produced_ptr[0] * 22528) + 65536)]))), ((void*)((unsigned long long)(&(b_map)))), (v_1 * 128), min((((((v * 132) + ((int)blockIdx.x)) % 72) >> 3) * 176), 1360), tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(produced_ptr[0] + 19456)]))));
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
    alignas(64) float sums_0_ptr[88];
    alignas(64) uint64_t _ptr_1[1];
    int cse_v9 = ((warp_id_in_cta >> 2) * 8192);
    ptx_wgmma_encode_matrix_descriptor((&(_ptr_1[0])), (&(_ptr[(((warp_id_in_cta >> 2) * 8192) - 8192)])), 1, 64, 3);
    alignas(64) uint64_t _ptr_2[1];
    ptx_wgmma_encode_matrix_descriptor((&(_ptr_2[0])), (&(_ptr[65536])), 1, 64, 3);
    alignas(64) int filled_ptr[2];
    filled_ptr[0] = 0;
    filled_ptr[1] = 0;
    alignas(64) int read_ptr[2];
    read_ptr[0] = 0;
    read_ptr[1] = 0;
    alignas(64) float narrow_0_ptr[88];
    for (int v_2 = 0; v_2 < ((419 - ((int)blockIdx.x)) / 132); ++v_2) {
      int cse_v10 = ((v_2 * 132) + ((int)blockIdx.x));
      int share_1 = ((v_2 * 132) + ((int)blockIdx.x));
      int cse_v14 = (((v_2 * 132) + ((int)blockIdx.x)) % 288);
      int index_1 = (((v_2 * 132) + ((int)blockIdx.x)) % 288);
      int cse_v19 = ((((v_2 * 132) + ((int)blockIdx.x)) % 288) / 72);
      int band_1 = ((((v_2 * 132) + ((int)blockIdx.x)) % 288) / 72);
      int height_1 = 8;
      int cse_v15 = (((v_2 * 132) + ((int)blockIdx.x)) % 72);
      int inside_1 = (((v_2 * 132) + ((int)blockIdx.x)) % 72);
      int cse_v24 = ((((((v_2 * 132) + ((int)blockIdx.x)) % 288) / 72) * 1024) + ((((v_2 * 132) + ((int)blockIdx.x)) & 7) * 128));
      int first_row_1 = ((((((v_2 * 132) + ((int)blockIdx.x)) % 288) / 72) * 1024) + ((((v_2 * 132) + ((int)blockIdx.x)) & 7) * 128));
      int cse_v25 = min((((((v_2 * 132) + ((int)blockIdx.x)) % 72) >> 3) * 176), 1360);
      int first_column_1 = min((((((v_2 * 132) + ((int)blockIdx.x)) % 72) >> 3) * 176), 1360);
      sums_0_ptr[0] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[1] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[2] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[3] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[4] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[5] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[6] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[7] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[8] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[9] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[10] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[11] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[12] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[13] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[14] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[15] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[16] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[17] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[18] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[19] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[20] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[21] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[22] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[23] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[24] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[25] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[26] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[27] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[28] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[29] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[30] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[31] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[32] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[33] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[34] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[35] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[36] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[37] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[38] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[39] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[40] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[41] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[42] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[43] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[44] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[45] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[46] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[47] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[48] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[49] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[50] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[51] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[52] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[53] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[54] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[55] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[56] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[57] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[58] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[59] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[60] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[61] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[62] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[63] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[64] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[65] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[66] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[67] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[68] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[69] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[70] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[71] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[72] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[73] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[74] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[75] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[76] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[77] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[78] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[79] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[80] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[81] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[82] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[83] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[84] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[85] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[86] = 0x0p+0f/*0.000000e+00*/;
      sums_0_ptr[87] = 0x0p+0f/*0.000000e+00*/;
      for (int v_3 = 0; v_3 < 20; ++v_3) {
        tvm_builtin_cuda_mbarrier_wait((&(((uint64_t*)_ptr)[(filled_ptr[0] + 19456)])), filled_ptr[1]);
        tvm_builtin_ptx_wgmma_fence_fence_sync_aligned();
        tvm_builtin_ptx_wgmma_fp8_ss_mma_async_sync_aligned_m64n176k32_f32_e4m3_e4m3_1_1(narrow_0_ptr[0], narrow_0_ptr[1], narrow_0_ptr[2], narrow_0_ptr[3], narrow_0_ptr[4], narrow_0_ptr[5], narrow_0_ptr[6], narrow_0_ptr[7], narrow_0_ptr[8], narrow_0_ptr[9], narrow_0_ptr[10], narrow_0_ptr[11], narrow_0_ptr[12], narrow_0_ptr[13], narrow_0_ptr[14], narrow_0_ptr[15], narrow_0_ptr[16], narrow_0_ptr[17], narrow_0_ptr[18], narrow_0_ptr[19], narrow_0_ptr[20], narrow_0_ptr[21], narrow_0_ptr[22], narrow_0_ptr[23], narrow_0_ptr[24], narrow_0_ptr[25], narrow_0_ptr[26], narrow_0_ptr[27], narrow_0_ptr[28], narrow_0_ptr[29], narrow_0_ptr[30], narrow_0_ptr[31], narrow_0_ptr[32], narrow_0_ptr[33], narrow_0_ptr[34], narrow_0_ptr[35], narrow_0_ptr[36], narrow_0_ptr[37], narrow_0_ptr[38], narrow_0_ptr[39], narrow_0_ptr[40], narrow_0_ptr[41], narrow_0_ptr[42], narrow_0_ptr[43], narrow_0_ptr[44], narrow_0_ptr[45], narrow_0_ptr[46], narrow_0_ptr[47], narrow_0_ptr[48], narrow_0_ptr[49], narrow_0_ptr[50], narrow_0_ptr[51], narrow_0_ptr[52], narrow_0_ptr[53], narrow_0_ptr[54], narrow_0_ptr[55], narrow_0_ptr[56], narrow_0_ptr[57], narrow_0_ptr[58], narrow_0_ptr[59], narrow_0_ptr[60], narrow_0_ptr[61], narrow_0_ptr[62], narrow_0_ptr[63], narrow_0_ptr[64], narrow_0_ptr[65], narrow_0_ptr[66], narrow_0_ptr[67], narrow_0_ptr[68], narrow_0_ptr[69], narrow_0_ptr[70], narrow_0_ptr[71], narrow_0_ptr[72], narrow_0_ptr[73], narrow_0_ptr[74], narrow_0_ptr[75], narrow_0_ptr[76], narrow_0_ptr[77], narrow_0_ptr[78], narrow_0_ptr[79], narrow_0_ptr[80], narrow_0_ptr[81], narrow_0_ptr[82], narrow_0_ptr[83], narrow_0_ptr[84], narrow_0_ptr[85], narrow_0_ptr[86], narrow_0_ptr[87], (_ptr_1[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), (_ptr_2[0] + (((uint64_t)filled_ptr[0]) * (uint64_t)1408ULL)), (uint)0);
        tvm_builtin_ptx_wgmma_fp8_ss_mma_async_sync_aligned_m64n176k32_f32_e4m3_e4m3_1_1(narrow_0_ptr[0], narrow_0_ptr[1], narrow_0_ptr[2], narrow_0_ptr[3], narrow_0_ptr[4], narrow_0_ptr[5], narrow_0_ptr[6], narrow_0_ptr[7], narrow_0_ptr[8], narrow_0_ptr[9], narrow_0_ptr[10], narrow_0_ptr[11], narrow_0_ptr[12], narrow_0_ptr[13], narrow_0_ptr[14], narrow_0_ptr[15], narrow_0_ptr[16], narrow_0_ptr[17], narrow_0_ptr[18], narrow_0_ptr[19], narrow_0_ptr[20], narrow_0_ptr[21], narrow_0_ptr[22], narrow_0_ptr[23], narrow_0_ptr[24], narrow_0_ptr[25], narrow_0_ptr[26], narrow_0_ptr[27], narrow_0_ptr[28], narrow_0_ptr[29], narrow_0_ptr[30], narrow_0_ptr[31], narrow_0_ptr[32], narrow_0_ptr[33], narrow_0_ptr[34], narrow_0_ptr[35], narrow_0_ptr[36], narrow_0_ptr[37], narrow_0_ptr[38], narrow_0_ptr[39], narrow_0_ptr[40], narrow_0_ptr[41], narrow_0_ptr[42], narrow_0_ptr[43], narrow_0_ptr[44], narrow_0_ptr[45], narrow_0_ptr[46], narrow_0_ptr[47], narrow_0_ptr[48], narrow_0_ptr[49], narrow_0_ptr[50], narrow_0_ptr[51], narrow_0_ptr[52], narrow_0_ptr[53], narrow_0_ptr[54], narrow_0_ptr[55], narrow_0_ptr[56], narrow_0_ptr[57], narrow_0_ptr[58], narrow_0_ptr[59], narrow_0_ptr[60], narrow_0_ptr[61], narrow_0_ptr[62], narrow_0_ptr[63], narrow_0_ptr[64], narrow_0_ptr[65], narrow_0_ptr[66], narrow_0_ptr[67], narrow_0_ptr[68], narrow_0_ptr[69], narrow_0_ptr[70], narrow_0_ptr[71], narrow_0_ptr[72], narrow_0_ptr[73], narrow_0_ptr[74], narrow_0_ptr[75], narrow_0_ptr[76], narrow_0_ptr[77], narrow_0_ptr[78], narrow_0_ptr[79], narrow_0_ptr[80], narrow_0_ptr[81], narrow_0_ptr[82], narrow_0_ptr[83], narrow_0_ptr[84], narrow_0_ptr[85], narrow_0_ptr[86], narrow_0_ptr[87], ((_ptr_1[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), ((_ptr_2[0] + (uint64_t)2ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1408ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_fp8_ss_mma_async_sync_aligned_m64n176k32_f32_e4m3_e4m3_1_1(narrow_0_ptr[0], narrow_0_ptr[1], narrow_0_ptr[2], narrow_0_ptr[3], narrow_0_ptr[4], narrow_0_ptr[5], narrow_0_ptr[6], narrow_0_ptr[7], narrow_0_ptr[8], narrow_0_ptr[9], narrow_0_ptr[10], narrow_0_ptr[11], narrow_0_ptr[12], narrow_0_ptr[13], narrow_0_ptr[14], narrow_0_ptr[15], narrow_0_ptr[16], narrow_0_ptr[17], narrow_0_ptr[18], narrow_0_ptr[19], narrow_0_ptr[20], narrow_0_ptr[21], narrow_0_ptr[22], narrow_0_ptr[23], narrow_0_ptr[24], narrow_0_ptr[25], narrow_0_ptr[26], narrow_0_ptr[27], narrow_0_ptr[28], narrow_0_ptr[29], narrow_0_ptr[30], narrow_0_ptr[31], narrow_0_ptr[32], narrow_0_ptr[33], narrow_0_ptr[34], narrow_0_ptr[35], narrow_0_ptr[36], narrow_0_ptr[37], narrow_0_ptr[38], narrow_0_ptr[39], narrow_0_ptr[40], narrow_0_ptr[41], narrow_0_ptr[42], narrow_0_ptr[43], narrow_0_ptr[44], narrow_0_ptr[45], narrow_0_ptr[46], narrow_0_ptr[47], narrow_0_ptr[48], narrow_0_ptr[49], narrow_0_ptr[50], narrow_0_ptr[51], narrow_0_ptr[52], narrow_0_ptr[53], narrow_0_ptr[54], narrow_0_ptr[55], narrow_0_ptr[56], narrow_0_ptr[57], narrow_0_ptr[58], narrow_0_ptr[59], narrow_0_ptr[60], narrow_0_ptr[61], narrow_0_ptr[62], narrow_0_ptr[63], narrow_0_ptr[64], narrow_0_ptr[65], narrow_0_ptr[66], narrow_0_ptr[67], narrow_0_ptr[68], narrow_0_ptr[69], narrow_0_ptr[70], narrow_0_ptr[71], narrow_0_ptr[72], narrow_0_ptr[73], narrow_0_ptr[74], narrow_0_ptr[75], narrow_0_ptr[76], narrow_0_ptr[77], narrow_0_ptr[78], narrow_0_ptr[79], narrow_0_ptr[80], narrow_0_ptr[81], narrow_0_ptr[82], narrow_0_ptr[83], narrow_0_ptr[84], narrow_0_ptr[85], narrow_0_ptr[86], narrow_0_ptr[87], ((_ptr_1[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), ((_ptr_2[0] + (uint64_t)4ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1408ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_fp8_ss_mma_async_sync_aligned_m64n176k32_f32_e4m3_e4m3_1_1(narrow_0_ptr[0], narrow_0_ptr[1], narrow_0_ptr[2], narrow_0_ptr[3], narrow_0_ptr[4], narrow_0_ptr[5], narrow_0_ptr[6], narrow_0_ptr[7], narrow_0_ptr[8], narrow_0_ptr[9], narrow_0_ptr[10], narrow_0_ptr[11], narrow_0_ptr[12], narrow_0_ptr[13], narrow_0_ptr[14], narrow_0_ptr[15], narrow_0_ptr[16], narrow_0_ptr[17], narrow_0_ptr[18], narrow_0_ptr[19], narrow_0_ptr[20], narrow_0_ptr[21], narrow_0_ptr[22], narrow_0_ptr[23], narrow_0_ptr[24], narrow_0_ptr[25], narrow_0_ptr[26], narrow_0_ptr[27], narrow_0_ptr[28], narrow_0_ptr[29], narrow_0_ptr[30], narrow_0_ptr[31], narrow_0_ptr[32], narrow_0_ptr[33], narrow_0_ptr[34], narrow_0_ptr[35], narrow_0_ptr[36], narrow_0_ptr[37], narrow_0_ptr[38], narrow_0_ptr[39], narrow_0_ptr[40], narrow_0_ptr[41], narrow_0_ptr[42], narrow_0_ptr[43], narrow_0_ptr[44], narrow_0_ptr[45], narrow_0_ptr[46], narrow_0_ptr[47], narrow_0_ptr[48], narrow_0_ptr[49], narrow_0_ptr[50], narrow_0_ptr[51], narrow_0_ptr[52], narrow_0_ptr[53], narrow_0_ptr[54], narrow_0_ptr[55], narrow_0_ptr[56], narrow_0_ptr[57], narrow_0_ptr[58], narrow_0_ptr[59], narrow_0_ptr[60], narrow_0_ptr[61], narrow_0_ptr[62], narrow_0_ptr[63], narrow_0_ptr[64], narrow_0_ptr[65], narrow_0_ptr[66], narrow_0_ptr[67], narrow_0_ptr[68], narrow_0_ptr[69], narrow_0_ptr[70], narrow_0_ptr[71], narrow_0_ptr[72], narrow_0_ptr[73], narrow_0_ptr[74], narrow_0_ptr[75], narrow_0_ptr[76], narrow_0_ptr[77], narrow_0_ptr[78], narrow_0_ptr[79], narrow_0_ptr[80], narrow_0_ptr[81], narrow_0_ptr[82], narrow_0_ptr[83], narrow_0_ptr[84], narrow_0_ptr[85], narrow_0_ptr[86], narrow_0_ptr[87], ((_ptr_1[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1024ULL)), ((_ptr_2[0] + (uint64_t)6ULL) + (((uint64_t)filled_ptr[0]) * (uint64_t)1408ULL)), (uint)1);
        tvm_builtin_ptx_wgmma_commit_group_commit_group_sync_aligned();
        filled_ptr[0] = (filled_ptr[0] + 1);
        if (filled_ptr[0] == 4) {
          filled_ptr[0] = 0;
          filled_ptr[1] = (filled_ptr[1] ^ 1);
        }
        tvm_builtin_ptx_wgmma_wait_group_wait_group_sync_aligned_0();
        if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
          tvm_builtin_ptx_mbarrier_arrive_arrive_shared_b64(tvm_builtin_cuda_cvta_generic_to_shared((&(((uint64_t*)_ptr)[(read_ptr[0] + 19460)]))), (uint)1);
        }
        read_ptr[0] = (read_ptr[0] + 1);
        if (read_ptr[0] == 4) {
          read_ptr[0] = 0;
          read_ptr[1] = (read_ptr[1] ^ 1);
        }
        sums_0_ptr[0] = (sums_0_ptr[0] + narrow_0_ptr[0]);
        sums_0_ptr[1] = (sums_0_ptr[1] + narrow_0_ptr[1]);
        sums_0_ptr[2] = (sums_0_ptr[2] + narrow_0_ptr[2]);
        sums_0_ptr[3] = (sums_0_ptr[3] + narrow_0_ptr[3]);
        sums_0_ptr[4] = (sums_0_ptr[4] + narrow_0_ptr[4]);
        sums_0_ptr[5] = (sums_0_ptr[5] + narrow_0_ptr[5]);
        sums_0_ptr[6] = (sums_0_ptr[6] + narrow_0_ptr[6]);
        sums_0_ptr[7] = (sums_0_ptr[7] + narrow_0_ptr[7]);
        sums_0_ptr[8] = (sums_0_ptr[8] + narrow_0_ptr[8]);
        sums_0_ptr[9] = (sums_0_ptr[9] + narrow_0_ptr[9]);
        sums_0_ptr[10] = (sums_0_ptr[10] + narrow_0_ptr[10]);
        sums_0_ptr[11] = (sums_0_ptr[11] + narrow_0_ptr[11]);
        sums_0_ptr[12] = (sums_0_ptr[12] + narrow_0_ptr[12]);
        sums_0_ptr[13] = (sums_0_ptr[13] + narrow_0_ptr[13]);
        sums_0_ptr[14] = (sums_0_ptr[14] + narrow_0_ptr[14]);
        sums_0_ptr[15] = (sums_0_ptr[15] + narrow_0_ptr[15]);
        sums_0_ptr[16] = (sums_0_ptr[16] + narrow_0_ptr[16]);
        sums_0_ptr[17] = (sums_0_ptr[17] + narrow_0_ptr[17]);
        sums_0_ptr[18] = (sums_0_ptr[18] + narrow_0_ptr[18]);
        sums_0_ptr[19] = (sums_0_ptr[19] + narrow_0_ptr[19]);
        sums_0_ptr[20] = (sums_0_ptr[20] + narrow_0_ptr[20]);
        sums_0_ptr[21] = (sums_0_ptr[21] + narrow_0_ptr[21]);
        sums_0_ptr[22] = (sums_0_ptr[22] + narrow_0_ptr[22]);
        sums_0_ptr[23] = (sums_0_ptr[23] + narrow_0_ptr[23]);
        sums_0_ptr[24] = (sums_0_ptr[24] + narrow_0_ptr[24]);
        sums_0_ptr[25] = (sums_0_ptr[25] + narrow_0_ptr[25]);
        sums_0_ptr[26] = (sums_0_ptr[26] + narrow_0_ptr[26]);
        sums_0_ptr[27] = (sums_0_ptr[27] + narrow_0_ptr[27]);
        sums_0_ptr[28] = (sums_0_ptr[28] + narrow_0_ptr[28]);
        sums_0_ptr[29] = (sums_0_ptr[29] + narrow_0_ptr[29]);
        sums_0_ptr[30] = (sums_0_ptr[30] + narrow_0_ptr[30]);
        sums_0_ptr[31] = (sums_0_ptr[31] + narrow_0_ptr[31]);
        sums_0_ptr[32] = (sums_0_ptr[32] + narrow_0_ptr[32]);
        sums_0_ptr[33] = (sums_0_ptr[33] + narrow_0_ptr[33]);
        sums_0_ptr[34] = (sums_0_ptr[34] + narrow_0_ptr[34]);
        sums_0_ptr[35] = (sums_0_ptr[35] + narrow_0_ptr[35]);
        sums_0_ptr[36] = (sums_0_ptr[36] + narrow_0_ptr[36]);
        sums_0_ptr[37] = (sums_0_ptr[37] + narrow_0_ptr[37]);
        sums_0_ptr[38] = (sums_0_ptr[38] + narrow_0_ptr[38]);
        sums_0_ptr[39] = (sums_0_ptr[39] + narrow_0_ptr[39]);
        sums_0_ptr[40] = (sums_0_ptr[40] + narrow_0_ptr[40]);
        sums_0_ptr[41] = (sums_0_ptr[41] + narrow_0_ptr[41]);
        sums_0_ptr[42] = (sums_0_ptr[42] + narrow_0_ptr[42]);
        sums_0_ptr[43] = (sums_0_ptr[43] + narrow_0_ptr[43]);
        sums_0_ptr[44] = (sums_0_ptr[44] + narrow_0_ptr[44]);
        sums_0_ptr[45] = (sums_0_ptr[45] + narrow_0_ptr[45]);
        sums_0_ptr[46] = (sums_0_ptr[46] + narrow_0_ptr[46]);
        sums_0_ptr[47] = (sums_0_ptr[47] + narrow_0_ptr[47]);
        sums_0_ptr[48] = (sums_0_ptr[48] + narrow_0_ptr[48]);
        sums_0_ptr[49] = (sums_0_ptr[49] + narrow_0_ptr[49]);
        sums_0_ptr[50] = (sums_0_ptr[50] + narrow_0_ptr[50]);
        sums_0_ptr[51] = (sums_0_ptr[51] + narrow_0_ptr[51]);
        sums_0_ptr[52] = (sums_0_ptr[52] + narrow_0_ptr[52]);
        sums_0_ptr[53] = (sums_0_ptr[53] + narrow_0_ptr[53]);
        sums_0_ptr[54] = (sums_0_ptr[54] + narrow_0_ptr[54]);
        sums_0_ptr[55] = (sums_0_ptr[55] + narrow_0_ptr[55]);
        sums_0_ptr[56] = (sums_0_ptr[56] + narrow_0_ptr[56]);
        sums_0_ptr[57] = (sums_0_ptr[57] + narrow_0_ptr[57]);
        sums_0_ptr[58] = (sums_0_ptr[58] + narrow_0_ptr[58]);
        sums_0_ptr[59] = (sums_0_ptr[59] + narrow_0_ptr[59]);
        sums_0_ptr[60] = (sums_0_ptr[60] + narrow_0_ptr[60]);
        sums_0_ptr[61] = (sums_0_ptr[61] + narrow_0_ptr[61]);
        sums_0_ptr[62] = (sums_0_ptr[62] + narrow_0_ptr[62]);
        sums_0_ptr[63] = (sums_0_ptr[63] + narrow_0_ptr[63]);
        sums_0_ptr[64] = (sums_0_ptr[64] + narrow_0_ptr[64]);
        sums_0_ptr[65] = (sums_0_ptr[65] + narrow_0_ptr[65]);
        sums_0_ptr[66] = (sums_0_ptr[66] + narrow_0_ptr[66]);
        sums_0_ptr[67] = (sums_0_ptr[67] + narrow_0_ptr[67]);
        sums_0_ptr[68] = (sums_0_ptr[68] + narrow_0_ptr[68]);
        sums_0_ptr[69] = (sums_0_ptr[69] + narrow_0_ptr[69]);
        sums_0_ptr[70] = (sums_0_ptr[70] + narrow_0_ptr[70]);
        sums_0_ptr[71] = (sums_0_ptr[71] + narrow_0_ptr[71]);
        sums_0_ptr[72] = (sums_0_ptr[72] + narrow_0_ptr[72]);
        sums_0_ptr[73] = (sums_0_ptr[73] + narrow_0_ptr[73]);
        sums_0_ptr[74] = (sums_0_ptr[74] + narrow_0_ptr[74]);
        sums_0_ptr[75] = (sums_0_ptr[75] + narrow_0_ptr[75]);
        sums_0_ptr[76] = (sums_0_ptr[76] + narrow_0_ptr[76]);
        sums_0_ptr[77] = (sums_0_ptr[77] + narrow_0_ptr[77]);
        sums_0_ptr[78] = (sums_0_ptr[78] + narrow_0_ptr[78]);
        sums_0_ptr[79] = (sums_0_ptr[79] + narrow_0_ptr[79]);
        sums_0_ptr[80] = (sums_0_ptr[80] + narrow_0_ptr[80]);
        sums_0_ptr[81] = (sums_0_ptr[81] + narrow_0_ptr[81]);
        sums_0_ptr[82] = (sums_0_ptr[82] + narrow_0_ptr[82]);
        sums_0_ptr[83] = (sums_0_ptr[83] + narrow_0_ptr[83]);
        sums_0_ptr[84] = (sums_0_ptr[84] + narrow_0_ptr[84]);
        sums_0_ptr[85] = (sums_0_ptr[85] + narrow_0_ptr[85]);
        sums_0_ptr[86] = (sums_0_ptr[86] + narrow_0_ptr[86]);
        sums_0_ptr[87] = (sums_0_ptr[87] + narrow_0_ptr[87]);
      }
      int lane_column = ((((int)threadIdx.x) & 3) * 2);
      int cse_v33 = ((((((((v_2 * 132) + ((int)blockIdx.x)) % 288) / 72) * 1024) + ((((v_2 * 132) + ((int)blockIdx.x)) & 7) * 128)) + ((warp_id_in_cta >> 2) * 64)) - 64);
      int first_own_row = ((((((((v_2 * 132) + ((int)blockIdx.x)) % 288) / 72) * 1024) + ((((v_2 * 132) + ((int)blockIdx.x)) & 7) * 128)) + ((warp_id_in_cta >> 2) * 64)) - 64);
      int cse_v34 = ((((((((v_2 * 132) + ((int)blockIdx.x)) % 288) / 72) * 1024) + ((((v_2 * 132) + ((int)blockIdx.x)) & 7) * 128)) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2));
      int cse_v35 = (((((((((v_2 * 132) + ((int)blockIdx.x)) % 288) / 72) * 1024) + ((((v_2 * 132) + ((int)blockIdx.x)) & 7) * 128)) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64);
      int row = (((((((((v_2 * 132) + ((int)blockIdx.x)) % 288) / 72) * 1024) + ((((v_2 * 132) + ((int)blockIdx.x)) & 7) * 128)) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64);
      int inside_row = min((((((((((v_2 * 132) + ((int)blockIdx.x)) % 288) / 72) * 1024) + ((((v_2 * 132) + ((int)blockIdx.x)) & 7) * 128)) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 64), 4095);
      int inside_row_1 = min((((((((((v_2 * 132) + ((int)blockIdx.x)) % 288) / 72) * 1024) + ((((v_2 * 132) + ((int)blockIdx.x)) & 7) * 128)) + (warp_id_in_cta * 16)) + ((((int)threadIdx.x) & 31) >> 2)) - 56), 4095);
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
      int cse_v11 = ((((int)threadIdx.x) & 31) >> 4);
      int cse_v20 = ((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64));
      int cse_v21 = (((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + ((((((int)threadIdx.x) & 31) >> 4) ^ (((int)threadIdx.x) & 7)) * 8));
      int cse_v26 = ((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + ((((((int)threadIdx.x) & 31) >> 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 70144);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + ((((((int)threadIdx.x) & 31) >> 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 70144)]))), stored_ptr[0], stored_ptr[1], stored_ptr[2], stored_ptr[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[0], sums_0_ptr[9], sums_0_ptr[8]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[1], sums_0_ptr[11], sums_0_ptr[10]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[2], sums_0_ptr[13], sums_0_ptr[12]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[3], sums_0_ptr[15], sums_0_ptr[14]);
      int cse_v27 = (((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 2) ^ (((int)threadIdx.x) & 7)) * 8));
      int cse_v30 = ((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 2) ^ (((int)threadIdx.x) & 7)) * 8)) + 70144);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 2) ^ (((int)threadIdx.x) & 7)) * 8)) + 70144)]))), stored_ptr[0], stored_ptr[1], stored_ptr[2], stored_ptr[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[0], sums_0_ptr[17], sums_0_ptr[16]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[1], sums_0_ptr[19], sums_0_ptr[18]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[2], sums_0_ptr[21], sums_0_ptr[20]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[3], sums_0_ptr[23], sums_0_ptr[22]);
      int cse_v28 = (((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 4) ^ (((int)threadIdx.x) & 7)) * 8));
      int cse_v31 = ((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 70144);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 70144)]))), stored_ptr[0], stored_ptr[1], stored_ptr[2], stored_ptr[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[0], sums_0_ptr[25], sums_0_ptr[24]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[1], sums_0_ptr[27], sums_0_ptr[26]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[2], sums_0_ptr[29], sums_0_ptr[28]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr[3], sums_0_ptr[31], sums_0_ptr[30]);
      int cse_v29 = (((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 6) ^ (((int)threadIdx.x) & 7)) * 8));
      int cse_v32 = ((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 6) ^ (((int)threadIdx.x) & 7)) * 8)) + 70144);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 6) ^ (((int)threadIdx.x) & 7)) * 8)) + 70144)]))), stored_ptr[0], stored_ptr[1], stored_ptr[2], stored_ptr[3]);
      tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      int cse_v17 = (((warp_id_in_cta >> 2) * 8192) + 70144);
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_cp_async_bulk_tensor_s2g_async_bulk_tensor_2d_global_shared__cta_tile_bulk_group(((void*)((unsigned long long)(&(out_map)))), min((((((v_2 * 132) + ((int)blockIdx.x)) % 72) >> 3) * 176), 1360), ((((((((v_2 * 132) + ((int)blockIdx.x)) % 288) / 72) * 1024) + ((((v_2 * 132) + ((int)blockIdx.x)) & 7) * 128)) + ((warp_id_in_cta >> 2) * 64)) - 64), tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[(((warp_id_in_cta >> 2) * 8192) + 70144)]))));
        tvm_builtin_ptx_cp_async_bulk_commit_group_async_bulk_commit_group();
      }
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_cp_async_bulk_wait_group_async_bulk_wait_group_read_0();
      }
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      alignas(64) uint stored_ptr_1[4];
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[0], sums_0_ptr[33], sums_0_ptr[32]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[1], sums_0_ptr[35], sums_0_ptr[34]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[2], sums_0_ptr[37], sums_0_ptr[36]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[3], sums_0_ptr[39], sums_0_ptr[38]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + ((((((int)threadIdx.x) & 31) >> 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 74240)]))), stored_ptr_1[0], stored_ptr_1[1], stored_ptr_1[2], stored_ptr_1[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[0], sums_0_ptr[41], sums_0_ptr[40]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[1], sums_0_ptr[43], sums_0_ptr[42]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[2], sums_0_ptr[45], sums_0_ptr[44]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[3], sums_0_ptr[47], sums_0_ptr[46]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 2) ^ (((int)threadIdx.x) & 7)) * 8)) + 74240)]))), stored_ptr_1[0], stored_ptr_1[1], stored_ptr_1[2], stored_ptr_1[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[0], sums_0_ptr[49], sums_0_ptr[48]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[1], sums_0_ptr[51], sums_0_ptr[50]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[2], sums_0_ptr[53], sums_0_ptr[52]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[3], sums_0_ptr[55], sums_0_ptr[54]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 74240)]))), stored_ptr_1[0], stored_ptr_1[1], stored_ptr_1[2], stored_ptr_1[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[0], sums_0_ptr[57], sums_0_ptr[56]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[1], sums_0_ptr[59], sums_0_ptr[58]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[2], sums_0_ptr[61], sums_0_ptr[60]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_1[3], sums_0_ptr[63], sums_0_ptr[62]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 6) ^ (((int)threadIdx.x) & 7)) * 8)) + 74240)]))), stored_ptr_1[0], stored_ptr_1[1], stored_ptr_1[2], stored_ptr_1[3]);
      tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_cp_async_bulk_tensor_s2g_async_bulk_tensor_2d_global_shared__cta_tile_bulk_group(((void*)((unsigned long long)(&(out_map)))), (min((((((v_2 * 132) + ((int)blockIdx.x)) % 72) >> 3) * 176), 1360) + 64), ((((((((v_2 * 132) + ((int)blockIdx.x)) % 288) / 72) * 1024) + ((((v_2 * 132) + ((int)blockIdx.x)) & 7) * 128)) + ((warp_id_in_cta >> 2) * 64)) - 64), tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[(((warp_id_in_cta >> 2) * 8192) + 74240)]))));
        tvm_builtin_ptx_cp_async_bulk_commit_group_async_bulk_commit_group();
      }
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_cp_async_bulk_wait_group_async_bulk_wait_group_read_1();
      }
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      alignas(64) uint stored_ptr_2[4];
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[0], sums_0_ptr[57], sums_0_ptr[56]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[1], sums_0_ptr[59], sums_0_ptr[58]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[2], sums_0_ptr[61], sums_0_ptr[60]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[3], sums_0_ptr[63], sums_0_ptr[62]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + ((((((int)threadIdx.x) & 31) >> 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 70144)]))), stored_ptr_2[0], stored_ptr_2[1], stored_ptr_2[2], stored_ptr_2[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[0], sums_0_ptr[65], sums_0_ptr[64]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[1], sums_0_ptr[67], sums_0_ptr[66]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[2], sums_0_ptr[69], sums_0_ptr[68]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[3], sums_0_ptr[71], sums_0_ptr[70]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 2) ^ (((int)threadIdx.x) & 7)) * 8)) + 70144)]))), stored_ptr_2[0], stored_ptr_2[1], stored_ptr_2[2], stored_ptr_2[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[0], sums_0_ptr[73], sums_0_ptr[72]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[1], sums_0_ptr[75], sums_0_ptr[74]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[2], sums_0_ptr[77], sums_0_ptr[76]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[3], sums_0_ptr[79], sums_0_ptr[78]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 4) ^ (((int)threadIdx.x) & 7)) * 8)) + 70144)]))), stored_ptr_2[0], stored_ptr_2[1], stored_ptr_2[2], stored_ptr_2[3]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[0], sums_0_ptr[81], sums_0_ptr[80]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[1], sums_0_ptr[83], sums_0_ptr[82]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[2], sums_0_ptr[85], sums_0_ptr[84]);
      tvm_builtin_ptx_cvt_bf16x2_f32_rn_bf16x2_f32(stored_ptr_2[3], sums_0_ptr[87], sums_0_ptr[86]);
      tvm_builtin_ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[((((((warp_id_in_cta >> 2) * 8192) + ((warp_id_in_cta & 3) * 1024)) + ((((int)threadIdx.x) & 15) * 64)) + (((((((int)threadIdx.x) & 31) >> 4) + 6) ^ (((int)threadIdx.x) & 7)) * 8)) + 70144)]))), stored_ptr_2[0], stored_ptr_2[1], stored_ptr_2[2], stored_ptr_2[3]);
      tvm_builtin_ptx_fence_proxy_proxy_async_shared__cta();
      tvm_builtin_ptx_bar_sync_count_sync(((uint)((warp_id_in_cta >> 2) + 7)), (uint)128);
      if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
        tvm_builtin_ptx_cp_async_bulk_tensor_s2g_async_bulk_tensor_2d_global_shared__cta_tile_bulk_group(((void*)((unsigned long long)(&(out_map)))), (min((((((v_2 * 132) + ((int)blockIdx.x)) % 72) >> 3) * 176), 1360) + 112), ((((((((v_2 * 132) + ((int)blockIdx.x)) % 288) / 72) * 1024) + ((((v_2 * 132) + ((int)blockIdx.x)) & 7) * 128)) + ((warp_id_in_cta >> 2) * 64)) - 64), tvm_builtin_cuda_cvta_generic_to_shared((&(((ushort*)_ptr)[(((warp_id_in_cta >> 2) * 8192) + 70144)]))));
        tvm_builtin_ptx_cp_async_bulk_commit_group_async_bulk_commit_group();
      }
    }
    if (((((int)threadIdx.x) % 32) == 0) && ((warp_id_in_cta % 4) == 0)) {
      tvm_builtin_ptx_cp_async_bulk_wait_group_async_bulk_wait_group_0();
    }
  }
}
