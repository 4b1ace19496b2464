#include "lorry/autograd/engine.h"

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "lorry/autograd/node.h"
#include "lorry/base/events.h"
#include "lorry/base/span.h"
#include "lorry/device/fence.h"
#include "lorry/ops/ops.h"

namespace lorry::autograd {
namespace {

struct BySequence {
  bool operator()(const Node* a, const Node* b) const { return a->sequence < b->sequence; }
};

/// Whether gradients go to their leaves, for a scope: rules may compute them where these want them.
class DestinationsScope {
 public:
  explicit DestinationsScope(bool on) : before_(std::exchange(t_destinations, on)) {}
  ~DestinationsScope() { t_destinations = before_; }
  DestinationsScope(const DestinationsScope&) = delete;
  DestinationsScope& operator=(const DestinationsScope&) = delete;

 private:
  const bool before_;
};

/// A gradient that grad() was asked for.
struct Capture {
  Edge edge;
  Tensor gradient;
};

/// Nodes to visit: all, or (grad()) those that lead to a captured edge.
class NeededNodes {
 public:
  /// stop_at_captures: do not propagate past a node with a captured edge.
  NeededNodes(const std::vector<Edge>& roots, std::vector<Capture>* captures, bool stop_at_captures)
      : all_(captures == nullptr), stop_at_captures_(stop_at_captures) {
    if (all_) return;
    for (Capture& c : *captures) captures_[c.edge.node.get()].push_back(&c);
    std::vector<Node*> found, stack;
    const auto visit = [&](const Edge& e) {
      if (e && leads_.try_emplace(e.node.get(), captures_.contains(e.node.get())).second) {
        found.push_back(e.node.get());
        stack.push_back(e.node.get());
      }
    };
    for (const Edge& e : roots) visit(e);
    while (!stack.empty()) {
      const Node* node = stack.back();
      stack.pop_back();
      if (stops_at(*node)) continue;
      for (const Edge& e : node->edges) visit(e);
    }
    std::sort(found.begin(), found.end(), [](const Node* a, const Node* b) { return a->sequence < b->sequence; });
    for (Node* node : found)
      for (const Edge& e : node->edges)
        if (e && leads_[e.node.get()]) leads_[node] = true;
  }

  bool operator()(const Edge& e) const { return e && (all_ || leads_.at(e.node.get())); }
  /// Whether the node propagates a gradient to another one.
  bool beyond(const Node& node) const {
    return all_ || (!stops_at(node) &&
                    std::any_of(node.edges.begin(), node.edges.end(), [&](const Edge& e) { return (*this)(e); }));
  }
  /// Takes the gradients at a node that were asked for.
  void capture(Node* node, const std::vector<Tensor>& grads) const {
    if (all_) return;
    if (const auto at = captures_.find(node); at != captures_.end())
      for (Capture* c : at->second) c->gradient = grads[static_cast<size_t>(c->edge.index)];
  }

 private:
  bool stops_at(const Node& node) const { return stop_at_captures_ && captures_.contains(const_cast<Node*>(&node)); }

  const bool all_, stop_at_captures_;
  std::unordered_map<Node*, bool> leads_;
  std::unordered_map<Node*, std::vector<Capture*>> captures_;
};

/// A gradient in the device and dtype of the tensor that it belongs to. Throws if its shape or device does not fit.
Tensor fitted(Tensor g, const Node& node, int index) {
  const Node::Output& like = node.outputs[static_cast<size_t>(index)];
  require<ShapeError>(g.sizes() == like.sizes,
                      "{} backward: a gradient has another shape than its tensor; got {}; expected {}", node.name(), g,
                      like.sizes);
  // of a 0-d CPU tensor that went with others as a number does
  if (g.dim() == 0 && like.device.is_cpu() && !g.device().is_cpu()) {
    events::emit(events::Kind::hidden_copy, node.name(), "the gradient of a number on the CPU is fetched from the GPU");
    g = g.to(like.device);
  }
  require<DeviceError>(g.device() == like.device,
                       "{} backward: a gradient is on another device than its tensor; got {}; expected {}", node.name(),
                       g, like.device);
  return g.dtype() == like.dtype ? g : g.to(like.dtype);
}

/// One backward: the gradients on their way to nodes, and the streams on which nodes run. A node runs on the stream of
/// its forward call, where its saved tensors are ready. If a gradient goes to another stream, that stream waits for it.
/// At the end the caller's streams wait for all others, so the caller need not synchronise.
class Walk {
 public:
  Walk(const std::vector<Edge>& roots, std::vector<Capture>* captures, bool stop_at_captures)
      : needed_(roots, captures, stop_at_captures), captures_(captures) {
    if (captures == nullptr && g_awaited_leaves > 0) find_awaited(roots);
  }

