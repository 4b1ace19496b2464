#pragma once

// Modules that contain modules: Sequential calls them in sequence, ModuleList stores several of one class. They own
// their modules and register each when it is added, under the names "0", "1", ...

#include <concepts>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lorry/nn/module.h"

namespace lorry::nn {

/// A step of a Sequential: a module with forward(x), or a function of a tensor such as a lambda.
template <class Step>
concept SequentialStep = (std::derived_from<Step, Module> &&
                          requires(const Step& step, const Tensor& x) {
                            { step.forward(x) } -> std::convertible_to<Tensor>;
                          }) ||
                         std::is_invocable_r_v<Tensor, const Step&, const Tensor&>;

/// Sequential net(Linear(2, 64), [](const Tensor& x) { return gelu(x); }, Linear(64, 2));
/// Functions are counted in the names, as in PyTorch: here "0.weight" and "2.weight".
class Sequential : public Layer<Sequential> {
 public:
  Sequential() = default;
  /// Takes ownership of the steps.
  template <class First, class... Rest>
  requires SequentialStep<std::decay_t<First>> &&(SequentialStep<std::decay_t<Rest>>&&...) &&
      (sizeof...(Rest) > 0 || !std::same_as<std::decay_t<First>, Sequential>)explicit Sequential(First&& first,
                                                                                                 Rest&&... rest) {
    push_back(std::forward<First>(first));
    (push_back(std::forward<Rest>(rest)), ...);
  }

  template <SequentialStep Step>
  void push_back(Step step) {
    if constexpr (std::derived_from<Step, Module>) {
      const auto module = std::make_shared<Step>(std::move(step));
      add(std::to_string(steps_.size()), *module);
      steps_.push_back([module](const Tensor& x) { return std::as_const(*module).forward(x); });
    } else {
      steps_.push_back(std::move(step));
    }
  }
  size_t size() const { return steps_.size(); }
  /// The result of the last step; x if there are no steps.
  Tensor forward(const Tensor& x) const;

 private:
  std::vector<std::function<Tensor(const Tensor&)>> steps_;
};

/// ModuleList<Linear> layers; layers.emplace_back(8, 8);
/// It has no forward: the module that contains it calls its elements.
template <std::derived_from<Module> M>
class ModuleList : public Module {
 public:
  template <class... Args>
  M& emplace_back(Args&&... args) {
    M& module = modules_.emplace_back(std::forward<Args>(args)...);
    add(std::to_string(modules_.size() - 1), module);
    return module;
  }
  M& push_back(M module) { return emplace_back(std::move(module)); }

  size_t size() const { return modules_.size(); }
  bool empty() const { return modules_.empty(); }
  M& operator[](size_t i) { return modules_[i]; }
  const M& operator[](size_t i) const { return modules_[i]; }
  auto begin() { return modules_.begin(); }
  auto end() { return modules_.end(); }
  auto begin() const { return modules_.begin(); }
  auto end() const { return modules_.end(); }

 protected:
  size_t extent() const override { return sizeof(ModuleList); }

 private:
  std::deque<M> modules_;
};

}  // namespace lorry::nn
