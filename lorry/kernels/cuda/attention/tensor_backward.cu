// Attention's backward pass (Dao et al. 2022, algorithm 4) on tensor cores, one warp at a time, without atomics: each
// block computes 64 rows of one gradient and recomputes the weights from the saved logsumexp. With P the weights, D the
// factors of dropout, and delta the row sums of grad_out * out:
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

/// One block's rows of one gradient. kSlopes: not of grad_v.
// Long: the tiles of a block stay in registers and shared memory over all columns.
template <class T, int kColumnTiles, bool kByQuery, bool kSlopes, Masks kMasks>
__device__ __forceinline__ void compute_gradient(const AttentionProblem& p, const Gradient& gradient, Tile<T> tile,
                                                 QueryFacts<T, kMasks>& facts, int64_t nth) {
  constexpr int kSide = Tile<T>::kSide, kFirst = kSlopes ? 1 : 0;  // kFirst: the operand of the first product
  const int64_t column = int64_t{blockIdx.y} * kColumnTiles * kSide, width = gradient.values.width;
  if (column >= gradient.result.width) return;
  const GradientRows rows(p, kByQuery, kSide, nth);
  const int64_t group = p.heads / p.shared;
  const auto rows_of = [&](int operand) {
    return gradient.rows[operand].at<const T>(rows.b, rows.owner).from(rows.first);
  };
  const auto columns_of = [&](int operand, int64_t h, int64_t at) {
    return gradient.columns[operand].at<const T>(rows.b, kByQuery ? h / group : h).from(at);
  };
  const auto position = [&](int64_t h, int64_t at) {
    return ScorePosition{rows.b, h, kByQuery ? rows.first : at, kByQuery ? at : rows.first};
  };
  const ScoreFactors factors(p);
  // Where there are slopes, the values are the columns of the last product.
  const bool again = kSlopes && width <= kSide;

  typename Tile<T>::Block weights, slopes;
  typename Tile<T>::Sums sum[kColumnTiles] = {};
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
    const auto values = gradient.values.at<const T>(rows.b, kByQuery ? h / group : h).from(at);
    const auto first_columns = columns_of(0, h, at), second_columns = columns_of(1, h, at);
    at += kSide;
    if (at >= rows.end) at = rows.begin, ++h;
    // Called after a barrier that follows the last use of the other stage.
    const auto of_next_tile = [&] {
      if (h < last_head) facts.load(1 - stage, p, position(h, at), Tile<T>::kThreads);
      return TileOperand<T>{columns_of(kFirst, h, at), 0, h >= last_head};
    };
    if constexpr (kSlopes)
      tile.products(slopes, 1, rows_of(1), second_columns, [&] { return TileOperand<T>{first_columns}; });
    tile.products(weights, 0, rows_of(0), first_columns, [&] {
      return again ? of_next_tile() : TileOperand<T>{values, column};
    });
    const bool at_edge = here.at_edge(p);
    score<Tile<T>, kByQuery, kMasks>(p, facts.mask[stage], weights, factors, here, at_edge);
    weigh<T, Tile<T>, kByQuery, needs_exact_weights(kMasks)>(weights, factors, facts.logsumexp[stage]);
    if constexpr (kSlopes) {
      differentiate<Tile<T>, kByQuery>(p, facts.dropout[stage], weights, slopes, facts.delta[stage], here, at_edge);
    } else {
      if (at_edge) hide<Tile<T>, kByQuery>(p, weights, here, 0);  // a query's logsumexp may be NaN
      drop<Tile<T>, kByQuery>(p, facts.dropout[stage], weights);
    }
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const int64_t column_of_n = column + n * kSide, next = column_of_n + kSide;
      if (n > 0 && column_of_n >= width) break;
      tile.accumulate(sum[n], kSlopes ? slopes : weights, values, column_of_n, again, [&] {
        return n + 1 < kColumnTiles && next < width ? TileOperand<T>{values, next} : of_next_tile();
      });
    }
  }
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) tile.add_halves(sum[n]);
  if (Tile<T>::half() != 0) return;
  const auto result = gradient.result.at<T>(rows.b, rows.owner).from(rows.first);
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n)
    write_sums<Tile<T>>(result, sum[n], column + n * kSide, kSlopes ? static_cast<float>(p.scale) : left_scale(p));
}

template <class T, int kColumnTiles, Masks kMasks>
__global__ void __launch_bounds__(Tile<T>::kThreads, Tile<T>::blocks(kColumnTiles))
    gradients_kernel(AttentionProblem p, Gradients gradients, int operand_parts) {
  lorry::cuda::begin_programmatic();
  extern __shared__ uint4 memory[];
  __shared__ QueryFacts<T, kMasks> facts;
  const Tile<T> tile(memory, operand_parts);
  // Blocks of one gradient follow each other: multiprocessors that run different code at once wait for instructions.
  const int64_t nth = blockIdx.x, second = nth - gradients.blocks[0], third = second - gradients.blocks[1];
  if (second < 0)
    compute_gradient<T, kColumnTiles, true, true>(p, gradients.of[0], tile, facts, nth);
  else if (third < 0)
    compute_gradient<T, kColumnTiles, false, true>(p, gradients.of[1], tile, facts, second);
  else
    compute_gradient<T, kColumnTiles, false, false>(p, gradients.of[2], tile, facts, third);
}

template <class T>
void backward_as(const AttentionArgs& args, const AttentionGrads& grads, Stream stream) {
  const BackwardProblem problem(args, grads, stream);
  const AttentionProblem& p = problem.p;
  constexpr int kSide = Tile<T>::kSide;
  const Gradients gradients(p, grads, kSide);
  with_tiles<kSide>(p, gradients.width(), [&]<int kColumnTiles, Masks kMasks>() {
    constexpr int64_t kColumns = kColumnTiles * kSide;
    const int64_t blocks = gradients.all_blocks(), parts = (gradients.width() + kColumns - 1) / kColumns;
    if (blocks == 0 || parts == 0) return;
    launch_attention<gradients_kernel<T, kColumnTiles, kMasks>, Tile<T>>(
        stream, blocks, parts, 2, std::max(p.q.width, p.v.width), sizeof(QueryFacts<T, kMasks>), p, gradients);
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
