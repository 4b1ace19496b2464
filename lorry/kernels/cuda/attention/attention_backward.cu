// Attention's backward pass (Dao et al. 2022, algorithm 4) without atomics: one kernel per gradient, each of which
// recomputes the weights from the saved logsumexp. With P the weights, D the factors of dropout, and delta the row sums
// of grad_out * out:
//   grad_v = (P D)^T grad_out      dS = scale P (grad_out v^T D - delta)      grad_q = dS k      grad_k = dS^T q
// A block computes 64 rows of its gradient (32 for f64). For grad_k and grad_v it runs over the queries of all heads
// that share these keys.

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/attention/attention.h"
#include "lorry/kernels/cuda/attention/attention_tile.h"
#include "lorry/kernels/cuda/common/scratch.h"

namespace lorry::kernels::cuda {
namespace {

enum class Of { query, key, value };

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

// Long: the tiles of a block stay in registers and shared memory over all keys.
template <class T, int kColumnTiles, Of kOf>
__global__ void __launch_bounds__(AttentionTile<T>::kThreads, AttentionTile<T>::kBlocks)
    gradient_kernel(AttentionProblem p) {
  lorry::cuda::begin_programmatic();
  using Tile = AttentionTile<T>;
  using C = typename Tile::C;
  constexpr int kSide = Tile::kSide;
  constexpr bool kByQuery = kOf == Of::query;  // rows are queries and columns are keys; otherwise the reverse
  __shared__ typename Tile::Shared shared;

  // With a causal mask the last queries have the most keys, and the first keys the most queries, so these start first.
  const int64_t owners = kByQuery ? p.heads : p.shared, pairs = p.batches * owners, b = blockIdx.x % pairs / owners,
                owner = blockIdx.x % pairs % owners;
  const int64_t group = p.heads / p.shared, nth = blockIdx.x / pairs,
                column = int64_t{blockIdx.y} * kColumnTiles * kSide;
  const int64_t first = (kByQuery ? (p.t + kSide - 1) / kSide - 1 - nth : nth) * kSide;
  const int64_t begin = p.causal && !kByQuery ? first : 0, columns = kByQuery ? p.s : p.t;
  const int64_t end = p.causal && kByQuery && first + kSide < columns ? first + kSide : columns;

  typename Tile::Block weights, slopes, sum[kColumnTiles];
#pragma unroll
  for (int tile = 0; tile < kColumnTiles; ++tile) Tile::clear(sum[tile]);

  for (int64_t h = kByQuery ? owner : owner * group; h < (kByQuery ? owner + 1 : (owner + 1) * group); ++h) {
    const auto q = p.q.at<const T>(b, h), grad_out = p.grad_out.at<const T>(b, h), k = p.k.at<const T>(b, h / group),
               v = p.v.at<const T>(b, h / group);
    const auto values = kByQuery ? k : kOf == Of::key ? q : grad_out;
    for (int64_t at = begin; at < end; at += kSide) {
      if constexpr (kByQuery) {
        Tile::products(weights, shared, q.from(first), k.from(at));
        Tile::products(slopes, shared, grad_out.from(first), v.from(at));
      } else {
        Tile::products(weights, shared, k.from(first), q.from(at));
        if constexpr (kOf == Of::key) Tile::products(slopes, shared, v.from(first), grad_out.from(at));
      }
      const int64_t query = kByQuery ? first + Tile::y() * 4 : at + Tile::x() * 4,
                    key = kByQuery ? at + Tile::x() * 4 : first + Tile::y() * 4;
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const int64_t i = query + m, row = (b * p.heads + h) * p.t + i;
        const C logsumexp = i < p.t ? static_cast<const C*>(p.logsumexp)[row] : C(0);
        const C delta = kOf != Of::value && i < p.t ? static_cast<const C*>(p.delta)[row] : C(0);
        C factors[4] = {1, 1, 1, 1};
        if (p.drops) p.factors(factors, b, h, i, key);
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          C &weight = kByQuery ? weights[m][n] : weights[n][m], &slope = kByQuery ? slopes[m][n] : slopes[n][m];
          const bool sees = p.sees(i, key + n);
          if (sees) weight = exp(p.template score<T>(weight, b, h, i, key + n) - logsumexp);
          const C result =
              kOf == Of::value ? weight * factors[n] : weight * static_cast<C>(p.scale) * (slope * factors[n] - delta);
          weight = sees ? result : C(0);
        }
      }
      Tile::keep(shared, weights);
#pragma unroll
      for (int tile = 0; tile < kColumnTiles; ++tile)
        if (column + tile * kSide < values.width)
          Tile::accumulate(sum[tile], shared, values.from(at), column + tile * kSide);
    }
  }
#pragma unroll
  for (int tile = 0; tile < kColumnTiles; ++tile)
    Tile::write(p.result.at<T>(b, owner).from(first), sum[tile], column + tile * kSide);
}

template <class T, Of kOf>
void launch_gradient(AttentionProblem& p, const Array& result, Stream stream) {
  using Tile = AttentionTile<T>;
  p.result = Heads(result);
  const int64_t blocks = result.size(0) * result.size(1) * ((result.size(2) + Tile::kSide - 1) / Tile::kSide),
                width = result.size(3);
  if (blocks == 0 || width == 0) return;
  const int column_tiles = width > Tile::kSide ? 2 : 1;
  const int64_t parts = (width + column_tiles * Tile::kSide - 1) / (column_tiles * Tile::kSide);
  const lorry::cuda::Shape shape{{static_cast<unsigned>(blocks), static_cast<unsigned>(parts)}, {Tile::kThreads}};
  lorry::cuda::launch(stream, shape, column_tiles == 1 ? gradient_kernel<T, 1, kOf> : gradient_kernel<T, 2, kOf>, p);
}

template <class T>
void backward_as(const AttentionArgs& args, const AttentionGrads& grads, Stream stream) {
  AttentionProblem p(args);
  p.grad_out = Heads(grads.grad_out);
  const int64_t rows = p.batches * p.heads * p.t;
  const Scratch delta(rows * static_cast<int64_t>(sizeof(Compute<T>)), stream);
  p.delta = delta.data();
  if (rows > 0) lorry::cuda::launch(stream, {{static_cast<unsigned>((rows + 7) / 8)}, {256}}, delta_kernel<T>, p);
  launch_gradient<T, Of::query>(p, grads.grad_q, stream);
  launch_gradient<T, Of::key>(p, grads.grad_k, stream);
  launch_gradient<T, Of::value>(p, grads.grad_v, stream);
}

}  // namespace

void builtin_attention_backward(const AttentionArgs& args, const AttentionGrads& grads, Stream stream) {
  visit_floating(args.q.dtype, [&]<class T>(Type<T>) { backward_as<T>(args, grads, stream); });
}

}  // namespace lorry::kernels::cuda