  void send(const Edge& edge, Tensor g) {
    if (!needed_(edge)) return;
    if (g.defined()) add(edge, std::move(g));
    if (awaited_.empty()) return;
    const auto leaf = awaited_.find(edge.node.get());
    if (leaf != awaited_.end() && --leaf->second == 0) apply_awaited(*leaf->first);
  }

  void run(bool keep) {
    while (!ready_.empty()) {
      Node* node = ready_.top();
      ready_.pop();
      auto entry = pending_.extract(node);
      visit(*node, std::move(entry.mapped()), keep);
    }
    for (Node* const leaf : awaited_leaves_) apply_awaited(*leaf);  // to which some edge has brought nothing
    join();
  }

 private:
  /// Counts the edges that lead to leaves for whose gradients somebody waits.
  void find_awaited(const std::vector<Edge>& roots) {
    std::unordered_set<const Node*> seen;
    std::vector<const Node*> stack;
    const auto visit = [&](const Edge& edge) {
      if (!edge) return;
      if (!edge.node->edges.empty()) {
        if (seen.insert(edge.node.get()).second) stack.push_back(edge.node.get());
      } else if (edge.node->is_awaited() && ++awaited_[edge.node.get()] == 1) {
        awaited_leaves_.push_back(edge.node.get());
      }
    };
    for (const Edge& root : roots) visit(root);
    while (!stack.empty()) {
      const Node* const node = stack.back();
      stack.pop_back();
      for (const Edge& edge : node->edges) visit(edge);
    }
  }

  /// Hands a leaf what has come for it, if anything has.
  void apply_awaited(Node& leaf) {
    auto entry = pending_.extract(&leaf);
    if (entry.empty()) return;
    const StreamScope there(stream_of(leaf, entry.mapped()[0].device()));
    visit(leaf, std::move(entry.mapped()), true);
  }

  void add(const Edge& edge, Tensor g) {
    g = fitted(std::move(g), *edge.node, edge.index);
    const Device device = g.device();
    const Stream target = stream_of(*edge.node, device);
    if (several_streams()) hand_over(g, target);
    const StreamScope there(target);
    auto [at, fresh] = pending_.try_emplace(edge.node.get());
    if (fresh) {
      at->second.resize(edge.node->outputs.size());
      if (!awaited_.contains(edge.node.get())) ready_.push(edge.node.get());
    }
    Tensor& sum = at->second[static_cast<size_t>(edge.index)];
    if (!sum.defined()) {
      sum = std::move(g);
    } else if (!mode(kGradMode) && (is_sole(sum) || edge.node->adds_into(sum))) {
      sum.add_(g);
    } else {
      sum = sum.add(g);
    }
  }

  /// Nobody else holds it.
  static bool is_sole(const Tensor& x) {
    return x.node_ptr()->users() == 1 && x.storage().users() == 1 && !x.layout().has_internal_overlap();
  }
  static void describe(const void* node, SpanDescription& to) { to.name = static_cast<const Node*>(node)->name(); }

  void visit(Node& node, std::vector<Tensor> grads, bool keep) {
    const StreamScope there(node.stream);
    for (const Node::Retained& r : node.run_hooks(grads)) retain(r, grads[static_cast<size_t>(r.output)]);
    needed_.capture(&node, grads);
    if (!needed_.beyond(node)) return;
    const Span span({.kind = SpanKind::backward, .object = &node, .describe = describe, .origin = node.origin});
    std::vector<Tensor> next = node.apply(std::move(grads));
    if (!keep) node.release();
    for (size_t i = 0; i < next.size() && i < node.edges.size(); ++i) send(node.edges[i], std::move(next[i]));
  }

  /// Gradients that outlive the backward belong to the caller's stream.
  void retain(const Node::Retained& r, const Tensor& g) {
    if (!g.defined()) return;
    const Stream target = callers(g.device());
    if (several_streams()) hand_over(g, target);
    const StreamScope there(target);
    r.gradient->apply({g});
  }

  Stream callers(Device device) const {
    return device.is_cuda() ? Stream{device, callers_[static_cast<size_t>(device.index)]} : Stream{device};
  }
  /// Where the node's work on a device runs: where its forward did, or, at leaves, on the caller's stream.
  Stream stream_of(const Node& node, Device device) const {
    return node.stream.device == device ? node.stream : callers(device);
  }

  /// g was computed on this thread's current stream; from here on `target` uses it.
  void hand_over(const Tensor& g, Stream target) {
    const Stream made_on = current_stream(g.device());
    if (made_on == target) return;
    fence(made_on, target);
    g.record_stream(target);
    if (std::find(used_.begin(), used_.end(), made_on) == used_.end()) used_.push_back(made_on);
    if (std::find(used_.begin(), used_.end(), target) == used_.end()) used_.push_back(target);
  }

