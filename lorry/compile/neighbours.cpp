#include "lorry/compile/neighbours.h"

#include <algorithm>
#include <queue>

namespace lorry::compiler {

using namespace trace;

Neighbours::Neighbours(const Graph& graph, std::vector<Unit>& units)
    : graph_(graph),
      units_(units),
      unit_of_(graph.nodes.size()),
      readers_(graph.values.size()),
      outlives_(graph.values.size(), false) {
  for (size_t u = 0; u < units.size(); ++u)
    for (const int32_t n : units[u].nodes) unit_of_[static_cast<size_t>(n)] = u;
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    for (const auto* list : {&graph.nodes[n].arguments, &graph.nodes[n].targets})
      for (const Argument& x : *list)
        if (x.kind == Argument::value) readers_[static_cast<size_t>(x.value_index)].push_back(static_cast<int32_t>(n));
  const auto mark = [&](const Argument& x) {
    if (x.kind == Argument::value) outlives_[static_cast<size_t>(x.value_index)] = true;
  };
  for (const GraphOutput& x : graph.outputs) mark(x.tensor);
  for (const GraphGrad& x : graph.grads) mark(x.gradient);
  for (const WriteBack& x : graph.write_backs) outlives_[static_cast<size_t>(x.value)] = true;
}

const Argument* Neighbours::addend(const Node& add, int32_t v) const {
  const bool is_first = reads_whole(add.arguments[0], v);
  if (!is_first && !reads_whole(add.arguments[1], v)) return nullptr;
  const Argument& other = add.arguments[is_first ? 1 : 0];
  const Value& x = value(v);
  if (other.kind != Argument::value || other.value_index == v || other.dtype != x.dtype ||
      other.window.layout != x.layout || add.results[0] < 0)
    return nullptr;
  const Value& sum = value(add.results[0]);
  return sum.dtype == x.dtype && sum.layout == x.layout && x.layout.is_contiguous() ? &other : nullptr;
}

bool Neighbours::host_is_called_between(const std::vector<int32_t>& nodes) const {
  const auto calls_before = [&](int32_t n) {
    return std::ranges::count_if(graph_.callbacks,
                                 [&](const HostCallback& x) { return x.position <= static_cast<size_t>(n); });
  };
  return std::ranges::any_of(nodes, [&](int32_t n) { return calls_before(n) != calls_before(nodes[0]); });
}

bool Neighbours::may_join(const std::vector<int32_t>& nodes) const {
  std::vector<bool> joined(units_.size(), false), visited(units_.size(), false);
  for (const int32_t n : nodes) joined[unit_of(n)] = true;
  // units reached from the joined ones through others
  std::vector<size_t> open;
  const auto open_readers = [&](size_t u, bool through_others) {
    for (const int32_t n : units_[u].nodes)
      for (const int32_t v : node(n).results) {
        if (v < 0) continue;
        for (const int32_t reader : readers(v)) {
          const size_t next = unit_of(reader);
          if (joined[next] && through_others) return false;
          if (joined[next] || visited[next]) continue;
          visited[next] = true;
          open.push_back(next);
        }
      }
    return true;
  };
  for (size_t u = 0; u < units_.size(); ++u)
    if (joined[u]) open_readers(u, false);
  while (!open.empty()) {
    const size_t u = open.back();
    open.pop_back();
    if (!open_readers(u, true)) return false;
  }
  return true;
}

Unit& Neighbours::join(const std::vector<int32_t>& nodes) {
  const size_t place = unit_of(nodes[0]);
  for (const int32_t n : nodes) units_[unit_of(n)] = {};
  for (const int32_t n : nodes) unit_of_[static_cast<size_t>(n)] = place;
  units_[place].nodes = nodes;
  return units_[place];
}

void Neighbours::finish() {
  // Kahn's algorithm (1962); of the units that can run, the one that stood first comes first
  std::vector<std::vector<size_t>> next(units_.size());
  std::vector<int> waits_for(units_.size(), 0);
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    const int32_t maker = graph_.values[v].node;
    if (maker < 0) continue;
    for (const int32_t reader : readers(static_cast<int32_t>(v)))
      if (unit_of(reader) != unit_of(maker)) {
        next[unit_of(maker)].push_back(unit_of(reader));
        ++waits_for[unit_of(reader)];
      }
  }
  const auto later = [&](size_t a, size_t b) { return a > b; };
  std::priority_queue<size_t, std::vector<size_t>, decltype(later)> ready(later);
  for (size_t u = 0; u < units_.size(); ++u)
    if (!units_[u].nodes.empty() && waits_for[u] == 0) ready.push(u);
  const auto all = static_cast<size_t>(std::ranges::count_if(units_, [](const Unit& u) { return !u.nodes.empty(); }));
  std::vector<Unit> ordered;
  while (!ready.empty()) {
    const size_t u = ready.top();
    ready.pop();
    ordered.push_back(std::move(units_[u]));
    for (const size_t reader : next[u])
      if (--waits_for[reader] == 0) ready.push(reader);
  }
  require<CompileError>(ordered.size() == all, "{} of {} units need each other's results", all - ordered.size(), all);
  units_ = std::move(ordered);
}

}  // namespace lorry::compiler
