// Tensor's methods that concern gradients.

#include "lorry/autograd/engine.h"
#include "lorry/autograd/gradient_destination.h"
#include "lorry/autograd/node.h"
#include "lorry/autograd/recorder.h"
#include "lorry/tensor/changes.h"
#include "lorry/tensor/facts.h"

namespace lorry {

using autograd::Meta;

const Tensor& Tensor::requires_grad_(bool on) const {
  detail::TensorNode& node = checked("requires_grad_");
  if (on == requires_grad()) return *this;
  require<GradError>(is_leaf(), "requires_grad_: only a leaf can be switched; got {} made by {}; use detach()", *this,
                     grad_fn());
  if (!on) {
    node.requires_grad = false;
    return *this;
  }
  require<DTypeError>(is_floating(node.dtype),
                      "requires_grad_: gradients exist for floating dtypes only; got {}; convert with to(kF32)", *this);
  require<GradError>(
      !node.inference || mode(kInferenceMode),
      "requires_grad_: an inference tensor never enters a graph; got {}; clone it outside inference mode", *this);
  Meta& m = autograd::meta(*this);
  if (!m.gradient) m.gradient = make_counted<autograd::Accumulate>(*this);
  node.base = nullptr;  // a leaf stands for itself
  node.cut_view = false;
  node.requires_grad = true;
  autograd::install_recorder();
  return *this;
}

bool Tensor::is_leaf() const { return !requires_grad() || !autograd::gradient_function(*this); }

Tensor Tensor::grad() const {
  checked("grad");
  const Meta* m = autograd::find_meta(*this);
  return m != nullptr && m->gradient ? m->gradient->grad() : Tensor();
}

void Tensor::set_grad(const Tensor& grad) const {
  checked("set_grad");
  const detail::ShapesOnly shapes;
  if (grad.defined()) {
    require<ShapeError>(grad.sizes() == sizes(),
                        "set_grad: the gradient has another shape than its tensor; got gradient: {}, tensor: {}", grad,
                        *this);
    require<DTypeError>(is_floating(grad.dtype()),
                        "set_grad: the gradient is not floating; got gradient: {}, tensor: {}; expected one of {}",
                        grad, *this, kFloatingNames);
    require<DeviceError>(grad.device() == device(),
                         "set_grad: the gradient is on another device than its tensor; got gradient: {}, tensor: {}",
                         grad, *this);
  }
  Meta& m = autograd::meta(*this);
  if (!m.gradient) m.gradient = make_counted<autograd::Accumulate>(*this);
  m.gradient->set_grad(grad);
}

namespace autograd {
void set_gradient_destination(const Tensor& leaf, const Tensor& memory, GradientObserver observer) {
  if (!memory.defined()) {
    if (const Meta* const m = leaf.defined() ? find_meta(leaf) : nullptr; m != nullptr && m->gradient)
      m->gradient->set_destination({}, {});
    return;
  }
  require<GradError>(leaf.defined() && leaf.requires_grad() && leaf.is_leaf(),
                     "set_gradient_destination: the tensor is no leaf that requires a gradient; got {}", leaf);
  require<ShapeError>(memory.sizes() == leaf.sizes() && memory.is_contiguous(),
                      "set_gradient_destination: the memory is not as its leaf; got {}; expected contiguous, as {}",
                      memory, leaf);
  require<DTypeError>(memory.dtype() == leaf.dtype(),
                      "set_gradient_destination: the memory has another dtype than its leaf; got {}, {}", memory, leaf);
  require<DeviceError>(memory.device() == leaf.device(),
                       "set_gradient_destination: the memory is on another device; got {}, {}", memory, leaf);
  meta(leaf).gradient->set_destination(memory, std::move(observer));
}
}  // namespace autograd

std::string Tensor::grad_fn() const {
  if (!requires_grad()) return "";
  const auto fn = autograd::gradient_function(*this);
  return fn ? fn->name() : "";
}

void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  autograd::backward({*this}, {gradient}, retain_graph, create_graph);
}

void Tensor::retain_grad() const {
  require<GradError>(requires_grad(), "retain_grad: the tensor does not require a gradient; got {}", *this);
  if (is_leaf()) return;
  Meta& m = autograd::meta(*this);
  if (m.retains) return;
  if (!m.gradient) m.gradient = make_counted<autograd::Accumulate>(*this);
  m.retains = true;
  m.fn->retain(m.index, m.gradient);
}

int64_t Tensor::register_hook(std::function<Tensor(const Tensor&)> hook) const {
  require<GradError>(requires_grad(), "register_hook: the tensor does not require a gradient; got {}", *this);
  const autograd::Edge edge = autograd::gradient_edge(*this);
  return edge.node->add_hook(edge.index, std::move(hook));
}

void Tensor::remove_hook(int64_t handle) const {
  const autograd::Edge edge = autograd::gradient_edge(*this);
  bool removed = edge && edge.node->remove_hook(handle);
  if (!removed && edge)
    for (const auto& earlier : autograd::meta(*this).hooked) removed = removed || earlier->remove_hook(handle);
  require<ValueError>(removed, "remove_hook: no such hook on this tensor; got handle {}", handle);
}

void Tensor::set_data(const Tensor& other) const {
  detail::TensorNode& node = checked("set_data");
  require<ValueError>(other.defined(), "set_data: the other tensor is undefined; expected a tensor");
  require<GradError>(is_leaf(), "set_data: only a leaf can take another tensor's data; got {} made by {}", *this,
                     grad_fn());
  require<DTypeError>(!requires_grad() || is_floating(other.dtype()),
                      "set_data: a tensor that requires a gradient stays floating; got {}", other);
  take_over(node, *other.node_);
  if (Meta* m = autograd::find_meta(*this); m != nullptr && m->gradient) m->gradient->follow(*this);
  if (detail::facts_heard()) [[unlikely]]
    detail::announce_fact({.fact = Fact::data_set, .storage = node.storage->id(), .tensor = this});
}

}  // namespace lorry
