#include "lorry/optim/sgd.h"

#include <cmath>

#include "lorry/ops/array.h"
#include "lorry/optim/loop.h"

namespace lorry::optim {

SGD::SGD(const std::vector<NamedTensor>& params, const SGDOptions& options, Execution execution) : SGD({{params, options}}, execution) {}

SGD::SGD(const std::vector<Group<SGDOptions>>& groups, Execution execution) : Optimizer("sgd", execution) {
  for (const auto& group : groups) add_param_group(group);
}

void SGD::add_param_group(const Group<SGDOptions>& group) {
  const SGDOptions& o = group.options;
  const auto positive = [](const char* what, double value) {
    require<ValueError>(value >= 0 && std::isfinite(value), "sgd: {} is out of range; got {}; expected a finite number >= 0", what, value);
  };
  positive("lr", o.lr);
  positive("momentum", o.momentum);
  positive("weight_decay", o.weight_decay);
  require<ValueError>(std::isfinite(o.dampening), "sgd: dampening is out of range; got {}; expected a finite number", o.dampening);
  require<ValueError>(!o.nesterov || (o.momentum > 0 && o.dampening == 0), "sgd: nesterov needs a momentum and no dampening; got momentum {} and dampening {}",
                      o.momentum, o.dampening);
  add_group(group.params, o.masters);
  rules_.push_back({o.lr, o.momentum, o.dampening, o.weight_decay, o.nesterov, o.maximize});
}

std::span<const char* const> SGD::state_names(int group) const {
  static constexpr const char* kNames[] = {"momentum_buffer"};
  return std::span(kNames).first(rules_[group].momentum != 0 ? 1 : 0);
}

std::span<const char* const> SGD::counter_names() const {
  static constexpr const char* kNames[] = {"step"};
  return kNames;
}

std::span<const double> SGD::first_counters() const {
  static constexpr double kFirst[] = {0};
  return kFirst;
}

void SGD::apply(std::span<const Work> works, const Tensor& grad_factor) {
  std::vector<kernels::OptimTensor> tensors[2];  // without and with momentum
  std::vector<formula::SgdHyper<double>> hypers[2];
  for (const Work& work : works) {
    const formula::SgdSettings& settings = rules_[work.slot->group];
    const bool momentum = settings.momentum != 0;
    formula::SgdProgress progress{work.slot->counters[0]};
    const auto hyper = formula::advance(progress, settings);
    work.slot->counters[0] = progress.steps;
    const Tensor* s = work.slot->states;
    if (execution() == Execution::loop) {
      (momentum ? step_by_operators<formula::Sgd<true>, decltype(hyper)>
                : step_by_operators<formula::Sgd<false>, decltype(hyper)>)(work.param, work.master, work.grad, s, hyper, grad_factor);
    } else {
      tensors[momentum].push_back({work.param.data_ptr(),
                                   work.grad.data_ptr(),
                                   {momentum ? s[0].data_ptr() : nullptr},
                                   work.param.numel(),
                                   work.master.defined() ? work.master.data_ptr() : nullptr});
      hypers[momentum].push_back(hyper);
    }
  }
  const double* const factor = grad_factor.defined() ? grad_factor.data<double>() : nullptr;
  for (const bool momentum : {false, true})
    if (const Tensor& first = works[0].param; !tensors[momentum].empty())
      backend(first, where()).optim->sgd({tensors[momentum], hypers[momentum], first.dtype(), momentum, factor}, current_stream(first.device()));
}

}  // namespace lorry::optim
