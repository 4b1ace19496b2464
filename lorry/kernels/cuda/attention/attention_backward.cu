// Attention's backward pass (Dao et al. 2022, algorithm 4) without atomics: each block computes 64 rows (32 for f64) of
// one gradient and recomputes the weights from the saved logsumexp. With P the weights, D the factors of dropout, and
// delta the row sums of grad_out * out:
//   grad_v = (P D)^T grad_out      dS = scale P (grad_out v^T D - delta)      grad_q = dS k      grad_k = dS^T q
// For grad_k and grad_v a block runs over the queries of all heads that share these keys. One launch computes the three
// gradients, so that a short sequence has blocks for the whole device.

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/attention/attention.h"
#include "lorry/kernels/cuda/attention/attention_tile.h"
#include "lorry/kernels/cuda/common/scratch.h"

namespace lorry::kernels::cuda {
namespace {

/// The operands of one gradient. Its rows are those of `rows`, its columns those of `values`. For grad_q, rows are
/// queries and columns of the weights are keys; for the others it is the reverse.
struct Gradient {
  Heads rows[2], columns[2];  ///< of the products that give the weights, and the slopes grad_out v^T
  Heads values, result;
  bool by_query, has_slopes;

  void addresses(auto& visit) const { visit(rows[0], rows[1], columns[0], columns[1], values, result); }
};

struct Gradients {
  Gradient of[3];

  Gradients(const AttentionProblem& p, const AttentionGrads& grads)
      : of{{{p.q, p.grad_out}, {p.k, p.v}, p.k, Heads(grads.grad_q), true, true},
           {{p.k, p.v}, {p.q, p.grad_out}, p.q, Heads(grads.grad_k), false, true},
           {{p.k, p.v}, {p.q, p.grad_out}, p.grad_out, Heads(grads.grad_v), false, false}} {}
  void addresses(auto& visit) const { visit(of[0], of[1], of[2]); }
  int64_t rows() const { return std::max({of[0].result.rows, of[1].result.rows, of[2].result.rows}); }
  int64_t width() const { return std::max({of[0].result.width, of[1].result.width, of[2].result.width}); }
};

/// One warp per row.
template <class T>
__global__ void __launch_bounds__(256) delta_kernel(AttentionProblem p) {
  lorry::cuda::begin_programmatic();
  using C = Compute<T>;
  const int64_t n = int64_t{blockIdx.x} * 8 + threadIdx.x / 32, pair = n / p.t;
  if (pair >= p.batches * p.heads) return;
  const auto out = p.out.at<const T>(pair / p.heads, pair % p.heads).from(n % p.t),
             grad = p.grad_out.at<const T>(pair / p.heads, pair % p.heads).from(n % p.t);
  C sum = 0;
  for (int64_t c = threadIdx.x % 32; c < out.width; c += 32)
    sum = fma(static_cast<C>(grad.data[c]), static_cast<C>(out.data[c]), sum);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) static_cast<C*>(p.delta)[n] = sum;
}

/// The derivatives of the scores from the weights' products and the slopes; for grad_v, the weights that dropout left.
template <class T, bool kByQuery>
__device__ __forceinline__ void differentiate(const AttentionProblem& p, typename AttentionTile<T>::Block& weights,
                                              const typename AttentionTile<T>::Block& slopes, bool has_slopes,
                                              int64_t b, int64_t h, int64_t query, int64_t key) {
  using C = Compute<T>;
#pragma unroll
  for (int m = 0; m < 4; ++m) {
    const int64_t i = query + m, row = (b * p.heads + h) * p.t + i;
    const C logsumexp = i < p.t ? static_cast<const C*>(p.logsumexp)[row] : C(0);
    const C delta = has_slopes && i < p.t ? static_cast<const C*>(p.delta)[row] : C(0);
    C factors[4] = {1, 1, 1, 1};
    if (p.drops) p.factors(factors, b, h, i, key);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      C& weight = kByQuery ? weights[m][n] : weights[n][m];
      const C slope = kByQuery ? slopes[m][n] : slopes[n][m];
      const bool sees = p.sees(i, key + n);
      if (sees) weight = exp(p.template score<T>(weight, b, h, i, key + n) - logsumexp);
      const C result =
          has_slopes ? weight * static_cast<C>(p.scale) * (slope * factors[n] - delta) : weight * factors[n];
      weight = sees ? result : C(0);
    }
  }
}

