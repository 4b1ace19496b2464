#pragma once

// An optimizer's rule as data, for rules without a compiled kernel. A CPU runs it operation by operation over blocks
// that stay in the first-level cache (cpu/optim/recorded.cpp); for a GPU a kernel is generated from it
// (cuda/optim/emit_rule.h). Both give the bits of the rule's fused step.

#include <memory>
#include <string>
#include <vector>

#include "lorry/kernels/common/recording.h"

namespace lorry::kernels {

/// An update. A node comes before the nodes that read it.
struct RecordedUpdate {
  std::vector<recording::Node> nodes;
  std::vector<recording::Term> results;  ///< the parameter, then the states

  /// For each node: whether the results need it.
  std::vector<bool> needed() const;
};

struct RecordedRule {
  std::string name = {};
  int states = 0;
  unsigned not_negative = 0;  ///< bit k: state k is never below zero
  DType compute = kF32;       ///< or kF64
  formula::detail::HyperBlockLayout block = {};
  std::vector<RecordedUpdate> updates = {};  ///< one per combination of flags: bit k of its number is flag k
  uint32_t reachable = 0;                    ///< bit u: some hyper block may have the flags of update u

  /// A device's cached form of the rule.
  struct OnDevice {
    virtual ~OnDevice() = default;
  };
  mutable std::unique_ptr<OnDevice> on_device = {};
};

}  // namespace lorry::kernels
