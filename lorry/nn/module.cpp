#include "lorry/nn/module.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <set>
#include <typeinfo>

#include "lorry/autograd/grad_mode.h"
#include "lorry/base/class_name.h"
#include "lorry/ops/array.h"
#include "lorry/ops/ops.h"

namespace lorry::nn {
namespace {

/// Keeps only the first occurrence of each tensor.
std::vector<NamedTensor> distinct(std::vector<NamedTensor> all) {
  std::set<const detail::TensorNode*> seen;
  std::erase_if(all, [&](const NamedTensor& x) { return !seen.insert(x.second.node()).second; });
  return all;
}

/// ": bias, weight" for the names of a module; of many only the first.
std::string first_names(const TensorMap& state) {
  constexpr std::size_t kMost = 8;
  std::string text;
  std::size_t count = 0;
  for (const auto& [name, x] : state) {
    if (count == kMost) return text + fmt::format(" and {} more", state.size() - kMost);
    text += (count++ == 0 ? ": " : ", ") + name;
  }
  return text;
}

/// All existing modules, by address.
struct LiveModules {
  std::mutex mutex;
  std::set<const Module*> modules;
};
LiveModules& live() {
  static LiveModules* const modules = new LiveModules;  // modules may outlive static objects
  return *modules;
}

}  // namespace

Module::Module() {
  LiveModules& all = live();
  const std::lock_guard lock(all.mutex);
  all.modules.insert(this);
}

/// Members that are modules move after this base class; each then finds itself in children_.
Module::Module(Module&& other) noexcept
    : parameters_(std::move(other.parameters_)),
      buffers_(std::move(other.buffers_)),
      constants_(std::move(other.constants_)),
      children_(std::move(other.children_)),
      parents_(std::move(other.parents_)),
      training_(other.training_) {
  for (const auto& [name, child] : children_) std::ranges::replace(child->parents_, &other, this);
  for (Module* parent : parents_)
    for (auto& [name, child] : parent->children_)
      if (child == &other) child = this;
  other.children_.clear();
  other.parents_.clear();
  LiveModules& all = live();
  const std::lock_guard lock(all.mutex);
  auto entry = all.modules.extract(&other);
  entry.value() = this;
  all.modules.insert(std::move(entry));
}

Module::~Module() {
  for (const auto& [name, child] : children_) std::erase(child->parents_, this);
  for (Module* parent : parents_)
    std::erase_if(parent->children_, [&](const auto& entry) { return entry.second == this; });
  LiveModules& all = live();
  const std::lock_guard lock(all.mutex);
  all.modules.erase(this);
}

void Module::require_all_added() const {
  const Running running("module");
  std::set<const Module*> added;
  const auto visit = [&](const Module& module, const auto& self) -> void {
    if (!added.insert(&module).second) return;
    for (const auto& [name, child] : module.children_) self(*child, self);
  };
  visit(*this, visit);
  LiveModules& all = live();
  const std::lock_guard lock(all.mutex);
  for (const Module* module : added) {
    const auto* const end = reinterpret_cast<const Module*>(reinterpret_cast<const char*>(module) + module->extent());
    for (auto inside = all.modules.upper_bound(module); inside != all.modules.end() && *inside < end; ++inside) {
      const Module& member = **inside;
      require<ValueError>(added.contains(&member),
                          "a member of {} that is a module was not added; got a {} at byte {}; call "
                          "add(\"name\", member) in the constructor",
                          class_name(typeid(*module)), class_name(typeid(member)),
                          reinterpret_cast<const char*>(&member) - reinterpret_cast<const char*>(module));
    }
  }
}

void Module::require_free(const std::string& name) const {
  const Running running("module");
  require<ValueError>(!name.empty() && name.find('.') == std::string::npos,
                      "'{}' is no name; expected one without dots", name);
  require_not_taken(name);
}

void Module::require_not_taken(const std::string& name) const {
  const Running running("module");
  const auto taken = [&](const auto& list) {
    for (const auto& entry : list)
      if (entry.first == name) return true;
    return false;
  };
  require<ValueError>(!taken(parameters_) && !taken(buffers_) && !taken(children_), "the name '{}' is taken", name);
}

Tensor Module::parameter(std::string name, const Tensor& value) {
  require_free(name);
  value.requires_grad_();
  parameters_.emplace_back(std::move(name), value);
  return value;
}

Tensor Module::buffer(std::string name, const Tensor& value) {
  require_free(name);
  buffers_.emplace_back(std::move(name), value);
  return value;
}

Tensor Module::constant(const Tensor& value) {
  constants_.push_back(value);
  return value;
}

void Module::add(std::string name, Module& child) {
  require_free(name);
  add_child(std::move(name), child);
}

void Module::add_child(std::string name, Module& child) {
  require_not_taken(name);
  children_.emplace_back(std::move(name), &child);
  child.parents_.push_back(this);
}

/// Calls f(name, tensor, is a parameter) over the whole tree.
template <class F>
void Module::each_tensor(const std::string& prefix, const F& f) const {
  for (const auto& [name, x] : parameters_) f(prefix + name, x, true);
  for (const auto& [name, x] : buffers_) f(prefix + name, x, false);
  for (const auto& [name, child] : children_) child->each_tensor(prefix + name + ".", f);
}

std::vector<NamedTensor> Module::named_parameters() const {
  require_all_added();
  std::vector<NamedTensor> all;
  each_tensor("", [&](std::string name, const Tensor& x, bool trained) {
    if (trained) all.emplace_back(std::move(name), x);
  });
  return distinct(std::move(all));
}

std::vector<NamedTensor> Module::named_buffers() const {
  std::vector<NamedTensor> all;
  each_tensor("", [&](std::string name, const Tensor& x, bool trained) {
    if (!trained) all.emplace_back(std::move(name), x);
  });
  return distinct(std::move(all));
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> result;
  for (auto& [name, x] : named_parameters()) result.push_back(x);
  return result;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> all{{"", this}};
  for (const auto& [name, child] : children_)
    for (const auto& [below, module] : child->named_modules())
      all.emplace_back(below.empty() ? name : name + "." + below, module);
  return all;
}

std::string Module::path() const {
  std::string path;
  for (const Module* at = this; !at->parents_.empty(); at = at->parents_.front()) {
    const Module& parent = *at->parents_.front();
    const auto entry = std::ranges::find_if(parent.children_, [&](const auto& child) { return child.second == at; });
    if (entry == parent.children_.end()) break;
    path = path.empty() ? entry->first : entry->first + "." + path;
  }
  return path;
}

void Module::train(bool on) {
  for (const auto& [name, module] : named_modules()) module->training_ = on;
}

void Module::convert(const std::function<Tensor(const Tensor&)>& to) const {
  const NoGrad quiet;
  const TensorMap all = state_dict();
  for (const auto& [name, x] : all) {
    const Tensor grad = x.grad();
    x.set_data(to(x));
    if (grad.defined()) x.set_grad(to(grad));
  }
}

void Module::to(DType dtype) {
  const Running running("module");
  require_dtype(dtype);
  require<DTypeError>(is_floating(dtype), "parameters cannot be {}, which is not floating; expected one of {}", dtype,
                      kFloatingNames);
  convert([&](const Tensor& x) { return is_floating(x.dtype()) ? x.to(dtype) : x; });
}

void Module::to(Device device) {
  convert([&](const Tensor& x) { return x.to(device); });
  move_constants(device);
}

void Module::move_constants(Device device) const {
  for (const Tensor& x : constants_) x.set_data(x.to(device));
  for (const auto& [name, child] : children_) child->move_constants(device);
}

void Module::requires_grad_(bool on) {
  for (const Tensor& x : parameters()) x.requires_grad_(on);
}

void Module::zero_grad() {
  for (const Tensor& x : parameters()) x.set_grad({});
}

TensorMap Module::state_dict() const {
  TensorMap state;
  for (auto& [name, x] : named_parameters()) state.emplace(name, x);
  for (auto& [name, x] : named_buffers()) state.emplace(name, x);
  return state;
}

void Module::load_state_dict(const TensorMap& state, bool strict) {
  const Running running("load_state_dict");
  const TensorMap mine = state_dict();
  if (strict) {
    for (const auto& [name, x] : state)
      require<ValueError>(mine.contains(name), "unexpected name '{}' for {}; expected only the module's names{}", name,
                          x, first_names(mine));
  }
  for (const auto& [name, x] : mine) {
    const auto found = state.find(name);
    if (found == state.end()) {
      require<ValueError>(!strict, "'{}' is missing; expected a value for {}", name, x);
      continue;
    }
    const Tensor& value = found->second;
    require<ShapeError>(value.sizes() == x.sizes(), "'{}' has another shape; got {} for {}; expected equal sizes", name,
                        value, x);
    require<DTypeError>(value.dtype() == x.dtype(),
                        "'{}' has another dtype; got {} for {}; convert the module with to(dtype) first", name, value,
                        x);
  }
  const NoGrad quiet;
  for (const auto& [name, x] : mine) {
    const auto found = state.find(name);
    if (found != state.end()) x.copy_(found->second);
  }
}

}  // namespace lorry::nn
