#include "lorry/autograd/operator_node.h"

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/ops.h"

namespace lorry::autograd {

Saved::Saved(const Tensor& x, bool own_output, int index) : index_(index), own_output_(own_output) {
  if (!x.defined()) return;
  if (x.is_inference()) raise<GradError>("autograd: an inference tensor cannot be kept for the backward pass; got {}; clone it outside inference mode", x);
  const Tensor kept = own_output ? x.detach() : x;
  if (t_keeper != nullptr) {
    number_ = t_keeper->keep(kept);
    if (number_ >= 0) {
      keeper_ = IntrusivePtr<Keeper>(t_keeper);
      return;
    }
  }
  tensor_ = kept;
  storage_ = kept.node()->storage;
  version_ = x.version();
}

void Saved::release() {
  if (keeper_) keeper_->forget(number_);
  keeper_ = nullptr;
  tensor_ = Tensor();
  storage_ = nullptr;
}

Tensor Saved::unpack(const Node* owner, const char* op, const char* which, int position) const {
  Tensor x = keeper_ ? keeper_->recall(number_) : tensor_;
  if (!x.defined()) return x;
  if (!keeper_ && !(x.node()->storage == storage_))
    raise<GradError>("{} backward: a tensor kept for the gradient was given other data by set_data; got {} {}: {}; do so before the forward pass", op, which, position, x);
  if (!keeper_ && x.version() != version_) {
    const char* writer = x.storage().last_writer();
    raise<GradError>(
        "{} backward: a tensor kept for the gradient was overwritten in place; got {} {}: {}, at version {} where {} was kept, last written by {}; clone it before "
        "that write, or use the operator that makes a new tensor",
        op, which, position, x, x.version(), version_, writer == nullptr ? "unknown" : writer);
  }
  if (own_output_ && mode(kGradMode)) {
    x = x.detach();
    set_history(x, IntrusivePtr<Node>(const_cast<Node*>(owner)), index_);
  }
  return x;
}

Tensor Call::unpack(const std::vector<Saved>& saved, int i, const char* which) const {
  if (released_)
    raise<GradError>("{} backward: the graph was freed by an earlier backward; pass retain_graph = true to the earlier one to go through it again", lorry::name(op_));
  const Saved& s = saved.at(static_cast<size_t>(i));
  if (!s.kept() && (which[0] == 'o' || facts_[static_cast<size_t>(i)].defined)) raise("{} backward: its rule reads {} {}, which it did not ask to keep", lorry::name(op_), which, i);
  return s.unpack(owner_, lorry::name(op_), which, i);
}

OperatorNode::OperatorNode(const door::Call& call, const Rule* rule) : rule_(rule) {
  call_.op_ = call.op;
  call_.owner_ = this;
  call_.attributes_ = call.attributes;
  call_.inputs_.resize(call.inputs.size());
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor& x = call.inputs[i];
    call_.facts_.emplace_back(x);
    edges.push_back(gradient_edge(x));
    if (rule == nullptr || !x.defined()) continue;
    const bool keeps = i < 16 ? (rule->saves & (1u << i)) != 0 : (rule->saves & kInputs) == kInputs;
    if (!keeps) continue;
    if (call.in_place && i == 0) {
      // What the call is about to overwrite is kept as a copy, with its history, so that it can be differentiated again.
      const EnableGrad recording;
      call_.inputs_[i] = Saved(x.clone());
    } else {
      call_.inputs_[i] = Saved(x);
    }
  }
}

void OperatorNode::ran(const door::Call& call) {
  call_.outputs_.resize(call.outputs.size());
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Tensor& y = call.outputs[i];
    outputs.push_back({y.defined() ? y.sizes() : Dims(), y.defined() ? y.dtype() : kF32, y.defined() ? y.device() : kCPU});
    if (rule_ != nullptr && y.defined() && (rule_->saves & (kOutput0 << i))) call_.outputs_[i] = Saved(y, true, static_cast<int>(i));
  }
}

std::vector<Tensor> OperatorNode::apply(std::vector<Tensor> grads) {
  if (rule_ == nullptr) return std::vector<Tensor>(edges.size());
  std::vector<Tensor> result = rule_->gradient(call_, grads);
  if (result.size() > edges.size()) raise("{} backward: its rule returned {} gradients for {} inputs", name(), result.size(), edges.size());
  result.resize(edges.size());
  return result;
}

void OperatorNode::release() {
  call_.released_ = true;
  for (Saved& s : call_.inputs_) s.release();
  for (Saved& s : call_.outputs_) s.release();
}

WriteThroughView::WriteThroughView(const Tensor& base, const Tensor& view, const IntrusivePtr<Node>& inner)
    : inner_(inner), base_(base.layout()), view_(view.layout()), offset_(view.storage_offset() - base.storage_offset()) {
  outputs.push_back({base.sizes(), base.dtype(), base.device()});
  edges = inner->edges;
  edges[0] = gradient_edge(base);
}

std::vector<Tensor> WriteThroughView::apply(std::vector<Tensor> grads) {
  const Tensor& g = grads[0];
  // The gradient takes the base's own strides, so that the view's layout addresses it.
  Tensor whole = empty_strided(base_.size_list(), base_.stride_list(), g.options());
  whole.copy_(g);
  const Tensor inside = whole.as_strided(view_.size_list(), view_.stride_list(), offset_);
  std::vector<Tensor> result = inner_->apply({inside.clone()});
  if (result[0].defined()) {
    inside.copy_(result[0]);
  } else {
    inside.zero_();
  }
  result[0] = edges[0] ? whole : Tensor();
  return result;
}

IntrusivePtr<Node> view_of(const Tensor& base, const Tensor& view) {
  door::Call call;
  call.op = Op::as_strided;
  call.inputs = {base};
  call.outputs = {view};
  call.attributes = {view.sizes(), view.strides(), view.storage_offset(), base.storage_offset()};
  auto node = make_counted<OperatorNode>(call, &rule(Op::as_strided));
  node->ran(call);
  return node;
}

}  // namespace lorry::autograd
