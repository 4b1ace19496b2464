// Attention's backward pass (Dao et al. 2022, algorithm 4) in 16 bits on compute capability 9.0, without atomics. A
// warpgroup computes 64 rows of grad_q, or of grad_k and grad_v, and recomputes the weights from the saved logsumexp.
// With P the weights, D the factors of dropout, and delta the row sums of grad_out * out:
//   grad_v = (P D)^T grad_out      dS = P (grad_out v^T D - delta)      grad_q = scale dS k      grad_k = scale dS^T q
// For grad_k and grad_v a block runs over the queries of all heads that share these keys. One launch computes all, so
// that a short sequence has blocks for the whole device.

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/attention/attention.h"
#include "lorry/kernels/cuda/attention/tile_steps.h"
#include "lorry/kernels/cuda/attention/warpgroup_tile.h"

namespace lorry::kernels::cuda {
namespace {

template <class T, int kParts, Masks kMasks>
struct Shared {
  Panel<T, kParts> rows[2], columns[2][2];
  /// Of the current tile, copied while its first products run. For another there is no room where kParts is 2.
  MaskTile<T, kMasks> mask;
  DropoutBits<kMasks> dropout[2];
  float logsumexp[2][kTileSide], delta[2][kTileSide];
};

/// kByQuery: grad_q. Otherwise grad_k and grad_v.
// Long: the tiles of a block stay in registers and shared memory over all columns.
template <class T, int kParts, Masks kMasks, bool kByQuery>
__device__ __forceinline__ void compute_gradients(const AttentionProblem& p, const Gradients& gradients,
                                                  Shared<T, kParts, kMasks>& shared, int64_t nth) {
  using Tile = WarpgroupTile<T, kParts>;
  constexpr int kSide = Tile::kSide;
  const GradientRows rows(p, kByQuery, kSide, nth);
  const Gradient& gradient = gradients.of[kByQuery ? 0 : 1];
  const int64_t group = p.heads / p.shared;

  const auto copy_facts = [&](int stage, int64_t h, int64_t query) {
    const int64_t i = query + Tile::thread() % kSide, row = (rows.b * p.heads + h) * p.t + i;
    const bool is_delta = Tile::thread() >= kSide, valid = i < p.t;
    const auto* const from = static_cast<const float*>(is_delta ? p.delta : p.logsumexp);
    start_copy<4>((is_delta ? shared.delta : shared.logsumexp)[stage] + Tile::thread() % kSide,
                  valid ? from + row : from, valid ? 4 : 0);
  };
  const auto position = [&](int64_t h, int64_t at) {
    return ScorePosition{rows.b, h, kByQuery ? rows.first : at, kByQuery ? at : rows.first};
  };
  PanelCopier<T, kParts> copiers[2] = {PanelCopier<T, kParts>(gradient.columns[0]),
                                       PanelCopier<T, kParts>(gradient.columns[1])};
  const auto load = [&](int stage, int64_t h, int64_t at) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      if (at == rows.begin)
        copiers[n].begin(gradient.columns[n].at<const T>(rows.b, kByQuery ? rows.owner / group : h).data, at);
      copiers[n].copy(shared.columns[stage][n]);
    }
    if (!kByQuery) copy_facts(stage, h, at);
  };
  const auto draw = [&](int stage, int64_t h, int64_t at) {
    shared.dropout[stage].draw(p, position(h, at), Tile::thread(), Tile::kThreads);
  };

