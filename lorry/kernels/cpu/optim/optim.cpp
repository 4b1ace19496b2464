#include "lorry/kernels/cpu/table.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "lorry/formula/rounding.h"
#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cpu/common/simd.h"
#include "lorry/kernels/cpu/list/list.h"
#include "lorry/kernels/cpu/optim/compressed.h"
#include "lorry/kernels/cpu/optim/compressed_runs.h"
#include "lorry/kernels/cpu/optim/optim_runs.h"
#include "lorry/kernels/cpu/optim/recorded.h"
#include "lorry/kernels/cpu/optim/step.h"

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

void* at(void* data, int64_t element, int64_t bytes) { return static_cast<char*>(data) + element * bytes; }

/// Elements that are converted at a time. They stay in the first-level cache, and reads of all arrays alternate: AdamW
/// with 8-bit states takes 1.5 ns per element. With blocks of 1,024 it takes 2.1.
constexpr int64_t kBlock = kCompressedBlock;
/// Elements that are stepped before their gradients are zeroed: whole blocks.
constexpr int64_t kZeroed = 8 * kBlock;

/// Steps a run of elements in blocks. Arrays of the type of computation are stepped in place, others are converted.
class Blocks {
 public:
  Blocks(const StepCall& call, const formula::RuleRun& rule, double factor)
      : call_(call), list_(call.list), rule_(rule), factor_(factor) {}

  void step(const ListEntry& x, int64_t begin, int64_t count) const {
    const double steps = rule_.steps(x.word);
    alignas(64) std::byte blocks[kMaxArrays][kBlock * 8];
    for (int64_t i = begin; i < begin + count; i += kBlock) {
      const int64_t n = std::min(kBlock, begin + count - i);
      void* values[kMaxArrays];
      for (int k = 0; k < 2 + rule_.states(); ++k) values[k] = load(x, k, i, n, blocks[k]);
      rule_.step(x.word, values[0], values[1], values + 2, n, factor_);
      for (int k = 0; k < 2 + rule_.states(); ++k)
        if (k != 1) store(x, k, i, n, values[k], steps);
    }
  }

 private:
  void* in(const ListEntry& x, int k, int64_t i) const { return at(x.at[k], i, size_of(list_.dtype(k))); }
  void* master(const ListEntry& x, int64_t i) const {
    return at(x.at[2 + rule_.states()], i, call_.masters == MasterKind::f32 ? 4 : 2);
  }
  bool is_compressed(int k) const {
    return k >= 2 ? list_.dtype(k) != own_ : k == 0 && call_.masters == MasterKind::stochastic;
  }
  CompressedArray compressed(const ListEntry& x, int k) const {
    return {x.at[k], x.count, list_.dtype(k) == kU8 ? StateType::q8 : StateType::bf16, k < 2 || rule_.is_signed(k - 2),
            before(list_, x, call_.first_element)};
  }

  /// The address of n elements of array k, from i on, in the type of computation: their own, or that of `block`.
  void* load(const ListEntry& x, int k, int64_t i, int64_t n, void* block) const {
    if (k == 0 && call_.masters == MasterKind::f32) return master(x, i);
    if (list_.dtype(k) == own_) return in(x, k, i);
    if (k == 0 && call_.masters == MasterKind::split)
      compressed_runs().join(static_cast<uint16_t*>(in(x, 0, i)), static_cast<uint16_t*>(master(x, i)),
                             static_cast<float*>(block), n);
    else if (is_compressed(k))
      compressed(x, k).load(i, n, static_cast<float*>(block));
    else
      converter(list_.dtype(k), own_)(in(x, k, i), 1, block, 1, n);
    return block;
  }
  void store(const ListEntry& x, int k, int64_t i, int64_t n, const void* values, double steps) const {
    if (list_.dtype(k) == own_) return;
    if (k == 0 && call_.masters == MasterKind::split)
      compressed_runs().split(static_cast<const float*>(values), static_cast<uint16_t*>(in(x, 0, i)),
                              static_cast<uint16_t*>(master(x, i)), n);
    else if (is_compressed(k))
      compressed(x, k).store(
          static_cast<const float*>(values), i, n,
          formula::rounding_key(call_.seed, x.number, static_cast<uint32_t>(k == 0 ? 0 : k - 1), steps));
    else
      converter(own_, list_.dtype(k))(values, 1, in(x, k, i), 1, n);
  }

  const StepCall& call_;
  const List& list_;
  const formula::RuleRun& rule_;
  double factor_;
  DType own_ = list_.dtype(0) == kF64 ? kF64 : kF32;
};

void step_entries(const StepCall& call, const formula::RuleRun& rule) {
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
  // Gradients are zeroed while they are in the cache.
  const auto in_chunks = [&](const auto& step, const ListEntry& x, int64_t begin, int64_t count) {
    const int64_t chunk = call.zero_grads ? kZeroed : count;
    for (int64_t i = begin; i < begin + count; i += chunk) {
      const int64_t n = std::min(chunk, begin + count - i);
      step(x, i, n);
      zero_grads(x, i, n);
    }
  };
  const DType own = list.dtype(0) == kF64 ? kF64 : kF32;
  bool uniform = call.masters == MasterKind::none;
  for (int k = 0; k < 2 + rule.states(); ++k) uniform = uniform && list.dtype(k) == own;
  if (uniform) {
    const auto step = [&](const ListEntry& x, int64_t begin, int64_t count) {
      const int64_t bytes = size_of(own);
      void* states[kMaxArrays];
      for (int k = 0; k < rule.states(); ++k) states[k] = at(x.at[2 + k], begin, bytes);
      rule.step(x.word, at(x.at[0], begin, bytes), at(x.at[1], begin, bytes), states, count, factor);
    };
    for_each_run(list, [&](const ListEntry& x, int64_t begin, int64_t count) { in_chunks(step, x, begin, count); });
  } else {
    const Blocks blocks(call, rule, factor);
    const auto step = [&](const ListEntry& x, int64_t begin, int64_t count) { blocks.step(x, begin, count); };
    for_each_run(
        list, [&](const ListEntry& x, int64_t begin, int64_t count) { in_chunks(step, x, begin, count); }, kBlock);
  }
}

template <class Rule>
formula::StepRun<Rule, float> run_f32() {
  return optim_runs().of<Rule>().f32;
}
template <class Rule>
formula::StepRun<Rule, double> run_f64() {
  return optim_runs().of<Rule>().f64;
}

}  // namespace

void step_list(const StepCall& call, const formula::RuleRun& rule) {
  step_entries(call, rule);
  rule.advance(call.first_block, call.block_count, call.grad_factor);
}

const OptimKernels& optim_kernels() {
  static const OptimKernels kKernels = [] {
    OptimKernels kernels;
    formula::Rules::each([&]<class Rule>() {
      kernels.rules.of<Rule>() = {RuleOnCpu<Rule, float, run_f32<Rule>>::kernels(),
                                  RuleOnCpu<Rule, double, run_f64<Rule>>::kernels()};
    });
    kernels.step_rule = step_list;
    kernels.decompress = decompress;
    kernels.compiles = [] { return true; };
    kernels.prepare_recorded = prepare_recorded;
    kernels.step_recorded = step_recorded;
    kernels.compress = compress;
    return kernels;
  }();
  return kKernels;
}

}  // namespace lorry::kernels::cpu
