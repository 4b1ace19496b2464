#pragma once

// The attention mask and the dropout mask of a tile of 64 x 64 scores, in shared memory. kMasks: what the call can
// have. `Tile` says which elements a thread has: rows row(0) to row(kRows - 1) and columns column(0) to
// column(kColumns - 1). The rows are queries (kByQuery) or keys.

#include "lorry/kernels/cuda/attention/attention_problem.h"
#include "lorry/kernels/cuda/common/copy_ahead.h"
#include "lorry/kernels/cuda/common/mma.h"

namespace lorry::kernels::cuda {

/// Where a tile is: the batch entry, the head, and the tile's first query and key.
struct ScorePosition {
  int64_t b, h, query, key;

  /// Whether there are queries that do not attend to all keys, but for the mask.
  __device__ bool at_edge(const AttentionProblem& p) const { return !p.sees_all(query, key, kTileSide); }
};

/// Calls f(r, c) for the thread's elements.
template <class Tile, class F>
__device__ __forceinline__ void for_elements(F&& f) {
#pragma unroll
  for (int r = 0; r < Tile::kRows; ++r)
#pragma unroll
    for (int c = 0; c < Tile::kColumns; ++c) f(r, c);
}

/// Calls f(r, c, bit) for the thread's elements. Bit n of bits[w][i] is of query i and key 32 w + n.
template <class Tile, bool kByQuery, class F>
__device__ __forceinline__ void for_bits(const uint32_t (&bits)[2][kTileSide], F&& f) {
  // The elements of a thread are 1 or a multiple of 8 rows or columns apart, so their bits have fixed distances.
  const int row = Tile::row(0), column = Tile::column(0);
  if constexpr (kByQuery) {
#pragma unroll
    for (int r = 0; r < Tile::kRows; ++r)
#pragma unroll
      for (int w = 0; w < Tile::kColumns / 8; ++w) {
        const uint32_t word = bits[column / 32 + w][Tile::row(r)] >> (column % 32);
#pragma unroll
        for (int c = 0; c < 8; ++c) f(r, 8 * w + c, (word & 1u << (c / 2 * 8 + c % 2)) != 0);
      }
  } else {
#pragma unroll
    for (int c = 0; c < Tile::kColumns; ++c) {
      const uint32_t word = bits[row / 32][Tile::column(c)] >> (row % 32);
#pragma unroll
      for (int r = 0; r < Tile::kRows; ++r) f(r, c, (word & 1u << (8 * r)) != 0);
    }
  }
}

/// What dropout keeps of a tile's weights.
template <Masks kMasks, bool = can_drop(kMasks)>
struct DropoutBits {
  uint32_t kept[2][kTileSide];  ///< a bit each

  /// Drawn by `threads` threads, of which this is number `thread`.
  __device__ void draw(const AttentionProblem& p, const ScorePosition& at, int thread, int threads) {
    if (!p.drops) return;
    for (int n = thread; n < 2 * kTileSide; n += threads) {
      const int row = n % kTileSide, word = n / kTileSide;
      kept[word][row] = bits_of(p, at.b, at.h, at.query + row, at.key + word * 32);
    }
  }

