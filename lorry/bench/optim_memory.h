#pragma once

// Steps of AdamW with the memory options of the optimizer (optim/memory.h): types of states, masters, placement.

#include <memory>
#include <optional>

#include "lorry/bench/model_cases.h"
#include "lorry/optim/memory.h"
#include "lorry/optim/optimizer.h"

namespace lorry::bench {

/// The learning rate of every measured optimizer: so small that thousands of steps with the same gradient do not
/// diverge.
inline constexpr double kRate = 1e-6;

/// Options of `lorry bench optim` that replace its cases.
struct OptimMemoryOptions {
  std::optional<optim::StateTypes> states;
  std::optional<optim::Masters> masters;  ///< if set, parameters are bf16
  std::optional<optim::Placement> placement;
  int64_t memory_budget = 0;  ///< in bytes; 0: no limit
  bool report = false;        ///< measures all combinations, over one model
  std::string model;          ///< the model of the report; empty: chosen for the device

  bool given() const { return states || masters || placement || memory_budget > 0 || report; }
};

/// AdamW with these options over every model, or all combinations over one model. Throws ValueError for an unknown
/// model.
std::vector<Result> optim_memory_suite(const Filter& filter, const OptimMemoryOptions& options);

/// The combinations that the suite `optim` measures over larger models, and the rate of the link to the device.
void optim_memory_cases(ModelCases& cases, const ModelShapes& model);

/// Parameters of a model with gradients, on the default device.
std::vector<Tensor> parameters(const ModelShapes& model, DType dtype = kF32);

/// A momentum step that a user of the library wrote (optim/custom.h), compiled for the device.
std::unique_ptr<optim::Optimizer> make_own_momentum(const std::vector<Tensor>& params, double lr);

}  // namespace lorry::bench
