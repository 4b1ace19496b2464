#pragma once

// Module: a named tree of parameters, buffers, constants without names, and child modules. Layer: a module that is
// called like a function. A module registers its members in its constructor:
//
//   struct Net : Layer<Net> {
//     Net() { add("up", up); add("down", down); }
//     Tensor forward(const Tensor& x) const { return down(up(x).relu()); }
//     Linear up{8, 16}, down{16, 4};
//   };
//   const Tensor y = net(x);
//
// Names are joined with dots ("up.weight"). A parameter that two modules share appears once, under its first name. If a
// member of a Layer is a module and was not added, this is detected when the parameters are first requested. Invariant:
// a module cannot be copied; if it moves (in a std::vector that grows), the tree is updated.

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

  /// All trained parameters, each once, in the order of the constructors. Throws ValueError if a member of a Layer is a
  /// module and was not added.
  std::vector<Tensor> parameters() const;
  std::vector<NamedTensor> named_parameters() const;
  /// Tensors that are saved and moved with the parameters but not trained.
  std::vector<NamedTensor> named_buffers() const;
  /// This module ("") and all modules below it.
  std::vector<std::pair<std::string, Module*>> named_modules();

  /// The path in the tree that it was added to, such as "blocks.0.attention"; "" if it was not added.
  std::string path() const;

  /// Switches dropout and similar layers, here and below, between training and evaluation.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }

  /// Converts floating parameters, buffers and gradients in place: tensors keep their identity, so optimizers still
  /// refer to them. Integer and bool buffers keep their dtype. Throws DTypeError for a dtype that is not floating.
  void to(DType dtype);
  /// Moves all parameters, buffers, gradients and constants to a device, also in place.
  void to(Device device);
  void requires_grad_(bool on = true);
  void zero_grad();

  /// Parameters and buffers by name: the tensors themselves, not copies.
  TensorMap state_dict() const;
  /// Copies values into parameters and buffers. Everything is checked before anything is written. With `strict`,
  /// missing and unexpected names are a ValueError; another shape is always a ShapeError and another dtype a
  /// DTypeError. Messages name the tensor.
  void load_state_dict(const TensorMap& state, bool strict = true);

 protected:
  /// Registers a parameter and makes it require a gradient. Returns it, for the member variable.
  Tensor parameter(std::string name, const Tensor& value);
  Tensor buffer(std::string name, const Tensor& value);
  /// Registers a tensor that moves with the module but is not part of its state: it is neither trained nor saved, and
  /// to(dtype) does not convert it. For tables that the constructor computes. Returns it, for the member variable.
  /// PyTorch's register_buffer(persistent=False) is similar, but to(dtype) converts such buffers.
  Tensor constant(const Tensor& value);
  /// Registers a member that is a module. Throws ValueError for a name that is in use, empty or contains a dot.
  void add(std::string name, Module& child);
  /// Registers the present modules of a list: "name.0", "name.1", ...
  template <std::ranges::range List>
  requires std::derived_from<std::ranges::range_value_t<List>, Module> &&
      (!std::derived_from<List, Module>)void add(std::string name, List& children) {
    require_free(name);
    for (size_t i = 0; auto& child : children) add_child(name + "." + std::to_string(i++), child);
  }
  /// Marks the calls of a forward() as this module's, during the scope: const Scope scope = this->scope();
  Scope scope() const {
    return Scope(this, [](const void* module) { return static_cast<const Module*>(module)->path(); });
  }
  /// The size of the object in bytes, as far as its class reports it.
  virtual size_t extent() const { return sizeof(Module); }

 private:
  void add_child(std::string name, Module& child);
  /// Throws ValueError if some module is a member of one in this tree but was not added.
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
  std::vector<Module*> parents_;  ///< the modules that added this one
  bool training_ = true;
};

/// A module that is called like a function: layer(x) is layer.forward(x). Self is the derived class.
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
