#include "lorry/compile/simplify.h"

#include <algorithm>
#include <map>
#include <set>

#include "lorry/compile/fold.h"

namespace lorry::compiler {
namespace {

using namespace trace;

/// Builds a graph from the nodes of another: renumbers values, and merges equal calls.
class Rebuilder {
 public:
  explicit Rebuilder(const Graph& from) : from_(from), value_of_(from.values.size(), -1) {}

  Graph run() {
    to_.arguments = from_.arguments;
    to_.inputs = from_.inputs;
    to_.constants = from_.constants;
    to_.generators = from_.generators;
    for (GraphInput& x : to_.inputs) x.value = add_value(x.value, -1);
    for (GraphConstant& x : to_.constants) x.value = add_value(x.value, -1);
    for (Argument& x : to_.arguments) map(x);
    to_.callbacks = from_.callbacks;
    auto callback = to_.callbacks.begin();
    for (size_t n = 0; n <= from_.nodes.size(); ++n) {
      for (; callback != to_.callbacks.end() && callback->position == n; ++callback, ++called_)
        callback->position = to_.nodes.size();
      if (n == from_.backward_from) to_.backward_from = to_.nodes.size();
      if (n < from_.nodes.size()) add(from_.nodes[n]);
    }
    to_.outputs = from_.outputs;
    for (GraphOutput& x : to_.outputs) give(x.tensor, x.input >= 0);
    to_.grads = from_.grads;
    for (GraphGrad& x : to_.grads) give(x.gradient, false);
    to_.write_backs = from_.write_backs;
    for (WriteBack& x : to_.write_backs) x.value = mapped(x.value);
    return std::move(to_);
  }

 private:
  int32_t mapped(int32_t old) const { return value_of_[static_cast<size_t>(old)]; }
  int32_t add_value(int32_t old, int32_t node) {
    Value v = from_.values[static_cast<size_t>(old)];
    v.node = node;
    to_.values.push_back(v);
    return value_of_[static_cast<size_t>(old)] = static_cast<int32_t>(to_.values.size()) - 1;
  }
  void map(Argument& x) const {
    if (x.kind == Argument::value) x.value_index = mapped(x.value_index);
  }

  void add(Node node) {
    for (Argument& x : node.arguments) map(x);
    for (Argument& x : node.targets) map(x);
    if (row(node.op).kind == OpKind::pointwise && node.form == Node::in_place && node.results[0] >= 0)
      return add_pure(node);
    if (row(node.op).kind == OpKind::pointwise && node.form == Node::pure && node.results[0] >= 0) {
      const Value& result = from_.values[static_cast<size_t>(node.results[0])];
      replace_filled_operands(to_, node, result);
      if (const int32_t same = repeated_value(to_, node, result); same >= 0 && !may_change(same)) {
        value_of_[static_cast<size_t>(node.results[0])] = same;
        return;
      }
    }
    emit(node, node.results);
  }

  /// Whether the memory of a value may change during a run, so that a copy of it is more than the value: that of an
  /// input which the function writes, or which a host callback may write.
  bool may_change(int32_t v) const {
    if (to_.values[static_cast<size_t>(v)].node >= 0) return false;
    return !from_.callbacks.empty() || std::ranges::any_of(from_.write_backs, [&](const WriteBack& x) {
      return to_.inputs[static_cast<size_t>(x.input)].value == v;
    });
  }

  /// Replaces x.op_(y) by x = x.op(y), converted to x's dtype. If x is a part of a value, the result is copied into the
  /// rest.
  void add_pure(const Node& in_place) {
    const Argument target = in_place.targets[0];
    const Value& whole = from_.values[static_cast<size_t>(in_place.results[0])];
    Node pure = in_place;
    pure.form = Node::pure;
    pure.targets.clear();
    if (is_whole(target.window, whole)) {
      replace_filled_operands(to_, pure, whole);
      return emit(pure, in_place.results);
    }
    Value part = whole;
    part.layout =
        target.window.layout.is_dense() ? target.window.layout : Layout::contiguous(target.window.layout.size_list());
    part.node = static_cast<int32_t>(to_.nodes.size());
    to_.values.push_back(part);
    const auto made = static_cast<int32_t>(to_.values.size()) - 1;
    pure.results = {made};
    replace_filled_operands(to_, pure, part);
    to_.nodes.push_back(std::move(pure));
    Node copy;
    copy.op = Op::copy;
    copy.form = Node::in_place;
    copy.scope = in_place.scope, copy.frames = in_place.frames;
    copy.targets = {target};
    Argument source = target;
    source.value_index = made;
    source.window = {part.layout, 0};
    copy.arguments = {target, source};
    emit(copy, in_place.results);
  }