  MaskCopier<T, kMasks, kByQuery> masks;
  const ScoreFactors factors(p);
  typename Tile::Sums sums[kParts] = {}, value_sums[kByQuery ? 1 : kParts] = {};
  int64_t h = rows.first_head, at = rows.begin;
  const int64_t last_head = rows.empty() ? h : h + rows.heads;
  if (h < last_head) {
    for (int n = 0; n < 2; ++n) {
      PanelCopier<T, kParts> copier(gradient.rows[n]);
      copier.begin(gradient.rows[n].at<const T>(rows.b, rows.owner).data, rows.first);
      copier.copy(shared.rows[n]);
    }
    if (kByQuery) copy_facts(0, h, rows.first);
    load(0, h, at);
    draw(0, h, at);
  }
  for (int stage = 0; h < last_head; stage = 1 - stage) {
    const ScorePosition here = position(h, at);
    if (at == rows.begin) masks.begin(p, here);
    at += kSide;
    if (at >= rows.end) at = rows.begin, ++h;
    Tile::wait_for_panels();
    masks.copy(p, here, shared.mask);
    commit_copies();
    if (h < last_head) load(1 - stage, h, at);
    commit_copies();

    typename Tile::Block weights, slopes;
    begin_products();
    Tile::start_products(weights, shared.rows[0], shared.columns[stage][0]);
    Tile::start_products(slopes, shared.rows[1], shared.columns[stage][1]);
    if (h < last_head) draw(1 - stage, h, at);
    wait_for_products<1>(weights);
    const int of_facts = kByQuery ? 0 : stage;
    const bool at_edge = here.at_edge(p);
    if (has_mask<kMasks>(p)) {
      wait_for_copies<1>();  // of the mask
      __syncthreads();
    }
    score<Tile, kByQuery, kMasks>(p, shared.mask, weights, factors, here, at_edge);
    weigh<T, Tile, kByQuery, needs_exact_weights(kMasks)>(weights, factors, shared.logsumexp[of_facts]);
    wait_for_products<0>(slopes);
    typename Tile::Fragments left;
    if constexpr (!kByQuery) {
      if (at_edge) hide<Tile, kByQuery>(p, weights, here, 0);  // a query's logsumexp may be NaN
      typename Tile::Block dropped;
      for_elements<Tile>([&](int r, int c) { dropped[r][c] = weights[r][c]; });
      drop<Tile, kByQuery>(p, shared.dropout[stage], dropped);
      Tile::narrow(left, dropped);
      begin_products(left, value_sums[0], value_sums[kParts - 1], sums[0], sums[kParts - 1]);
      Tile::start_accumulate(value_sums, left, shared.columns[stage][1]);
    } else {
      begin_products(sums[0], sums[kParts - 1]);
    }
    differentiate<Tile, kByQuery>(p, shared.dropout[stage], weights, slopes, shared.delta[of_facts], here, at_edge);
    typename Tile::Fragments derivatives;
    Tile::narrow(derivatives, slopes);
    begin_products(derivatives);
    Tile::start_accumulate(sums, derivatives, shared.columns[stage][0]);
    wait_for_products<0>(value_sums[0], value_sums[kByQuery ? 0 : kParts - 1], sums[0], sums[kParts - 1]);
  }
#pragma unroll
  for (int n = 0; n < kParts; ++n) {
    write_sums<Tile>(gradient.result.at<T>(rows.b, rows.owner).from(rows.first), sums[n], n * kSide,
                     static_cast<float>(p.scale));
    if constexpr (!kByQuery)
      write_sums<Tile>(gradients.of[2].result.at<T>(rows.b, rows.owner).from(rows.first), value_sums[n], n * kSide,
                       left_scale(p));
  }
}

/// The first blocks compute grad_k and grad_v, which takes longer, the others grad_q.
template <class T, int kParts, Masks kMasks>
__global__ void __launch_bounds__(128, kParts == 1 ? 3 : 2) gradients_kernel(AttentionProblem p, Gradients gradients) {
  lorry::cuda::begin_programmatic();
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<T, kParts, kMasks>*>(memory);
  const int64_t by_key = gradients.blocks[1];
  if (blockIdx.x < by_key)
    compute_gradients<T, kParts, kMasks, false>(p, gradients, shared, blockIdx.x);
  else
    compute_gradients<T, kParts, kMasks, true>(p, gradients, shared, blockIdx.x - by_key);
}

template <class T, int kParts, Masks kMasks>
void launch_backward(const AttentionProblem& p, const Gradients& gradients, Stream stream) {
  constexpr auto kKernel = gradients_kernel<T, kParts, kMasks>;
  constexpr size_t kBytes = sizeof(Shared<T, kParts, kMasks>);
  const int64_t blocks = gradients.blocks[0] + gradients.blocks[1];
  if (blocks == 0 || gradients.width() == 0) return;
  allow_shared_once<kKernel>(stream.device.index, kBytes);
  const lorry::cuda::Shape shape{{grid_of(blocks)}, {128}, kBytes};
  lorry::cuda::launch(stream, shape, kKernel, p, gradients);
}

}  // namespace

bool warpgroup_attention_backward(const AttentionArgs& args, const AttentionGrads& grads, Stream stream) {
  if (!suits_warpgroups(args, stream)) return false;
  const BackwardProblem problem(args, grads, stream);
  const AttentionProblem& p = problem.p;
  const Gradients gradients(p, grads, kTileSide);
  with_panels(args, p,
              [&]<class T, int kParts, Masks kMasks>() { launch_backward<T, kParts, kMasks>(p, gradients, stream); });
  return true;
}

}  // namespace lorry::kernels::cuda
