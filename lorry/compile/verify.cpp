#include "lorry/compile/verify.h"

#include <algorithm>
#include <span>

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
    for (const kernels::FusedStep& step : unit.steps) {
      for (int k = 0; k < step.arity; ++k) require_register(step.in[k], registers);
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
    for (const kernels::RowStep& step : unit.row_steps) {
      if (step.kind == kernels::RowStep::map)
        for (int k = 0; k < step.pointwise.arity; ++k) require_register(step.pointwise.in[k], registers);
      else
        for (const int16_t r : step.in)
          if (r >= 0) require_register(r, registers);
      registers += static_cast<size_t>(step.results);
    }
    verify_output_registers(unit);
  }

  /// The results of nodes have the registers behind the inputs, in order. (Those of sums, the last nodes, have none.)
  void verify_output_registers(const Unit& unit) const {
    std::vector<int32_t> results;
    for (const int32_t n : unit.nodes)
      for (const int32_t v : graph_.nodes[static_cast<size_t>(n)].results) results.push_back(v);
    for (size_t i = 0; i < unit.output_registers.size(); ++i) {
      const auto made = std::ranges::find(results, unit.outputs[i]) - results.begin() + std::ssize(unit.inputs);
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
  std::vector<int> unit_of_;  ///< of each node
  size_t at_ = 0;             ///< the unit that is looked at
};

}  // namespace

void verify(const Graph& graph, const std::vector<Unit>& units) { Verifier(graph, units).run(); }

}  // namespace lorry::compiler