template <class T, int kColumnTiles>
__global__ void __launch_bounds__(AttentionTile<T>::kThreads, AttentionTile<T>::kBlocks)
    gradients_kernel(AttentionProblem p, Gradients gradients) {
  lorry::cuda::begin_programmatic();
  using Tile = AttentionTile<T>;
  constexpr int kSide = Tile::kSide;
  __shared__ typename Tile::Shared shared;
  const int64_t pairs = p.batches * max(p.heads, p.shared), pair = blockIdx.x % pairs, nth = blockIdx.x / pairs / 3;
  const Gradient& gradient = gradients.of[blockIdx.x / pairs % 3];
  const int64_t owners = gradient.by_query ? p.heads : p.shared;
  const int64_t rows = gradient.result.rows, tiles = (rows + kSide - 1) / kSide,
                column = int64_t{blockIdx.y} * kColumnTiles * kSide;
  if (pair >= p.batches * owners || nth >= tiles || column >= gradient.result.width) return;
  const int64_t b = pair / owners, owner = pair % owners;

  // With a causal mask the last queries have the most keys, and the first keys the most queries, so these start first.
  const int64_t first = (gradient.by_query ? tiles - 1 - nth : nth) * kSide;
  const int64_t begin = p.causal && !gradient.by_query ? first : 0, columns = gradient.by_query ? p.s : p.t;
  const int64_t end = p.causal && gradient.by_query && first + kSide < columns ? first + kSide : columns;
  const int64_t group = p.heads / p.shared, heads = gradient.by_query ? 1 : group;

  typename Tile::Block weights, slopes, sum[kColumnTiles];
  Tile::clear(slopes);
#pragma unroll
  for (int tile = 0; tile < kColumnTiles; ++tile) Tile::clear(sum[tile]);
  for (int64_t h = owner * heads; h < (owner + 1) * heads; ++h) {
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
  AttentionProblem p(args);
  p.grad_out = Heads(grads.grad_out);
  const int64_t rows = p.batches * p.heads * p.t;
  const Scratch delta(rows * static_cast<int64_t>(sizeof(Compute<T>)), stream);
  p.delta = delta.data();
  if (rows > 0) lorry::cuda::launch(stream, {{static_cast<unsigned>((rows + 7) / 8)}, {256}}, delta_kernel<T>, p);
  using Tile = AttentionTile<T>;
  const Gradients gradients(p, grads);
  const int64_t blocks =
      3 * p.batches * std::max(p.heads, p.shared) * ((gradients.rows() + Tile::kSide - 1) / Tile::kSide);
  if (blocks == 0 || gradients.width() == 0) return;
  const int column_tiles = gradients.width() > Tile::kSide ? 2 : 1;
  const int64_t columns = column_tiles * Tile::kSide, parts = (gradients.width() + columns - 1) / columns;
  const lorry::cuda::Shape shape{{static_cast<unsigned>(blocks), static_cast<unsigned>(parts)}, {Tile::kThreads}};
  lorry::cuda::launch(stream, shape, column_tiles == 1 ? gradients_kernel<T, 1> : gradients_kernel<T, 2>, p, gradients);
}

}  // namespace

void builtin_attention_backward(const AttentionArgs& args, const AttentionGrads& grads, Stream stream) {
  visit_floating(args.q.dtype, [&]<class T>(Type<T>) { backward_as<T>(args, grads, stream); });
}

}  // namespace lorry::kernels::cuda
