extern "C" __global__ void __launch_bounds__(256) main_0_kernel(half* __restrict__ by_up_left_ptr, half* __restrict__ x_ptr) {
  alignas(64) half x_vector_ptr[8];
  alignas(64) half by_up_left_vector_ptr[8];
  int cse_v1 = ((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6));
  if (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) < 441) {
    int cse_v2 = (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3);
    int cse_v3 = ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3);
    int cse_v4 = ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3));
    int cse_v5 = (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3));
    if ((((1 <= ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3))) && (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3)) < 8)) && (1 <= (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)))) && ((((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)) < 8)) {
      *(uint4*)(x_vector_ptr + 0) = *(uint4*)(x_ptr + (((((((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3) * 3584) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 9) * 512)) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3) * 512)) + ((((int)threadIdx.x) & 63) * 8)) - 4096));
    }
    half condval;
    if ((((1 <= ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3))) && (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3)) < 8)) && (1 <= (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)))) && ((((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)) < 8)) {
      condval = x_vector_ptr[0];
    } else {
      condval = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    }
    by_up_left_vector_ptr[0] = ((half)((float)condval));
    half condval_1;
    if ((((1 <= ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3))) && (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3)) < 8)) && (1 <= (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)))) && ((((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)) < 8)) {
      condval_1 = x_vector_ptr[1];
    } else {
      condval_1 = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    }
    by_up_left_vector_ptr[1] = ((half)((float)condval_1));
    half condval_2;
    if ((((1 <= ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3))) && (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3)) < 8)) && (1 <= (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)))) && ((((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)) < 8)) {
      condval_2 = x_vector_ptr[2];
    } else {
      condval_2 = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    }
    by_up_left_vector_ptr[2] = ((half)((float)condval_2));
    half condval_3;
    if ((((1 <= ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3))) && (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3)) < 8)) && (1 <= (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)))) && ((((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)) < 8)) {
      condval_3 = x_vector_ptr[3];
    } else {
      condval_3 = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    }
    by_up_left_vector_ptr[3] = ((half)((float)condval_3));
    half condval_4;
    if ((((1 <= ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3))) && (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3)) < 8)) && (1 <= (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)))) && ((((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)) < 8)) {
      condval_4 = x_vector_ptr[4];
    } else {
      condval_4 = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    }
    by_up_left_vector_ptr[4] = ((half)((float)condval_4));
    half condval_5;
    if ((((1 <= ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3))) && (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3)) < 8)) && (1 <= (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)))) && ((((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)) < 8)) {
      condval_5 = x_vector_ptr[5];
    } else {
      condval_5 = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    }
    by_up_left_vector_ptr[5] = ((half)((float)condval_5));
    half condval_6;
    if ((((1 <= ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3))) && (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3)) < 8)) && (1 <= (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)))) && ((((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)) < 8)) {
      condval_6 = x_vector_ptr[6];
    } else {
      condval_6 = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    }
    by_up_left_vector_ptr[6] = ((half)((float)condval_6));
    half condval_7;
    if ((((1 <= ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3))) && (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) / 63) + ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 9) / 3)) < 8)) && (1 <= (((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)))) && ((((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 63) / 9) + (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 6)) % 3)) < 8)) {
      condval_7 = x_vector_ptr[7];
    } else {
      condval_7 = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    }
    by_up_left_vector_ptr[7] = ((half)((float)condval_7));
    *(uint4*)(by_up_left_ptr + ((((int)blockIdx.x) * 2048) + (((int)threadIdx.x) * 8))) = *(uint4*)(by_up_left_vector_ptr + 0);
  }
}
