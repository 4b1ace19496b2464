#pragma once

// Stochastic gradient descent: see formula/sgd.h for the rule. Options are PyTorch's, with its defaults.

#include "lorry/optim/optimizer.h"

namespace lorry::optim {

struct SGDOptions {
  double lr = 1e-3, momentum = 0, dampening = 0;
  double weight_decay = 0;  ///< adds weight_decay * param to the gradient
  bool nesterov = false, maximize = false;
  bool masters = false;  ///< keeps 16-bit parameters in f32 as well: see optimizer.h
};

/// Throws ValueError for options out of their domain: lr, momentum, weight_decay >= 0 and finite; nesterov needs a momentum and
/// no dampening.
class SGD : public Optimizer {
 public:
  explicit SGD(const std::vector<NamedTensor>& params, const SGDOptions& options = {}, Execution execution = Execution::automatic);
  explicit SGD(const std::vector<Group<SGDOptions>>& groups, Execution execution = Execution::automatic);
  void add_param_group(const Group<SGDOptions>& group);
};

}  // namespace lorry::optim
