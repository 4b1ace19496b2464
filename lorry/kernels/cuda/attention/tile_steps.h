#pragma once

// What the attention kernels on tensor cores do between products: masks and dropout, the running softmax, the
// derivatives of scores, and results. Tile, kByQuery and kMasks are those of tile_masks.h.

#include "lorry/kernels/cuda/attention/tile_masks.h"
#include "lorry/kernels/cuda/common/fast_math.h"

namespace lorry::kernels::cuda {

/// Folds over the four threads of a row, in a fixed order.
template <class F>
__device__ __forceinline__ float over_row(float value, F combine) {
  value = combine(value, __shfl_xor_sync(0xffffffffu, value, 2));
  return combine(value, __shfl_xor_sync(0xffffffffu, value, 1));
}

/// Sets the elements of a tile at an edge whose query does not attend to their key, but for the mask.
template <class Tile, bool kByQuery>
__device__ __forceinline__ void hide(const AttentionProblem& p, typename Tile::Block& block, const ScorePosition& at,
                                     float value) {
#pragma unroll
  for (int r = 0; r < Tile::kRows; ++r) {
    const Range seen = kByQuery ? p.keys_of(at.query + Tile::row(r), at.key, kTileSide)
                                : p.queries_of(at.query, at.key + Tile::row(r), kTileSide);
#pragma unroll
    for (int c = 0; c < Tile::kColumns; ++c)
      if (!seen.has(Tile::column(c))) block[r][c] = value;
  }
}

/// Whether scores can be large numbers that cancel: those with an added mask can.
constexpr bool needs_exact_weights(Masks masks) { return masks == Masks::of_floats || masks == Masks::any; }

/// exp(late * score - shift). For 16-bit operands with the hardware's approximation of 2^x. kExact: subtracts
/// before it multiplies by log2(e), so that large numbers cancel exactly, in one step more.
template <class T, bool kExact>
__device__ __forceinline__ float weight_of(float score, float late, float shift) {
  constexpr float kLog2e = 1.44269504088896341f;
  if constexpr (!kHalf<T>)
    return exp(fmaf(score, late, -shift));
  else if constexpr (kExact)
    return fast_exp2(fmaf(score, late, -shift) * kLog2e);
  else
    return fast_exp2(fmaf(score, late * kLog2e, -shift * kLog2e));
}

/// The factor of products, `scale`, in two. `late` is applied when weights are computed, together with the subtraction
/// of the largest score. Where that would change which score is the largest, or where a mask is added, `early` makes
/// scores of the products first. One of the two is 1.
struct ScoreFactors {
  float early, late;

  __device__ explicit ScoreFactors(const AttentionProblem& p) {
    const float scale = static_cast<float>(p.scale);
    const bool is_late = scale > 0 && !p.adds_mask();
    early = is_late ? 1.0f : scale, late = is_late ? scale : 1.0f;
  }
};

/// Turns the products of queries and keys into scores but for the late factor; -infinity where a query does not attend
/// to a key.
template <class Tile, bool kByQuery, Masks kMasks, class Mask>
__device__ __forceinline__ void score(const AttentionProblem& p, const Mask& mask, typename Tile::Block& products,
                                      const ScoreFactors& factors, const ScorePosition& at, bool at_edge) {
  if (!adds_mask<kMasks>(p) && factors.early != 1)
    for_elements<Tile>([&](int r, int c) { products[r][c] *= factors.early; });
  if constexpr (can_mask(kMasks)) mask.template apply<Tile, kByQuery>(p, products, factors.early, at);
  if (at_edge) hide<Tile, kByQuery>(p, products, at, -std::numeric_limits<float>::infinity());
}

/// Drops weights. Those that are left lack the factor dropout_scale.
template <class Tile, bool kByQuery, Masks kMasks>
__device__ __forceinline__ void drop(const AttentionProblem& p, const DropoutBits<kMasks>& dropout,
                                     typename Tile::Block& weights) {
  if constexpr (can_drop(kMasks)) {
    if (!p.drops) return;
    for_bits<Tile, kByQuery>(dropout.kept, [&](int r, int c, bool kept) {
      if (!kept) weights[r][c] = 0;
    });
  }
}
/// The factor that is left to apply.
__device__ __forceinline__ float left_scale(const AttentionProblem& p) {
  return p.drops ? static_cast<float>(p.dropout_scale) : 1.0f;
}

/// The softmax of rows whose scores come a tile at a time (Milakov & Gimelshein 2018, algorithm 3): a base for each
/// row, near its largest score so far, and the sum of its weights exp(score - base). A thread's sum is of its own
/// columns.
template <class T, class Tile, bool kExact>
struct RunningSoftmax {
  static constexpr float kNone = -std::numeric_limits<float>::infinity();
  /// Weights may be as large as exp(kSlack) before the base is raised: most tiles leave it, and the sums, as they are.
  static constexpr float kSlack = 8;
  float base[Tile::kRows], total[Tile::kRows];
  float late;  ///< the late factor of scores

  __device__ explicit RunningSoftmax(const ScoreFactors& factors) : late(factors.late) {
#pragma unroll
    for (int r = 0; r < Tile::kRows; ++r) base[r] = kNone, total[r] = 0;
  }

