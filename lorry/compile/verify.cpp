#include "lorry/compile/verify.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "lorry/compile/pointwise_step.h"

namespace lorry::compiler {
namespace {

using namespace trace;

class Verifier {
 public:
  Verifier(const Graph& graph, const std::vector<Unit>& units) : graph_(graph), units_(units) {}

  void run() {
    place_nodes();
    for (at_ = 0; at_ < units_.size(); ++at_) {
      const Unit& unit = units_[at_];
      for (size_t k = 0; k < unit.nodes.size(); ++k) verify_reads(unit, k);
      for (const Argument& x : unit.inputs)
        require_that(unit_of(x) < static_cast<int>(at_), "an input is made by this unit or a later one");
      results_.clear();
      for (const int32_t n : unit.nodes)
        for (const int32_t v : graph_.nodes[static_cast<size_t>(n)].results) results_.push_back(v);
      if (unit.kind == Unit::map) verify_map(unit);
      if (unit.kind == Unit::row) verify_row(unit);
    }
    verify_outputs();
  }

 private:
  void require_that(bool condition, const char* problem) const {
    if (!condition) raise_as<CompileError>("compile", "the units do not compute the graph: unit {}: {}", at_, problem);
  }

  void place_nodes() {
    unit_of_.assign(graph_.nodes.size(), -1);
    for (at_ = 0; at_ < units_.size(); ++at_) {
      require_that(!units_[at_].nodes.empty(), "it has no nodes");
      for (const int32_t n : units_[at_].nodes) {
        require_that(n >= 0 && static_cast<size_t>(n) < graph_.nodes.size(), "no such node");
        require_that(unit_of_[static_cast<size_t>(n)] < 0, "a node is in two units");
        unit_of_[static_cast<size_t>(n)] = static_cast<int>(at_);
      }
    }
    if (std::ranges::count(unit_of_, -1) > 0)
      raise_as<CompileError>("compile", "the units do not compute the graph: a node is in no unit");
  }

  /// The unit that makes an argument; -1 if none does.
  int unit_of(const Argument& x) const {
    if (x.kind != Argument::value) return -1;
    const int32_t node = graph_.values[static_cast<size_t>(x.value_index)].node;
    return node < 0 ? -1 : unit_of_[static_cast<size_t>(node)];
  }

  void verify_reads(const Unit& unit, size_t k) const {
    const Node& node = graph_.nodes[static_cast<size_t>(unit.nodes[k])];
    for (const auto* list : {&node.arguments, &node.targets})
      for (const Argument& x : *list) {
        const int maker = unit_of(x);
        require_that(maker <= static_cast<int>(at_), "it reads what a later unit makes");
        if (maker != static_cast<int>(at_) || (unit.kind != Unit::map && unit.kind != Unit::row)) continue;
        const int32_t made_by = graph_.values[static_cast<size_t>(x.value_index)].node;
        require_that(std::ranges::count(std::span(unit.nodes).first(k), made_by) > 0,
                     "a step reads what a later step makes");
      }
  }

  void verify_map(const Unit& unit) const {
    const size_t sums = unit.sum_registers.size();
    require_that(unit.steps.size() + sums == unit.nodes.size(), "it has another number of steps than of nodes");
    require_that(unit.output_registers.size() + sums == unit.outputs.size(), "its outputs and registers do not match");
    size_t registers = unit.inputs.size();
    for (size_t k = 0; k < unit.steps.size(); ++k) {
      const kernels::FusedStep& step = unit.steps[k];
      verify_operands(unit, unit.nodes[k], std::span(step.in).first(static_cast<size_t>(step.arity)), registers);
      ++registers;
    }
    for (const int16_t r : unit.sum_registers) require_register(r, registers);
    verify_output_registers(unit);
  }

  void verify_row(const Unit& unit) const {
    require_that(unit.row_steps.size() == unit.nodes.size(), "it has another number of steps than of nodes");
    require_that(unit.extents.size() == unit.inputs.size(), "its inputs and extents do not match");
    require_that(unit.output_registers.size() == unit.outputs.size(), "its outputs and registers do not match");
    size_t registers = unit.inputs.size();
    for (size_t k = 0; k < unit.row_steps.size(); ++k) {
      const kernels::RowStep& step = unit.row_steps[k];
      std::vector<int16_t> in;
      if (step.kind == kernels::RowStep::map)
        in.assign(step.pointwise.in, step.pointwise.in + step.pointwise.arity);
      else
        std::ranges::copy_if(step.in, std::back_inserter(in), [](int16_t r) { return r >= 0; });
      verify_operands(unit, unit.nodes[k], in, registers);
      registers += static_cast<size_t>(step.results);
    }
    verify_output_registers(unit);
  }

