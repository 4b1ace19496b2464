#include "lorry/autograd/operator_node.h"

#include "lorry/autograd/grad_mode.h"
#include "lorry/base/span.h"
#include "lorry/device/fence.h"
#include "lorry/ops/ops.h"

namespace lorry::autograd {

Saved::Saved(const Tensor& x, Edge history) {
  if (!x.defined()) return;
  // A leaf that requires a gradient is saved as it is: it cannot be written while gradients are recorded.
  const bool leaf = history && history.node.get() == meta(x).gradient.get();
  take(leaf ? x : x.detach(), x);
  if (!leaf && !hook_) history_ = std::move(history);
}

Saved Saved::output(const Tensor& x, int index) {
  Saved saved;
  saved.own_output_ = true;
  saved.history_.index = index;
  const Tensor cut = x.detach();
  saved.take(cut, cut);
  return saved;
}

void Saved::take(const Tensor& x, const Tensor& for_hook) {
  if (x.is_inference())
    raise<GradError>(
        "autograd: an inference tensor cannot be saved for the backward pass; got {}; clone it outside inference mode",
        x);
  if (t_saved_tensor_hook != nullptr) {
    number_ = t_saved_tensor_hook->pack(for_hook);
    if (number_ >= 0) {
      hook_ = IntrusivePtr<SavedTensorHook>(t_saved_tensor_hook);
      return;
    }
  }
  tensor_ = x;
  storage_ = x.node()->storage;
  version_ = x.version();
}

void Saved::release() {
  if (hook_) hook_->release(number_);
  hook_ = nullptr;
  *this = Saved();
}

Tensor Saved::unpack(Node& owner, const char* op, const char* which, int position) const {
  Tensor x = hook_ ? hook_->unpack(number_) : tensor_;
  if (!x.defined()) return x;
  if (!hook_ && !(x.node()->storage == storage_))
    raise<GradError>(
        "{} backward: a tensor saved for the gradient was given other data by set_data; got {} {}: {}; do so before "
        "the "
        "forward pass",
        op, which, position, x);
  if (!hook_ && x.version() != version_) {
    const char* writer = x.storage().last_writer();
    raise<GradError>(
        "{} backward: a tensor saved for the gradient was overwritten in place; got {} {}: {}, at version {} where {} "
        "was saved, last written by {}; clone it before "
        "that write, or use the operator that makes a new tensor",
        op, which, position, x, x.version(), version_, writer == nullptr ? "unknown" : writer);
  }
  // Work of this backward reads memory that may belong to another stream; it is freed while that work is still to run.
  if (several_streams() && !x.device().is_cpu()) x.record_stream(current_stream(x.device()));
  if (mode(kGradMode) && (own_output_ || history_)) {
    x = x.detach();
    if (own_output_) {
      owner.adopt(x, history_.index);
    } else {
      set_history(x, history_.node, history_.index);
    }
  }
  return x;
}

Tensor Call::unpack(const std::vector<Saved>& saved, int i, const char* which) const {
  Saved s;
  {
    const std::scoped_lock lock(mutex_);  // another thread's backward may release what this one reads
    if (released_)
      raise<GradError>(
          "{} backward: the graph was freed by an earlier backward; pass retain_graph = true to the earlier one to go "
          "through it again",
          lorry::name(op_));
    s = saved.at(static_cast<size_t>(i));
  }
  if (!s.is_saved() && (which[0] == 'o' || facts_[static_cast<size_t>(i)].defined))
    raise("{} backward: its rule reads {} {}, which it did not ask to save", lorry::name(op_), which, i);
  return s.unpack(*owner_, lorry::name(op_), which, i);
}

Tensor Call::destination(int i) const {
  Node* const next = owner_->edges[static_cast<size_t>(i)].node.get();
  return t_destinations && next != nullptr ? next->take_destination() : Tensor();
}

void Call::release() {
  std::vector<Saved> inputs, outputs;
  {
    const std::scoped_lock lock(mutex_);
    released_ = true;
    inputs.swap(inputs_);
    outputs.swap(outputs_);
  }
  for (Saved& s : inputs) s.release();
  for (Saved& s : outputs) s.release();
}

namespace {

std::vector<Edge> edges_of(std::span<const door::Input> inputs) {
  std::vector<Edge> edges;
  edges.reserve(inputs.size());
  for (const door::Input& x : inputs) edges.push_back(x.tensor() != nullptr ? gradient_edge(*x.tensor()) : Edge());
  return edges;
}

}  // namespace

OperatorNode::OperatorNode(const door::CallView& call, const Rule* rule) : Node(edges_of(call.inputs)), rule_(rule) {
  call_.op_ = call.op;
  call_.owner_ = this;
  call_.attributes_.assign(call.attributes.begin(), call.attributes.end());
  call_.inputs_.resize(call.inputs.size());
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor x = call.inputs[i].materialise();
    call_.facts_.emplace_back(x);
    if (rule == nullptr || !x.defined()) continue;
    const bool keeps = i < 16 ? (rule->saves & (1u << i)) != 0 : (rule->saves & kInputs) == kInputs;
    if (!keeps) continue;
    if (call.in_place && x.node()->storage == call.inputs[0].tensor()->node()->storage) {
      // What the call is about to overwrite is saved as a copy, with its history, so that it can be differentiated
      // again.
      const ModeScope as_the_caller(call.listeners, 0);
      const Tensor before = x.clone();
      call_.inputs_[i] = Saved(before, gradient_edge(before));
    } else {
      call_.inputs_[i] = Saved(x, edges[i]);
    }
  }
}