  /// Turns a tile of scores into weights. Sums of earlier weights must be multiplied by `ratio`.
  __device__ __forceinline__ void add(typename Tile::Block& scores, float (&ratio)[Tile::kRows]) {
#pragma unroll
    for (int r = 0; r < Tile::kRows; ++r) {
      float top = base[r];
#pragma unroll
      for (int c = 0; c < Tile::kColumns; ++c) top = fmaxf(top, scores[r][c]);  // ignores NaN
      top = over_row(top, [](float a, float c) { return fmaxf(a, c); });
      ratio[r] = raise(r, (top - base[r]) * late > kSlack ? top : base[r]);
    }
#pragma unroll
    for (int r = 0; r < Tile::kRows; ++r) {
      const float shift = shift_of(r);
#pragma unroll
      for (int c = 0; c < Tile::kColumns; ++c)
        total[r] += scores[r][c] = weight_of<T, kExact>(scores[r][c], late, shift);
    }
  }
  /// Makes the weights of a row relative to another base; returns the factor of what they were.
  __device__ __forceinline__ float raise(int r, float to) {
    const float before = base[r];
    base[r] = to;
    const float ratio = before == to ? 1.0f : weight_of<T, kExact>(before, late, shift_of(r));
    total[r] *= ratio;
    return ratio;
  }
  /// Divides the sums by the row's total and multiplies them by `scale`, and returns the logsumexp. total[r] must be
  /// the row's. A row that attends to no key is 0, not 0 / 0. Its infinite logsumexp makes every weight 0 in the
  /// backward pass.
  template <int kSums>
  __device__ __forceinline__ float finish(int r, typename Tile::Sums (&sums)[kSums], float scale) const {
    const bool blind = total[r] == 0 && base[r] == kNone;
    const float inverse = blind ? 0.0f : scale / total[r];
#pragma unroll
    for (int n = 0; n < kSums; ++n)
#pragma unroll
      for (int c = 0; c < Tile::kSumColumns; ++c) sums[n][r][c] = blind ? 0.0f : sums[n][r][c] * inverse;
    return blind ? std::numeric_limits<float>::infinity() : shift_of(r) + log(total[r]);
  }
  /// The base of a row, with the late factor; 0 where there is none.
  __device__ float shift_of(int r) const { return base[r] == kNone ? 0.0f : base[r] * late; }
};

/// Multiplies the rows of sums. Called by whole warps.
template <class Tile, int kSums>
__device__ __forceinline__ void multiply_rows(typename Tile::Sums (&sums)[kSums], const float (&factor)[Tile::kRows]) {
  bool changes = false;
#pragma unroll
  for (int r = 0; r < Tile::kRows; ++r) changes = changes || factor[r] != 1;
  if (!__any_sync(0xffffffffu, changes)) return;
#pragma unroll
  for (int n = 0; n < kSums; ++n)
#pragma unroll
    for (int r = 0; r < Tile::kRows; ++r)
#pragma unroll
      for (int c = 0; c < Tile::kSumColumns; ++c) sums[n][r][c] *= factor[r];
}

/// Turns scores into weights. logsumexp: of the tile's queries.
template <class T, class Tile, bool kByQuery, bool kExact>
__device__ __forceinline__ void weigh(typename Tile::Block& scores, const ScoreFactors& factors,
                                      const float* logsumexp) {
  constexpr int kQueries = kByQuery ? Tile::kRows : Tile::kColumns, kKeys = kByQuery ? Tile::kColumns : Tile::kRows;
#pragma unroll
  for (int m = 0; m < kQueries; ++m) {
    const float shift = logsumexp[kByQuery ? Tile::row(m) : Tile::column(m)];
#pragma unroll
    for (int n = 0; n < kKeys; ++n) {
      float& x = kByQuery ? scores[m][n] : scores[n][m];
      x = weight_of<T, kExact>(x, factors.late, shift);
    }
  }
}

/// Turns slopes grad_out v^T into the derivatives of the scores, but for the factor `scale`. delta: of the tile's
/// queries.
template <class Tile, bool kByQuery, Masks kMasks>
__device__ __forceinline__ void differentiate(const AttentionProblem& p, const DropoutBits<kMasks>& dropout,
                                              const typename Tile::Block& weights, typename Tile::Block& slopes,
                                              const float* delta, const ScorePosition& at, bool at_edge) {
  if constexpr (can_drop(kMasks))
    if (p.drops) {
      const float scale = left_scale(p);
      for_bits<Tile, kByQuery>(dropout.kept, [&](int r, int c, bool kept) { slopes[r][c] *= kept ? scale : 0.0f; });
    }
  constexpr int kQueries = kByQuery ? Tile::kRows : Tile::kColumns, kKeys = kByQuery ? Tile::kColumns : Tile::kRows;
#pragma unroll
  for (int m = 0; m < kQueries; ++m) {
    const float mean = delta[kByQuery ? Tile::row(m) : Tile::column(m)];
#pragma unroll
    for (int n = 0; n < kKeys; ++n) {
      const int r = kByQuery ? m : n, c = kByQuery ? n : m;
      slopes[r][c] = weights[r][c] * (slopes[r][c] - mean);
    }
  }
  if (at_edge) hide<Tile, kByQuery>(p, slopes, at, 0);
}

/// Writes sums, times a factor, to columns from `at` on, within the matrix, which begins with the tile's first row.
template <class Tile, class T>
__device__ __forceinline__ void write_sums(const Matrix<T>& to, const typename Tile::Sums& sums, int64_t at,
                                           float factor) {
#pragma unroll
  for (int r = 0; r < Tile::kRows; ++r) {
    if (Tile::row(r) >= to.rows) break;
    T* const data = to.data + Tile::row(r) * to.row;
#pragma unroll
    for (int c = 0; c < Tile::kSumColumns; c += 2) {
      const int64_t first = at + Tile::sum_column(c);
      const Run<T, 2> run{static_cast<T>(sums[r][c] * factor), static_cast<T>(sums[r][c + 1] * factor)};
      if (to.runs && first + 1 < to.width) {
        store_run(data + first, run);
      } else {
        if (first < to.width) data[first] = run.at[0];
        if (first + 1 < to.width) data[first + 1] = run.at[1];
      }
    }
  }
}

}  // namespace lorry::kernels::cuda
