#pragma once

// Module: a named tree of parameters, buffers and further modules, and of constants without names. Layer: a module that
// is called like a function. A module lists what it has in its constructor:
//
//   struct Net : Layer<Net> {
//     Net() { add("up", up); add("down", down); }
//     Tensor forward(const Tensor& x) const { return down(up(x).relu()); }
//     Linear up{8, 16}, down{16, 4};
//   };
//   const Tensor y = net(x);
//
// Names join with dots ("up.weight"). A parameter that two modules share appears once, under the name that comes first.
// A member of a Layer that is a module and was not added is found out when the parameters are first asked for.
// Invariant: a module is not copied, and where it moves (in a std::vector that grows) the tree follows it.

#include <concepts>
#include <functional>
#include <map>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "lorry/base/scope.h"
#include "lorry/tensor/tensor.h"

namespace lorry::nn {

using NamedTensor = std::pair<std::string, Tensor>;
using TensorMap = std::map<std::string, Tensor>;

class Module {
 public:
  Module();
  virtual ~Module();
  Module(const Module&) = delete;
  Module(Module&& other) noexcept;
  Module& operator=(const Module&) = delete;

  /// Everything that is trained, in the order of the constructors, each once. Throws ValueError for a member of a Layer
  /// that is a module and was not added.
  std::vector<Tensor> parameters() const;
  std::vector<NamedTensor> named_parameters() const;
  /// What is saved and moved with the parameters but not trained.
  std::vector<NamedTensor> named_buffers() const;
  /// This module ("") and all below it.
  std::vector<std::pair<std::string, Module*>> named_modules();

  /// Where it stands in the tree that it was added to, such as "blocks.0.attention"; "" for a module that was not.
  std::string path() const;

  /// Sets how dropout and the like behave, here and below.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }

  /// Converts floating parameters, buffers and gradients in place: tensors keep their identity, so optimizers still
  /// hold them. Buffers of whole numbers and truth values keep their dtype. Throws DTypeError for a dtype that is not
  /// floating.
  void to(DType dtype);
  /// Moves all parameters, buffers, gradients and constants, in place too.
  void to(Device device);
  void requires_grad_(bool on = true);
  void zero_grad();

  /// Parameters and buffers by name: the tensors themselves, not copies.
  TensorMap state_dict() const;
  /// Copies values in. Everything is checked before anything is written: with `strict`, missing and unexpected names
  /// are ValueError; another shape is ShapeError and another dtype DTypeError either way. Messages name the tensor.
  void load_state_dict(const TensorMap& state, bool strict = true);

 protected:
  /// Names a parameter and makes it require a gradient. Returns it, for the member that holds it.
  Tensor parameter(std::string name, const Tensor& value);
  Tensor buffer(std::string name, const Tensor& value);
  /// A tensor that moves with the module and is no part of its state: neither trained nor saved, and to(dtype) leaves
  /// it as it is. For tables that the constructor computes. Returns it, for the member that holds it. In PyTorch,
  /// register_buffer(persistent=False), which to(dtype) converts.
  Tensor constant(const Tensor& value);
  /// Names a member that is a module. Throws ValueError for a name that is taken, empty or has a dot.
  void add(std::string name, Module& child);
  /// Names the modules that a list has now: "name.0", "name.1", ...
  template <std::ranges::range List>
  requires std::derived_from<std::ranges::range_value_t<List>, Module> &&
      (!std::derived_from<List, Module>)void add(std::string name, List& children) {
    require_free(name);
    for (size_t i = 0; auto& child : children) add_child(name + "." + std::to_string(i++), child);
  }
  /// Says where the calls of a forward() come from, while it lives: const Scope scope = this->scope();
  Scope scope() const {
    return Scope(this, [](const void* module) { return static_cast<const Module*>(module)->path(); });
  }
  /// The bytes that the object takes, as far as its class says so.
  virtual size_t extent() const { return sizeof(Module); }

 private:
  void add_child(std::string name, Module& child);
  /// Throws ValueError where a module lies inside one of this tree but is not in it.
  void require_all_added() const;
  template <class F>
  void each_tensor(const std::string& prefix, const F& f) const;
  void require_free(const std::string& name) const;
  void require_not_taken(const std::string& name) const;
  void convert(const std::function<Tensor(const Tensor&)>& convert) const;
  void move_constants(Device device) const;

  std::vector<NamedTensor> parameters_, buffers_;
  std::vector<Tensor> constants_;
  std::vector<std::pair<std::string, Module*>> children_;
  std::vector<Module*> parents_;  ///< those that added this one
  bool training_ = true;
};

/// A module that is called like a function: layer(x) is layer.forward(x). Self is the class that derives from it.
template <class Self>
class Layer : public Module {
 public:
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    const Scope here = scope();
    return static_cast<const Self&>(*this).forward(std::forward<Args>(args)...);
  }
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    const Scope here = scope();
    return static_cast<Self&>(*this).forward(std::forward<Args>(args)...);
  }

 protected:
  size_t extent() const override { return sizeof(Self); }
};

}  // namespace lorry::nn
