// Attention's forward pass on tensor cores. A block processes 64 queries and runs over the keys with a running maximum
// and sum (Dao et al. 2022). It reads q once if that is at most 128 wide, and k and v once per block of queries, mostly
// from the second-level cache; it writes out and logsumexp.

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/attention/attention.h"
#include "lorry/kernels/cuda/attention/tensor_launch.h"
#include "lorry/kernels/cuda/attention/tensor_tile.h"

namespace lorry::kernels::cuda {
namespace {

/// A block computes kColumnTiles tiles of columns of out; blockIdx.y selects them. Each computes the weights again.
// Long: the tiles of a block stay in registers and shared memory over all keys.
template <class T, int kColumnTiles>
__global__ void __launch_bounds__(TensorTile<T, true>::kThreads, TensorTile<T, true>::blocks(kColumnTiles))
    forward_kernel(AttentionProblem p, int operand_parts) {
  lorry::cuda::begin_programmatic();
  using Tile = TensorTile<T, true>;
  using C = float;
  constexpr int kSide = Tile::kSide, kRows = Tile::kRows, kColumns = Tile::kColumns;
  constexpr C kNone = -std::numeric_limits<C>::infinity();
  extern __shared__ uint4 memory[];
  Tile tile(memory, operand_parts);

  // With a causal mask the last queries have the most keys, so they start first.
  const int64_t pairs = p.batches * p.heads, pair = blockIdx.x % pairs, b = pair / p.heads, h = pair % p.heads;
  const int64_t first = ((p.t + kSide - 1) / kSide - 1 - blockIdx.x / pairs) * kSide,
                column = int64_t{blockIdx.y} * kColumnTiles * kSide;
  const auto q = p.q.at<const T>(b, h).from(first), k = p.k.at<const T>(b, h / (p.heads / p.shared)),
             v = p.v.at<const T>(b, h / (p.heads / p.shared));
  const int64_t limit = p.causal && first + kSide < p.s ? first + kSide : p.s;

  const C scale = static_cast<C>(p.scale);

  typename Tile::Block scores;
  typename Tile::Sums sum[kColumnTiles];
  C most[kRows], total[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    most[r] = kNone, total[r] = 0;
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
      for (int c = 0; c < Tile::kSumColumns; ++c) sum[n][r][c] = 0;
  }

  if (limit > 0) {
    tile.copy_rows(0, q);
    tile.start({k});
  }
  for (int64_t j = 0; j < limit; j += kSide) {
    tile.products(scores, 0, q, k.from(j), [&] { return TileOperand<T>{v.from(j), column}; });
    Range keys[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      keys[r] = p.keys_of(first + Tile::row(r), j, kSide);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) scores[r][c] *= scale;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      C top = kNone;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        C& score = scores[r][c];
        score = Tile::column(c) < keys[r].last ? score : kNone;
        top = score > top ? score : top;
      }
      top = Tile::over_row(top, [](C a, C c) { return c > a ? c : a; });
      top = top > most[r] ? top : most[r];
      const C shift = top == kNone ? C(0) : top, factor = weight_of<T>(most[r] - shift);
      most[r] = top;
      total[r] *= factor;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) total[r] += scores[r][c] = weight_of<T>(scores[r][c] - shift);
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
        for (int c = 0; c < Tile::kSumColumns; ++c) sum[n][r][c] *= factor;
    }
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const int64_t here = column + n * kSide, next = here + kSide;
      if (n > 0 && here >= v.width) break;
      tile.accumulate(sum[n], scores, v.from(j), here, false, [&] {
        const bool more = n + 1 < kColumnTiles && next < v.width;
        return more ? TileOperand<T>{v.from(j), next} : TileOperand<T>{k.from(j + kSide), 0, j + kSide >= limit};
      });
    }
  }

#pragma unroll
  for (int r = 0; r < kRows; ++r) total[r] = Tile::over_row(total[r], [](C a, C c) { return a + c; });
  if constexpr (Tile::kHalves == 2) {
    C own[2][kRows], other[2][kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) own[0][r] = most[r], own[1][r] = total[r];
    tile.exchange(own, other);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const C top = most[r] > other[0][r] ? most[r] : other[0][r], shift = top == kNone ? C(0) : top;
      const C factor = weight_of<T>(most[r] - shift);
      total[r] = total[r] * factor + other[1][r] * weight_of<T>(other[0][r] - shift);
      most[r] = top;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
        for (int c = 0; c < Tile::kSumColumns; ++c) sum[n][r][c] *= factor;
    }
  }
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) tile.add_halves(sum[n]);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    // A row that attends to no key is 0, not 0 / 0. Its infinite logsumexp makes every weight 0 in the backward pass.
    const bool blind = total[r] == 0;
    const C inverse = blind ? C(0) : 1 / total[r];
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
      for (int c = 0; c < Tile::kSumColumns; ++c) sum[n][r][c] = blind ? C(0) : sum[n][r][c] * inverse;
    const int64_t query = first + Tile::row(r);
    if (Tile::column(0) == 0 && blockIdx.y == 0 && query < p.t)
      static_cast<C*>(p.logsumexp)[pair * p.t + query] =
          blind ? std::numeric_limits<C>::infinity() : most[r] + log(total[r]);
  }
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) Tile::write(p.out.at<T>(b, h).from(first), sum[n], column + n * kSide);
}

}  // namespace

bool tensor_attention_forward(const AttentionArgs& args, Stream stream) {
  constexpr int64_t kFewKeys = 256;
  if (!suits_tensor_cores(args, stream)) return false;
  // Few products do not hide the time that each takes.
  if (args.q.dtype == kF32 && args.k.size(2) <= kFewKeys) return false;
  visit_floating(args.q.dtype, [&]<class T>(Type<T>) {
    if constexpr (sizeof(T) < 8) {
      using Tile = TensorTile<T, true>;
      const AttentionProblem p(args);
      if (p.batches * p.heads * p.t == 0) return;
      with_column_tiles<Tile::kSide>(p.v.width, [&]<int kColumnTiles>() {
        constexpr int64_t kColumns = kColumnTiles * Tile::kSide;
        const int64_t blocks = p.batches * p.heads * ((p.t + Tile::kSide - 1) / Tile::kSide);
        const int64_t parts = std::max<int64_t>(1, (p.v.width + kColumns - 1) / kColumns);
        launch_attention<forward_kernel<T, kColumnTiles>, Tile>(stream, blocks, parts, 1, p.q.width, p);
      });
    }
  });
  return true;
}

}  // namespace lorry::kernels::cuda
