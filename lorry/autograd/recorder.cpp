// The listener at the door that writes the tape.

#include "lorry/autograd/recorder.h"

#include <memory>

#include "lorry/autograd/operator_node.h"

namespace lorry::autograd {
namespace {

void require_can_be_rebased(const door::CallView& call) {
  const Tensor& self = *call.inputs[0].tensor();
  const char* where = running_or(name(call.op));  // a composition names itself
  if (self.node()->cut_view)
    raise_as<GradError>(
        where,
        "a view made while gradients were not recorded is written while they are; got {}; take the view outside "
        "NoGrad, or write inside it",
        self);
  const auto leaf = [](const Tensor& x) { return x.node()->requires_grad && !gradient_function(x); };
  if (leaf(self))
    raise_as<GradError>(
        where,
        "a leaf that requires a gradient is written in place; got {}; write inside NoGrad, or use the operator "
        "that makes a new tensor",
        self);
  if (!self.is_view()) return;
  const Tensor base(self.node()->base);
  if (leaf(base))
    raise_as<GradError>(
        where,
        "a view of a leaf that requires a gradient is written in place; got {}; write inside NoGrad, or use the "
        "operator that makes a new tensor",
        self);
  const int64_t first = self.storage_offset() - base.storage_offset();
  if (self.numel() > 0 && (first < 0 || first + self.layout().extent() > base.layout().extent()))
    raise_as<GradError>(
        where,
        "a view that reaches outside its base is written while gradients are recorded; got {} of {}; clone it, or "
        "write inside NoGrad",
        self, base);
}

using NodePtr = IntrusivePtr<OperatorNode>;

void before(const door::CallView& call, void*& note) {
  bool requires_grad = false;
  for (const door::Input& x : call.inputs) requires_grad |= x.requires_grad();
  if (!requires_grad) return;
  if (call.in_place) require_can_be_rebased(call);
  // A constant operator that writes in place still cuts the history of what it overwrites.
  if (row(call.op).kind == OpKind::constant && !call.in_place) return;
  const Rule* rule = row(call.op).kind == OpKind::constant ? nullptr : find_rule(call.op);
  if (call.in_place && !is_floating(call.inputs[0].tensor()->dtype())) return;
  // refused by name before anything is written
  if (call.in_place && row(call.op).kind != OpKind::constant) lorry::autograd::rule(call.op);
  note = new NodePtr(make_counted<OperatorNode>(call, rule));
}

void after(const door::CallView& call, void* note) {
  const std::unique_ptr<NodePtr> held(static_cast<NodePtr*>(note));
  if (held == nullptr || call.failed) return;
  const NodePtr& node = *held;
  node->ran(call);
  if (call.in_place) {
    const Tensor& self = *call.inputs[0].tensor();
    if (self.is_view()) {
      // Other strides for this view alone: neither the base nor its other views notice.
      if (row(call.op).kind == OpKind::view) return set_history(self, node, 0);
      const Tensor base(self.node()->base);
      set_history(base, make_counted<WriteThroughView>(base, self, node), 0);
      return;  // the view's own history is rebuilt from the base's when it is next asked for
    }
    set_history(self, node, 0);
    return;
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Tensor& y = call.outputs[i];
    if (!y.defined() || !is_floating(y.dtype())) continue;
    rule(call.op);  // an operator without a rule is refused by name
    set_history(y, node, static_cast<int>(i));
  }
}

const char* made_by(const Tensor& x) {
  const auto fn = gradient_function(x);
  return fn ? fn->name() : nullptr;
}

}  // namespace

void install_recorder() {
  static constexpr door::Listener kRecorder{.bit = kGradMode, .before = before, .after = after};
  [[maybe_unused]] static const bool installed = [] {
    door::set_made_by(made_by);
    door::add_listener(kRecorder);
    return true;
  }();
}

}  // namespace lorry::autograd
