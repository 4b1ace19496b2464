#include "lorry/autograd/function.h"

#include <algorithm>
#include <mutex>

#include "lorry/autograd/grad_mode.h"
#include "lorry/autograd/saved.h"
#include "lorry/base/events.h"
#include "lorry/base/span.h"
#include "lorry/ops/ops.h"

namespace lorry::autograd {
namespace detail {

/// A recorded call of a user's function.
class FunctionNode final : public Node {
 public:
  FunctionNode(const UserFunction& function, std::vector<Edge> leads_to)
      : Node(std::move(leads_to)), name_(function.name), backward_(function.backward), is_tensor_(function.is_tensor) {
    for (const Tensor& x : function.arguments)
      arguments_.push_back(x.defined() ? Output{x.sizes(), x.dtype(), x.device()} : Output{});
  }

  const char* name() const override { return name_; }
  Context& context() { return context_; }

  /// Takes over the results as they will be returned, and what is to be saved.
  void ran(const std::vector<Tensor>& made, const std::vector<Tensor>& returned) {
    origin = lorry::detail::t_origin;
    for (const Tensor& y : returned) {
      outputs.push_back({y.sizes(), y.dtype(), y.device()});
      if (stream.device.is_cpu()) stream = current_stream(y.device());
    }
    for (const Tensor& x : context_.to_save_) {
      const auto at = std::ranges::find_if(made, [&](const Tensor& y) { return y.is_same(x); });
      if (at == made.end() || x.requires_grad()) {
        saved_.emplace_back(x, gradient_edge(x));
      } else {
        const auto index = at - made.begin();
        saved_.push_back(Saved::output(returned[static_cast<size_t>(index)], static_cast<int>(index)));
      }
    }
    context_.to_save_.clear();
    context_.node_ = this;
  }

  std::vector<Tensor> apply(std::vector<Tensor> grads) override {
    for (size_t i = 0; i < grads.size(); ++i)
      if (!grads[i].defined()) grads[i] = zeros(outputs[i].sizes, {outputs[i].dtype, outputs[i].device});
    std::vector<Tensor> result = [&] {
      const lorry::detail::UsersCode backward;
      return backward_(context_, grads);
    }();
    require<GradError>(result.size() == edges.size(),
                       "{} backward: another number of gradients than arguments; got {}; expected {}, one for each "
                       "argument of forward, undefined for a number",
                       name_, result.size(), edges.size());
    for (size_t i = 0; i < result.size(); ++i) {
      if (!result[i].defined()) continue;
      require<GradError>(is_tensor_[i],
                         "{} backward: a gradient of argument {}, which is no tensor; got {}; expected an undefined "
                         "tensor",
                         name_, i, result[i]);
      require_fits(result[i], i);
    }
    return result;
  }

  void release() override {
    std::vector<Saved> saved;
    {
      const std::scoped_lock lock(mutex_);
      released_ = true;
      saved.swap(saved_);
    }
    for (Saved& s : saved) s.release();
  }

  void saved_storages(std::vector<uint64_t>& storages) override {
    const std::scoped_lock lock(mutex_);
    for (const Saved& s : saved_) s.add_storage(storages);
  }

  std::vector<Tensor> saved_tensors() {
    std::vector<Saved> saved;
    {
      const std::scoped_lock lock(mutex_);  // another thread's backward may release what this one reads
      require<GradError>(!released_,
                         "{} backward: the graph was freed by an earlier backward; pass retain_graph = true to the "
                         "earlier one to go through it again",
                         name_);
      saved = saved_;
    }
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < saved.size(); ++i)
      tensors.push_back(saved[i].unpack(*this, name_, "saved tensor", static_cast<int>(i)));
    return tensors;
  }

 private:
  void require_fits(const Tensor& grad, size_t i) const {
    const Output& like = arguments_[i];
    require<ShapeError>(grad.sizes() == like.sizes,
                        "{} backward: the gradient of argument {} has another shape; got {}; expected {}", name_, i,
                        grad, like.sizes);
    require<DeviceError>(grad.device() == like.device,
                         "{} backward: the gradient of argument {} is on another device; got {}; expected {}", name_, i,
                         grad, like.device);
  }

  const char* name_;
  std::vector<Tensor> (*backward_)(Context&, const std::vector<Tensor>&);
  std::vector<bool> is_tensor_;
  std::vector<Output> arguments_;
  Context context_;
  std::mutex mutex_;  // of what follows
  bool released_ = false;
  std::vector<Saved> saved_;
};

}  // namespace detail

std::vector<Tensor> Context::saved_tensors() const { return node_ == nullptr ? to_save_ : node_->saved_tensors(); }

bool Context::needs_input_grad(size_t argument) const {
  const Running running("needs_input_grad");
  require<IndexError>(argument < needs_.size(), "no such argument of forward; got {}; expected 0 to {}", argument,
                      static_cast<int64_t>(needs_.size()) - 1);
  return needs_[argument];
}

namespace {

bool shares_memory(const Tensor& y, const std::vector<Tensor>& others) {
  return std::ranges::any_of(others, [&](const Tensor& x) { return x.defined() && &x.storage() == &y.storage(); });
}

/// The results as tensors without a history, and with memory of their own where an argument or another result has it.
std::vector<Tensor> separate(const char* name, const std::vector<Tensor>& made, const std::vector<Tensor>& arguments) {
  std::vector<Tensor> returned;
  for (const Tensor& y : made) {
    if (shares_memory(y, arguments) || shares_memory(y, returned)) {
      events::emit(events::Kind::hidden_copy, name, "a result that shares memory with an argument or another result");
      returned.push_back(y.clone());
    } else {
      returned.push_back(y.detach());
    }
  }
  return returned;
}

}  // namespace

std::vector<Tensor> detail::run(const UserFunction& function) {
  std::vector<Edge> edges;
  std::vector<bool> needs;
  std::vector<uint32_t> versions;
  bool any_needed = false;
  for (const Tensor& x : function.arguments) {
    const bool needed = grad_enabled() && x.requires_grad();
    any_needed |= needed;
    needs.push_back(needed);
    edges.push_back(needed ? gradient_edge(x) : Edge());
    versions.push_back(x.defined() ? x.version() : 0);
  }
  if (!any_needed) {
    Context context;
    context.needs_ = std::move(needs);
    const NoGrad quiet;
    return function.forward(context);
  }

  const auto node = make_counted<FunctionNode>(function, std::move(edges));
  node->context().needs_ = std::move(needs);
  std::vector<Tensor> made, returned;
  {
    const NoGrad quiet;
    made = function.forward(node->context());
    const Running running(function.name);
    for (size_t i = 0; i < made.size(); ++i)
      require<ValueError>(made[i].defined(), "forward returned an undefined tensor as result {}; expected a tensor", i);
    returned = separate(function.name, made, function.arguments);
  }
  const Running running(function.name);
  for (size_t i = 0; i < function.arguments.size(); ++i)
    require<GradError>(!function.arguments[i].defined() || function.arguments[i].version() == versions[i],
                       "forward wrote argument {} in place while gradients are recorded; got {}; clone it first", i,
                       function.arguments[i]);
  const std::vector<Tensor> constant = std::exchange(node->context().constant_, {});
  node->ran(made, returned);
  for (size_t i = 0; i < returned.size(); ++i) {
    const bool marked = std::ranges::any_of(constant, [&](const Tensor& x) { return x.is_same(made[i]); });
    if (!marked && is_floating(returned[i].dtype())) set_history(returned[i], node, static_cast<int>(i));
  }
  return returned;
}

}  // namespace lorry::autograd
