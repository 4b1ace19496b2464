// Attention's forward pass without tensor cores. A block processes 64 queries (32 for f64) and runs over the keys with
// a running maximum and sum (Dao et al. 2022). It reads q once, and k and v once per block of queries, mostly from the
// second-level cache; it writes out and logsumexp.

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/attention/attention.h"
#include "lorry/kernels/cuda/attention/fma_tile.h"

namespace lorry::kernels::cuda {
namespace {

/// A block computes kColumnTiles tiles of columns of out; blockIdx.y selects them. Each computes the weights again.
/// kAhead: operands are loaded while the product before them is computed. That takes so many registers that a
/// multiprocessor runs one block.
// Long: the tiles of a block stay in registers and shared memory over all keys.
template <class T, int kColumnTiles, bool kAhead>
__global__ void __launch_bounds__(FmaTile<T>::kThreads, kAhead ? 1 : FmaTile<T>::kBlocks)
    forward_kernel(AttentionProblem p) {
  lorry::cuda::begin_programmatic();
  using Tile = FmaTile<T>;
  using C = typename Tile::C;
  constexpr int kSide = Tile::kSide;
  constexpr C kNone = -std::numeric_limits<C>::infinity();
  __shared__ typename Tile::Shared shared;

  const auto [pair, b, h, first, shared_head] = QueryRows(p, kSide, blockIdx.x);
  const int64_t column = int64_t{blockIdx.y} * kColumnTiles * kSide;
  const auto q = p.q.at<const T>(b, h).from(first), k = p.k.at<const T>(b, shared_head),
             v = p.v.at<const T>(b, shared_head);
  const int64_t limit = p.causal && first + kSide < p.s ? first + kSide : p.s, query = first + Tile::y() * 4;

  typename Tile::Block scores, sum[kColumnTiles];
  C most[4], total[4];
#pragma unroll
  for (int tile = 0; tile < kColumnTiles; ++tile) Tile::clear(sum[tile]);
#pragma unroll
  for (int r = 0; r < 4; ++r) most[r] = kNone, total[r] = 0;

  typename Tile::Slices slices;
  typename Tile::Values values;
  if constexpr (kAhead) slices.load(q, k, 0);
  for (int64_t j = 0; j < limit; j += kSide) {
    if constexpr (kAhead)
      Tile::template products<true>(scores, shared, q, k.from(j), slices, [&] { values.load(v.from(j), column); });
    else
      Tile::products(scores, shared, q, k.from(j));
    const int64_t key = j + Tile::x() * 4;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      C top = kNone;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        C& score = scores[r][c];
        score = sees(p, query + r, key + c) ? score_of<T>(p, score, b, h, query + r, key + c) : kNone;
        top = score > top ? score : top;
      }
      top = Tile::over_row(top, [](C a, C c) { return c > a ? c : a; });
      top = top > most[r] ? top : most[r];
      const C shift = top == kNone ? C(0) : top, factor = exp(most[r] - shift);
      most[r] = top;
      total[r] *= factor;
#pragma unroll
      for (int c = 0; c < 4; ++c) total[r] += scores[r][c] = exp(scores[r][c] - shift);
#pragma unroll
      for (int tile = 0; tile < kColumnTiles; ++tile)
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[tile][r][c] *= factor;
      if (p.drops) {
        C factors[4];
        dropout_factors(p, factors, b, h, query + r, key);
#pragma unroll
        for (int c = 0; c < 4; ++c) scores[r][c] *= factors[c];
      }
    }
    Tile::keep(shared, scores);
    if (kAhead && v.width == 0 && j + kSide < limit) slices.load(q, k.from(j + kSide), 0);
#pragma unroll
    for (int tile = 0; tile < kColumnTiles; ++tile) {
      const int64_t here = column + tile * kSide, next = here + kSide;
      if (here >= v.width) break;
      if constexpr (kAhead) {
        Tile::accumulate(sum[tile], shared, values, [&] {
          if (tile + 1 < kColumnTiles && next < v.width)
            values.load(v.from(j), next);
          else if (j + kSide < limit)
            slices.load(q, k.from(j + kSide), 0);
        });
      } else {
        Tile::accumulate(sum[tile], shared, v.from(j), here);
      }
    }
  }

#pragma unroll
  for (int r = 0; r < 4; ++r) {
    // A row that attends to no key is 0, not 0 / 0. Its infinite logsumexp makes every weight 0 in the backward pass.
    const C all = Tile::over_row(total[r], [](C a, C c) { return a + c; });
    const bool blind = all == 0;
    const C inverse = blind ? C(0) : 1 / all;
#pragma unroll
    for (int tile = 0; tile < kColumnTiles; ++tile)
#pragma unroll
      for (int c = 0; c < 4; ++c) sum[tile][r][c] = blind ? C(0) : sum[tile][r][c] * inverse;
    if (Tile::x() == 0 && blockIdx.y == 0 && query + r < p.t)
      static_cast<C*>(p.logsumexp)[pair * p.t + query + r] =
          blind ? std::numeric_limits<C>::infinity() : most[r] + log(all);
  }
#pragma unroll
  for (int tile = 0; tile < kColumnTiles; ++tile)
    Tile::write(p.out.at<T>(b, h).from(first), sum[tile], column + tile * kSide);
}

template <class T>
void forward_as(const AttentionArgs& args, Stream stream) {
  using Tile = FmaTile<T>;
  const AttentionProblem p(args);
  const int64_t tiles = (p.t + Tile::kSide - 1) / Tile::kSide, blocks = p.batches * p.heads * tiles;
  if (blocks == 0) return;
  const int column_tiles = p.v.width > Tile::kSide ? 2 : 1;
  const int64_t parts =
      std::max<int64_t>(1, (p.v.width + column_tiles * Tile::kSide - 1) / (column_tiles * Tile::kSide));
  const lorry::cuda::Shape shape{{grid_of(blocks), static_cast<unsigned>(parts)}, {Tile::kThreads}};
  const auto launch = [&]<bool kAhead>() {
    lorry::cuda::launch(stream, shape, column_tiles == 1 ? forward_kernel<T, 1, kAhead> : forward_kernel<T, 2, kAhead>,
                        p);
  };
  constexpr int64_t kMultiprocessors = 132;  // of an H200
  if constexpr (sizeof(typename Tile::C) == 4)
    if (blocks * parts <= kMultiprocessors) return launch.template operator()<true>();
  launch.template operator()<false>();
}

}  // namespace

void fma_attention_forward(const AttentionArgs& args, Stream stream) {
  visit_floating(args.q.dtype, [&]<class T>(Type<T>) {
    if constexpr (kNeedsFma<T> || sizeof(T) == 4)
      forward_as<T>(args, stream);
    else
      refuse_left_out(args.q.dtype);
  });
}

}  // namespace lorry::kernels::cuda
