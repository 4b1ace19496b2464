#pragma once

// Optimizer steps over lists of tensors: one call steps all parameters of a list. Work is divided evenly for any sizes:
// a bias shares a block with its neighbours, and a large matrix spreads over the device.
//
// Bytes per element in f32: a rule with s states reads 4 * (2 + s) and writes 4 * (1 + s); AdamW moves 28. In 16 bits
// with an f32 master AdamW moves 28 too: it reads 4 + 2 + 4 + 4 (master, gradient, moments) and writes 4 + 2 + 4 + 4
// (master, parameter, moments).

#include <cstddef>

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

/// A step of one list. Its arrays are the parameters; the gradients, of the same dtype or f32 for 16-bit parameters;
/// the states in the rule's order; and for 16-bit parameters the master or remainder, null if there is none. An entry's
/// `word` is the number of its hyper block. Its `number` is that of its parameter, which selects its random bits.
struct StepCall {
  const List& list;
  int32_t first_block, block_count;  ///< the hyper blocks of the list; they advance when the step is done
  MasterKind masters = MasterKind::none;
  bool zero_grads = false;  ///< gradients are set to zero afterwards
  /// Gradients are first multiplied by *grad_factor (null: 1), rounded to the type of computation. An infinite factor
  /// counts as NaN for every gradient (formula::multiplier). If the factor is NaN, nothing is written but the zeros of
  /// zero_grads, and no hyper block advances. The factor lies on the device, so that a loss scale, a clip and the
  /// choice to skip the step do not pass through the host.
  const double* grad_factor = nullptr;
  uint64_t seed = 0;  ///< of stochastic rounding
  /// If the first entry with elements is a slice of its parameter: how many elements of the parameter come before the
  /// slice. A multiple of 256.
  int64_t first_element = 0;
};

/// Compresses or decompresses states, or bf16 parameters that are rounded stochastically, for the executions that
/// compute with f32 arrays. The list has the arrays {f32, compressed}. Fused steps write the same bits.
struct CompressedCall {
  const List& list;
  StateType type;         ///< bf16 or q8
  bool is_signed = true;  ///< of q8
  // ---- for `compress` alone
  const double* grad_factor = nullptr;  ///< if NaN, nothing is written
  uint64_t seed = 0;                    ///< of formula::rounding_key, with `array`, `steps` and the entry's number
  uint32_t array = 0;                   ///< likewise
  int64_t first_element = 0;            ///< as in StepCall
  const double* steps = nullptr;        ///< on the device: how many steps will have been made after the next one
};

/// A rule's kernels on one device. C is the type of computation: double for f64 parameters, else float. `blocks` lie on
/// the device.
template <class Rule, class C>
struct RuleKernels {
  using Block = formula::HyperBlock<Rule, C>;
  using Change = formula::HyperBlockChange<Rule>;

  void (*step)(Block* blocks, const StepCall& call, const Stream& stream) = nullptr;
  /// Changes hyper blocks and refreshes them. Reads what the changes point to before it returns.
  void (*set)(Block* blocks, std::span<const Change> changes, const Stream& stream) = nullptr;
  /// Changes single settings and refreshes their hyper blocks. A number that is given by address is read by the device,
  /// in the order of the stream: a captured call reads it at each replay. On a CPU only
  /// captured calls give addresses.
  void (*set_numbers)(Block* blocks, std::span<const NumberSource> numbers, const Stream& stream) = nullptr;
  /// Advances `count` hyper blocks unless *grad_factor (null: 1) is NaN, after a step that was not made by `step`.
  void (*advance)(Block* blocks, int32_t count, const double* grad_factor, const Stream& stream) = nullptr;
  /// Allocates the device memory that `step` of the same call on the same stream needs, and writes nothing else. So no
  /// step runs out of memory when others have been made already. Null: none is needed.
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

/// Hyper blocks of a recorded rule. Their type is known to the rule alone; RecordedRule::block says where each has its
/// parts, for generated code.
struct RecordedBlocks {
  std::byte* bytes;  ///< on the device
};

struct OptimKernels {
  formula::Rules::Table<RuleTable> rules;
  /// A step by code of the host's compiler, for users' rules. Null if the device cannot run it.
  void (*step_rule)(const StepCall& call, const formula::RuleRun& rule) = nullptr;
  void (*decompress)(const CompressedCall& call, const Stream& stream) = nullptr;
  void (*compress)(const CompressedCall& call, const Stream& stream) = nullptr;
  /// Whether recorded rules can be compiled for this device type.
  bool (*compiles)() = nullptr;
  /// For step_recorded of the same call on the same stream. Allocates memory and waits until the kernel is compiled.
  /// Returns false (after a warning event) if it cannot be.
  bool (*prepare_recorded)(const RecordedRule& rule, RecordedBlocks blocks, const StepCall& call,
                           const Stream& stream) = nullptr;
  /// A step by a recorded update, after prepare_recorded. Hyper blocks do not advance.
  void (*step_recorded)(const RecordedRule& rule, RecordedBlocks blocks, const StepCall& call,
                        const Stream& stream) = nullptr;
};

}  // namespace lorry::kernels
