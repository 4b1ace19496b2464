// Attention's backward pass (Dao et al. 2022, algorithm 4) on tensor cores, without atomics: each block computes 64
// rows of one gradient and recomputes the weights from the saved logsumexp. With P the weights, and delta the row sums
// of grad_out * out:
//   grad_v = P^T grad_out      dS = scale P (grad_out v^T - delta)      grad_q = dS k      grad_k = dS^T q
// For grad_k and grad_v a block runs over the queries of all heads that share these keys. One launch computes the three
// gradients, so that a short sequence has blocks for the whole device.

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/attention/attention.h"
#include "lorry/kernels/cuda/attention/tensor_launch.h"
#include "lorry/kernels/cuda/attention/tensor_tile.h"
#include "lorry/kernels/cuda/common/scratch.h"

namespace lorry::kernels::cuda {
namespace {

template <class T>
using Tile = TensorTile<T, false>;

/// What differentiate needs of the tile's queries, in shared memory.
template <class C>
struct QueryFacts {
  C *logsumexp, *delta;
};

/// A thread's part of them, on its way from memory: thread n has query n.
template <class C>
struct QueryFact {
  C logsumexp = 0, delta = 0;

  __device__ void load(const AttentionProblem& p, int64_t b, int64_t h, int64_t query, int count) {
    const int64_t i = query + threadIdx.x, row = (b * p.heads + h) * p.t + i;
    if (static_cast<int>(threadIdx.x) >= count || i >= p.t) return;
    logsumexp = static_cast<const C*>(p.logsumexp)[row];
    delta = static_cast<const C*>(p.delta)[row];
  }
  __device__ void store(const QueryFacts<C>& to, int count) const {
    if (static_cast<int>(threadIdx.x) >= count) return;
    to.logsumexp[threadIdx.x] = logsumexp;
    to.delta[threadIdx.x] = delta;
  }
};

/// The derivatives of the scores from the weights' products and the slopes, in the place of the former; for grad_v, the
/// weights. The rows of the tile are queries (kByQuery) or keys. query, key: the first of the tile.
template <class T, bool kByQuery, bool kSlopes>
__device__ __forceinline__ void differentiate(const AttentionProblem& p, const QueryFacts<float>& facts,
                                              typename Tile<T>::Block& weights, const typename Tile<T>::Block& slopes,
                                              int64_t query, int64_t key) {
  using C = float;
  const C scale = static_cast<C>(p.scale);
  Range seen[Tile<T>::kRows];
#pragma unroll
  for (int r = 0; r < Tile<T>::kRows; ++r) {
    seen[r] = kByQuery ? p.keys_of(query + Tile<T>::row(r), key, Tile<T>::kSide)
                       : p.queries_of(query, key + Tile<T>::row(r), Tile<T>::kSide);
#pragma unroll
    for (int c = 0; c < Tile<T>::kColumns; ++c) weights[r][c] *= scale;
  }
  constexpr int kQueries = kByQuery ? Tile<T>::kRows : Tile<T>::kColumns,
                kKeys = kByQuery ? Tile<T>::kColumns : Tile<T>::kRows;
#pragma unroll
  for (int m = 0; m < kQueries; ++m) {
    const int i = kByQuery ? Tile<T>::row(m) : Tile<T>::column(m);
    const C logsumexp = facts.logsumexp[i], delta = facts.delta[i];
#pragma unroll
    for (int n = 0; n < kKeys; ++n) {
      const int r = kByQuery ? m : n, c = kByQuery ? n : m;
      const C weight = weight_of<T>(weights[r][c] - logsumexp);
      const C result = kSlopes ? weight * scale * (slopes[r][c] - delta) : weight;
      weights[r][c] = seen[r].has(Tile<T>::column(c)) ? result : C(0);
    }
  }
}

/// One block's rows of one gradient. kSlopes: not of grad_v.
// Long: the tiles of a block stay in registers and shared memory over all columns.
template <class T, int kColumnTiles, bool kByQuery, bool kSlopes>
__device__ __forceinline__ void compute_gradient(const AttentionProblem& p, const Gradient& gradient, Tile<T> tile,
                                                 const QueryFacts<float>& facts, int64_t pair, int64_t nth) {
  constexpr int kSide = Tile<T>::kSide, kFirst = kSlopes ? 1 : 0;  // kFirst: the operand of the first product
  const int64_t owners = kByQuery ? p.heads : p.shared, rows = gradient.result.rows, tiles = (rows + kSide - 1) / kSide,
                column = int64_t{blockIdx.y} * kColumnTiles * kSide, width = gradient.values.width;
  if (pair >= p.batches * owners || nth >= tiles || column >= gradient.result.width) return;
  const int64_t b = pair / owners, owner = pair % owners;

  // With a causal mask the last queries have the most keys, and the first keys the most queries, so these start first.
  const int64_t first = (kByQuery ? tiles - 1 - nth : nth) * kSide;
  const int64_t begin = p.causal && !kByQuery ? first : 0, columns = kByQuery ? p.s : p.t;
  const int64_t end = p.causal && kByQuery && first + kSide < columns ? first + kSide : columns;
  const int64_t group = p.heads / p.shared, heads = kByQuery ? 1 : group, last_head = (owner + 1) * heads - 1;
  const auto rows_of = [&](int operand) { return gradient.rows[operand].at<const T>(b, owner).from(first); };
  const auto columns_of = [&](int operand, int64_t h, int64_t at) {
    return gradient.columns[operand].at<const T>(b, kByQuery ? h / group : h).from(at);
  };
  // Where there are slopes, the values are the columns of the last product.
  const bool again = kSlopes && width <= kSide;

  QueryFact<float> fact;
  if (kByQuery) fact.load(p, b, owner, first, kSide);
  typename Tile<T>::Block weights, slopes = {};
  typename Tile<T>::Sums sum[kColumnTiles] = {};
  if (begin < end && heads > 0) {
    tile.copy_rows(0, rows_of(0));
    if (kSlopes) tile.copy_rows(1, rows_of(1));
    tile.start({columns_of(kFirst, owner * heads, begin)});
  }
  for (int64_t h = owner * heads; h <= last_head; ++h) {
    for (int64_t at = begin; at < end; at += kSide) {
      const int64_t query = kByQuery ? first : at, key = kByQuery ? at : first;
      const auto values = gradient.values.at<const T>(b, kByQuery ? h / group : h).from(at);
      const auto of_next_tile = [&] {
        const bool last = at + kSide >= end;
        return TileOperand<T>{columns_of(kFirst, last ? h + 1 : h, last ? begin : at + kSide), 0,
                              last && h == last_head};
      };
      if (!kByQuery) fact = {}, fact.load(p, b, h, query, kSide);
      if (kSlopes)
        tile.products(slopes, 1, rows_of(1), columns_of(1, h, at),
                      [&] { return TileOperand<T>{columns_of(0, h, at)}; });
      tile.products(weights, 0, rows_of(0), columns_of(0, h, at), [&] {
        return again ? of_next_tile() : TileOperand<T>{values, column};
      });
      // Products begin with a barrier: all threads have read what these had for the last tile.
      fact.store(facts, kSide);
      __syncthreads();
      differentiate<T, kByQuery, kSlopes>(p, facts, weights, slopes, query, key);
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
        const int64_t here = column + n * kSide, next = here + kSide;
        if (n > 0 && here >= width) break;
        tile.accumulate(sum[n], weights, values, here, again, [&] {
          return n + 1 < kColumnTiles && next < width ? TileOperand<T>{values, next} : of_next_tile();
        });
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    tile.add_halves(sum[n]);
    Tile<T>::write(gradient.result.at<T>(b, owner).from(first), sum[n], column + n * kSide);
  }
}

template <class T, int kColumnTiles>
__global__ void __launch_bounds__(Tile<T>::kThreads, Tile<T>::blocks(kColumnTiles))
    gradients_kernel(AttentionProblem p, Gradients gradients, int operand_parts) {
  lorry::cuda::begin_programmatic();
  extern __shared__ uint4 memory[];
  __shared__ float query_facts[2][Tile<T>::kSide];
  const Tile<T> tile(memory, operand_parts);
  const QueryFacts<float> facts{query_facts[0], query_facts[1]};
  // Blocks of one gradient follow each other: multiprocessors that run different code at once wait for instructions.
  const int64_t pairs = p.batches * max(p.heads, p.shared), pair = blockIdx.x % pairs, each = gridDim.x / 3;
  const int64_t nth = blockIdx.x % each / pairs;
  switch (blockIdx.x / each) {
    case 0:
      return compute_gradient<T, kColumnTiles, true, true>(p, gradients.of[0], tile, facts, pair, nth);
    case 1:
      return compute_gradient<T, kColumnTiles, false, true>(p, gradients.of[1], tile, facts, pair, nth);
    default:
      return compute_gradient<T, kColumnTiles, false, false>(p, gradients.of[2], tile, facts, pair, nth);
  }
}

template <class T>
void backward_as(const AttentionArgs& args, const AttentionGrads& grads, Stream stream) {
  AttentionProblem p(args);
  p.grad_out = Heads(grads.grad_out);
  const Scratch delta(p.batches * p.heads * p.t * static_cast<int64_t>(sizeof(float)), stream);
  p.delta = delta.data();
  compute_delta<T>(p, stream);
  const Gradients gradients(p, grads);
  constexpr int kSide = Tile<T>::kSide;
  with_column_tiles<kSide>(gradients.width(), [&]<int kColumnTiles>() {
    constexpr int64_t kColumns = kColumnTiles * kSide;
    const int64_t tiles = (gradients.rows() + kSide - 1) / kSide;
    const int64_t blocks = 3 * p.batches * std::max(p.heads, p.shared) * tiles;
    const int64_t parts = (gradients.width() + kColumns - 1) / kColumns;
    if (blocks == 0 || parts == 0) return;
    launch_attention<gradients_kernel<T, kColumnTiles>, Tile<T>>(stream, blocks, parts, 2,
                                                                 std::max(p.q.width, p.v.width), p, gradients);
  });
}

}  // namespace

bool tensor_attention_backward(const AttentionArgs& args, const AttentionGrads& grads, Stream stream) {
  if (!suits_tensor_cores(args, stream)) return false;
  visit_floating(args.q.dtype, [&]<class T>(Type<T>) {
    if constexpr (sizeof(T) < 8) backward_as<T>(args, grads, stream);
  });
  return true;
}

}  // namespace lorry::kernels::cuda
