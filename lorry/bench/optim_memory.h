#pragma once

// Steps of AdamW by the memory options of the optimizer (optim/memory.h): types of states, masters, placement.

#include <memory>
#include <optional>

#include "lorry/bench/model_cases.h"
#include "lorry/optim/memory.h"
#include "lorry/optim/optimizer.h"

namespace lorry::bench {

/// Of every optimizer that is measured: thousands of steps by the same gradient must not run away.
inline constexpr double kRate = 1e-6;

/// What `lorry bench optim` was asked to measure in place of its cases.
struct OptimMemoryOptions {
  std::optional<optim::StateTypes> states;
  std::optional<optim::Masters> masters;  ///< parameters are bf16 then
  std::optional<optim::Placement> placement;
  int64_t memory_budget = 0;  ///< bytes; 0: no bound
  bool report = false;        ///< every choice, over one model
  std::string model;          ///< of the report; empty: one for the device

  bool given() const { return states || masters || placement || memory_budget > 0 || report; }
};

/// AdamW with these options over every model, or every choice over one model. Throws ValueError for an unknown model.
std::vector<Result> optim_memory_suite(const Filter& filter, const OptimMemoryOptions& options);

/// The choices that the suite `optim` measures over the larger models, and the rate of the link to the device.
void optim_memory_cases(ModelCases& cases, const ModelShapes& model);

/// Parameters of a model with gradients, on the default device.
std::vector<Tensor> parameters(const ModelShapes& model, DType dtype = kF32);

/// A momentum step that a user of the library wrote (optim/custom.h), compiled for the device.
std::unique_ptr<optim::Optimizer> make_own_momentum(const std::vector<Tensor>& params, double lr);

}  // namespace lorry::bench
