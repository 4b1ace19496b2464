// Attention's backward pass (Dao et al. 2022, algorithm 4) on tensor cores, one warp at a time, without atomics: each
// block computes 64 rows of one gradient, or of grad_k and grad_v, and recomputes the weights from the saved logsumexp.
// With P the weights, D the factors of dropout, and delta the row sums of grad_out * out:
//   grad_v = (P D)^T grad_out      dS = P (grad_out v^T D - delta)      grad_q = scale dS k      grad_k = scale dS^T q
// For grad_k and grad_v a block runs over the queries of all heads that share these keys. One launch computes the three
// gradients, so that a short sequence has blocks for the whole device.

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/attention/attention.h"
#include "lorry/kernels/cuda/attention/tensor_tile.h"
#include "lorry/kernels/cuda/attention/tile_steps.h"

namespace lorry::kernels::cuda {
namespace {

template <class T>
using Tile = TensorTile<T, false>;

/// What the derivatives need of the queries of a tile and of the next one.
template <class T, Masks kMasks>
struct QueryFacts {
  float logsumexp[2][kTileSide], delta[2][kTileSide];
  MaskBits<T, kMasks> mask[2];
  DropoutBits<kMasks> dropout[2];

  /// Starts the copies, and writes the bits. Called by all threads.
  __device__ void load(int stage, const AttentionProblem& p, const ScorePosition& at, int threads) {
    const int n = static_cast<int>(threadIdx.x) % kTileSide;
    const int64_t i = at.query + n, row = (at.b * p.heads + at.h) * p.t + i;
    const bool valid = i < p.t;
    const auto start = [&](float(&to)[kTileSide], const void* from) {
      start_copy<4>(to + n, static_cast<const float*>(from) + (valid ? row : 0), valid ? 4 : 0);
    };
    if (threadIdx.x / kTileSide == 0) start(logsumexp[stage], p.logsumexp);
    if (threadIdx.x / kTileSide == 1) start(delta[stage], p.delta);
    mask[stage].read(p, at, static_cast<int>(threadIdx.x), threads);
    dropout[stage].draw(p, at, static_cast<int>(threadIdx.x), threads);
  }
};

/// What a block computes: its rows of one gradient, or of grad_k and grad_v.
enum class Result { grad_q, grad_k, grad_v, grad_k_and_v };

/// gradient: the operands of the result; of grad_k_and_v, those of grad_k, and after them those of grad_v.
// Long: the tiles of a block stay in registers and shared memory over all columns.
template <class T, int kColumnTiles, Result kResult, Masks kMasks>
__device__ __forceinline__ void compute_gradient(const AttentionProblem& p, const Gradient* gradient, Tile<T> tile,
                                                 QueryFacts<T, kMasks>& facts, int64_t nth) {
  constexpr bool kByQuery = kResult == Result::grad_q, kSlopes = kResult != Result::grad_v,
                 kBoth = kResult == Result::grad_k_and_v;
  constexpr int kSide = Tile<T>::kSide, kFirst = kSlopes ? 1 : 0;  // kFirst: the operand of the first product
  constexpr int kSums = kBoth ? 2 * kColumnTiles : kColumnTiles;   // of the second result, if any, after the first's
  const int64_t column = int64_t{blockIdx.y} * kColumnTiles * kSide;
  if (column >= gradient[0].result.width && (!kBoth || column >= gradient[1].result.width)) return;
  const GradientRows rows(p, kByQuery, kSide, nth);
  const int64_t group = p.heads / p.shared;
  const auto rows_of = [&](int operand) {
    return gradient->rows[operand].at<const T>(rows.b, rows.owner).from(rows.first);
  };
  const auto columns_of = [&](int operand, int64_t h, int64_t at) {
    return gradient->columns[operand].at<const T>(rows.b, kByQuery ? h / group : h).from(at);
  };
  const auto position = [&](int64_t h, int64_t at) {
    return ScorePosition{rows.b, h, kByQuery ? rows.first : at, kByQuery ? at : rows.first};
  };
  const ScoreFactors factors(p);
  // The values of slopes are the columns of the last product.
  const bool again = kSlopes && !kBoth && gradient->values.width <= kSide;

  typename Tile<T>::Block weights, slopes;
  typename Tile<T>::Sums sum[kSums] = {};
  int64_t h = rows.first_head, at = rows.begin;
  const int64_t last_head = rows.empty() ? h : h + rows.heads;
  if (h < last_head) {
    tile.copy_rows(0, rows_of(0));
    if (kSlopes) tile.copy_rows(1, rows_of(1));
    facts.load(0, p, position(h, at), Tile<T>::kThreads);
    tile.start({columns_of(kFirst, h, at)});
  }
  for (int stage = 0; h < last_head; stage = 1 - stage) {
    const ScorePosition here = position(h, at);
    const auto first_columns = columns_of(0, h, at), second_columns = columns_of(1, h, at);
    // The values of sum n.
    const auto values = [&, h, at](int n) {
      const Heads& from = gradient[n / kColumnTiles].values;
      return TileOperand<T>{from.at<const T>(rows.b, kByQuery ? h / group : h).from(at),
                            column + n % kColumnTiles * kSide};
    };
    const auto has_values = [&](int n) {
      return column + n % kColumnTiles * kSide < gradient[n / kColumnTiles].values.width;
    };
    at += kSide;
    if (at >= rows.end) at = rows.begin, ++h;
    // Called after a barrier that follows the last use of the other stage.
    const auto of_next_tile = [&] {
      if (h < last_head) facts.load(1 - stage, p, position(h, at), Tile<T>::kThreads);
      return TileOperand<T>{columns_of(kFirst, h, at), 0, h >= last_head};
    };
    // The operand of the next sum from n on that has values.
    const auto from_sum = [&](int n) {
      for (; n < kSums; ++n)
        if (has_values(n)) return values(n);
      return of_next_tile();
    };
    if constexpr (kSlopes)
      tile.products(slopes, 1, rows_of(1), second_columns, [&] { return TileOperand<T>{first_columns}; });
    tile.products(weights, 0, rows_of(0), first_columns, [&] { return again ? of_next_tile() : from_sum(0); });
    const bool at_edge = here.at_edge(p);
    score<Tile<T>, kByQuery, kMasks>(p, facts.mask[stage], weights, factors, here, at_edge);
    weigh<T, Tile<T>, kByQuery, needs_exact_weights(kMasks)>(weights, factors, facts.logsumexp[stage]);
    if constexpr (kSlopes)
      differentiate<Tile<T>, kByQuery>(p, facts.dropout[stage], weights, slopes, facts.delta[stage], here, at_edge);
    if constexpr (!kSlopes || kBoth) {
      if (at_edge) hide<Tile<T>, kByQuery>(p, weights, here, 0);  // a query's logsumexp may be NaN
      drop<Tile<T>, kByQuery>(p, facts.dropout[stage], weights);
    }
#pragma unroll
    for (int n = 0; n < kSums; ++n) {
      if (!has_values(n)) continue;
      const TileOperand<T> operand = values(n);
      const bool of_slopes = kSlopes && n < kColumnTiles;
      tile.accumulate(sum[n], of_slopes ? slopes : weights, operand.from, operand.column, again,
                      [&] { return from_sum(n + 1); });
    }
  }
#pragma unroll
  for (int n = 0; n < kSums; ++n) tile.add_halves(sum[n]);
  if (Tile<T>::half() != 0) return;
#pragma unroll
  for (int n = 0; n < kSums; ++n)
    write_sums<Tile<T>>(gradient[n / kColumnTiles].result.template at<T>(rows.b, rows.owner).from(rows.first), sum[n],
                        column + n % kColumnTiles * kSide,
                        kSlopes && n < kColumnTiles ? static_cast<float>(p.scale) : left_scale(p));
}

/// Whether one block may compute grad_k and grad_v, from the same weights: where each of them has so many sums that a
/// multiprocessor has registers for one block only.
template <class T, int kColumnTiles>
constexpr bool kCanMerge = Tile<T>::blocks(kColumnTiles) == 1;

/// Whether that is faster. Blocks compute four products a tile then, and without it at most three, but seven in all
/// instead of eight. For n blocks of keys on m multiprocessors, max(4, 7 n / m) <= max(3, 8 n / m) where 2 n >= m.
bool merges(int64_t blocks_of_keys, Stream stream) {
  return 2 * blocks_of_keys >= lorry::cuda::properties(stream.device.index).multiprocessors;
}

/// kMerged: grad_k and grad_v are one block's.
template <class T, int kColumnTiles, Masks kMasks, bool kMerged>
__global__ void __launch_bounds__(Tile<T>::kThreads, Tile<T>::blocks(kColumnTiles))
    gradients_kernel(AttentionProblem p, Gradients gradients, int operand_parts) {
  lorry::cuda::begin_programmatic();
  extern __shared__ uint4 memory[];
  __shared__ QueryFacts<T, kMasks> facts;
  const Tile<T> tile(memory, operand_parts);
  // Blocks of one gradient follow each other: multiprocessors that run different code at once wait for instructions.
  const int64_t nth = blockIdx.x;
  if constexpr (kMerged) {
    const int64_t second = nth - gradients.blocks[1];
    if (second < 0)
      compute_gradient<T, kColumnTiles, Result::grad_k_and_v>(p, gradients.of + 1, tile, facts, nth);
    else
      compute_gradient<T, kColumnTiles, Result::grad_q>(p, gradients.of, tile, facts, second);
  } else {
    const int64_t second = nth - gradients.blocks[0], third = second - gradients.blocks[1];
    if (second < 0)
      compute_gradient<T, kColumnTiles, Result::grad_q>(p, gradients.of, tile, facts, nth);
    else if (third < 0)
      compute_gradient<T, kColumnTiles, Result::grad_k>(p, gradients.of + 1, tile, facts, second);
    else
      compute_gradient<T, kColumnTiles, Result::grad_v>(p, gradients.of + 2, tile, facts, third);
  }
}

template <class T>
void backward_as(const AttentionArgs& args, const AttentionGrads& grads, Stream stream) {
  const BackwardProblem problem(args, grads, stream);
  const AttentionProblem& p = problem.p;
  constexpr int kSide = Tile<T>::kSide;
  const Gradients gradients(p, grads, kSide);
  with_tiles<kSide>(p, gradients.width(), [&]<int kColumnTiles, Masks kMasks>() {
    constexpr int64_t kColumns = kColumnTiles * kSide;
    const int64_t parts = ceil_div(gradients.width(), kColumns);
    const auto launch = [&]<bool kMerged>() {
      const int64_t blocks = gradients.all_blocks() - (kMerged ? gradients.blocks[2] : 0);
      if (blocks == 0 || parts == 0) return;
      launch_attention<gradients_kernel<T, kColumnTiles, kMasks, kMerged>, Tile<T>>(
          stream, blocks, parts, 2, std::max(p.q.width, p.v.width), sizeof(QueryFacts<T, kMasks>), p, gradients);
    };
    if constexpr (kCanMerge<T, kColumnTiles>)
      if (merges(gradients.blocks[1] * parts, stream)) return launch.template operator()<true>();
    launch.template operator()<false>();
  });
}

}  // namespace

bool tensor_attention_backward(const AttentionArgs& args, const AttentionGrads& grads, Stream stream) {
  if (args.q.dtype == kF64 || !has_tensor_cores(stream)) return false;
  visit_floating(args.q.dtype, [&]<class T>(Type<T>) {
    if constexpr (sizeof(T) < 8) backward_as<T>(args, grads, stream);
  });
  return true;
}

}  // namespace lorry::kernels::cuda
