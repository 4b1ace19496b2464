#include "lorry/optim/optimizer.h"

#include "lorry/optim/stepper.h"

namespace lorry::optim {

std::vector<NamedTensor> numbered(const std::vector<Tensor>& params) {
  std::vector<NamedTensor> named;
  for (size_t i = 0; i < params.size(); ++i) named.emplace_back(std::to_string(i), params[i]);
  return named;
}

Optimizer::Optimizer(const char* where, Execution execution) : stepper_(std::make_unique<Stepper>(where, execution)) {}
Optimizer::~Optimizer() = default;

void Optimizer::step() { stepper_->step(); }
void Optimizer::step(const Tensor& grad_factor) { stepper_->step(grad_factor); }
Tensor Optimizer::step(const StepOptions& options) { return stepper_->step(options); }
void Optimizer::zero_grad(bool set_to_none) { stepper_->zero_grad(set_to_none); }

std::vector<Tensor> Optimizer::parameters() const { return stepper_->parameters(); }
int Optimizer::groups() const { return stepper_->groups(); }
double Optimizer::get(int group, std::string_view name) const { return stepper_->get(group, name); }
Tensor Optimizer::setting_tensor(int group, std::string_view name) const {
  return stepper_->setting_tensor(group, name);
}
void Optimizer::set(std::string_view name, const Operand& value) {
  for (int group = 0; group < groups(); ++group) stepper_->set(group, name, value);
}
void Optimizer::set(int group, std::string_view name, const Operand& value) { stepper_->set(group, name, value); }
std::vector<std::string> Optimizer::settings(int group) const { return stepper_->settings(group); }

TensorMap Optimizer::state_dict() const { return stepper_->state_dict(); }
void Optimizer::load_state_dict(const TensorMap& state) { stepper_->load_state_dict(state); }

Execution Optimizer::execution() const { return stepper_->execution(); }
void Optimizer::set_memory_budget(int64_t bytes) { stepper_->set_memory_budget(bytes); }
int64_t Optimizer::memory_budget() const { return stepper_->memory_budget(); }
MemoryReport Optimizer::memory_report(bool by_factor) const { return stepper_->memory_report(by_factor); }
Strategy Optimizer::strategy() const { return stepper_->strategy(); }
void Optimizer::set_strategy(Strategy strategy) { stepper_->set_strategy(strategy); }

void Optimizer::add_group(const std::vector<NamedTensor>& params, std::shared_ptr<detail::AnyRule> rule,
                          const Memory& memory) {
  stepper_->add_group(params, std::move(rule), memory);
}

void Optimizer::require_parameters() const { stepper_->require_parameters(); }

}  // namespace lorry::optim