  /// The operands of a node that its step reads, in order.
  std::vector<const Argument*> operands_of(const Node& node) const {
    std::vector<const Argument*> operands;
    const auto add = [&](int16_t k) { operands.push_back(&node.arguments[static_cast<size_t>(k)]); };
    std::string why;
    if (const auto map = pointwise_step(graph_, node))
      std::ranges::for_each(std::span(map->in).first(static_cast<size_t>(map->arity)), add);
    else if (const auto row = row_node(graph_, node, why))
      for (const int16_t k : row->step.in)
        if (k >= 0) add(k);
    return operands;
  }

  /// A step reads the registers of its node's operands: inputs of the unit, or results of its earlier steps.
  void verify_operands(const Unit& unit, int32_t n, std::span<const int16_t> in, size_t registers) const {
    const std::vector<const Argument*> operands = operands_of(graph_.nodes[static_cast<size_t>(n)]);
    require_that(in.size() == operands.size(), "a step has another number of operands than its node");
    for (size_t k = 0; k < in.size(); ++k) {
      require_register(in[k], registers);
      const auto r = static_cast<size_t>(in[k]);
      const bool is_input = r < unit.inputs.size() && is_same(unit.inputs[r], *operands[k]);
      const bool is_made = r >= unit.inputs.size() && operands[k]->kind == Argument::value &&
                           results_[r - unit.inputs.size()] == operands[k]->value_index;
      require_that(is_input || is_made, "a step reads another operand than its node");
    }
  }

  /// The results of nodes have the registers behind the inputs, in order. (Those of sums, the last nodes, have none.)
  void verify_output_registers(const Unit& unit) const {
    for (size_t i = 0; i < unit.output_registers.size(); ++i) {
      const auto made = std::ranges::find(results_, unit.outputs[i]) - results_.begin() + std::ssize(unit.inputs);
      require_that(unit.output_registers[i] == made, "an output is written from another register");
    }
  }

  void require_register(int16_t r, size_t registers) const {
    require_that(r >= 0 && static_cast<size_t>(r) < registers, "a step or an output reads a register before it is set");
  }

  /// Fused units write what other units, the caller or a write-back read.
  void verify_outputs() {
    std::vector<bool> wanted(graph_.values.size(), false);
    const auto want = [&](const Argument& x, int reader) {
      if (const int maker = unit_of(x); maker >= 0 && maker != reader)
        wanted[static_cast<size_t>(x.value_index)] = true;
    };
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      for (const auto* list : {&graph_.nodes[n].arguments, &graph_.nodes[n].targets})
        for (const Argument& x : *list) want(x, unit_of_[n]);
    for (const GraphOutput& x : graph_.outputs) want(x.tensor, -1);
    for (const GraphGrad& x : graph_.grads) want(x.gradient, -1);
    for (const WriteBack& x : graph_.write_backs) wanted[static_cast<size_t>(x.value)] = true;
    for (at_ = 0; at_ < units_.size(); ++at_) {
      const Unit& unit = units_[at_];
      if (unit.kind != Unit::map && unit.kind != Unit::row) continue;
      for (const int32_t n : unit.nodes)
        for (const int32_t v : graph_.nodes[static_cast<size_t>(n)].results)
          if (v >= 0 && wanted[static_cast<size_t>(v)])
            require_that(std::ranges::count(unit.outputs, v) == 1, "it does not write what others read");
    }
  }

  const Graph& graph_;
  const std::vector<Unit>& units_;
  std::vector<int> unit_of_;      ///< of each node
  size_t at_ = 0;                 ///< the unit that is looked at
  std::vector<int32_t> results_;  ///< of its nodes, in order
};

}  // namespace

void verify(const Graph& graph, const std::vector<Unit>& units) { Verifier(graph, units).run(); }

}  // namespace lorry::compiler
