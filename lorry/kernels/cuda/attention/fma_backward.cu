// Attention's backward pass (Dao et al. 2022, algorithm 4) without atomics and tensor cores: each block computes 64
// rows (32 for f64) of one gradient and recomputes the weights from the saved logsumexp. With P the weights, D the
// factors of dropout, and delta the row sums of grad_out * out:
//   grad_v = (P D)^T grad_out      dS = scale P (grad_out v^T D - delta)      grad_q = dS k      grad_k = dS^T q
// For grad_k and grad_v a block runs over the queries of all heads that share these keys. One launch computes the three
// gradients, so that a short sequence has blocks for the whole device.

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/attention/attention.h"
#include "lorry/kernels/cuda/attention/fma_tile.h"

namespace lorry::kernels::cuda {
namespace {

/// The derivatives of the scores from the weights' products and the slopes; for grad_v, the weights that dropout left.
template <class T, bool kByQuery>
__device__ __forceinline__ void differentiate(const AttentionProblem& p, typename FmaTile<T>::Block& weights,
                                              const typename FmaTile<T>::Block& slopes, bool has_slopes, int64_t b,
                                              int64_t h, int64_t query, int64_t key) {
  using C = Compute<T>;
#pragma unroll
  for (int m = 0; m < 4; ++m) {
    const int64_t i = query + m, row = (b * p.heads + h) * p.t + i;
    const C logsumexp = i < p.t ? static_cast<const C*>(p.logsumexp)[row] : C(0);
    const C delta = has_slopes && i < p.t ? static_cast<const C*>(p.delta)[row] : C(0);
    C factors[4] = {1, 1, 1, 1};
    if (p.drops) dropout_factors(p, factors, b, h, i, key);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      C& weight = kByQuery ? weights[m][n] : weights[n][m];
      const C slope = kByQuery ? slopes[m][n] : slopes[n][m];
      const bool attends = sees(p, i, key + n);
      if (attends) weight = exp(score_of<T>(p, weight, b, h, i, key + n) - logsumexp);
      const C result =
          has_slopes ? weight * static_cast<C>(p.scale) * (slope * factors[n] - delta) : weight * factors[n];
      weight = attends ? result : C(0);
    }
  }
}

template <class T, int kColumnTiles>
__global__ void __launch_bounds__(FmaTile<T>::kThreads, FmaTile<T>::kBlocks)
    gradients_kernel(AttentionProblem p, Gradients gradients) {
  lorry::cuda::begin_programmatic();
  using Tile = FmaTile<T>;
  constexpr int kSide = Tile::kSide;
  __shared__ typename Tile::Shared shared;
  int64_t nth = blockIdx.x;
  int of = 0;
  while (of < 2 && nth >= gradients.blocks[of]) nth -= gradients.blocks[of++];
  const Gradient& gradient = gradients.of[of];
  const GradientRows rows(p, gradient.by_query, kSide, nth);
  const int64_t column = int64_t{blockIdx.y} * kColumnTiles * kSide, group = p.heads / p.shared;
  if (column >= gradient.result.width) return;
  const auto [b, owner, first, begin, end, first_head, heads] = rows;

  typename Tile::Block weights, slopes, sum[kColumnTiles];
  Tile::clear(slopes);
#pragma unroll
  for (int tile = 0; tile < kColumnTiles; ++tile) Tile::clear(sum[tile]);
  for (int64_t h = first_head; h < first_head + heads; ++h) {
    const int64_t other = gradient.by_query ? h / group : h;  // the head of the columns and values
    for (int64_t at = begin; at < end; at += kSide) {
      const auto multiply = [&](typename Tile::Block& block, int i) {
        Tile::products(block, shared, gradient.rows[i].at<const T>(b, owner).from(first),
                       gradient.columns[i].at<const T>(b, other).from(at));
      };
      multiply(weights, 0);
      if (gradient.has_slopes) multiply(slopes, 1);
      if (gradient.by_query)
        differentiate<T, true>(p, weights, slopes, true, b, h, first + Tile::y() * 4, at + Tile::x() * 4);
      else
        differentiate<T, false>(p, weights, slopes, gradient.has_slopes, b, h, at + Tile::x() * 4,
                                first + Tile::y() * 4);
      Tile::keep(shared, weights);
#pragma unroll
      for (int tile = 0; tile < kColumnTiles; ++tile)
        if (column + tile * kSide < gradient.values.width)
          Tile::accumulate(sum[tile], shared, gradient.values.at<const T>(b, other).from(at), column + tile * kSide);
    }
  }
#pragma unroll
  for (int tile = 0; tile < kColumnTiles; ++tile)
    Tile::write(gradient.result.at<T>(b, owner).from(first), sum[tile], column + tile * kSide);
}

template <class T>
void backward_as(const AttentionArgs& args, const AttentionGrads& grads, Stream stream) {
  using Tile = FmaTile<T>;
  const BackwardProblem problem(args, grads, stream);
  const AttentionProblem& p = problem.p;
  const Gradients gradients(p, grads, Tile::kSide);
  const int64_t blocks = gradients.all_blocks();
  if (blocks == 0 || gradients.width() == 0) return;
  const int column_tiles = gradients.width() > Tile::kSide ? 2 : 1;
  const int64_t columns = column_tiles * Tile::kSide, parts = (gradients.width() + columns - 1) / columns;
  const lorry::cuda::Shape shape{{grid_of(blocks), static_cast<unsigned>(parts)}, {Tile::kThreads}};
  lorry::cuda::launch(stream, shape, column_tiles == 1 ? gradients_kernel<T, 1> : gradients_kernel<T, 2>, p, gradients);
}

}  // namespace

void fma_attention_backward(const AttentionArgs& args, const AttentionGrads& grads, Stream stream) {
  visit_floating(args.q.dtype, [&]<class T>(Type<T>) {
    if constexpr (kNeedsFma<T>)
      backward_as<T>(args, grads, stream);
    else
      refuse_left_out(args.q.dtype);
  });
}

}  // namespace lorry::kernels::cuda
