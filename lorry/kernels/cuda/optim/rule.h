#pragma once

// The CUDA kernels of a rule, Lorry's or a user's: which kernel body steps which list, and kernels for hyper blocks.

#include "lorry/kernels/cuda/optim/step.h"
#include "lorry/kernels/cuda/optim/step_compressed.h"
#include "lorry/kernels/optim.h"

namespace lorry::kernels::cuda {

/// The type of states that are stored in this dtype.
inline StateType type_of(DType dtype) {
  return dtype == kU8 ? StateType::q8 : dtype == kBF16 ? StateType::bf16 : StateType::f32;
}
template <int kStates>
StateTypes types_of(const List& list) {
  for (int k = 1; k < kStates; ++k)
    if (list.dtype(2 + k) != list.dtype(2)) return StateTypes::mixed;
  return kStates == 0 ? StateTypes::f32 : static_cast<StateTypes>(type_of(list.dtype(2)));
}

/// Changes of hyper blocks, as a kernel argument.
template <class Rule>
struct Changes {
  struct One {
    formula::SettingsOf<Rule> settings;
    formula::ProgressOf<Rule> progress;
    int32_t block;
    bool running, has_settings, has_progress;
  };
  static constexpr int kMost = 4'000 / static_cast<int>(sizeof(One)) < 32 ? 4'000 / static_cast<int>(sizeof(One)) : 32;
  int count;
  One changes[kMost];

  void addresses(auto& visit) const { visit(); }
};

template <class Rule, class C>
__global__ void set_hyper_blocks(formula::HyperBlock<Rule, C>* blocks, const __grid_constant__ Changes<Rule> changes) {
  lorry::cuda::begin_programmatic();
  if (static_cast<int>(threadIdx.x) >= changes.count) return;
  const auto& change = changes.changes[threadIdx.x];
  auto& block = blocks[change.block];
  if (change.has_settings) block.settings = change.settings;
  if (change.has_progress) block.progress = change.progress;
  block.running = change.running;
  block.refresh();
}

/// Changes of single settings, as a kernel argument; those of one hyper block are adjacent.
struct Numbers {
  struct One {
    const void* from;  ///< null: `value`
    double value;
    int32_t block;
    int16_t offset;  ///< of the setting in the rule's Settings, in bytes
    DType dtype;

    void addresses(auto& visit) const { visit(from); }
    __device__ double read() const {
      if (from == nullptr) return value;
      return visit(dtype, [&]<class T>(Type<T>) {
        return static_cast<double>(static_cast<Accumulate<T>>(*static_cast<const T*>(from)));
      });
    }
  };
  static constexpr int kMost = 64;
  int count;
  One numbers[kMost];

  void addresses(auto& visit) const {
    for (int i = 0; i < count; ++i)
      if (numbers[i].from != nullptr) visit(numbers[i]);
  }
};

/// One thread for each hyper block.
template <class Rule, class C>
__global__ void set_hyper_numbers(formula::HyperBlock<Rule, C>* blocks, const __grid_constant__ Numbers given) {
  lorry::cuda::begin_programmatic();
  const int first = static_cast<int>(threadIdx.x);
  if (first >= given.count) return;
  const int32_t own = given.numbers[first].block;
  if (first > 0 && given.numbers[first - 1].block == own) return;
  auto& block = blocks[own];
  for (int i = first; i < given.count && given.numbers[i].block == own; ++i)
    *reinterpret_cast<double*>(reinterpret_cast<char*>(&block.settings) + given.numbers[i].offset) =
        given.numbers[i].read();
  block.refresh();
}

template <class Rule, class C>
__global__ void advance_hyper_blocks(StepNumbers<Rule, C> numbers) {
  lorry::cuda::begin_programmatic();
  numbers.finish(static_cast<int>(threadIdx.x));
}

/// The kernels of a rule. A program that compiles this header with nvcc instantiates them for its own rules.
template <class Rule, class C>
struct RuleOnCuda {
  using Kernels = RuleKernels<Rule, C>;
  using Block = typename Kernels::Block;

  static StepNumbers<Rule, C> numbers(Block* blocks, const StepCall& call) {
    return {blocks, call.grad_factor, call.first_block, call.block_count, call.zero_grads};
  }

