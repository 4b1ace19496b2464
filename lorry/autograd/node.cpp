#include "lorry/autograd/node.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "lorry/autograd/operator_node.h"
#include "lorry/ops/ops.h"
#include "lorry/tensor/changes.h"
#include "lorry/tensor/facts.h"

namespace lorry::autograd {
namespace {
std::atomic<uint64_t> g_sequence{1};
std::atomic<int64_t> g_hook{1};
constinit thread_local std::vector<Node*>* t_dying = nullptr;
}  // namespace

Node::Node(std::vector<Edge> leads_to)
    : edges(std::move(leads_to)), sequence(g_sequence.fetch_add(1, std::memory_order_relaxed)) {}
Node::~Node() = default;

void Node::destroy() {
  // Deleting a node releases the nodes before it; queue them instead of recursing through a graph of any depth.
  if (t_dying != nullptr) {
    t_dying->push_back(this);
    return;
  }
  std::vector<Node*> dying{this};
  t_dying = &dying;
  while (!dying.empty()) {
    Node* node = dying.back();
    dying.pop_back();
    delete node;
  }
  t_dying = nullptr;
}

int64_t Node::add_hook(int output, Hook hook) {
  const int64_t handle = g_hook.fetch_add(1, std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  hooks_.push_back({handle, output, std::move(hook)});
  return handle;
}

bool Node::remove_hook(int64_t handle) {
  const std::scoped_lock lock(mutex_);
  return std::erase_if(hooks_, [&](const Entry& e) { return e.handle == handle; }) > 0;
}

bool Node::has_hooks() {
  const std::scoped_lock lock(mutex_);
  return !hooks_.empty();
}

void Node::retain(int output, const IntrusivePtr<Accumulate>& gradient) {
  const std::scoped_lock lock(mutex_);
  retained_.push_back({output, gradient});
}

void Node::forget(int output) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(retained_, [&](const Retained& r) { return r.output == output; });
}

std::vector<Node::Retained> Node::run_hooks(std::vector<Tensor>& grads) {
  std::vector<Entry> hooks;
  std::vector<Retained> retained;
  {
    const std::scoped_lock lock(mutex_);  // not while they run: a hook may add or remove hooks
    hooks = hooks_;
    retained = retained_;
  }
  for (const Entry& e : hooks) {
    Tensor& grad = grads[static_cast<size_t>(e.output)];
    if (!grad.defined()) continue;
    Tensor replacement = [&] {
      const lorry::detail::UsersCode hook;
      return e.hook(grad);
    }();
    if (!replacement.defined()) continue;
    require<GradError>(replacement.sizes() == grad.sizes() && replacement.dtype() == grad.dtype() &&
                           replacement.device() == grad.device(),
                       "register_hook: a hook returned another kind of tensor than the gradient; got {}; expected {}",
                       replacement, grad);
    grad = std::move(replacement);
  }
  return retained;
}

std::vector<Tensor> Accumulate::apply(std::vector<Tensor> grads) {
  Tensor& g = grads[0];
  if (!g.defined()) return {};
  const GradientObserver observer = this->observer();
  if (observer) observer(Arrival::begins);
  {
    const std::scoped_lock lock(mutex_);
    add(g);
  }
  if (observer) observer(Arrival::complete);
  return {};
}

void Accumulate::add(const Tensor& g) {
  if (grad_.defined()) {
    // A recorded sum keeps the graph of gradients; otherwise the sum is taken in place.
    if (mode(kGradMode)) {
      put(grad_.add(g).to(grad_.dtype()));
    } else {
      grad_.add_(g);
    }
    return;
  }
  is_taken_ = false;
  if (destination_.defined() && g.node() == destination_.node()) return put(destination_);
  const bool sole = g.node_ptr()->users() == 1 && g.storage().users() == 1 && g.is_contiguous();
  put(sole ? g : g.clone());  // never shared: the next backward adds into it
}

void Accumulate::set_destination(const Tensor& memory, GradientObserver observer) {
  const std::scoped_lock lock(mutex_);
  destination_ = memory, is_taken_ = false;
  set_observer(std::move(observer));
}

void Accumulate::set_observer(GradientObserver observer) {
  g_awaited_leaves += static_cast<int>(observer != nullptr) - static_cast<int>(observer_ != nullptr);
  observer_ = std::move(observer);
}

GradientObserver Accumulate::observer() const {
  if (g_awaited_leaves == 0) return {};
  const std::scoped_lock lock(mutex_);
  return observer_;
}

bool Accumulate::is_awaited() const {
  const std::scoped_lock lock(mutex_);
  return observer_ != nullptr;
}

Tensor Accumulate::take_destination() {
  if (const GradientObserver observer = this->observer()) observer(Arrival::begins);
  const std::scoped_lock lock(mutex_);
  if (grad_.defined() || !destination_.defined() || is_taken_) return {};
  is_taken_ = true;
  return destination_;
}

bool Accumulate::adds_into(const Tensor& x) const {
  const std::scoped_lock lock(mutex_);
  return is_taken_ && x.node() == destination_.node();
}

Tensor Accumulate::grad() const {
  const std::scoped_lock lock(mutex_);
  return grad_;
}

void Accumulate::set_grad(const Tensor& grad) {
  const std::scoped_lock lock(mutex_);
  is_taken_ = false;
  put(grad);
}

void Accumulate::put(const Tensor& grad) {
  if (grad.defined()) grad.node()->storage->add_gradient();
  if (grad_.defined()) grad_.node()->storage->drop_gradient();
  grad_ = grad;
  changed_ = note_change();
  if (lorry::detail::facts_heard()) [[unlikely]]
    lorry::detail::announce_fact({.fact = Fact::grad_set, .storage = storage_, .tensor = &grad_, .leaf = leaf_});
}

void Accumulate::follow(const Tensor& leaf) {
  const lorry::detail::ShapesOnly shapes;
  outputs.assign(1, {leaf.sizes(), leaf.dtype(), leaf.device()});
  storage_ = leaf.storage().id();
  leaf_ = leaf.node();
  const std::scoped_lock lock(mutex_);
  const bool fits = destination_.defined() && destination_.sizes() == leaf.sizes() &&
                    destination_.dtype() == leaf.dtype() && destination_.device() == leaf.device();
  if (!fits) destination_ = {}, set_observer({});
}

Accumulate::~Accumulate() {
  set_observer({});
  if (grad_.defined()) grad_.node()->storage->drop_gradient();
}

Meta* find_meta(const Tensor& x) { return static_cast<Meta*>(x.node()->grad.get()); }

Meta& meta(const Tensor& x) {
  if (!x.node()->grad) x.node()->grad = std::make_unique<Meta>();
  return *find_meta(x);
}

namespace {

uint64_t sequence_of(const lorry::detail::TensorNode& base) {
  const auto* m = static_cast<const Meta*>(base.grad.get());
  return m != nullptr && m->fn ? m->fn->sequence : 0;
}

void set_fn(const Tensor& x, Meta& m, const IntrusivePtr<Node>& fn, int index) {
  if (m.retains) {
    m.fn->forget(m.index);
    fn->retain(index, m.gradient);
  }
  if (m.fn && m.fn->has_hooks()) m.hooked.push_back(m.fn);
  m.fn = fn;
  m.index = index;
  if (x.is_view()) m.base_sequence = sequence_of(*x.node()->base);
}

}  // namespace

void set_history(const Tensor& x, const IntrusivePtr<Node>& fn, int index) {
  set_fn(x, meta(x), fn, index);
  x.node()->requires_grad = true;
}

void Node::adopt(const Tensor& x, int index) {
  if (is_floating(x.dtype())) set_history(x, IntrusivePtr<Node>(this), index);  // nothing is differentiated by a mask
}

IntrusivePtr<Node> gradient_function(const Tensor& x, int* index) {
  lorry::detail::TensorNode& node = *x.node();
  if (node.base && !node.cut_view && node.base->requires_grad) {
    // A view's history follows its base's: it is made anew when something was written through the base or another view.
    // Views may be read from several threads, so this is guarded.
    static std::mutex renewing;
    IntrusivePtr<Node> before;  // dies after the lock is released: a whole graph may go with it
    const std::scoped_lock lock(renewing);
    Meta& m = meta(x);
    before = m.fn;
    if (!m.fn || m.base_sequence != sequence_of(*node.base)) set_fn(x, m, view_of(Tensor(node.base), x), 0);
    if (index != nullptr) *index = m.index;
    return m.fn;
  }
  const Meta* m = find_meta(x);
  if (m == nullptr || !node.requires_grad) return {};
  if (index != nullptr) *index = m->index;
  return m->fn;
}

Edge gradient_edge(const Tensor& x) {
  if (!x.defined() || !x.requires_grad()) return {};
  Edge edge;
  edge.node = gradient_function(x, &edge.index);
  if (!edge.node) edge = {meta(x).gradient, 0};
  return edge;
}

std::vector<uint64_t> storages_on_tape(const std::vector<Tensor>& roots) {
  std::vector<uint64_t> storages;
  std::vector<Node*> open;
  std::unordered_set<const Node*> seen;
  const auto visit = [&](const Edge& edge) {
    if (edge && seen.insert(edge.node.get()).second) open.push_back(edge.node.get());
  };
  for (const Tensor& x : roots) visit(gradient_edge(x));
  while (!open.empty()) {
    Node& node = *open.back();
    open.pop_back();
    node.saved_storages(storages);
    for (const Edge& edge : node.edges) visit(edge);
  }
  std::ranges::sort(storages);
  storages.erase(std::ranges::unique(storages).begin(), storages.end());
  return storages;
}

}  // namespace lorry::autograd