  void emit(Node node, const std::vector<int32_t>& old_results) {
    const std::string key = key_of(node) != nullptr ? std::string() : describe(node, old_results);
    if (const auto same = made_.find(key); !key.empty() && same != made_.end()) {
      const std::vector<int32_t>& results = to_.nodes[same->second].results;
      for (size_t i = 0; i < old_results.size(); ++i)
        if (old_results[i] >= 0) value_of_[static_cast<size_t>(old_results[i])] = results[i];
      return;
    }
    const auto index = static_cast<int32_t>(to_.nodes.size());
    node.results.clear();
    std::map<int32_t, int32_t> added;  // targets in one value share a result
    for (const int32_t old : old_results) {
      if (old >= 0 && !added.contains(old)) added[old] = add_value(old, index);
      node.results.push_back(old < 0 ? -1 : added[old]);
    }
    if (!key.empty()) made_.emplace(key, to_.nodes.size());
    to_.nodes.push_back(std::move(node));
  }

  /// Describes what a node computes, and the layouts of its results.
  std::string describe(const Node& node, const std::vector<int32_t>& results) const {
    std::string text = fmt::format("{} {}/{} ", called_, static_cast<int>(node.op), static_cast<int>(node.form));
    for (const Argument& x : node.arguments) text += describe(x);
    text += "->";
    for (const Argument& x : node.targets) text += describe(x);
    for (const door::Attribute& a : node.attributes) text += describe(a);
    for (const int32_t r : results) {
      if (r < 0) continue;
      const Value& v = from_.values[static_cast<size_t>(r)];
      text += fmt::format("|{} {} {} {}", v.dtype, v.device, v.layout.size_list(), v.layout.stride_list());
    }
    return text;
  }
  static std::string describe(const Argument& x) {
    std::string text = fmt::format("({} {} {} {}", static_cast<int>(x.kind), x.value_index, x.dtype, x.device);
    if (x.kind == Argument::number)
      return text +
             fmt::format(" {} {}/{:a})", x.scalar.is_floating(), x.scalar.dtype(),
                         x.scalar.is_floating() ? x.scalar.to<double>() : static_cast<double>(x.scalar.to<int64_t>())) +
             fmt::format("{}", x.scalar.is_floating() ? 0 : x.scalar.to<int64_t>());
    return text +
           fmt::format(" {} {} {})", x.window.layout.size_list(), x.window.layout.stride_list(), x.window.offset);
  }
  static std::string describe(const door::Attribute& attribute) {
    return std::visit(
        [&](const auto& a) -> std::string {
          using A = std::decay_t<decltype(a)>;
          if constexpr (std::is_same_v<A, Scalar>) {
            Argument number;
            number.kind = Argument::number;
            number.scalar = a;
            return describe(number);
          } else if constexpr (std::is_same_v<A, double>) {
            return fmt::format(";{:a}", a);
          } else if constexpr (std::is_same_v<A, std::vector<int64_t>>) {
            std::string text = ";";
            for (const int64_t x : a) text += fmt::format("{} ", x);
            return text;
          } else if constexpr (std::is_same_v<A, formula::RandomKey>) {
            return {};
          } else {
            return fmt::format(";{}", a);
          }
        },
        attribute);
  }

  /// Makes a tensor for the caller. If it had its own memory in the function, it still has.
  void give(Argument& x, bool shared) {
    if (x.kind != Argument::value) return;
    const int32_t old = x.value_index;
    map(x);
    if (shared) return;
    const bool was_made = from_.values[static_cast<size_t>(old)].node >= 0;
    const bool is_made = to_.values[static_cast<size_t>(x.value_index)].node >= 0;
    const auto [first, is_first] = given_.try_emplace(x.value_index, old);
    if ((is_first || first->second == old) && is_made == was_made) return;
    const auto [copied, is_new] = copies_.try_emplace(old, -1);
    if (is_new) copied->second = add_clone(x.value_index);
    x.value_index = copied->second;
  }
  int32_t add_clone(int32_t of) {
    Value v = to_.values[static_cast<size_t>(of)];
    v.node = static_cast<int32_t>(to_.nodes.size());
    Argument x;
    x.kind = Argument::value;
    x.value_index = of;
    x.window = {v.layout, 0};
    x.dtype = v.dtype;
    x.device = v.device;
    Node clone;
    clone.op = Op::clone;
    clone.arguments = {x};
    clone.attributes = {false};
    clone.results = {static_cast<int32_t>(to_.values.size())};
    to_.values.push_back(v);
    to_.nodes.push_back(std::move(clone));
    return to_.nodes.back().results[0];
  }

