#include "lorry/compile/fuse.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>

#include "lorry/kernels/backend.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/pointwise_call.h"

namespace lorry::compiler {
namespace {

using namespace trace;
using kernels::FusedStep;

/// A tensor that promotes as an argument does; its elements are 1.
const Tensor& stand_in(const Argument& x) {
  static thread_local std::map<std::pair<DType, bool>, Tensor> made;
  Tensor& t = made[{x.dtype, x.window.layout.rank > 0}];
  if (!t.defined()) t = ones(x.window.layout.rank > 0 ? Dims{1} : Dims{}, {x.dtype, kCPU});
  return t;
}

/// What a node does at each element, where that is all it does; operands are numbered as its arguments are.
std::optional<FusedStep> step_of(const Graph& graph, const Node& node) {
  if (node.results.size() != 1 || node.results[0] < 0) return std::nullopt;
  const Value& result = graph.values[static_cast<size_t>(node.results[0])];
  if (kernels::backend(result.device).fused == nullptr) return std::nullopt;
  FusedStep step;
  step.dtype = result.dtype;
  if (node.op == Op::cast || node.op == Op::clone) {
    step.kind = FusedStep::convert;
    return step;
  }
  if ((node.op == Op::copy || node.op == Op::fill) && node.form == Node::in_place &&
      node.targets[0].kind == Argument::uninitialised && is_whole(node.targets[0].window, result)) {
    step.kind = FusedStep::convert;
    step.in[0] = 1;
    return step;
  }
  if (row(node.op).kind != OpKind::pointwise || node.form != Node::pure) return std::nullopt;
  std::vector<Operand> operands;
  for (const Argument& x : node.arguments) {
    if (x.kind != Argument::number && x.kind != Argument::value) return std::nullopt;
    operands.push_back(x.kind == Argument::number ? Operand(x.scalar) : Operand(stand_in(x)));
  }
  const ModeScope nobody_listens(0, kListenerModes);
  const ops::Resolved resolved = ops::resolve(node.op, operands);
  if (resolved.converts || resolved.depends_on_values) return std::nullopt;
  step.op = resolved.row;
  step.compute = resolved.compute;
  step.result = resolved.result;
  step.arity = static_cast<int8_t>(row(resolved.row).arity);
  for (int16_t k = 0; k < step.arity; ++k) step.in[k] = k;
  return step;
}

bool same_sizes(const Layout& a, const Layout& b) {
  return a.rank == b.rank && std::equal(a.sizes, a.sizes + a.rank, b.sizes);
}

class Fuser {
 public:
  explicit Fuser(const Graph& graph) : graph_(graph), unit_of_(graph.nodes.size(), -1) {}

  std::vector<Unit> run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) place(static_cast<int32_t>(n));
    for (Unit& unit : units_)
      if (unit.fused) finish(unit);
    return in_order();
  }