  /// What the caller does next on its own streams runs after everything that was done here.
  void join() {
    for (const Stream used : used_) fence(used, callers(used.device));
    if (used_.empty() || captures_ == nullptr) return;
    for (const Capture& c : *captures_)
      if (c.gradient.defined() && !c.gradient.device().is_cpu())
        c.gradient.record_stream(current_stream(c.gradient.device()));
  }

  const NeededNodes needed_;
  std::vector<Capture>* captures_;
  const std::array<void*, kMaxDevices> callers_ = std::to_array(detail::t_streams);
  std::unordered_map<Node*, std::vector<Tensor>> pending_;
  std::priority_queue<Node*, std::vector<Node*>, BySequence> ready_;
  std::unordered_map<Node*, int64_t> awaited_;  ///< leaves, and how many edges have still to bring their gradients
  std::vector<Node*> awaited_leaves_;           ///< in the order in which they were found
  std::vector<Stream> used_;
};

void run(const std::vector<Edge>& roots, std::vector<Tensor> gradients, bool keep, bool create_graph,
         std::vector<Capture>* captures, bool stop_at_captures) {
  require<GradError>(!mode(kInferenceMode),
                     "backward: gradients do not exist in inference mode; leave the InferenceMode scope first");
  const lorry::detail::ShapesOnly shapes;
  const DestinationsScope destinations(captures == nullptr && !create_graph);
  const ModeScope recording(create_graph ? uint32_t{kGradMode} : 0u, create_graph ? 0u : uint32_t{kGradMode});
  Walk walk(roots, captures, stop_at_captures);
  for (size_t i = 0; i < roots.size(); ++i) walk.send(roots[i], std::move(gradients[i]));
  gradients.clear();
  walk.run(keep);
}

std::vector<Edge> root_edges(const std::vector<Tensor>& roots, const std::vector<Tensor>& given,
                             std::vector<Tensor>& gradients, const char* where) {
  const lorry::detail::ShapesOnly shapes;
  require<GradError>(given.empty() || given.size() == roots.size(),
                     "{}: as many gradients as roots are needed; got {} and {}", where, given.size(), roots.size());
  std::vector<Edge> edges;
  for (size_t i = 0; i < roots.size(); ++i) {
    const Tensor& x = roots[i];
    require<GradError>(x.defined() && x.requires_grad(),
                       "{}: the tensor does not require a gradient and has no history; got {}; call requires_grad_() "
                       "on a leaf it depends on (a gradient that is constant has no history either)",
                       where, x);
    if (i < given.size() && given[i].defined()) {
      require<ShapeError>(given[i].sizes() == x.sizes(),
                          "{}: the gradient has another shape than its tensor; got gradient: {}, tensor: {}", where,
                          given[i], x);
      gradients.push_back(given[i]);
    } else {
      require<GradError>(x.numel() == 1,
                         "{}: a gradient is needed for a tensor of more than one element; got {}; pass one of the same "
                         "shape, or sum it first",
                         where, x);
      const NoGrad quiet;
      gradients.push_back(empty(x.sizes(), x.options()).fill_(1));
    }
    edges.push_back(gradient_edge(x));
  }
  return edges;
}

}  // namespace

void backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& given, bool retain_graph,
              bool create_graph) {
  std::vector<Tensor> gradients;
  const std::vector<Edge> edges = root_edges(roots, given, gradients, "backward");
  run(edges, std::move(gradients), retain_graph || create_graph, create_graph, nullptr, false);
}

std::vector<Tensor> grad(const std::vector<Tensor>& roots, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& given, const GradOptions& options) {
  std::vector<Tensor> gradients;
  const std::vector<Edge> edges = root_edges(roots, given, gradients, "grad");
  std::vector<Capture> captures;
  for (const Tensor& x : inputs) {
    require<GradError>(x.defined() && x.requires_grad(),
                       "grad: an input does not require a gradient; got {}; call requires_grad_() before it is used",
                       x);
    captures.push_back({gradient_edge(x), {}});
  }
  run(edges, std::move(gradients), options.retain_graph || options.create_graph, options.create_graph, &captures,
      options.stop_at_inputs);
  std::vector<Tensor> result;
  for (size_t i = 0; i < captures.size(); ++i) {
    require<GradError>(captures[i].gradient.defined() || options.allow_unused,
                       "grad: no root depends on input {}; got {}; set allow_unused to get an undefined tensor", i,
                       inputs[i]);
    result.push_back(captures[i].gradient);
  }
  return result;
}

}  // namespace lorry::autograd
