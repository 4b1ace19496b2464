// Attention's forward pass in 16 bits on compute capability 9.0. A warpgroup processes 64 queries and runs over the
// keys with a running maximum and sum (Dao et al. 2022); the warpgroups of a block share k and v in shared memory.
// While they compute on one tile of keys, the next is copied, with its mask.

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/attention/attention.h"
#include "lorry/kernels/cuda/attention/tile_steps.h"
#include "lorry/kernels/cuda/attention/warpgroup_tile.h"

namespace lorry::kernels::cuda {
namespace {

/// Of a block: as many as one multiprocessor has registers for, in two blocks or, with more sums, in one.
template <int kParts>
constexpr int kMostWarpgroups = kParts == 1 ? 2 : 3;

template <class T, int kParts, Masks kMasks>
struct Shared {
  Panel<T, kParts> keys[2], values[2];
  MaskTile<T, kMasks> masks[2][kMostWarpgroups<kParts>];
  DropoutBits<kMasks> dropout[2][kMostWarpgroups<kParts>];
  Panel<T, kParts> queries[kMostWarpgroups<kParts>];
};

/// The products of a tile's weights with values, and those of the next tile's scores, run together: the weights of the
/// next tile are computed while the former still run (Shah et al. 2024, algorithm 2).
// Long: the tiles of a block stay in registers and shared memory over all keys.
template <class T, int kParts, Masks kMasks>
__global__ void __launch_bounds__(kMostWarpgroups<kParts> * 128, kParts == 1 ? 2 : 1)
    forward_kernel(AttentionProblem p) {
  lorry::cuda::begin_programmatic();
  using Tile = WarpgroupTile<T, kParts>;
  constexpr int kSide = Tile::kSide;
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<T, kParts, kMasks>*>(memory);
  const int warpgroup = Tile::warpgroup(), warpgroups = static_cast<int>(blockDim.x) / Tile::kThreads;

  const int rows = warpgroups * kSide;
  const auto [pair, b, h, first, shared_head] = QueryRows(p, rows, blockIdx.x);
  const int64_t from = first + warpgroup * kSide, own = from < 0 ? p.t : from;  // p.t: none
  const auto tiles_for = [&](int64_t last) {
    return static_cast<int>(((p.causal && last < p.s ? last : p.s) + kSide - 1) / kSide);
  };
  const int tiles = tiles_for(first + rows), own_tiles = own < p.t ? tiles_for(own + kSide) : 0;
  // The first warpgroup copies keys, the last one values.
  PanelCopier<T, kParts> keys(p.k), values(p.v);
  keys.begin(p.k.at<const T>(b, shared_head).data, 0);
  values.begin(p.v.at<const T>(b, shared_head).data, 0);
  const auto load_keys = [&](int n) {
    if (n < tiles && warpgroup == 0) keys.copy(shared.keys[n % 2]);
  };
  const auto load_values = [&](int n) {
    if (n < tiles && warpgroup == warpgroups - 1) values.copy(shared.values[n % 2]);
  };
  MaskCopier<T, kMasks, true> masks;
  masks.begin(p, {b, h, own, 0});
  const auto start_masks = [&](int n) {
    if (n >= tiles) return;
    const ScorePosition at{b, h, own, int64_t{n} * kSide};
    masks.copy(p, at, shared.masks[n % 2][warpgroup]);
    shared.dropout[n % 2][warpgroup].draw(p, at, Tile::thread(), Tile::kThreads);
  };

  const ScoreFactors factors(p);
  RunningSoftmax<T, Tile, needs_exact_weights(kMasks)> softmax(factors);
  typename Tile::Block scores;
  typename Tile::Sums sums[kParts] = {};
  typename Tile::Fragments weights;
  float ratio[Tile::kRows];
  const auto weigh_tile = [&](int n) {
    const ScorePosition at{b, h, own, int64_t{n} * kSide};
    score<Tile, true, kMasks>(p, shared.masks[n % 2][warpgroup], scores, factors, at, at.at_edge(p));
    softmax.add(scores, ratio);
    drop<Tile, true>(p, shared.dropout[n % 2][warpgroup], scores);
  };
  // Values n, and keys and masks n + 1, are there; all have used keys n and values n - 1.
  const auto wait_for = [&](int n) {
    Tile::wait_for_panels();
    load_keys(n + 2);
    load_values(n + 1);
  };
  if (tiles > 0) {
    PanelCopier<T, kParts> queries(p.q);
    queries.begin(p.q.at<const T>(b, h).data, own);
    queries.copy(shared.queries[warpgroup]);
    load_keys(0);
    start_masks(0);
    Tile::wait_for_panels();
    load_keys(1);
    load_values(0);
    start_masks(1);
  }
  int n = 0;
  if (own_tiles > 0) {
    begin_products();
    Tile::start_products(scores, shared.queries[warpgroup], shared.keys[0]);
    wait_for_products<0>(scores);
    weigh_tile(0);
    Tile::narrow(weights, scores);
    for (; n + 1 < own_tiles; ++n) {
      wait_for(n);
      start_masks(n + 2);  // draws faster here than beside products, which need the registers
      begin_products(weights, sums[0], sums[kParts - 1]);
      Tile::start_products(scores, shared.queries[warpgroup], shared.keys[(n + 1) % 2]);
      Tile::start_accumulate(sums, weights, shared.values[n % 2]);
      wait_for_products<1>(scores);
      weigh_tile(n + 1);
      wait_for_products<0>(sums[0], sums[kParts - 1]);
      multiply_rows<Tile>(sums, ratio);
      Tile::narrow(weights, scores);
    }
    wait_for(n);
    begin_products(weights, sums[0], sums[kParts - 1]);
    Tile::start_accumulate(sums, weights, shared.values[n % 2]);
    wait_for_products<0>(sums[0], sums[kParts - 1]);
    ++n;
  }
  for (; n < tiles; ++n) wait_for(n);  // other warpgroups still need the copies

#pragma unroll
  for (int r = 0; r < Tile::kRows; ++r) {
    softmax.total[r] = over_row(softmax.total[r], [](float a, float c) { return a + c; });
    const float logsumexp = softmax.finish(r, sums, left_scale(p));
    const int64_t query = own + Tile::row(r);
    if (Tile::column(0) == 0 && query < p.t) static_cast<float*>(p.logsumexp)[pair * p.t + query] = logsumexp;
  }
#pragma unroll
  for (int n = 0; n < kParts; ++n) write_sums<Tile>(p.out.at<T>(b, h).from(own), sums[n], n * kSide, 1);
}

template <class T, int kParts, Masks kMasks>
void launch_forward(const AttentionProblem& p, Stream stream) {
  constexpr auto kKernel = forward_kernel<T, kParts, kMasks>;
  constexpr size_t kBytes = sizeof(Shared<T, kParts, kMasks>);
  const auto blocks_of = [&](int warpgroups) {
    return p.batches * p.heads * ((p.t + warpgroups * kTileSide - 1) / (warpgroups * kTileSide));
  };
  // Fewer, so that there are blocks for the whole device, and no more than have queries.
  const int multiprocessors = lorry::cuda::properties(stream.device.index).multiprocessors;
  int warpgroups = kMostWarpgroups<kParts>;
  while (warpgroups > 1 && (p.t <= (warpgroups - 1) * kTileSide || blocks_of(warpgroups) < multiprocessors))
    --warpgroups;
  if (blocks_of(warpgroups) == 0) return;
  allow_shared_once<kKernel>(stream.device.index, kBytes);
  const lorry::cuda::Shape shape{
      {grid_of(blocks_of(warpgroups))},
      {static_cast<unsigned>(warpgroups * 128)},
      kBytes - static_cast<size_t>(kMostWarpgroups<kParts> - warpgroups) * sizeof(Panel<T, kParts>)};
  lorry::cuda::launch(stream, shape, kKernel, p);
}

}  // namespace

bool warpgroup_attention_forward(const AttentionArgs& args, Stream stream) {
  if (!suits_warpgroups(args, stream)) return false;
  const AttentionProblem p(args);
  with_panels(args, p, [&]<class T, int kParts, Masks kMasks>() { launch_forward<T, kParts, kMasks>(p, stream); });
  return true;
}

}  // namespace lorry::kernels::cuda
