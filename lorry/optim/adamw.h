#pragma once

// Adam and AdamW: see formula/adamw.h for the rule. Options are PyTorch's, with its defaults.

#include "lorry/formula/adamw.h"
#include "lorry/optim/optimizer.h"

namespace lorry::optim {

struct AdamWOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 1e-2;  ///< shrinks the parameter by lr * weight_decay
  bool amsgrad = false, maximize = false;
  bool masters = false;  ///< keeps 16-bit parameters in f32 as well: see optimizer.h
};

struct AdamOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;  ///< adds weight_decay * param to the gradient
  bool amsgrad = false, maximize = false;
  bool masters = false;  ///< keeps 16-bit parameters in f32 as well: see optimizer.h
};

/// Throws ValueError for options out of their domain: lr, eps, weight_decay >= 0 and finite, 0 <= beta < 1.
class AdamW : public Optimizer {
 public:
  explicit AdamW(const std::vector<NamedTensor>& params, const AdamWOptions& options = {}, Execution execution = Execution::automatic);
  explicit AdamW(const std::vector<Group<AdamWOptions>>& groups, Execution execution = Execution::automatic);
  void add_param_group(const Group<AdamWOptions>& group);

 protected:
  struct Rule {
    formula::AdamWSettings settings;
    bool amsgrad;
  };

  AdamW(const char* where, Execution execution) : Optimizer(where, execution) {}
  template <class Options>
  void add(const Group<Options>& group, bool decoupled);

  std::span<const char* const> state_names(int group) const override;
  std::span<const char* const> counter_names() const override;
  std::span<const double> first_counters() const override;
  double& lr_of(int group) override { return rules_[group].settings.lr; }
  void apply(std::span<const Work> works, const Tensor& grad_factor) override;

 private:
  std::vector<Rule> rules_;
};

class Adam : public AdamW {
 public:
  explicit Adam(const std::vector<NamedTensor>& params, const AdamOptions& options = {}, Execution execution = Execution::automatic);
  explicit Adam(const std::vector<Group<AdamOptions>>& groups, Execution execution = Execution::automatic);
  void add_param_group(const Group<AdamOptions>& group);
};

}  // namespace lorry::optim
