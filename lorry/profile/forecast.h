#pragma once

// How much memory a training step will take, before it is run: layer by layer, and at the peak.
//
//   const profile::MemoryForecast f = profile::forecast_memory(kCPU, [](Device device) {
//     auto model = std::make_shared<nn::GPT>(nn::gpt_preset("gpt2"), Options{.device = device});
//     auto adamw = std::make_shared<optim::AdamW>(model->named_parameters());
//     const Tensor tokens = zeros({8, 1024}, {kI64, device});
//     return profile::TrainingStep{.model = model,
//                                  .loss = [=] { return model->loss(tokens, tokens); },
//                                  .update = [=] { adamw->step(), adamw->zero_grad(); }};
//   });
//   fmt::print("{}", profile::to_string(f));
//
// The step is made and run on the device meta, where memory is counted and nothing is computed. Sizes are those of the
// blocks that the device's allocator would hand out, so the peak is that of memory::stats. What is not counted: memory
// that a kernel takes for itself while it runs, the context of a GPU and its libraries, and free blocks that an
// allocator keeps.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lorry/nn/module.h"

namespace lorry::profile {

/// A training step as functions, which own what they use.
struct TrainingStep {
  std::shared_ptr<nn::Module> model = {};
  std::function<Tensor()> loss = {};  ///< the forward pass over a batch that it holds
  std::function<void()> update = {};  ///< steps the optimizer and releases the gradients; empty: the gradients stay
  int64_t batches = 1;                ///< how many forward and backward passes an update has
};

/// Bytes of one module, without those of the modules inside it.
struct ModuleMemory {
  std::string path = {};    ///< "" for the model itself and for what no module made
  int64_t parameters = 0;   ///< a parameter that modules share counts once, where it was first added
  int64_t gradients = 0;    ///< at the end of the backward pass
  int64_t buffers = 0;      ///< named ones; constants of a module are part of MemoryForecast::rest
  int64_t activations = 0;  ///< what its forward pass leaves for the backward pass
};

/// In bytes.
struct MemoryForecast {
  Device device = kCPU;
  std::vector<ModuleMemory> modules = {};  ///< in the order of the tree; those that hold nothing are left out
  int64_t parameters = 0, gradients = 0, buffers = 0, activations = 0;  ///< sums over the modules
  int64_t states = 0;              ///< of the optimizer, with masters, wherever they are placed
  int64_t rest = 0;                ///< what else exists between two steps: the batch, constants
  int64_t peak = 0;                ///< the most that exists at a time in the first two steps
  std::string peak_phase = {};     ///< when that is: "forward", "backward" or "update"
  std::string peak_operator = {};  ///< whose allocation reached it
  std::string peak_module = {};    ///< in the forward pass

  /// What exists between two steps.
  int64_t between_steps() const { return parameters + buffers + states + rest; }
};

/// make(device) makes the step on that device, a meta device that stands for `device`: model, optimizer and batch. The
/// default generator is left as it was. Needs no session, and may be called during one. Throws DeviceError if `device`
/// is meta or the parameters lie elsewhere than make was told, ValueError for a step without model or loss, and the
/// errors of the step. A step that reads elements on the host cannot be forecast: that is a DeviceError.
MemoryForecast forecast_memory(Device device, const std::function<TrainingStep(Device)>& make);

/// A table with a row for each module of the first `depth` levels; the modules below are added to theirs. Throws
/// ValueError for a depth below 1.
std::string to_string(const MemoryForecast& forecast, int64_t depth = 1);
/// All of it; each module with its own bytes.
std::string to_json(const MemoryForecast& forecast);

}  // namespace lorry::profile
