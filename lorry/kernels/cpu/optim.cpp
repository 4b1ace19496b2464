#include "lorry/kernels/cpu/optim.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "lorry/formula/split.h"
#include "lorry/kernels/cpu/convert.h"
#include "lorry/kernels/cpu/list.h"
#include "lorry/kernels/cpu/list_norm_runs.h"
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

constexpr int64_t kBlock = 1'024;  // elements widened at a time: they stay in the first cache

void* at(void* data, int64_t element, int64_t bytes) { return static_cast<char*>(data) + element * bytes; }

void join(const void* upper, const void* lower, float* to, int64_t n) {
  const auto *u = static_cast<const uint16_t*>(upper), *l = static_cast<const uint16_t*>(lower);
  for (int64_t i = 0; i < n; ++i) to[i] = std::bit_cast<float>(formula::joined(u[i], l[i]));
}

void split(const float* from, void* upper, void* lower, int64_t n) {
  auto *u = static_cast<uint16_t*>(upper), *l = static_cast<uint16_t*>(lower);
  for (int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]), high = formula::upper_half(bits);
    u[i] = static_cast<uint16_t>(high);
    l[i] = static_cast<uint16_t>(formula::lower_half(bits, high));
  }
}

/// Steps a run through blocks in the type of computation. `kept` is the array of what is kept, if any.
void step_blocks(const StepCall& call, StepRun run, int states, const ListEntry& x, int64_t begin, int64_t count, const void* hyper, double factor) {
  const List& list = call.list;
  const bool f64 = list.dtype(0) == kF64;
  const DType own = f64 ? kF64 : kF32;
  const int64_t own_bytes = size_of(own);
  alignas(64) std::byte blocks[kMaxArrays][kBlock * 8];
  for (int64_t i = begin; i < begin + count; i += kBlock) {
    const int64_t n = std::min(kBlock, begin + count - i);
    void* const kept = call.kept == Kept::nothing ? nullptr : x.at[2 + states];
    void* const param = at(x.at[0], i, size_of(list.dtype(0)));
    void* values[kMaxArrays];
    // What has the type already is stepped where it lies; gradients are not, since they may only be read.
    for (int k = 0; k < 2 + states; ++k) {
      void* const stored = at(x.at[k], i, size_of(list.dtype(k)));
      values[k] = blocks[k];
      if (k == 0 && call.kept == Kept::master) {
        values[k] = at(kept, i, own_bytes);
      } else if (k == 0 && call.kept == Kept::split) {
        join(stored, at(kept, i, 2), static_cast<float*>(values[k]), n);
      } else if (k != 1 && list.dtype(k) == own) {
        values[k] = stored;
      } else {
        converter(list.dtype(k), own)(stored, 1, values[k], 1, n);
      }
    }
    if (factor != 1) list_norm_runs().scale[f64](values[1], n, factor);
    run(values[0], values[1], values + 2, n, hyper);
    if (call.kept == Kept::split)
      split(static_cast<const float*>(values[0]), param, at(kept, i, 2), n);
    else if (values[0] != param)
      converter(own, list.dtype(0))(values[0], 1, param, 1, n);
    for (int k = 2; k < 2 + states; ++k)
      if (values[k] == blocks[k]) converter(own, list.dtype(k))(values[k], 1, at(x.at[k], i, size_of(list.dtype(k))), 1, n);
  }
}

}  // namespace

void step_list(const StepCall& call, StepRun run, const ClockLayout& layout) {
  const double factor = call.grad_factor ? *call.grad_factor : 1;
  const List& list = call.list;
  const auto zero_grads = [&](const ListEntry& x, int64_t begin, int64_t count) {
    const int64_t bytes = size_of(list.dtype(1));
    if (call.zero_grads) std::memset(at(x.at[1], begin, bytes), 0, static_cast<size_t>(count * bytes));
  };
  if (std::isnan(factor)) {
    if (call.zero_grads) for_each_run(list, zero_grads);
    return;
  }
  const DType own = list.dtype(0) == kF64 ? kF64 : kF32;
  bool plain = factor == 1 && call.kept == Kept::nothing;
  for (int k = 0; k < 2 + layout.states; ++k) plain = plain && list.dtype(k) == own;
  for_each_run(list, [&](const ListEntry& x, int64_t begin, int64_t count) {
    const void* hyper = static_cast<const char*>(call.clocks) + x.word * layout.bytes + layout.hyper_at;
    if (plain) {
      const int64_t bytes = size_of(own);
      void* states[kMaxArrays];
      for (int k = 0; k < layout.states; ++k) states[k] = at(x.at[2 + k], begin, bytes);
      run(at(x.at[0], begin, bytes), at(x.at[1], begin, bytes), states, count, hyper);
    } else {
      step_blocks(call, run, layout.states, x, begin, count, hyper, factor);
    }
    zero_grads(x, begin, count);
  });
}

namespace {

template <class Rule>
StepRun run_of(bool f64) {
  return optim_runs().rules[formula::Rules::index<Rule>()][f64];
}

}  // namespace

const OptimKernels& optim_kernels() {
  static const OptimKernels kKernels = [] {
    OptimKernels kernels;
    formula::Rules::each([&]<class Rule>() {
      kernels.rules[formula::Rules::index<Rule>()] = RuleOnCpu<Rule, run_of<Rule>>::kernels();
    });
    return kernels;
  }();
  return kKernels;
}

}  // namespace lorry::kernels::cpu
