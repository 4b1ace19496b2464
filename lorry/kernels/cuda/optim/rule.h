#pragma once

// The kernels of a rule, for one of Lorry's or a user's own: which body steps which list, and the hyper blocks.

#include "lorry/kernels/cuda/optim/step.h"
#include "lorry/kernels/cuda/optim/step_compressed.h"

namespace lorry::kernels::cuda {

/// Changes of hyper blocks, by value.
template <class Rule>
struct Changes {
  struct One {
    formula::SettingsOf<Rule> settings;
    formula::ProgressOf<Rule> progress;
    int32_t hyper_block;
    bool running, has_settings, has_progress;
  };
  static constexpr int kMost = 4'000 / static_cast<int>(sizeof(One)) < 32 ? 4'000 / static_cast<int>(sizeof(One)) : 32;
  int count;
  One changes[kMost];

  void addresses(auto& visit) const { visit(); }
};

template <class Rule, class C>
__global__ void set_hyper_blocks(formula::HyperBlock<Rule, C>* hyper_blocks,
                                 const __grid_constant__ Changes<Rule> changes) {
  if (static_cast<int>(threadIdx.x) >= changes.count) return;
  const auto& change = changes.changes[threadIdx.x];
  auto& hyper_block = hyper_blocks[change.hyper_block];
  if (change.has_settings) hyper_block.settings = change.settings;
  if (change.has_progress) hyper_block.progress = change.progress;
  hyper_block.running = change.running;
  hyper_block.refresh();
}

template <class Rule, class C>
__global__ void advance_hyper_blocks(StepNumbers<Rule, C> numbers) {
  numbers.finish(static_cast<int>(threadIdx.x));
}

/// The kernels of a rule: instantiated here for Lorry's rules, and by whoever includes this header under nvcc for his
/// own.
template <class Rule>
struct RuleOnCuda {
  template <class C>
  static StepNumbers<Rule, C> numbers(const StepCall& call) {
    return {static_cast<formula::HyperBlock<Rule, C>*>(call.hyper_blocks), call.grad_factor, call.first_hyper_block,
            call.hyper_block_count, call.zero_grads};
  }

  /// Calls use(body) with the body that steps the call's list.
  template <class Use>
  static void with_body(const StepCall& call, const Use& use) {
    const List& list = call.list;
    const auto all = [&](DType dtype) {
      for (int k = 0; k < list.arrays(); ++k)
        if (list.dtype(k) != dtype) return false;
      return call.masters == MasterKind::none;
    };
    if (all(kF64)) return use(StepPlain<Rule, double>{numbers<double>(call)});
    if (all(kF32)) return use(StepPlain<Rule, float>{numbers<float>(call)});
    const auto compressed = [&]<class Body>(Body body) {
      static_cast<StepNumbers<Rule, float>&>(body) = numbers<float>(call);
      body.elements = compressed_tile(list.elements());
      body.masters = call.masters;
      body.seed = call.seed;
      body.first_element = call.first_element;
      for (int k = 0; k < Rule::kStates; ++k) body.types[k] = type_of(list.dtype(2 + k));
      use(body);
    };
    const StateTypes types = types_of<Rule::kStates>(list);
    if (list.dtype(0) == kF32) {
      if (types == StateTypes::q8) return compressed(StepCompressed<Rule, float, StateTypes::q8>());
      if (types == StateTypes::bf16) return compressed(StepCompressed<Rule, float, StateTypes::bf16>());
      return compressed(StepCompressed<Rule, float, StateTypes::mixed>());
    }
    if (list.dtype(0) == kF16) {
      if (types == StateTypes::f32) return use(StepNarrow<Rule, Float16>{numbers<float>(call), call.masters});
      return compressed(StepCompressed<Rule, Float16, StateTypes::mixed>());
    }
    if (types == StateTypes::f32 && call.masters != MasterKind::stochastic)
      return use(StepNarrow<Rule, BFloat16>{numbers<float>(call), call.masters});
    if (types == StateTypes::f32) return compressed(StepCompressed<Rule, BFloat16, StateTypes::f32>());
    if (types == StateTypes::q8) return compressed(StepCompressed<Rule, BFloat16, StateTypes::q8>());
    if (types == StateTypes::bf16) return compressed(StepCompressed<Rule, BFloat16, StateTypes::bf16>());
    compressed(StepCompressed<Rule, BFloat16, StateTypes::mixed>());
  }
  static void step(const StepCall& call, const Stream& stream) {
    with_body(call, [&](const auto& body) { over_list(call.list, body, stream); });
  }
  static void prepare(const StepCall& call, const Stream& stream) {
    with_body(call, [&]<class Body>(const Body& body) {
      CudaList::of(call.list, {tile_elements(body), Body::kRunLength}, stream).ticket(stream);
    });
  }

  static void set(void* hyper_blocks, bool f64, std::span<const HyperBlockChange> given, const Stream& stream) {
    using formula::HyperBlock;
    Changes<Rule> changes;
    for (size_t next = 0; next < given.size();) {
      for (changes.count = 0; changes.count < Changes<Rule>::kMost && next < given.size(); ++changes.count, ++next) {
        auto& to = changes.changes[changes.count];
        const HyperBlockChange& from = given[next];
        to.hyper_block = from.hyper_block;
        to.running = from.running;
        to.has_settings = from.settings != nullptr;
        to.has_progress = from.progress != nullptr;
        if (from.settings) to.settings = *static_cast<const formula::SettingsOf<Rule>*>(from.settings);
        if (from.progress) std::memcpy(static_cast<void*>(&to.progress), from.progress, sizeof(to.progress));
      }
      if (f64)
        lorry::cuda::launch_with(stream, {1, 32}, set_hyper_blocks<Rule, double>,
                                 static_cast<HyperBlock<Rule, double>*>(hyper_blocks), changes);
      else
        lorry::cuda::launch_with(stream, {1, 32}, set_hyper_blocks<Rule, float>,
                                 static_cast<HyperBlock<Rule, float>*>(hyper_blocks), changes);
    }
  }

  static void advance(void* hyper_blocks, bool f64, int32_t first, int32_t count, const double* grad_factor,
                      const Stream& stream) {
    using formula::HyperBlock;
    if (f64)
      lorry::cuda::launch(stream, {1, kListThreads}, advance_hyper_blocks<Rule, double>,
                          StepNumbers<Rule, double>{static_cast<HyperBlock<Rule, double>*>(hyper_blocks), grad_factor,
                                                    first, count, false});
    else
      lorry::cuda::launch(stream, {1, kListThreads}, advance_hyper_blocks<Rule, float>,
                          StepNumbers<Rule, float>{static_cast<HyperBlock<Rule, float>*>(hyper_blocks), grad_factor,
                                                   first, count, false});
  }

  static constexpr RuleKernels kernels() { return {step, set, advance, prepare}; }
};

}  // namespace lorry::kernels::cuda