void OperatorNode::ran(const door::CallView& call) {
  origin = lorry::detail::t_origin;
  call_.outputs_.resize(call.outputs.size());
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Tensor& y = call.outputs[i];
    outputs.push_back(
        {y.defined() ? y.sizes() : Dims(), y.defined() ? y.dtype() : kF32, y.defined() ? y.device() : kCPU});
    if (rule_ != nullptr && y.defined() && (rule_->saves & (kOutput0 << i)))
      call_.outputs_[i] = Saved::output(y, static_cast<int>(i));
  }
  const auto see = [&](const Tensor& x) {
    if (stream.device.is_cpu() && x.defined()) stream = current_stream(x.device());
  };
  for (const Tensor& y : call.outputs) see(y);
  for (const door::Input& x : call.inputs)
    if (x.tensor() != nullptr) see(*x.tensor());
}

std::vector<Tensor> OperatorNode::apply(std::vector<Tensor> grads) {
  if (rule_ == nullptr) return std::vector<Tensor>(edges.size());
  std::vector<Tensor> result = rule_->gradient(call_, grads);
  if (result.size() > edges.size())
    raise("{} backward: its rule returned {} gradients for {} inputs", name(), result.size(), edges.size());
  result.resize(edges.size());
  return result;
}

void Call::saved_storages(std::vector<uint64_t>& storages) const {
  const std::scoped_lock lock(mutex_);
  for (const Saved& s : inputs_) s.add_storage(storages);
  for (const Saved& s : outputs_) s.add_storage(storages);
}

void OperatorNode::adopt(const Tensor& x, int index) {
  if (through_ != nullptr && is_floating(x.dtype())) {
    through_->adopt_view(x);
  } else {
    Node::adopt(x, index);
  }
}

WriteThroughView::WriteThroughView(const Tensor& base, const Tensor& view, const IntrusivePtr<OperatorNode>& inner)
    : Node(edges_behind(base, *inner)),
      inner_(inner),
      base_(base.layout()),
      view_(view.layout()),
      offset_(view.storage_offset() - base.storage_offset()) {
  outputs.push_back({base.sizes(), base.dtype(), base.device()});
  stream = inner->stream;
  inner->through_ = this;
}

void WriteThroughView::adopt_view(const Tensor& x) {
  const Tensor base(
      make_counted<lorry::detail::TensorNode>(x.node()->storage, base_, x.storage_offset() - offset_, x.dtype()));
  set_history(base, IntrusivePtr<Node>(this), 0);
  set_history(x, view_of(base, x), 0);
}

std::vector<Edge> WriteThroughView::edges_behind(const Tensor& base, const Node& inner) {
  std::vector<Edge> edges = inner.edges;
  edges[0] = gradient_edge(base);
  return edges;
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
  const door::Input inputs[] = {&base};
  const door::Attribute attributes[] = {view.sizes(), view.strides(), view.storage_offset(), base.storage_offset()};
  door::CallView call{.op = Op::as_strided, .inputs = inputs, .outputs = {&view, 1}, .attributes = attributes};
  auto node = make_counted<OperatorNode>(call, &rule(Op::as_strided));
  node->ran(call);
  return node;
}

}  // namespace lorry::autograd