 private:
  /// Whether dropout keeps the weights of query i and keys j to j + 31: a bit each.
  static __device__ uint32_t bits_of(const AttentionProblem& p, int64_t b, int64_t h, int64_t i, int64_t j) {
    const uint64_t first = static_cast<uint64_t>(((b * p.heads + h) * p.t + i) * p.s + j);
    const int skipped = static_cast<int>(first % 4);
    const formula::Draw draw(p.key.load());
    uint64_t kept = 0;
#pragma unroll 2
    for (int n = 0; n < (skipped == 0 ? 8 : 9); ++n) {
      const formula::Words4 words = formula::random_block(draw, first / 4 + static_cast<uint64_t>(n));
      uint32_t four = 0;
#pragma unroll
      for (int w = 0; w < 4; ++w)
        if (p.keeps(words.word[w])) four |= 1u << w;
      kept |= uint64_t{four} << (4 * n);
    }
    return static_cast<uint32_t>(kept >> skipped);
  }
};
template <Masks kMasks>
struct DropoutBits<kMasks, false> {
  __device__ void draw(const AttentionProblem&, const ScorePosition&, int, int) {}
};

/// Whether the call has a mask.
template <Masks kMasks>
__device__ __forceinline__ bool has_mask(const AttentionProblem& p) {
  return can_mask(kMasks) && (kMasks != Masks::any || p.mask != nullptr);
}
/// Whether it has a mask of floats.
template <Masks kMasks>
__device__ __forceinline__ bool adds_mask(const AttentionProblem& p) {
  return kMasks == Masks::of_floats || (kMasks == Masks::any && p.adds_mask());
}

/// The mask of a tile, for operands of any type T: a mask of bool in bits. One of floats is read when it is applied.
template <class T, Masks kMasks, bool = can_mask(kMasks)>
struct MaskBits {
  uint32_t seen[2][kTileSide];  ///< a bit each

  /// Read by `threads` threads, of which this is number `thread`.
  __device__ void read(const AttentionProblem& p, const ScorePosition& at, int thread, int threads) {
    if (!has_mask<kMasks>(p) || adds_mask<kMasks>(p)) return;
    for (int n = thread; n < 2 * kTileSide; n += threads) {
      const int row = n % kTileSide, word = n / kTileSide;
      seen[word][row] = bits_of(p, at.b, at.h, at.query + row, at.key + word * 32);
    }
  }

  /// Adds -infinity where a mask of bool hides a key; scores have the factor already. With a mask of floats, x becomes
  /// x factor + mask.
  template <class Tile, bool kByQuery>
  __device__ __forceinline__ void apply(const AttentionProblem& p, typename Tile::Block& scores, float factor,
                                        const ScorePosition& at) const {
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    if (!has_mask<kMasks>(p)) return;
    if (!adds_mask<kMasks>(p)) {
      for_bits<Tile, kByQuery>(seen, [&](int r, int c, bool is_seen) {
        if (!is_seen) scores[r][c] += kNone;
      });
      return;
    }
    const int64_t row_stride = p.mask_strides[kByQuery ? 2 : 3], column_stride = p.mask_strides[kByQuery ? 3 : 2];
    const T* const first = static_cast<const T*>(p.mask) + at.b * p.mask_strides[0] + at.h * p.mask_strides[1] +
                           at.query * p.mask_strides[2] + at.key * p.mask_strides[3];
#pragma unroll
    for (int r = 0; r < Tile::kRows; ++r) {
      const Range range = kByQuery ? p.keys_of(at.query + Tile::row(r), at.key, kTileSide)
                                   : p.queries_of(at.query, at.key + Tile::row(r), kTileSide);
      const T* const from = first + Tile::row(r) * row_stride;
#pragma unroll
      for (int c = 0; c < Tile::kColumns; ++c)
        if (range.has(Tile::column(c)))
          scores[r][c] = fmaf(scores[r][c], factor, static_cast<float>(from[Tile::column(c) * column_stride]));
    }
  }