  const Graph& from_;
  Graph to_;
  std::vector<int32_t> value_of_;       ///< new number of each value of the old graph
  std::map<std::string, size_t> made_;  ///< nodes, by what they compute
  /// callbacks so far; the host may write what nodes read, so calls are not merged across one
  size_t called_ = 0;
  std::map<int32_t, int32_t> given_, copies_;
};

/// Removes nodes whose results are not read, and their values.
Graph without_dead_nodes(const Graph& graph) {
  std::vector<bool> live(graph.values.size(), false);
  const auto use = [&](const Argument& x) {
    if (x.kind == Argument::value) live[static_cast<size_t>(x.value_index)] = true;
  };
  for (const GraphInput& x : graph.inputs) live[static_cast<size_t>(x.value)] = true;
  for (const GraphOutput& x : graph.outputs) use(x.tensor);
  for (const GraphGrad& x : graph.grads) use(x.gradient);
  for (const WriteBack& x : graph.write_backs) live[static_cast<size_t>(x.value)] = true;
  std::vector<bool> needed(graph.nodes.size(), false);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    needed[n] = std::ranges::any_of(node.results, [&](int32_t r) { return r >= 0 && live[static_cast<size_t>(r)]; });
    if (!needed[n]) continue;
    for (const Argument& x : node.arguments) use(x);
    for (const Argument& x : node.targets) use(x);
    for (const int32_t r : node.results)
      if (r >= 0) live[static_cast<size_t>(r)] = true;
  }

  Graph to = graph;
  to.values.clear();
  to.nodes.clear();
  std::erase_if(to.constants, [&](const GraphConstant& x) { return !live[static_cast<size_t>(x.value)]; });
  std::vector<int32_t> node_of(graph.nodes.size(), -1), value_of(graph.values.size(), -1);
  for (size_t n = 0, next = 0; n < graph.nodes.size(); ++n)
    if (needed[n]) node_of[n] = static_cast<int32_t>(next++);
  const auto needed_before = [&](size_t n) {
    return static_cast<size_t>(std::count(needed.begin(), needed.begin() + static_cast<std::ptrdiff_t>(n), true));
  };
  for (HostCallback& x : to.callbacks) x.position = needed_before(x.position);
  if (to.backward_from <= graph.nodes.size()) to.backward_from = needed_before(to.backward_from);
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (!live[v]) continue;
    value_of[v] = static_cast<int32_t>(to.values.size());
    to.values.push_back(graph.values[v]);
    if (to.values.back().node >= 0) to.values.back().node = node_of[static_cast<size_t>(to.values.back().node)];
  }
  const auto renumber = [&](int32_t& v) {
    if (v >= 0) v = value_of[static_cast<size_t>(v)];
  };
  for (Argument& x : to.arguments) renumber(x.value_index);
  for (GraphInput& x : to.inputs) renumber(x.value);
  for (GraphConstant& x : to.constants) renumber(x.value);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!needed[n]) continue;
    Node node = graph.nodes[n];
    for (Argument& x : node.arguments) renumber(x.value_index);
    for (Argument& x : node.targets) renumber(x.value_index);
    for (int32_t& r : node.results) renumber(r);
    to.nodes.push_back(std::move(node));
  }
  for (GraphOutput& x : to.outputs) renumber(x.tensor.value_index);
  for (GraphGrad& x : to.grads) renumber(x.gradient.value_index);
  for (WriteBack& x : to.write_backs) renumber(x.value);
  return to;
}

}  // namespace

trace::Graph simplify(const trace::Graph& graph) {
  Graph simple = without_dead_nodes(Rebuilder(graph).run());
  verify(simple);
  return simple;
}

}  // namespace lorry::compiler
