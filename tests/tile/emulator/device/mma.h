// Products of a warp, done where they stand; in the dtypes and with the rounding of those of warp groups.
#pragma once

#include "wgmma.h"

namespace emulator {

constexpr int kMmaRows = 16, kMmaColumns = 8, kMmaDepth = 16;

// Two neighbours of 16 bits in a register.
inline void unpack(ptx::Dtype dtype, uint32_t word, float* into) {
  for (int e = 0; e < 2; ++e) into[e] = widen(dtype, word >> 16 * e & 0xffff);
}

// The words of 8 rows of 16 bytes, each of whose addresses a lane gives; turned, two neighbours of a column.
inline void load_matrices(int count, bool turned, uint32_t row, uint32_t* words) {
  if (row % 16) fault("ldmatrix from an address that is no multiple of 16: %u", row);
  const uint64_t* rows = meet(turned ? "ldmatrix.trans" : "ldmatrix", row);
  const int lane = self().lane();
  for (int k = 0; k < count; ++k) {
    uint32_t banks = 0;  // eight rows of four banks each take as long as there are rows in the same ones
    for (int r = 0; r < 8; ++r) banks |= 1u << (rows[8 * k + r] / 16 % 8);
    if (banks != 0xff) fault("ldmatrix: rows of a matrix share banks");
    for (int e = 0; e < 2; ++e) {
      const int r = turned ? lane % 4 * 2 + e : lane / 4, column = turned ? lane / 4 : lane % 4 * 2 + e;
      const uint32_t source = uint32_t(rows[8 * k + r]) + 2 * column;
      uint16_t half;
      std::memcpy(&half, shared.at(source, 2, "ldmatrix"), 2);
      if (shared.unit(source).filled_by) fault("ldmatrix reads address %u into which a copy is under way", source - kBase);
      words[k] = (e ? words[k] : 0) | uint32_t(half) << 16 * e;
    }
  }
}

}  // namespace emulator

namespace ptx {

void ldmatrix(bool turned, std::initializer_list<uint32_t*> registers, uint32_t row) {
  uint32_t words[4];
  load_matrices(int(registers.size()), turned, row, words);
  for (size_t k = 0; k < registers.size(); ++k) *registers.begin()[k] = words[k];
}

void mma_sync(Dtype dtype, std::initializer_list<float*> d, std::initializer_list<uint32_t> a,
              std::initializer_list<uint32_t> b, std::initializer_list<float> c) {
  float left[kMmaRows][kMmaDepth], right[kMmaColumns][kMmaDepth];
  const uint32_t* words = a.begin();
  uint64_t given[kWarp][3];
  for (int part = 0; part < 3; ++part) {
    const uint32_t* pair = part < 2 ? words + 2 * part : b.begin();
    const uint64_t* all = meet("mma.sync", pair[0] | uint64_t(pair[1]) << 32);
    for (int lane = 0; lane < kWarp; ++lane) given[lane][part] = all[lane];
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int half = 0; half < 2; ++half) {  // of the depth
      const int k = half * 8 + lane % 4 * 2;
      for (int r = 0; r < 2; ++r) unpack(dtype, uint32_t(given[lane][half] >> 32 * r), &left[lane / 4 + 8 * r][k]);
      unpack(dtype, uint32_t(given[lane][2] >> 32 * half), &right[lane / 4][k]);
    }
  }
  for (int index = 0; index < 4; ++index) {
    const int row = self().lane() / 4 + 8 * (index / 2), column = self().lane() % 4 * 2 + index % 2;
    *d.begin()[index] = dot(left[row], right[column], kMmaDepth, 1, c.begin()[index]);
  }
}

}  // namespace ptx
