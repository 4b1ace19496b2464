#pragma once

// The parts of a training run that its settings describe: model, optimizer, and what an update does.

#include <functional>
#include <memory>
#include <vector>

#include "lorry/cli/options.h"
#include "lorry/nn/gpt.h"
#include "lorry/optim/optimizer.h"

namespace lorry::cli {

/// The model of complete settings, with the initial values of their seed: the default generator is seeded with it.
std::unique_ptr<nn::GPT> make_model(const TrainSettings& settings, Device device);

/// What of some parameters an optimizer steps.
using Parts = std::function<std::vector<optim::NamedTensor>(const std::vector<optim::NamedTensor>& parameters)>;

/// Weight decay applies to matrices only, not to biases and scales of norms. Throws FormatError for an unknown name.
std::unique_ptr<optim::Optimizer> make_optimizer(const TrainSettings& settings,
                                                 const std::vector<optim::NamedTensor>& parameters,
                                                 const Parts& parts = std::identity());

/// Whether gradients are added up in f32 tensors, which are made once and zeroed by the step: sums of many gradients
/// need more than 16 bits.
inline bool adds_up_in_f32(const TrainSettings& settings) { return settings.accumulate > 1 && settings.dtype != kF32; }
/// Makes those gradients.
void make_f32_gradients(const std::vector<optim::NamedTensor>& parameters);

/// What an update does with the gradients. Without `zero_grad`, they are released after it.
optim::StepOptions step_options(const TrainSettings& settings);

}  // namespace lorry::cli
