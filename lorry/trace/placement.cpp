#include "lorry/trace/placement.h"

#include <algorithm>

namespace lorry::trace {
namespace {

/// For each value: the last step that reads it; INT32_MAX if the caller gets it as memory of its own.
std::vector<int32_t> last_reads(const Graph& graph, std::span<const int32_t> step_of) {
  std::vector<int32_t> last(graph.values.size(), -1);
  const auto read = [&](const Argument& x, int32_t step) {
    if (x.kind == Argument::value)
      last[static_cast<size_t>(x.value_index)] = std::max(last[static_cast<size_t>(x.value_index)], step);
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const Argument& x : graph.nodes[n].arguments) read(x, step_of[n]);
    for (const Argument& x : graph.nodes[n].targets) read(x, step_of[n]);
  }
  for (const GraphOutput& x : graph.outputs)
    if (x.input < 0) read(x.tensor, INT32_MAX);
  for (const GraphGrad& x : graph.grads) read(x.gradient, INT32_MAX);
  return last;
}

/// The values that an input's memory contains, in order, the final one last. The list begins with the
/// initial value, or with a value that a node makes from nothing.
std::vector<int32_t> versions(const Graph& graph, const WriteBack& end) {
  std::vector<int32_t> made{end.value};
  while (true) {
    const int32_t maker = graph.values[static_cast<size_t>(made.back())].node;
    if (maker < 0) break;
    const Node& node = graph.nodes[static_cast<size_t>(maker)];
    const auto at = static_cast<size_t>(std::ranges::find(node.results, made.back()) - node.results.begin());
    if (at >= node.targets.size() || node.targets[at].kind != Argument::value) break;
    made.push_back(node.targets[at].value_index);
  }
  std::ranges::reverse(made);
  return made;
}

}  // namespace

bool overwrites(const Node& node, int32_t old, int32_t made) {
  const auto reads = [&](const Argument& x) { return x.kind == Argument::value && x.value_index == old; };
  for (size_t i = 0; i < node.targets.size(); ++i)
    if (reads(node.targets[i]) && node.results[i] != made) return false;
  const size_t first = node.form == Node::in_place ? node.targets.size() : 0;
  return std::none_of(node.arguments.begin() + static_cast<std::ptrdiff_t>(first), node.arguments.end(), reads);
}

std::vector<int> made_in_inputs(const Graph& graph, std::span<const int32_t> step_of, const Overwrites& overwrites) {
  std::vector<int> in_input(graph.values.size(), -1);
  const std::vector<int32_t> last = last_reads(graph, step_of);
  std::vector<bool> is_end(graph.values.size(), false);  // whether it is the final value of some input
  for (const WriteBack& w : graph.write_backs) is_end[static_cast<size_t>(w.value)] = true;
  for (const WriteBack& w : graph.write_backs) {
    int32_t held = graph.inputs[static_cast<size_t>(w.input)].value;
    const Value& memory = graph.values[static_cast<size_t>(held)];
    if (memory.layout.has_internal_overlap()) continue;
    for (const int32_t made : versions(graph, w)) {
      // it would be overwritten before it is written back
      if (made != w.value && is_end[static_cast<size_t>(made)]) continue;
      const Value& value = graph.values[static_cast<size_t>(made)];
      if (value.node < 0 || in_input[static_cast<size_t>(made)] >= 0 || !(value.layout == memory.layout)) continue;
      const int32_t step = step_of[static_cast<size_t>(value.node)];
      if (last[static_cast<size_t>(held)] > step || last[static_cast<size_t>(made)] == INT32_MAX ||
          !overwrites(step, held, made))
        continue;
      in_input[static_cast<size_t>(made)] = w.input;
      held = made;
    }
  }
  return in_input;
}

}  // namespace lorry::trace
