#include "lorry/compile/unit_span.h"

#include <algorithm>
#include <set>

#include "lorry/ops/creation.h"

namespace lorry::compiler {
namespace {

using namespace trace;

constexpr size_t kNamed = 8;  ///< operators that a name lists

Tensor on_meta(const Layout& layout, DType dtype) { return lorry::detail::empty_of(layout, {dtype, kMeta}); }

Tensor on_meta(const Argument& x) {
  const bool has_elements = x.kind == Argument::value || x.kind == Argument::uninitialised;
  return has_elements || x.kind == Argument::empty ? on_meta(x.window.layout, x.dtype) : Tensor();
}

/// What the node's own call costs.
door::Cost cost_of(const Graph& graph, const Node& node) {
  std::vector<Tensor> arguments, outputs;
  for (const Argument& x : node.arguments) arguments.push_back(on_meta(x));
  for (size_t i = 0; i < node.results.size(); ++i) {
    if (i < node.targets.size())
      outputs.push_back(on_meta(node.targets[i]));
    else if (node.results[i] >= 0)
      outputs.push_back(on_meta(graph.values[static_cast<size_t>(node.results[i])].layout,
                                graph.values[static_cast<size_t>(node.results[i])].dtype));
    else
      outputs.emplace_back();
  }
  std::vector<door::Input> inputs;
  for (const Tensor& x : arguments) inputs.emplace_back(&x);
  return door::cost({.op = node.op,
                     .in_place = node.form == Node::in_place,
                     .out = node.form == Node::out,
                     .inputs = inputs,
                     .outputs = outputs,
                     .attributes = node.attributes});
}

/// Whether a node outside the unit, or the graph's end, reads the value.
bool is_used_outside(const Graph& graph, const Unit& unit, int32_t value) {
  if (std::ranges::find(unit.outputs, value) != unit.outputs.end()) return true;
  for (int32_t n = 0; n < static_cast<int32_t>(graph.nodes.size()); ++n) {
    if (std::ranges::find(unit.nodes, n) != unit.nodes.end()) continue;
    for (const Argument& x : graph.nodes[static_cast<size_t>(n)].arguments)
      if (x.kind == Argument::value && x.value_index == value) return true;
  }
  return false;
}

}  // namespace

door::Cost cost_of(const Graph& graph, const Unit& unit) {
  door::Cost total;
  int64_t most = -1;
  for (const int32_t n : unit.nodes) {
    const door::Cost cost = cost_of(graph, graph.nodes[static_cast<size_t>(n)]);
    if (unit.nodes.size() == 1) return cost;
    if (cost.flops > most) most = cost.flops, total.dtype = cost.dtype;  // of the product, where there is one
    total.flops += cost.flops;
  }
  std::set<int32_t> inside, read;
  for (const int32_t n : unit.nodes)
    for (const int32_t v : graph.nodes[static_cast<size_t>(n)].results) inside.insert(v);
  for (const int32_t n : unit.nodes)
    for (const Argument& x : graph.nodes[static_cast<size_t>(n)].arguments)
      if (x.kind == Argument::value && !inside.contains(x.value_index) && read.insert(x.value_index).second)
        total.bytes += door::bytes_in_memory(on_meta(x));
  std::vector<int32_t> written = unit.outputs;
  if (written.empty())  // units that the library runs do not list theirs
    for (const int32_t v : inside)
      if (v >= 0 && is_used_outside(graph, unit, v)) written.push_back(v);
  for (const int32_t v : written) {
    if (v < 0) continue;
    const Value& value = graph.values[static_cast<size_t>(v)];
    total.bytes += door::bytes_in_memory(on_meta(value.layout, value.dtype));
  }
  return total;
}

void describe(const Graph& graph, const Unit& unit, SpanDescription& to) {
  for (size_t i = 0; i < unit.nodes.size(); ++i) {
    const Node& node = graph.nodes[static_cast<size_t>(unit.nodes[i])];
    if (i > 0 && i < kNamed) to.name += '+';
    if (i < kNamed) to.name += name(node.op);
    if (to.path.empty()) to.path = node.scope;
    if (to.frames.empty()) to.frames = node.frames;
  }
  if (unit.nodes.size() > kNamed) to.name += fmt::format("+{} more", unit.nodes.size() - kNamed);
  to.cost = cost_of(graph, unit);
}

}  // namespace lorry::compiler
