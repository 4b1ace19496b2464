#pragma once

// Module: a named tree of parameters, buffers and further modules. A module lists what it has in its constructor:
//
//   struct Net : Module {
//     Net() : up(8, 16), down(16, 4) { add("up", up); add("down", down); }
//     Tensor forward(const Tensor& x) const { return down.forward(x.relu()); }
//     Linear up, down;
//   };
//
// Names join with dots ("up.weight"). A parameter that two modules share appears once, under the name that comes first.
// Invariant: a module neither moves nor is copied, so the tree may point at its members.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lorry/tensor/tensor.h"

namespace lorry::nn {

using NamedTensor = std::pair<std::string, Tensor>;
using TensorMap = std::map<std::string, Tensor>;

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Everything that is trained, in the order of the constructors, each once.
  std::vector<Tensor> parameters() const;
  std::vector<NamedTensor> named_parameters() const;
  /// What is saved and moved with the parameters but not trained.
  std::vector<NamedTensor> named_buffers() const;
  /// This module ("") and all below it.
  std::vector<std::pair<std::string, Module*>> named_modules();

  /// Sets how dropout and the like behave, here and below.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }

  /// Converts floating parameters, buffers and gradients in place: tensors keep their identity, so optimizers still
  /// hold them. Buffers of whole numbers and truth values keep their dtype. Throws DTypeError for a dtype that is not
  /// floating.
  void to(DType dtype);
  /// Moves all parameters, buffers and gradients, in place too.
  void to(Device device);
  void requires_grad_(bool on = true);
  void zero_grad();

  /// Parameters and buffers by name: the tensors themselves, not copies.
  TensorMap state_dict() const;
  /// Copies values in. Everything is checked before anything is written: with `strict`, missing and unexpected names are
  /// ValueError; another shape is ShapeError and another dtype DTypeError either way. Messages name the tensor.
  void load_state_dict(const TensorMap& state, bool strict = true);

 protected:
  /// Names a parameter and makes it require a gradient. Returns it, for the member that holds it.
  Tensor parameter(std::string name, const Tensor& value);
  Tensor buffer(std::string name, const Tensor& value);
  /// Names a member that is a module.
  void add(std::string name, Module& child);

 private:
  template <class F>
  void each_tensor(const std::string& prefix, const F& f) const;
  void require_free(const std::string& name) const;
  void convert(const std::function<Tensor(const Tensor&)>& convert) const;

  std::vector<NamedTensor> parameters_, buffers_;
  std::vector<std::pair<std::string, Module*>> children_;
  bool training_ = true;
};

}  // namespace lorry::nn