  /// Calls use(body) with the body that steps the call's list.
  template <class Use>
  static void with_body(Block* blocks, const StepCall& call, const Use& use) {
    if constexpr (std::is_same_v<C, double>)
      use(StepUniform<Rule, double>{numbers(blocks, call)});
    else
      with_f32_body(blocks, call, use);
  }
  template <class Use>
  static void with_f32_body(Block* blocks, const StepCall& call, const Use& use) {
    const List& list = call.list;
    const StepNumbers<Rule, float> numbers = RuleOnCuda::numbers(blocks, call);
    bool all_f32 = call.masters == MasterKind::none;
    for (int k = 0; k < list.arrays(); ++k) all_f32 = all_f32 && list.dtype(k) == kF32;
    if (all_f32) return use(StepUniform<Rule, float>{numbers});
    const auto compressed = [&]<class Body>(Body body) {
      static_cast<StepNumbers<Rule, float>&>(body) = numbers;
      body.elements = compressed_tile(list.elements());
      body.masters = call.masters;
      body.wide_grads = list.dtype(1) != list.dtype(0);
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
    if (list.dtype(1) != list.dtype(0)) {
      const auto wide = [&]<class T>(Type<T>) {
        if (types == StateTypes::f32 && call.masters != MasterKind::stochastic)
          return use(StepNarrow<Rule, T, float>{numbers, call.masters});
        compressed(StepCompressed<Rule, T, StateTypes::mixed>());
      };
      return list.dtype(0) == kF16 ? wide(Type<Float16>()) : wide(Type<BFloat16>());
    }
    if (list.dtype(0) == kF16) {
      if (types == StateTypes::f32) return use(StepNarrow<Rule, Float16>{numbers, call.masters});
      return compressed(StepCompressed<Rule, Float16, StateTypes::mixed>());
    }
    if (types == StateTypes::f32 && call.masters != MasterKind::stochastic)
      return use(StepNarrow<Rule, BFloat16>{numbers, call.masters});
    if (types == StateTypes::f32) return compressed(StepCompressed<Rule, BFloat16, StateTypes::f32>());
    if (types == StateTypes::q8) return compressed(StepCompressed<Rule, BFloat16, StateTypes::q8>());
    if (types == StateTypes::bf16) return compressed(StepCompressed<Rule, BFloat16, StateTypes::bf16>());
    compressed(StepCompressed<Rule, BFloat16, StateTypes::mixed>());
  }

  static void step(Block* blocks, const StepCall& call, const Stream& stream) {
    with_body(blocks, call, [&](const auto& body) { over_list(call.list, body, stream); });
  }
  static void prepare(Block* blocks, const StepCall& call, const Stream& stream) {
    with_body(blocks, call,
              [&](const auto& body) { CudaList::of(call.list, geometry_of(body), stream).ticket(stream); });
  }

  static void set(Block* blocks, std::span<const typename Kernels::Change> given, const Stream& stream) {
    Changes<Rule> changes;
    for (size_t next = 0; next < given.size();) {
      for (changes.count = 0; changes.count < Changes<Rule>::kMost && next < given.size(); ++changes.count, ++next) {
        auto& to = changes.changes[changes.count];
        const auto& from = given[next];
        to.block = from.block;
        to.running = from.running;
        to.has_settings = from.settings != nullptr;
        to.has_progress = from.progress != nullptr;
        if (from.settings) to.settings = *from.settings;
        if (from.progress) to.progress = *from.progress;
      }
      lorry::cuda::launch_with(stream, {1, 32}, set_hyper_blocks<Rule, C>, blocks, changes);
    }
  }

  static void set_numbers(Block* blocks, std::span<const NumberSource> given, const Stream& stream) {
    const formula::SettingsOf<Rule> settings{};
    const auto offset = [&](int setting) {
      const double& number = settings.*formula::SettingList<Rule>::all()[static_cast<size_t>(setting)].number;
      return static_cast<int16_t>(reinterpret_cast<const char*>(&number) - reinterpret_cast<const char*>(&settings));
    };
    Numbers numbers;
    for (size_t next = 0; next < given.size();) {
      for (numbers.count = 0; numbers.count < Numbers::kMost && next < given.size(); ++numbers.count, ++next) {
        const NumberSource& from = given[next];
        numbers.numbers[numbers.count] = {from.from, from.value, from.block, offset(from.setting), from.dtype};
      }
      lorry::cuda::launch_with(stream, {1, Numbers::kMost}, set_hyper_numbers<Rule, C>, blocks, numbers);
    }
  }

  static void advance(Block* blocks, int32_t count, const double* grad_factor, const Stream& stream) {
    lorry::cuda::launch(stream, {1, kListThreads}, advance_hyper_blocks<Rule, C>,
                        StepNumbers<Rule, C>{blocks, grad_factor, 0, count, false});
  }

  static constexpr Kernels kernels() { return {step, set, set_numbers, advance, prepare}; }
};

}  // namespace lorry::kernels::cuda
