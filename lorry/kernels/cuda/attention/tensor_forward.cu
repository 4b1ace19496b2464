// Attention's forward pass on tensor cores, one warp at a time. A block processes 64 queries and runs over the keys
// with a running maximum and sum (Dao et al. 2022). It reads q once if that stays in shared memory, and k and v once
// per block of queries, mostly from the second-level cache; it writes out and logsumexp.

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/attention/attention.h"
#include "lorry/kernels/cuda/attention/tensor_tile.h"
#include "lorry/kernels/cuda/attention/tile_steps.h"

namespace lorry::kernels::cuda {
namespace {

/// A block computes kColumnTiles tiles of columns of out; blockIdx.y selects them. Each computes the weights again.
// Long: the tiles of a block stay in registers and shared memory over all keys.
template <class T, int kColumnTiles, Masks kMasks>
__global__ void __launch_bounds__(TensorTile<T, true>::kThreads, TensorTile<T, true>::blocks(kColumnTiles))
    forward_kernel(AttentionProblem p, int operand_parts) {
  lorry::cuda::begin_programmatic();
  using Tile = TensorTile<T, true>;
  constexpr int kSide = Tile::kSide, kRows = Tile::kRows;
  extern __shared__ uint4 memory[];
  __shared__ MaskBits<T, kMasks> mask;
  __shared__ DropoutBits<kMasks> dropout;
  Tile tile(memory, operand_parts);

  const auto [pair, b, h, first, shared_head] = QueryRows(p, kSide, blockIdx.x);
  const int64_t column = int64_t{blockIdx.y} * kColumnTiles * kSide;
  const auto q = p.q.at<const T>(b, h).from(first), k = p.k.at<const T>(b, shared_head),
             v = p.v.at<const T>(b, shared_head);
  const int64_t limit = p.causal && first + kSide < p.s ? first + kSide : p.s;

  const ScoreFactors factors(p);
  RunningSoftmax<T, Tile, needs_exact_weights(kMasks)> softmax(factors);
  typename Tile::Block scores;
  typename Tile::Sums sum[kColumnTiles] = {};
  if (limit > 0) {
    tile.copy_rows(0, q);
    tile.start({k});
  }
  for (int64_t j = 0; j < limit; j += kSide) {
    const ScorePosition at{b, h, first, j};
    mask.read(p, at, static_cast<int>(threadIdx.x), Tile::kThreads);  // products begin with a barrier
    dropout.draw(p, at, static_cast<int>(threadIdx.x), Tile::kThreads);
    tile.products(scores, 0, q, k.from(j), [&] { return TileOperand<T>{v.from(j), column}; });
    score<Tile, true, kMasks>(p, mask, scores, factors, at, at.at_edge(p));
    float ratio[kRows];
    softmax.add(scores, ratio);
    multiply_rows<Tile>(sum, ratio);
    drop<Tile, true>(p, dropout, scores);
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
  for (int r = 0; r < kRows; ++r) softmax.total[r] = over_row(softmax.total[r], [](float a, float c) { return a + c; });
  if constexpr (Tile::kHalves == 2) {
    float own[2][kRows], other[2][kRows], ratio[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) own[0][r] = softmax.base[r], own[1][r] = softmax.total[r];
    tile.exchange(own, other);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      ratio[r] = softmax.raise(r, fmaxf(own[0][r], other[0][r]));
      softmax.total[r] +=
          other[1][r] * weight_of<T, needs_exact_weights(kMasks)>(other[0][r], softmax.late, softmax.shift_of(r));
    }
    multiply_rows<Tile>(sum, ratio);
  }
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) tile.add_halves(sum[n]);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float logsumexp = softmax.finish(r, sum, left_scale(p));
    const int64_t query = first + Tile::row(r);
    if (Tile::column(0) == 0 && blockIdx.y == 0 && query < p.t)
      static_cast<float*>(p.logsumexp)[pair * p.t + query] = logsumexp;
  }
  if (Tile::half() != 0) return;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) write_sums<Tile>(p.out.at<T>(b, h).from(first), sum[n], column + n * kSide, 1);
}

}  // namespace

bool tensor_attention_forward(const AttentionArgs& args, Stream stream) {
  constexpr int64_t kFewKeys = 256;
  if (args.q.dtype == kF64 || !has_tensor_cores(stream)) return false;
  // Few products do not hide the time that each takes.
  if (args.q.dtype == kF32 && args.k.size(2) <= kFewKeys) return false;
  visit_floating(args.q.dtype, [&]<class T>(Type<T>) {
    if constexpr (sizeof(T) < 8) {
      using Tile = TensorTile<T, true>;
      const AttentionProblem p(args);
      if (p.batches * p.heads * p.t == 0) return;
      with_tiles<Tile::kSide>(p, p.v.width, [&]<int kColumnTiles, Masks kMasks>() {
        constexpr int64_t kColumns = kColumnTiles * Tile::kSide;
        const int64_t blocks = p.batches * p.heads * ((p.t + Tile::kSide - 1) / Tile::kSide);
        const int64_t parts = std::max<int64_t>(1, (p.v.width + kColumns - 1) / kColumns);
        launch_attention<forward_kernel<T, kColumnTiles, kMasks>, Tile>(
            stream, blocks, parts, 1, p.q.width, sizeof(MaskBits<T, kMasks>) + sizeof(DropoutBits<kMasks>), p);
      });
    }
  });
  return true;
}

}  // namespace lorry::kernels::cuda
