#include "lorry/optim/adamw.h"

#include <cmath>

#include "lorry/ops/array.h"
#include "lorry/optim/loop.h"

namespace lorry::optim {

AdamW::AdamW(const std::vector<NamedTensor>& params, const AdamWOptions& options, Execution execution) : AdamW({{params, options}}, execution) {}

AdamW::AdamW(const std::vector<Group<AdamWOptions>>& groups, Execution execution) : Optimizer("adamw", execution) {
  for (const auto& group : groups) add_param_group(group);
}

void AdamW::add_param_group(const Group<AdamWOptions>& group) { add(group, /*decoupled=*/true); }

Adam::Adam(const std::vector<NamedTensor>& params, const AdamOptions& options, Execution execution) : Adam({{params, options}}, execution) {}

Adam::Adam(const std::vector<Group<AdamOptions>>& groups, Execution execution) : AdamW("adam", execution) {
  for (const auto& group : groups) add_param_group(group);
}

void Adam::add_param_group(const Group<AdamOptions>& group) { add(group, /*decoupled=*/false); }

template <class Options>
void AdamW::add(const Group<Options>& group, bool decoupled) {
  const Options& o = group.options;
  const auto positive = [this](const char* what, double value) {
    require<ValueError>(value >= 0 && std::isfinite(value), "{}: {} is out of range; got {}; expected a finite number >= 0", where(), what, value);
  };
  const auto beta = [this](const char* what, double value) {
    require<ValueError>(value >= 0 && value < 1, "{}: {} is out of range; got {}; expected 0 <= {} < 1", where(), what, value, what);
  };
  positive("lr", o.lr);
  beta("beta1", o.beta1);
  beta("beta2", o.beta2);
  positive("eps", o.eps);
  positive("weight_decay", o.weight_decay);
  add_group(group.params, o.masters);
  rules_.push_back({{o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, decoupled, o.maximize}, o.amsgrad});
}

std::span<const char* const> AdamW::state_names(int group) const {
  static constexpr const char* kNames[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  return std::span(kNames).first(rules_[group].amsgrad ? 3 : 2);
}

std::span<const char* const> AdamW::counter_names() const {
  static constexpr const char* kNames[] = {"step", "beta1_power", "beta2_power"};
  return kNames;
}

std::span<const double> AdamW::first_counters() const {
  static constexpr double kFirst[] = {0, 1, 1};
  return kFirst;
}

void AdamW::apply(std::span<const Work> works, const Tensor& grad_factor) {
  std::vector<kernels::OptimTensor> tensors[2];  // without and with amsgrad
  std::vector<formula::AdamWHyper<double>> hypers[2];
  for (const Work& work : works) {
    const Rule& rule = rules_[work.slot->group];
    double(&counters)[kMaxCounters] = work.slot->counters;
    formula::AdamWProgress progress{counters[0], counters[1], counters[2]};
    const auto hyper = formula::advance(progress, rule.settings);
    counters[0] = progress.steps, counters[1] = progress.beta1_power, counters[2] = progress.beta2_power;
    const Tensor* s = work.slot->states;
    if (execution() == Execution::loop) {
      (rule.amsgrad ? step_by_operators<formula::AdamW<true>, decltype(hyper)>
                    : step_by_operators<formula::AdamW<false>, decltype(hyper)>)(work.param, work.master, work.grad, s, hyper, grad_factor);
    } else {
      tensors[rule.amsgrad].push_back({work.param.data_ptr(),
                                       work.grad.data_ptr(),
                                       {s[0].data_ptr(), s[1].data_ptr(), rule.amsgrad ? s[2].data_ptr() : nullptr},
                                       work.param.numel(),
                                       work.master.defined() ? work.master.data_ptr() : nullptr});
      hypers[rule.amsgrad].push_back(hyper);
    }
  }
  const double* const factor = grad_factor.defined() ? grad_factor.data<double>() : nullptr;
  for (const bool amsgrad : {false, true})
    if (const Tensor& first = works[0].param; !tensors[amsgrad].empty())
      backend(first, where()).optim->adamw({tensors[amsgrad], hypers[amsgrad], first.dtype(), amsgrad, factor}, current_stream(first.device()));
}

}  // namespace lorry::optim
