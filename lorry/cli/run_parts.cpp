#include "lorry/cli/run_parts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "lorry/cli/run_settings.h"
#include "lorry/ops/ops.h"
#include "lorry/optim/optimizers.h"

namespace lorry::cli {
namespace {

constexpr double kBeta2 = 0.99;    // of Adam and related optimizers: chosen for runs of a few hundred steps
constexpr double kMomentum = 0.9;  // of SGD
constexpr double kNoClip =
    std::numeric_limits<double>::max();  // larger than any norm, but a finite bound makes the step compute the norm

/// Two groups: matrices, whose weights decay, and the rest.
template <class Options>
std::vector<optim::Group<Options>> groups(const std::vector<optim::NamedTensor>& parameters, const Options& options,
                                          double weight_decay, const Parts& parts) {
  std::vector<optim::Group<Options>> groups(2);
  for (auto& group : groups) group.options = options;
  if constexpr (requires { options.weight_decay; }) {
    groups[0].options.weight_decay = weight_decay;
    groups[1].options.weight_decay = 0;
  }
  for (const auto& named : parameters) groups[named.second.dim() >= 2 ? 0 : 1].params.push_back(named);
  for (auto& group : groups) group.params = parts(group.params);
  return groups;
}

}  // namespace

std::unique_ptr<nn::GPT> make_model(const TrainSettings& s, Device device) {
  manual_seed(s.seed);
  auto model = std::make_unique<nn::GPT>(model_config(s), Options{.device = device});
  model->to(s.dtype);
  return model;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainSettings& s,
                                                 const std::vector<optim::NamedTensor>& parameters,
                                                 const Parts& parts) {
  const std::vector<std::string> names = optim::optimizer_names();
  require<FormatError>(std::ranges::count(names, s.optimizer) > 0, "train: unknown optimizer '{}'; expected one of {}",
                       s.optimizer, fmt::join(names, ", "));
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::with_options(s.optimizer, [&]<class Options>(Options options) {
    options.lr = s.lr;
    // A bf16 has 8 bits of precision, in which a step of lr 1e-3 is lost.
    options.memory = {.masters = s.masters.value_or(s.dtype != kF32 ? optim::Masters::f32 : optim::Masters::none),
                      .states = s.states,
                      .placement = s.placement,
                      .seed = s.seed};
    if constexpr (requires { options.beta2; }) options.beta2 = kBeta2;
    if constexpr (requires { options.decoupled_weight_decay; }) options.decoupled_weight_decay = true;
    if constexpr (requires { options.dampening; }) options.momentum = kMomentum;
    optimizer = std::make_unique<optim::OptimizerFor<Options>>(groups(parameters, options, *s.weight_decay, parts),
                                                               optim::parse_execution(s.execution));
  });
  return optimizer;
}

void make_f32_gradients(const std::vector<optim::NamedTensor>& parameters) {
  for (const auto& [name, p] : parameters) p.set_grad(zeros_like(p, kF32));
}

optim::StepOptions step_options(const TrainSettings& s) {
  return {.max_norm = s.clip > 0 ? s.clip : kNoClip, .zero_grad = adds_up_in_f32(s)};
}

}  // namespace lorry::cli
