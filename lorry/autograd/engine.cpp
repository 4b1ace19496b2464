#include "lorry/autograd/engine.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "lorry/base/bell.h"
#include "lorry/ops/ops.h"

namespace lorry::autograd {
namespace {

/// Gradients on their way to a node.
using Pending = std::unordered_map<Node*, std::vector<Tensor>>;

struct BySequence {
  bool operator()(const Node* a, const Node* b) const { return a->sequence < b->sequence; }
};

struct Capture {
  Edge edge;
  Tensor gradient;
};

/// Every node from which a captured edge can be reached.
std::unordered_map<Node*, bool> leading_to(const std::vector<Edge>& roots, const std::vector<Capture>& captures) {
  std::vector<Node*> all, stack;
  std::unordered_map<Node*, bool> leads;
  const auto visit = [&](const Edge& e) {
    if (e && leads.try_emplace(e.node.get(), false).second) {
      all.push_back(e.node.get());
      stack.push_back(e.node.get());
    }
  };
  for (const Edge& e : roots) visit(e);
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    for (const Edge& e : node->edges) visit(e);
  }
  for (const Capture& c : captures)
    if (const auto at = leads.find(c.edge.node.get()); at != leads.end()) at->second = true;
  std::sort(all.begin(), all.end(), [](const Node* a, const Node* b) { return a->sequence < b->sequence; });
  for (Node* node : all)
    for (const Edge& e : node->edges)
      if (e && leads[e.node.get()]) leads[node] = true;
  return leads;
}

/// Puts a gradient into the shape of what it belongs to, or refuses it.
Tensor fitted(Tensor g, const Node& node, int index) {
  const Node::Output& like = node.outputs[static_cast<size_t>(index)];
  require<ShapeError>(g.sizes() == like.sizes, "{} backward: a gradient has another shape than its tensor; got {}; expected {}", node.name(), g, like.sizes);
  if (g.dim() == 0 && like.device.is_cpu() && !g.device().is_cpu()) {  // of a 0-d CPU tensor that went with others as a number does
    bell::ring(bell::Event::hidden_copy, node.name(), "the gradient of a number on the CPU is fetched from the GPU");
    g = g.to(like.device);
  }
  require<DeviceError>(g.device() == like.device, "{} backward: a gradient is on another device than its tensor; got {}; expected {}", node.name(), g,
                       like.device);
  return g.dtype() == like.dtype ? g : g.to(like.dtype);
}

void add_to(Pending& pending, std::priority_queue<Node*, std::vector<Node*>, BySequence>& ready, const Edge& edge, Tensor g) {
  auto [at, fresh] = pending.try_emplace(edge.node.get());
  if (fresh) {
    at->second.resize(edge.node->outputs.size());
    ready.push(edge.node.get());
  }
  Tensor& sum = at->second[static_cast<size_t>(edge.index)];
  if (!sum.defined()) {
    sum = std::move(g);
  } else if (!mode(kGradMode) && sum.node_ptr()->owners() == 1 && sum.node()->storage->owners() == 1 && !sum.layout().has_internal_overlap()) {
    sum.add_(g);  // nobody else holds it
  } else {
    sum = sum.add(g);
  }
}

void run(const std::vector<Edge>& roots, std::vector<Tensor> gradients, bool keep, bool create_graph, std::vector<Capture>* captures) {
  require<GradError>(!mode(kInferenceMode), "backward: gradients do not exist in inference mode; leave the InferenceMode scope first");
  const ModeScope recording(create_graph ? uint32_t{kGradMode} : 0u, create_graph ? 0u : uint32_t{kGradMode});
  Pending pending;
  std::priority_queue<Node*, std::vector<Node*>, BySequence> ready;
  std::unordered_map<Node*, bool> leads;
  if (captures != nullptr) leads = leading_to(roots, *captures);
  const auto wanted = [&](const Edge& e) { return e && (captures == nullptr || leads.at(e.node.get())); };

  for (size_t i = 0; i < roots.size(); ++i)
    if (wanted(roots[i])) add_to(pending, ready, roots[i], fitted(std::move(gradients[i]), *roots[i].node, roots[i].index));
  gradients.clear();

  while (!ready.empty()) {
    Node* node = ready.top();
    ready.pop();
    auto entry = pending.extract(node);
    std::vector<Tensor> grads = std::move(entry.mapped());
    node->run_hooks(grads);
    bool only_captured = captures != nullptr;
    if (captures != nullptr) {
      for (Capture& c : *captures)
        if (c.edge.node.get() == node) c.gradient = grads[static_cast<size_t>(c.edge.index)];
      for (const Edge& e : node->edges) only_captured = only_captured && !wanted(e);
    }
    if (only_captured) continue;
    std::vector<Tensor> next = node->apply(std::move(grads));
    if (!keep) node->release();
    for (size_t i = 0; i < next.size() && i < node->edges.size(); ++i) {
      const Edge& e = node->edges[i];
      if (!wanted(e) || !next[i].defined()) continue;
      add_to(pending, ready, e, fitted(std::move(next[i]), *e.node, e.index));
    }
  }
}

std::vector<Edge> root_edges(const std::vector<Tensor>& roots, const std::vector<Tensor>& given, std::vector<Tensor>& gradients, const char* where) {
  require<GradError>(given.empty() || given.size() == roots.size(), "{}: as many gradients as roots are needed; got {} and {}", where, given.size(),
                     roots.size());
  std::vector<Edge> edges;
  for (size_t i = 0; i < roots.size(); ++i) {
    const Tensor& x = roots[i];
    require<GradError>(x.defined() && x.requires_grad(),
                       "{}: the tensor does not require a gradient and has no history; got {}; call requires_grad_() on a leaf it depends on", where, x);
    if (i < given.size() && given[i].defined()) {
      require<ShapeError>(given[i].sizes() == x.sizes(), "{}: the gradient has another shape than its tensor; got gradient: {}, tensor: {}", where, given[i],
                          x);
      gradients.push_back(given[i]);
    } else {
      require<GradError>(x.numel() == 1, "{}: a gradient is needed for a tensor of more than one element; got {}; pass one of the same shape, or sum it first",
                         where, x);
      const NoGrad quiet;
      gradients.push_back(empty(x.sizes(), x.options()).fill_(1));
    }
    edges.push_back(gradient_edge(x));
  }
  return edges;
}

}  // namespace

void backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& given, bool retain_graph, bool create_graph) {
  std::vector<Tensor> gradients;
  const std::vector<Edge> edges = root_edges(roots, given, gradients, "backward");
  run(edges, std::move(gradients), retain_graph || create_graph, create_graph, nullptr);
}

std::vector<Tensor> grad(const std::vector<Tensor>& roots, const std::vector<Tensor>& inputs, const std::vector<Tensor>& given, const GradOptions& options) {
  std::vector<Tensor> gradients;
  const std::vector<Edge> edges = root_edges(roots, given, gradients, "grad");
  std::vector<Capture> captures;
  for (const Tensor& x : inputs) {
    require<GradError>(x.defined() && x.requires_grad(), "grad: an input does not require a gradient; got {}; call requires_grad_() before it is used", x);
    captures.push_back({gradient_edge(x), {}});
  }
  run(edges, std::move(gradients), options.retain_graph || options.create_graph, options.create_graph, &captures);
  std::vector<Tensor> result;
  for (size_t i = 0; i < captures.size(); ++i) {
    require<GradError>(captures[i].gradient.defined() || options.allow_unused,
                       "grad: no root depends on input {}; got {}; set allow_unused to get an undefined tensor", i, inputs[i]);
    result.push_back(captures[i].gradient);
  }
  return result;
}

}  // namespace lorry::autograd
