#include "lorry/ops/door.h"

#include <atomic>

#include "lorry/ops/creation.h"

namespace lorry::door {
namespace {
constinit std::atomic<const Listener*> g_recorder{nullptr};
}

void set_recorder(const Listener* recorder) { g_recorder.store(recorder, std::memory_order_release); }

Tensor Input::materialise() const {
  if (tensor_ != nullptr) return *tensor_;
  return scalar_ == nullptr ? Tensor() : wrapped_number(*scalar_);
}

Announced::Announced(Op op, bool in_place, const Inputs& inputs, const Tensor* self, std::vector<Attribute> attributes) : modes_(t_modes) {
  call_.op = op;
  call_.in_place = in_place;
  call_.attributes = std::move(attributes);
  call_.inputs.reserve(inputs.size() + 1);
  if (self != nullptr) call_.inputs.push_back(*self);
  for (size_t i = 0; i < inputs.size(); ++i) call_.inputs.push_back(inputs.materialise(i));
  t_modes = modes_ & ~(kGradMode | kTraceMode | kProfileMode);
  const Listener* recorder = modes_ & kGradMode ? g_recorder.load(std::memory_order_acquire) : nullptr;
  try {
    if (recorder != nullptr) recorder->before(call_);
  } catch (...) {
    t_modes = modes_;
    throw;
  }
}

void Announced::finish(const Tensor* outputs, size_t count) {
  finished_ = true;
  call_.outputs.assign(outputs, outputs + count);
  const Listener* recorder = modes_ & kGradMode ? g_recorder.load(std::memory_order_acquire) : nullptr;
  if (recorder != nullptr) recorder->after(call_);
}

Announced::~Announced() {
  t_modes = modes_;
  if (finished_) return;
  const Listener* recorder = modes_ & kGradMode ? g_recorder.load(std::memory_order_acquire) : nullptr;
  if (recorder != nullptr) recorder->abandoned(call_);
}

void require_writable(const Tensor& self, const char* where) {
  const TensorNode& node = *self.node();
  if (node.inference && !mode(kInferenceMode)) [[unlikely]]
    raise<GradError>("{}: an inference tensor is written outside inference mode; got {}; clone it first", where, self);
  if (node.storage->read_only()) [[unlikely]]
    raise<ValueError>("{}: the memory is read-only; got {}; clone it first", where, self);
  if (!node.contiguous && node.layout.has_internal_overlap()) [[unlikely]]
    raise<ShapeError>("{}: several elements of the written tensor share one address; got {} with strides {}; clone it first", where, self, self.strides());
}

Tensor make_view(const Tensor& base, const Layout& layout, int64_t offset) {
  const TensorNode& from = *base.node();
  auto node = make_counted<TensorNode>(from.storage, layout, offset, from.dtype);
  node->inference = from.inference;
  node->wrapped_number = from.wrapped_number;
  if (mode(kGradMode) && !from.inference) node->base = from.base ? from.base : base.node_ptr();
  return Tensor(std::move(node));
}

}  // namespace lorry::door
