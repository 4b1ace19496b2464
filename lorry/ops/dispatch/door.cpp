#include "lorry/ops/dispatch/door.h"

#include <atomic>

#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/cost.h"
#include "lorry/ops/internal.h"

namespace lorry::door {
namespace {

constinit std::atomic<const Listener*> g_listeners[kListeners] = {};
constinit std::atomic<MadeBy> g_made_by{nullptr};

/// The call that door::run waits for on this thread.
constinit thread_local RunCapture* t_capture = nullptr;

/// The bits that are cleared on this thread when the call that is being announced ends.
constinit thread_local uint32_t t_stopped = 0;

/// Notifies the listeners of this thread. Nobody listens meanwhile, as with calls.
void notify_fact(const FactView& fact) {
  const uint32_t modes = t_modes;
  const ModeScope nobody_listens(0, kListenerModes);
  for (int i = 0; i < kListeners; ++i) {
    if (!(modes & kFactModes & kListenerBits[i])) continue;
    const Listener* const listener = g_listeners[i].load(std::memory_order_acquire);
    if (listener != nullptr && listener->fact != nullptr) listener->fact(fact);
  }
}

/// Which of the listener bits `bit` is; -1 for another bit.
int slot_of(Mode bit) {
  for (int i = 0; i < kListeners; ++i)
    if (kListenerBits[i] == bit) return i;
  return -1;
}

}  // namespace

void add_listener(const Listener& listener) {
  const int slot = slot_of(listener.bit);
  if (slot < 0)
    raise_as<ValueError>("add_listener", "the mode bit is not a listener bit; got {}", uint32_t{listener.bit});
  const Listener* none = nullptr;
  if (!g_listeners[slot].compare_exchange_strong(none, &listener, std::memory_order_acq_rel))
    raise_as<ValueError>("add_listener", "the mode bit has a listener already; got {}; remove that one first",
                         uint32_t{listener.bit});
  detail::g_fact_hook.store(notify_fact, std::memory_order_release);
}

void remove_listener(const Listener& listener) noexcept {
  const int slot = slot_of(listener.bit);
  const Listener* there = &listener;
  if (slot >= 0) g_listeners[slot].compare_exchange_strong(there, nullptr, std::memory_order_acq_rel);
}

void stop_listening(Mode bit) noexcept { t_stopped |= bit; }

void await_memory() {
  if (!mode(kAwaitMode)) return;
  const Listener* const listener = g_listeners[slot_of(kAwaitMode)].load(std::memory_order_acquire);
  if (listener != nullptr && listener->await_all != nullptr) listener->await_all();
}

void set_made_by(MadeBy made_by) { g_made_by.store(made_by, std::memory_order_release); }

const char* made_by(const Tensor& x) {
  const MadeBy name_of = g_made_by.load(std::memory_order_acquire);
  return x.requires_grad() && name_of != nullptr ? name_of(x) : nullptr;
}

Observed::Observed(const Tensor& x) {
  if (!x.defined()) return;
  const detail::TensorNode& node = *x.node();
  tensor_ = Tensor(make_counted<detail::TensorNode>(node.storage, node.layout, node.offset, node.dtype));
  tensor_.node()->inference = node.inference;
  tensor_.node()->wrapped_number = node.wrapped_number;
  node.storage->add_observer();
}

Observed::~Observed() {
  if (tensor_.defined()) tensor_.storage().drop_observer();
}

Tensor Input::materialise() const {
  if (tensor_ != nullptr) return *tensor_;
  return scalar_ == nullptr ? Tensor() : wrapped_number(*scalar_);
}

RunCapture::RunCapture(Op op) : op_(op), outer_(t_capture), mode_(kRunMode, 0) { t_capture = this; }
RunCapture::~RunCapture() { t_capture = outer_; }

void RunCapture::take(std::span<const Tensor> outputs) {
  outputs_.emplace(outputs.begin(), outputs.end());
  t_capture = nullptr;
}

Announced::Announced(Op op, bool in_place, const Inputs& inputs, const Tensor* self,
                     std::span<const Attribute> attributes, RunCall run)
    : modes_(t_modes) {
  list_inputs(inputs, self);
  call_.op = op, call_.in_place = in_place, call_.attributes = attributes, call_.run = run;
  notify_begin();
}

Announced::Announced(Op op, bool in_place, const Inputs& inputs, std::span<const Tensor> out,
                     std::span<const Attribute> attributes, RunCall run)
    : modes_(t_modes) {
  list_inputs(inputs, nullptr);
  call_.op = op, call_.in_place = in_place, call_.out = !in_place, call_.attributes = attributes, call_.run = run;
  call_.outputs = out;
  notify_begin();
}

void Announced::list_inputs(const Inputs& inputs, const Tensor* self) {
  const size_t first = self != nullptr ? 1 : 0, count = inputs.size() + first;
  Input* list = few_;
  if (count > kFew) {
    many_.resize(count);
    list = many_.data();
  }
  if (self != nullptr) list[0] = self;
  for (size_t i = 0; i < inputs.size(); ++i) list[first + i] = inputs[i];
  call_.inputs = {list, count};
}

void Announced::notify_begin() {
  // Who listens is decided first: a listener that another one adds hears the next call.
  const Listener* listeners[kListeners];
  for (int i = 0; i < kListeners; ++i)
    listeners[i] = modes_ & kListenerBits[i] ? g_listeners[i].load(std::memory_order_acquire) : nullptr;
  if ((modes_ & kRunMode) && t_capture != nullptr && t_capture->op() == call_.op) capture_ = t_capture;
  call_.listeners = modes_ & kListenerModes;
  t_modes = modes_ & ~kListenerModes;
  try {
    for (const Listener* const listener : listeners) {
      if (listener == nullptr) continue;
      void* note = nullptr;
      if (listener->before != nullptr) listener->before(call_, note);
      modes_ &= ~std::exchange(t_stopped, 0u);
      notified_[notified_count_++] = {listener, note};
    }
    for (int i = 0; i < notified_count_ && !replaced_; ++i)
      if (const auto replace = notified_[i].listener->replace) replaced_ = replace(call_, made_);
  } catch (...) {
    call_.failed = true;
    notify_end();
    t_modes = modes_;
    throw;
  }
}

std::exception_ptr Announced::notify_end() noexcept {
  std::exception_ptr first;
  while (notified_count_ > 0) {
    const Notified& notified = notified_[--notified_count_];
    if (notified.listener->after == nullptr) continue;
    try {
      notified.listener->after(call_, notified.note);
    } catch (...) {
      if (first == nullptr) first = std::current_exception();
    }
  }
  return first;
}

void Announced::finish(std::span<const Tensor> outputs) {
  call_.outputs = outputs;
  if (capture_ != nullptr) capture_->take(outputs);
  if (lorry::detail::t_cost_observer != nullptr) lorry::detail::t_cost_observer->ended(cost(call_));
  t_modes = modes_ & ~kListenerModes;
  if (const std::exception_ptr error = notify_end()) std::rethrow_exception(error);
}

Announced::~Announced() {
  if (notified_count_ > 0) {
    call_.failed = true;
    if (!call_.out) call_.outputs = {};
    notify_end();
  }
  t_modes = modes_;
}

void require_not_inference(const Tensor& self) {
  if (self.node()->inference && !mode(kInferenceMode)) [[unlikely]]
    raise<GradError>("an inference tensor is written outside inference mode; got {}; clone it first", self);
}

void require_writable(const Tensor& self) {
  if (!self.defined()) [[unlikely]]
    raise<ValueError>("the tensor to be written is undefined; expected a tensor");
  require_not_inference(self);
  const detail::TensorNode& node = *self.node();
  if (node.storage->read_only()) [[unlikely]]
    raise<ValueError>("the memory is read-only; got {}; clone it first", self);
  if (!node.contiguous && node.layout.has_internal_overlap()) [[unlikely]]
    raise<ShapeError>(
        "several elements of the written tensor share one address; got {} with strides {}; clone it first", self,
        self.strides());
}

Tensor make_view(const Tensor& base, const Layout& layout, int64_t offset) {
  const detail::TensorNode& from = *base.node();
  auto node = make_counted<detail::TensorNode>(from.storage, layout, offset, from.dtype);
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
