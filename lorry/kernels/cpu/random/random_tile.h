#pragma once

// The vectorised inner loops of the random kernels, over one tile of words that stays in the first-level cache. Each
// uses the widest instructions of the machine; the results do not depend on them.

#include <cstdint>

#include "lorry/formula/philox.h"

namespace lorry::kernels::cpu {

inline constexpr int64_t kTileBlocks = 256;
inline constexpr int64_t kTileWords = 4 * kTileBlocks;
inline constexpr int64_t kWordsUnit = 32;

/// Computes the words of `count` blocks from `block` on, in order. `count` is a multiple of kWordsUnit, and at most a
/// tile.
void random_words(const formula::RandomKey& key, uint64_t block, uint32_t* words, int64_t count = kTileBlocks);

/// Computes `count` values from as many words (twice as many for double). `count` is at most a tile, and even for
/// normals.
void uniform_tile(const uint32_t* words, float* out, int64_t count, float low, float high);
void uniform_tile(const uint32_t* words, double* out, int64_t count, double low, double high);
void normal_tile(const uint32_t* words, float* out, int64_t count, float mean, float std);
void normal_tile(const uint32_t* words, double* out, int64_t count, double mean, double std);
/// out[i] = words[i] <= last.
void at_most_tile(const uint32_t* words, uint8_t* out, int64_t count, uint32_t last);
void dropout_tile(const uint8_t* mask, const float* x, float* out, int64_t count, float scale);

}  // namespace lorry::kernels::cpu
