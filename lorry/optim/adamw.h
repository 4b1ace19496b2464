#pragma once

// Adam and AdamW: see formula/adamw.h for the rule. Options are PyTorch's, with its defaults.

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
};

class Adam : public Optimizer {
 public:
  explicit Adam(const std::vector<NamedTensor>& params, const AdamOptions& options = {}, Execution execution = Execution::automatic);
  explicit Adam(const std::vector<Group<AdamOptions>>& groups, Execution execution = Execution::automatic);
  void add_param_group(const Group<AdamOptions>& group);
};

}  // namespace lorry::optim
