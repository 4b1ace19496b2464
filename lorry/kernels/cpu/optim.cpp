#include "lorry/kernels/cpu/optim.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/convert.h"
#include "lorry/kernels/cpu/optim_runs.h"
#include "lorry/kernels/cpu/simd.h"

namespace lorry::kernels::cpu {

LORRY_SIMD_DECLARE(void fill_optim_runs(OptimRuns& runs))

const OptimRuns& optim_runs() {
  static const OptimRuns table = [] {
    OptimRuns runs;
    LORRY_SIMD_CHOOSE(fill_optim_runs)(runs);
    return runs;
  }();
  return table;
}

namespace {

constexpr int64_t kGrain = 16'384;  // elements that repay waking a thread
constexpr int64_t kBlock = 1'024;   // of elements widened or scaled at a time: they stay in the first cache
constexpr int64_t kTile = kBlock;   // elements to a partial norm

bool is_half(DType dtype) { return dtype == kF16 || dtype == kBF16; }

void* at(void* data, int64_t element, int64_t bytes) { return static_cast<char*>(data) + element * bytes; }
const void* at(const void* data, int64_t element, int64_t bytes) { return static_cast<const char*>(data) + element * bytes; }

/// Calls body(tensor, begin, count) over runs of all tensors laid end to end, shared evenly among the team whatever their sizes.
template <class T, class F>
void for_each_run(std::span<const T> tensors, F&& body) {
  std::vector<int64_t> ends(tensors.size());
  int64_t total = 0;
  for (size_t t = 0; t < tensors.size(); ++t) ends[t] = total += tensors[t].count;
  lorry::cpu::parallel_for(total, kGrain, [&](int64_t begin, int64_t end) {
    auto t = static_cast<size_t>(std::ranges::upper_bound(ends, begin) - ends.begin());
    for (int64_t from = begin; from < end; ++t) {
      const int64_t to = std::min(end, ends[t]), first = ends[t] - tensors[t].count;
      if (from < to) body(t, from - first, to - from);
      from = std::max(from, to);
    }
  });
}

/// Steps a run through blocks: 16-bit elements are widened there, and gradients multiplied by their factor.
template <class Hyper>
void step_blocks(StepRun<Hyper> run, DType dtype, const OptimTensor& x, int64_t begin, int64_t count, const Hyper& hyper, double factor) {
  alignas(64) std::byte param_block[kBlock * 4], grad_block[kBlock * 8];
  const DType state = dtype == kF64 ? kF64 : kF32;
  const int64_t bytes = size_of(dtype), state_bytes = size_of(state);
  const Convert widen = converter(dtype, state), narrow = converter(state, dtype);
  const auto& scale = optim_runs().scale[dtype == kF64];
  for (int64_t i = begin; i < begin + count; i += kBlock) {
    const int64_t n = std::min(kBlock, begin + count - i);
    void* const stored = at(x.param, i, bytes);
    void* const param = x.master ? at(x.master, i, 4) : is_half(dtype) ? param_block : stored;
    if (param == param_block) widen(stored, 1, param, 1, n);
    widen(at(x.grad, i, bytes), 1, grad_block, 1, n);
    if (factor != 1) scale(grad_block, n, factor);
    void* states[3];
    for (int k = 0; k < 3; ++k) states[k] = x.states[k] ? at(x.states[k], i, state_bytes) : nullptr;
    run(param, grad_block, states, n, hyper);
    if (param != stored) narrow(param, 1, stored, 1, n);
  }
}

template <class Hyper>
void step(const StepRun<Hyper> (&runs)[2], DType dtype, std::span<const OptimTensor> tensors, std::span<const Hyper> hypers, const double* grad_factor) {
  const double factor = grad_factor ? *grad_factor : 1;
  if (std::isnan(factor)) return;
  for_each_run(tensors, [&](size_t t, int64_t begin, int64_t count) {
    const OptimTensor& x = tensors[t];
    if (is_half(dtype) || factor != 1) return step_blocks(runs[dtype == kF64], dtype, x, begin, count, hypers[t], factor);
    const int64_t bytes = size_of(dtype);
    void* states[3];
    for (int k = 0; k < 3; ++k) states[k] = x.states[k] ? at(x.states[k], begin, bytes) : nullptr;
    runs[dtype == kF64](at(x.param, begin, bytes), at(x.grad, begin, bytes), states, count, hypers[t]);
  });
}

void adamw(const AdamWArgs& args, const Stream&) {
  const OptimRuns& runs = optim_runs();
  step(args.amsgrad ? runs.adamw_amsgrad : runs.adamw, args.dtype, args.tensors, args.hypers, args.grad_factor);
}

void sgd(const SgdArgs& args, const Stream&) {
  const OptimRuns& runs = optim_runs();
  step(args.momentum ? runs.sgd_momentum : runs.sgd, args.dtype, args.tensors, args.hypers, args.grad_factor);
}

// ---- norms and clipping ----------------------------------------------------------------------------------------------

struct Tile {
  size_t tensor;
  int64_t begin, count;
};

/// Tiles of a fixed size, so that partial norms and their order do not depend on the team.
std::vector<Tile> tiles_of(std::span<const ListTensor> tensors) {
  std::vector<Tile> tiles;
  for (size_t t = 0; t < tensors.size(); ++t)
    for (int64_t i = 0; i < tensors[t].count; i += kTile) tiles.push_back({t, i, std::min(kTile, tensors[t].count - i)});
  return tiles;
}

using Reduction = double (*)(const void*, int64_t);

double reduce_tile(const Reduction (&functions)[2], const ListTensor& x, const Tile& tile) {
  const void* from = at(x.data, tile.begin, size_of(x.dtype));
  if (!is_half(x.dtype)) return functions[x.dtype == kF64](from, tile.count);
  alignas(64) float block[kTile];
  converter(x.dtype, kF32)(from, 1, block, 1, tile.count);
  return functions[0](block, tile.count);
}

// The order of additions, which kernels/cuda/optim.cu keeps to the bit: tiles of 1,024 elements, in each 16 sums of every 16th
// element, which are joined in halves; the tiles' sums are treated in the same way until one is left.
void norm(const ListNormArgs& args, const Stream&) {
  const OptimRuns& runs = optim_runs();
  const auto& functions = args.norm == Norm::one ? runs.sum_abs : args.norm == Norm::two ? runs.sum_square : runs.max_abs;
  const std::vector<Tile> tiles = tiles_of(args.tensors);
  std::vector<double> sums(tiles.size());
  lorry::cpu::parallel_for(static_cast<int64_t>(tiles.size()), kGrain / kTile, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sums[i] = reduce_tile(functions, args.tensors[tiles[i].tensor], tiles[i]);
  });
  // Sums are not negative, so the sum of their sizes is their sum. A level overwrites the one that it has read.
  const Reduction again = (args.norm == Norm::inf ? runs.max_abs : runs.sum_abs)[1];
  for (auto n = static_cast<int64_t>(sums.size()); n > 1; n = (n + kTile - 1) / kTile)
    for (int64_t i = 0; i * kTile < n; ++i) sums[i] = again(&sums[i * kTile], std::min(kTile, n - i * kTile));
  const double total = sums.empty() ? 0 : sums[0];
  *args.total = args.norm == Norm::two ? std::sqrt(total) : total;
}

void clip(const ListClipArgs& args, const Stream&) {
  const double coefficient = args.max_norm / (*args.total + 1e-6);
  if (coefficient >= 1) return;  // a NaN goes on and reaches every gradient
  const auto& scale = optim_runs().scale;
  for_each_run(args.tensors, [&](size_t t, int64_t begin, int64_t count) {
    const ListTensor& x = args.tensors[t];
    if (!is_half(x.dtype)) return scale[x.dtype == kF64](at(x.data, begin, size_of(x.dtype)), count, coefficient);
    alignas(64) float block[kBlock];
    const Convert widen = converter(x.dtype, kF32), narrow = converter(kF32, x.dtype);
    for (int64_t i = begin; i < begin + count; i += kBlock) {
      const int64_t n = std::min(kBlock, begin + count - i);
      widen(at(x.data, i, 2), 1, block, 1, n);
      scale[0](block, n, coefficient);
      narrow(block, 1, at(x.data, i, 2), 1, n);
    }
  });
}

}  // namespace

constinit const OptimKernels kOptimKernels{.adamw = adamw, .sgd = sgd, .norm = norm, .clip = clip};

}  // namespace lorry::kernels::cpu
