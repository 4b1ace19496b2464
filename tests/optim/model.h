#pragma once

// A model's worth of small parameters, and all that an optimizer knows of it.

#include "tests/optim/support.h"

namespace lorry::optim::test {

struct Model {
  explicit Model(uint64_t seed, DType dtype = kF32, int count = 9) : random(seed) {
    for (int i = 0; i < count; ++i)
      params.emplace_back(fmt::format("p{}", i), parameter(random_tensor(random, {1 + i % 4, 3 + i}, dtype)));
  }
  void give_gradients() {
    for (const auto& [name, p] : params) p.set_grad(random_tensor(random, p.sizes(), p.dtype()));
  }
  std::vector<Tensor> tensors() const {
    std::vector<Tensor> all;
    for (const auto& [name, p] : params) all.push_back(p);
    return all;
  }
  std::string all_bits() const {
    std::string all;
    for (const auto& [name, p] : params) all += bits(p);
    return all;
  }
  std::mt19937_64 random;
  std::vector<NamedTensor> params;
};

inline std::string all_bits(const Optimizer& optimizer) {
  std::string all;
  for (const auto& [name, x] : optimizer.state_dict()) all += name + bits(x);
  return all;
}

inline double steps_of(const Optimizer& optimizer, const std::string& name) {
  return optimizer.state_dict().at(name + ".step").item<double>();
}

}  // namespace lorry::optim::test
