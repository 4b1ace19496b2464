#pragma once

// Optimizer steps over whole lists of tensors: one call moves every parameter of a model. Work is split across all
// tensors whatever their sizes, so that a bias shares a trip with its neighbours and a large matrix spreads over the
// device. Bytes an element, f32: a rule with s states reads 4 * (2 + s) and writes 4 * (1 + s), AdamW 28 in all. In 16
// bits with a master AdamW moves 28 too: it reads 4 + 2 + 4 + 4 (master, gradient, moments) and writes 4 + 2 + 4 + 4
// (master, parameter, moments).

#include "lorry/device/stream.h"
#include "lorry/formula/optimizers.h"
#include "lorry/kernels/common/list.h"
#include "lorry/kernels/common/master_kind.h"
#include "lorry/kernels/common/number_source.h"

namespace lorry::formula {
class RuleRun;
}  // namespace lorry::formula

namespace lorry::kernels {

struct RecordedRule;

/// A step of one list. Its arrays: parameter; gradient, of the same dtype, or f32 for one of 16 bits; the rule's states
/// in their order; and for 16-bit parameters one more, the master or remainder, null where there is none. Every entry's
/// word is the number of its hyper block, and its number that of its parameter, which names its random bits.
struct StepCall {
  const List& list;
  int32_t first_block, block_count;  ///< of the list: hyper blocks that advance when the step is done
  MasterKind masters = MasterKind::none;
  bool zero_grads = false;  ///< gradients are zero afterwards
  /// Every gradient is first multiplied by *grad_factor (null: 1), rounded to the type of computation; where that is
  /// infinite, by NaN (formula::multiplier). When it is NaN nothing is written but the zeros of zero_grads, and no
  /// hyper block advances. It lies on the device, so that a loss scale, a clip and the choice to skip the step reach
  /// the kernel without passing through the host.
  const double* grad_factor = nullptr;
  uint64_t seed = 0;  ///< of stochastic rounding
  /// Of the first entry with elements, when it is a slice of its parameter: how many elements come before it. A
  /// multiple of 256.
  int64_t first_element = 0;
};

/// States and parameters of fewer than 32 bits, for executions that compute with f32 arrays: a list of
/// {f32, compressed}. Fused steps write the same bits.
struct CompressedCall {
  const List& list;
  StateType type;         ///< bf16 or q8
  bool is_signed = true;  ///< of q8
  // ---- for `compress` alone
  const double* grad_factor = nullptr;  ///< NaN: nothing is written
  uint64_t seed = 0;
  uint32_t array = 0;         ///< of formula::rounding_key; the entries' numbers are those of parameters
  int64_t first_element = 0;  ///< as in StepCall
  const double* steps =
      nullptr;  ///< of rounding_key, on the device: the first number of the hyper block's next progress
};

/// A rule's kernels on one device. C is its type of computation: double for f64 parameters, else float. `blocks` lie on
/// the device.
template <class Rule, class C>
struct RuleKernels {
  using Block = formula::HyperBlock<Rule, C>;
  using Change = formula::HyperBlockChange<Rule>;

  void (*step)(Block* blocks, const StepCall& call, const Stream& stream) = nullptr;
  /// Changes hyper blocks and refreshes them. What the changes point to is read before the call returns.
  void (*set)(Block* blocks, std::span<const Change> changes, const Stream& stream) = nullptr;
  /// Changes single settings and refreshes their hyper blocks. Elements are read by the device, in the order of the
  /// stream, so that a captured call reads what they hold when it is replayed. On a CPU all are given by value.
  void (*set_numbers)(Block* blocks, std::span<const NumberSource> numbers, const Stream& stream) = nullptr;
  /// Advances `count` hyper blocks unless *grad_factor (null: 1) is NaN: what a step that is made in another way ends
  /// with.
  void (*advance)(Block* blocks, int32_t count, const double* grad_factor, const Stream& stream) = nullptr;
  /// Takes what device memory `step` of the same call on the same stream will need, and writes nothing else: a step
  /// that follows does not run out of memory when others have been made already. Null: it needs none.
  void (*prepare)(Block* blocks, const StepCall& call, const Stream& stream) = nullptr;
};

template <class Rule>
struct RuleTable {
  RuleKernels<Rule, float> f32;
  RuleKernels<Rule, double> f64;

  template <class C>
  const RuleKernels<Rule, C>& in() const {
    if constexpr (std::is_same_v<C, double>)
      return f64;
    else
      return f32;
  }
};

struct OptimKernels {
  formula::Rules::Table<RuleTable> rules;
  /// A step by code of the host's compiler, for rules that are not formula::Rules'. Null where it cannot run.
  void (*step_rule)(const StepCall& call, const formula::RuleRun& rule) = nullptr;
  void (*decompress)(const CompressedCall& call, const Stream& stream) = nullptr;
  void (*compress)(const CompressedCall& call, const Stream& stream) = nullptr;
  /// Whether recorded rules can be compiled for this kind of device.
  bool (*compiles)() = nullptr;
  /// Takes what step_recorded of the same call on the same stream will need, its kernel too, for which it waits. False:
  /// the device can have none, which a warning event has told.
  bool (*prepare_recorded)(const RecordedRule& rule, void* blocks, const StepCall& call,
                           const Stream& stream) = nullptr;
  /// A step by a recorded update, after prepare_recorded. Hyper blocks do not advance.
  void (*step_recorded)(const RecordedRule& rule, void* blocks, const StepCall& call, const Stream& stream) = nullptr;
};

}  // namespace lorry::kernels