 private:
  /// Whether the mask, of bool, lets query i attend to keys j to j + 31: a bit each. 0 beyond the mask.
  static __device__ uint32_t bits_of(const AttentionProblem& p, int64_t b, int64_t h, int64_t i, int64_t j) {
    if (i >= p.t || j >= p.s) return 0;
    const int64_t step = p.mask_strides[3];
    const auto* const from = static_cast<const uint8_t*>(p.mask) + b * p.mask_strides[0] + h * p.mask_strides[1] +
                             i * p.mask_strides[2] + j * step;
    const int count = AttentionProblem::within(p.s - j, 32);
    uint32_t seen = 0;
    if (step == 1 && count == 32 && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const uint4 bytes = reinterpret_cast<const uint4*>(from)[n];
        // Gathers the bytes' lowest bits in the highest four bits.
        const auto bits = [](uint32_t four) { return (__vcmpne4(four, 0) & 0x01010101u) * 0x10204080u >> 28; };
        seen |= (bits(bytes.x) | bits(bytes.y) << 4 | bits(bytes.z) << 8 | bits(bytes.w) << 12) << (16 * n);
      }
    } else {
      for (int n = 0; n < count; ++n) seen |= (from[n * step] != 0 ? 1u : 0u) << n;
    }
    return seen;
  }
};
template <class T, Masks kMasks>
struct MaskBits<T, kMasks, false> {
  __device__ void read(const AttentionProblem&, const ScorePosition&, int, int) {}
};

/// The mask of a warpgroup's tile, of bool or of the operands' type T of 16 bits, as it lies in memory, so that
/// copies of it go on while the threads do other things. Zeros beyond the mask.
template <class T, Masks kMasks, bool = can_mask(kMasks)>
struct MaskTile {
  static constexpr int kPitch = kTileSide * static_cast<int>(sizeof(T)) + 16;  ///< so that rows lie in different banks
  alignas(16) unsigned char rows[kTileSide][kPitch];                           ///< a query each

  /// As MaskBits has it.
  template <class Tile, bool kByQuery>
  __device__ __forceinline__ void apply(const AttentionProblem& p, typename Tile::Block& scores, float factor,
                                        const ScorePosition&) const {
    if (!has_mask<kMasks>(p)) return;
    if (adds_mask<kMasks>(p))
      add<Tile, kByQuery>(scores, factor);
    else
      hide_unseen<Tile, kByQuery>(scores);
  }

 private:
  template <class Tile, bool kByQuery>
  __device__ __forceinline__ void hide_unseen(typename Tile::Block& scores) const {
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    if constexpr (kByQuery) {
#pragma unroll
      for (int r = 0; r < Tile::kRows; ++r)
#pragma unroll
        for (int c = 0; c < Tile::kColumns; c += 2) {
          const uint32_t seen = *reinterpret_cast<const uint16_t*>(rows[Tile::row(r)] + Tile::column(c));
          if ((seen & 0xff) == 0) scores[r][c] += kNone;
          if ((seen & 0xff00) == 0) scores[r][c + 1] += kNone;
        }
    } else {
      for_elements<Tile>([&](int r, int c) {
        if (rows[Tile::column(c)][Tile::row(r)] == 0) scores[r][c] += kNone;
      });
    }
  }
  template <class Tile, bool kByQuery>
  __device__ __forceinline__ void add(typename Tile::Block& scores, float factor) const {
    // Matrix m of four has rows from 8 (m % 2) on, and columns from 8 (2 n + m / 2) on.
    const int lane = Tile::thread() % 32, matrix = lane / 8, row = Tile::thread() / 32 * 16 + matrix % 2 * 8;
#pragma unroll
    for (int n = 0; n < Tile::kColumns / 4; ++n) {
      const int column = (2 * n + matrix / 2) * 8;
      const unsigned char* const from = kByQuery ? rows[row + lane % 8] + column * static_cast<int>(sizeof(T))
                                                 : rows[column + lane % 8] + row * static_cast<int>(sizeof(T));
      uint32_t pairs[4];
      load_tiles<!kByQuery>(pairs, from);
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const auto& pair = reinterpret_cast<const Run<T, 2>&>(pairs[m]);
        const int c = 4 * n + m / 2 * 2;
#pragma unroll
        for (int i = 0; i < 2; ++i)
          scores[m % 2][c + i] = fmaf(scores[m % 2][c + i], factor, static_cast<float>(pair.at[i]));
      }
    }
  }
};
template <class T, Masks kMasks>
struct MaskTile<T, kMasks, false> {};