 private:
  const Node& node(int32_t n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  const Value& value(int32_t v) const { return graph_.values[static_cast<size_t>(v)]; }
  /// The unit that makes an argument; -1: none does.
  int unit_of(const Argument& x) const {
    if (x.kind != Argument::value) return -1;
    const int32_t maker = value(x.value_index).node;
    return maker < 0 ? -1 : unit_of_[static_cast<size_t>(maker)];
  }

  void place(int32_t n) {
    const std::optional<FusedStep> step = step_of(graph_, node(n));
    std::string refused;
    if (step) {
      std::set<int, std::greater<>> candidates;  // makers of its arguments first to last, then any other
      for (const Argument& x : node(n).arguments)
        if (const int u = unit_of(x); u >= 0 && units_[static_cast<size_t>(u)].fused) candidates.insert(u);
      for (const int u : candidates) {
        const std::string why = why_not(n, u);
        if (why.empty()) return join(n, u, step);
        refused = why;
      }
    }
    Unit unit;
    unit.fused = step.has_value();
    unit.refused = refused;
    unit.sizes = step ? value(node(n).results[0]).layout.size_list() : Dims();
    units_.push_back(std::move(unit));
    join(n, static_cast<int>(units_.size()) - 1, step);
  }

  void join(int32_t n, int u, const std::optional<FusedStep>& step) {
    Unit& unit = units_[static_cast<size_t>(u)];
    unit.nodes.push_back(n);
    if (step) unit.steps.push_back(*step);  // operands are the node's arguments until finish()
    unit_of_[static_cast<size_t>(n)] = u;
  }

  /// Why a node cannot join a unit; empty: it can.
  std::string why_not(int32_t n, int u) {
    const Unit& unit = units_[static_cast<size_t>(u)];
    const Value& result = value(node(n).results[0]);
    if (unit.nodes.size() >= static_cast<size_t>(kernels::kMaxFusedSteps)) return "the kernel has enough steps";
    if (result.layout.size_list() != unit.sizes) return "it is over other elements";
    if (result.device != value(node(unit.nodes[0]).results[0]).device) return "it is on another device";
    std::set<std::vector<int64_t>> layouts;
    std::set<int32_t> operands;
    for (const int32_t m : unit.nodes) count_operands(m, u, layouts, operands);
    count_operands(n, u, layouts, operands);
    if (layouts.size() > static_cast<size_t>(kernels::kMaxFusedLayouts)) return "the kernel has enough layouts";
    if (operands.size() > static_cast<size_t>(kernels::kMaxFusedOperands)) return "the kernel has enough operands";
    for (const Argument& x : node(n).arguments) {
      const int maker = unit_of(x);
      if (maker == u) {
        const Value& v = value(x.value_index);
        if (!is_whole(x.window, v) || !same_sizes(v.layout, result.layout)) return "it reads a part, or otherwise";
      } else if (maker >= 0 && depends(maker, u)) {
        return "it needs what needs the unit's results";
      }
    }
    return {};
  }

  void count_operands(int32_t n, int u, std::set<std::vector<int64_t>>& layouts, std::set<int32_t>& operands) const {
    const auto add = [&](const Layout& l) {
      std::vector<int64_t> key(l.strides, l.strides + l.rank);
      key.insert(key.end(), l.sizes, l.sizes + l.rank);
      layouts.insert(key);
    };
    for (const Argument& x : node(n).arguments) {
      if (x.kind != Argument::value || unit_of(x) == u) continue;
      operands.insert(x.value_index);
      add(x.window.layout);
    }
    operands.insert(node(n).results[0]);
    add(value(node(n).results[0]).layout);
  }

  /// Whether a unit needs, by way of others, what another makes.
  bool depends(int unit, int on) {
    std::vector<int> left{unit};
    std::set<int> seen;
    while (!left.empty()) {
      const int u = left.back();
      left.pop_back();
      if (u == on) return true;
      if (!seen.insert(u).second) continue;
      for (const int32_t n : units_[static_cast<size_t>(u)].nodes)
        for (const auto* list : {&node(n).arguments, &node(n).targets})
          for (const Argument& x : *list)
            if (const int maker = unit_of(x); maker >= 0 && maker != u) left.push_back(maker);
    }
    return false;
  }

  /// The inputs, steps and outputs of a fused unit.
  void finish(Unit& unit) {
    const int u = unit_of_[static_cast<size_t>(unit.nodes[0])];
    std::map<int32_t, int16_t> made;
    const auto is_made_here = [&](const Argument& x) { return unit_of(x) == u; };
    for (size_t s = 0; s < unit.nodes.size(); ++s)
      for (int k = 0; k < unit.steps[s].arity; ++k) {
        const Argument& x = node(unit.nodes[s]).arguments[static_cast<size_t>(unit.steps[s].in[k])];
        if (!is_made_here(x)) input(unit, x);
      }
    const auto inputs = static_cast<int16_t>(unit.inputs.size());
    for (size_t s = 0; s < unit.nodes.size(); ++s) {
      FusedStep& step = unit.steps[s];
      for (int k = 0; k < step.arity; ++k) {
        const Argument& x = node(unit.nodes[s]).arguments[static_cast<size_t>(step.in[k])];
        step.in[k] = is_made_here(x) ? made.at(x.value_index) : input(unit, x);
      }
      made[node(unit.nodes[s]).results[0]] = static_cast<int16_t>(inputs + static_cast<int16_t>(s));
    }
    for (const int32_t n : unit.nodes) {
      const int32_t result = node(n).results[0];
      const int64_t bytes = value(result).layout.numel() * size_of(value(result).dtype);
      const int readers = readers_in(unit, result);
      if (is_read_elsewhere(result, u)) {
        unit.outputs.push_back(result);
        unit.output_registers.push_back(made.at(result));
        unit.bytes_saved += bytes * readers;
      } else {
        unit.bytes_saved += bytes * (readers + 1);
      }
    }
  }

  /// The number of an input of a unit, added where it is new.
  static int16_t input(Unit& unit, const Argument& x) {
    const auto same = [&](const Argument& y) {
      if (x.kind != y.kind) return false;
      if (x.kind == Argument::number) return false;
      return x.value_index == y.value_index && x.window.offset == y.window.offset && x.window.layout == y.window.layout;
    };
    for (size_t i = 0; i < unit.inputs.size(); ++i)
      if (&unit.inputs[i] != &x && (same(unit.inputs[i]) || is_same_number(unit.inputs[i], x)))
        return static_cast<int16_t>(i);
    unit.inputs.push_back(x);
    return static_cast<int16_t>(unit.inputs.size()) - 1;
  }
  static bool is_same_number(const Argument& a, const Argument& b) {
    if (a.kind != Argument::number || b.kind != Argument::number || a.scalar.dtype() != b.scalar.dtype()) return false;
    return a.scalar.is_floating()
               ? std::bit_cast<int64_t>(a.scalar.to<double>()) == std::bit_cast<int64_t>(b.scalar.to<double>())
               : a.scalar.to<int64_t>() == b.scalar.to<int64_t>();
  }

  int readers_in(const Unit& unit, int32_t v) const {
    int count = 0;
    for (const int32_t n : unit.nodes)
      for (const Argument& x : node(n).arguments) count += x.kind == Argument::value && x.value_index == v;
    return count;
  }

  bool is_read_elsewhere(int32_t v, int u) const {
    const auto reads = [&](const Argument& x) { return x.kind == Argument::value && x.value_index == v; };
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (unit_of_[n] != u && (std::ranges::any_of(graph_.nodes[n].arguments, reads) ||
                               std::ranges::any_of(graph_.nodes[n].targets, reads)))
        return true;
    return std::ranges::any_of(graph_.outputs, [&](const GraphOutput& x) { return reads(x.tensor); }) ||
           std::ranges::any_of(graph_.grads, [&](const GraphGrad& x) { return reads(x.gradient); }) ||
           std::ranges::any_of(graph_.write_backs, [&](const WriteBack& x) { return x.value == v; });
  }

  /// Units after those whose results they need; otherwise as their first nodes stand.
  std::vector<Unit> in_order() {
    std::vector<Unit> ordered;
    std::vector<bool> done(units_.size(), false);
    const auto visit = [&](const auto& self, size_t u) -> void {
      if (done[u]) return;
      done[u] = true;
      for (const int32_t n : units_[u].nodes) {
        for (const auto* list : {&node(n).arguments, &node(n).targets})
          for (const Argument& x : *list)
            if (const int maker = unit_of(x); maker >= 0) self(self, static_cast<size_t>(maker));
      }
      ordered.push_back(std::move(units_[u]));
    };
    for (size_t u = 0; u < units_.size(); ++u) visit(visit, u);
    return ordered;
  }

  const Graph& graph_;
  std::vector<Unit> units_;
  std::vector<int> unit_of_;
};

}  // namespace

std::vector<Unit> fuse(const trace::Graph& graph) { return Fuser(graph).run(); }

}  // namespace lorry::compiler
