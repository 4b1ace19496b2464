#pragma once

// A rule's update as data: for steps of rules without code of their own. A CPU runs it operation by operation over
// blocks that stay in the first cache (cpu/optim/recorded.cpp); for a GPU a kernel is generated from it
// (cuda/optim/emit_rule.h). Both give the bits of the rule's fused step.

#include <memory>
#include <string>
#include <vector>

#include "lorry/kernels/common/recording.h"

namespace lorry::kernels {

/// An update. Nodes come before those that read them.
struct RecordedUpdate {
  std::vector<recording::Node> nodes;
  std::vector<recording::Term> results;  ///< the parameter, then the states

  /// Which nodes the results need.
  std::vector<bool> needed() const;
};

struct RecordedRule {
  std::string name = {};
  int states = 0;
  unsigned not_negative = 0;  ///< bit k: state k is never below zero
  DType compute = kF32;       ///< or kF64
  formula::detail::HyperBlockLayout block = {};
  std::vector<RecordedUpdate> updates = {};  ///< one for each choice of flags: bit k of its number is flag k
  uint32_t reachable = 0;                    ///< bit u: hyper blocks may have the flags of update u

  /// What a device has made of it.
  struct OnDevice {
    virtual ~OnDevice() = default;
  };
  mutable std::unique_ptr<OnDevice> on_device = {};
};

}  // namespace lorry::kernels