/// Copies the mask of a warpgroup's tiles, one after the other. Its 128 threads copy, two of them each row.
template <class T, Masks kMasks, bool kByQuery>
class MaskCopier {
 public:
  /// Begins with the tile `at`.
  __device__ void begin(const AttentionProblem& p, const ScorePosition& at) {
    if (has_mask<kMasks>(p)) source_ = element(p, at);
  }
  /// Starts the copy of a tile: `at`, which follows the last one in the direction of the warpgroup's columns.
  __device__ __forceinline__ void copy(const AttentionProblem& p, const ScorePosition& at, MaskTile<T, kMasks>& to) {
    if constexpr (can_mask(kMasks)) {
      if (!has_mask<kMasks>(p)) return;
      const int size = element_size(p);
      unsigned char* const row = to.rows[row_of_thread()];
      if (p.mask_run == 16 && at.query + kTileSide <= p.t && at.key + kTileSide <= p.s) {
#pragma unroll
        for (int n = 0; n < (kMasks == Masks::of_bool ? 2 : 4); ++n)
          if (n * 32 < kTileSide * size) start_copy<16>(row + half() * 16 + n * 32, source_ + half() * 16 + n * 32);
      } else {
        copy_edge(p, at, row);
      }
      source_ += kTileSide * size * p.mask_strides[kByQuery ? 3 : 2];
    }
  }

 private:
  static __device__ int row_of_thread() { return static_cast<int>(threadIdx.x) % 128 / 2; }
  static __device__ int half() { return static_cast<int>(threadIdx.x) % 2; }
  static __device__ int element_size(const AttentionProblem& p) {
    return adds_mask<kMasks>(p) ? static_cast<int>(sizeof(T)) : 1;
  }
  /// The first element of this thread's row.
  __device__ const unsigned char* element(const AttentionProblem& p, const ScorePosition& at) const {
    return static_cast<const unsigned char*>(p.mask) +
           element_size(p) * (at.b * p.mask_strides[0] + at.h * p.mask_strides[1] +
                              (at.query + row_of_thread()) * p.mask_strides[2] + at.key * p.mask_strides[3]);
  }
  /// Copies this thread's part of a row from any address. Writes zeros beyond the mask.
  __device__ __forceinline__ void copy_edge(const AttentionProblem& p, const ScorePosition& at,
                                            unsigned char* row) const {
    const int64_t left = at.query + row_of_thread() < p.t ? max(int64_t{0}, p.s - at.key) : 0;
    const int size = element_size(p), keys = static_cast<int>(min(int64_t{kTileSide}, left));
    switch (p.mask_run) {
      case 16:
        return copy_runs<16>(row, keys * size, size);
      case 8:
        return copy_runs<8>(row, keys * size, size);
      case 4:
        return copy_runs<4>(row, keys * size, size);
      default:
        break;
    }
    if (size == 1)
      copy_elements(row, source_, p.mask_strides[3], keys);
    else
      copy_elements(reinterpret_cast<T*>(row), reinterpret_cast<const T*>(source_), p.mask_strides[3], keys);
  }
  template <class E>
  static __device__ __forceinline__ void copy_elements(E* to, const E* from, int64_t stride, int keys) {
    constexpr int kAtOnce = 8;  // loads in flight
#pragma unroll 1
    for (int n = half() * kAtOnce; n < kTileSide; n += 2 * kAtOnce) {
      E held[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) held[u] = n + u < keys ? from[(n + u) * stride] : E(0);
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) to[n + u] = held[u];
    }
  }
  /// bytes: how many of the row lie within the mask.
  template <int kRun>
  __device__ __forceinline__ void copy_runs(unsigned char* row, int bytes, int size) const {
#pragma unroll 1
    for (int at = half() * kRun; at < kTileSide * size; at += 2 * kRun)
      start_copy<kRun>(row + at, source_ + at, max(0, min(kRun, bytes - at)));
  }

  const unsigned char* source_ = nullptr;
};

}  // namespace lorry::kernels::cuda
