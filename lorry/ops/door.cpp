#include "lorry/ops/door.h"

#include <atomic>

#include "lorry/ops/creation.h"

namespace lorry::door {
namespace {
constinit std::atomic<const Listener*> g_recorder{nullptr};
constexpr uint32_t kListening = kGradMode | kTraceMode | kProfileMode;
const Listener* recorder(uint32_t modes) { return modes & kGradMode ? g_recorder.load(std::memory_order_acquire) : nullptr; }
}  // namespace

void set_recorder(const Listener* recorder) { g_recorder.store(recorder, std::memory_order_release); }

const char* made_by(const Tensor& x) {
  const Listener* const recorder = g_recorder.load(std::memory_order_acquire);
  return x.requires_grad() && recorder != nullptr ? recorder->made_by(x) : nullptr;
}

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
  {
    const ModeScope quiet(0, kListening);
    if (const Listener* r = recorder(modes_)) r->before(call_);
  }
  t_modes = modes_ & ~kListening;
}

void Announced::finish(const Tensor* outputs, size_t count) {
  call_.outputs.assign(outputs, outputs + count);
  if (const Listener* r = recorder(modes_)) r->after(call_);
}

Announced::~Announced() { t_modes = modes_; }

void require_not_inference(const Tensor& self) {
  if (self.node()->inference && !mode(kInferenceMode)) [[unlikely]]
    raise<GradError>("an inference tensor is written outside inference mode; got {}; clone it first", self);
}

void require_writable(const Tensor& self) {
  if (!self.defined()) [[unlikely]]
    raise<ValueError>("the tensor to be written is undefined; expected a tensor");
  require_not_inference(self);
  const TensorNode& node = *self.node();
  if (node.storage->read_only()) [[unlikely]]
    raise<ValueError>("the memory is read-only; got {}; clone it first", self);
  if (!node.contiguous && node.layout.has_internal_overlap()) [[unlikely]]
    raise<ShapeError>(
        "several elements of the written tensor share one address; got {} with strides {}; clone it first", self,
        self.strides());
}

Tensor make_view(const Tensor& base, const Layout& layout, int64_t offset) {
  const TensorNode& from = *base.node();
  auto node = make_counted<TensorNode>(from.storage, layout, offset, from.dtype);
  node->inference = from.inference;
  node->wrapped_number = from.wrapped_number;
  if (from.inference) return Tensor(std::move(node));
  node->base = from.base ? from.base : base.node_ptr();
  node->cut_view = from.cut_view || !mode(kGradMode);
  return Tensor(std::move(node));
}

Tensor owning(Tensor view) {
  view.node()->base = nullptr;
  view.node()->cut_view = false;
  return view;
}

}  // namespace lorry::door
