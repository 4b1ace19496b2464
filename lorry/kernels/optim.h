#pragma once

// Optimizer steps over whole lists of tensors: one call moves every parameter of a model. Work is split across all
// tensors whatever their sizes, so that a bias shares a trip with its neighbours and a large matrix spreads over the
// device. Bytes an element, f32: a rule with s states reads 4 * (2 + s) and writes 4 * (1 + s), AdamW 28 in all. In 16
// bits with a master AdamW moves 28 too: it reads 4 + 2 + 4 + 4 (master, gradient, moments) and writes 4 + 2 + 4 + 4
// (master, parameter, moments).

#include "lorry/device/stream.h"
#include "lorry/formula/optimizers.h"
#include "lorry/kernels/common/list.h"

namespace lorry::kernels {

/// What a list of parameters holds beyond parameter, gradient and states.
///   nothing     a 16-bit parameter is widened, stepped in f32, and rounded to nearest even when it is stored
///   master      an f32: it is stepped and kept instead, and the parameter is only written, its rounded copy
///   split       the lower half of an f32 whose upper half is the bf16 parameter: their sum is stepped and kept, with
///             no copy of the upper half. The parameter is the f32 rounded to nearest, ties away from zero
///   stochastic  nothing, but a bf16 parameter is rounded stochastically (formula/rounding.h)
enum class MasterKind : uint8_t { none, f32, split, stochastic };

/// A step of one list. Its arrays: parameter and gradient of one dtype, the rule's states in their order, each as it is
/// stored, and for 16-bit parameters one more: what is kept, null where nothing is. Every entry's word is the number of
/// its hyper block, and its number that of its parameter, which names its random bits.
struct StepCall {
  const List& list;
  void* hyper_blocks;  ///< formula::HyperBlock<Rule, C>[] on the device, C the type of computation
  int32_t first_hyper_block, hyper_block_count;  ///< those of the list: such as run advance when the step is done
  MasterKind masters = MasterKind::none;
  bool zero_grads = false;  ///< gradients are zero afterwards
  /// Every gradient is first multiplied by *grad_factor (null: 1), rounded to the type of computation; where that is
  /// infinite, by NaN (formula::multiplier). When it is NaN nothing is written but the zeros of zero_grads, and no
  /// hyper block advances. It lies on the device, so that a loss scale, a clip and the choice to skip the step reach the kernel
  /// without passing through the host.
  const double* grad_factor = nullptr;
  uint64_t seed = 0;  ///< of stochastic rounding
  /// Of the first entry with elements, when it is a slice of its parameter: how many elements come before it. A
  /// multiple of 256.
  int64_t first_element = 0;
};

/// Arrays between f32 and the form in which they are stored: what executions that step f32 tensors read and write
/// states and parameters with. A list of {f32, stored}; the fused steps store the same bits.
struct CompressedCall {
  const List& list;
  StateType type;         ///< bf16 or q8
  bool is_signed = true;  ///< of q8
  // ---- for `store` alone
  const double* grad_factor = nullptr;  ///< NaN: nothing is written
  uint64_t seed = 0;
  uint32_t array = 0;             ///< of formula::rounding_key; the entries' numbers are those of parameters
  int64_t first_element = 0;      ///< as in StepCall
  const double* steps =
      nullptr;  ///< of rounding_key, on the device: the first number of the hyper block's next progress
};

using formula::HyperBlockChange;

/// One rule's kernels on one device. `f64` tells the type of computation of the hyper blocks.
struct RuleKernels {
  void (*step)(const StepCall& call, const Stream& stream) = nullptr;
  /// Changes hyper blocks and refreshes them. What the changes point to is read before the call returns.
  void (*set)(void* hyper_blocks, bool f64, std::span<const HyperBlockChange> changes, const Stream& stream) = nullptr;
  /// Advances hyper blocks unless *grad_factor (null: 1) is NaN: what a step that is made in another way ends with.
  void (*advance)(void* hyper_blocks, bool f64, int32_t first, int32_t count, const double* grad_factor,
                  const Stream& stream) = nullptr;
  /// Takes what device memory `step` of the same call on the same stream will need, and writes nothing else: a step
  /// that follows does not run out of memory when others have been made already. Null: it needs none.
  void (*prepare)(const StepCall& call, const Stream& stream) = nullptr;
};

/// The rules of formula::Rules, in its order.
struct OptimKernels {
  RuleKernels rules[formula::kRules];
  void (*decompress)(const CompressedCall& call, const Stream& stream) = nullptr;
  void (*compress)(const CompressedCall& call, const Stream& stream) = nullptr;
};

}  // namespace lorry::kernels
