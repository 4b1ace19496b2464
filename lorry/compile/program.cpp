#include "lorry/compile/program.h"

#include <algorithm>

#include "lorry/compile/epilogue.h"
#include "lorry/compile/run.h"
#include "lorry/compile/simplify.h"
#include "lorry/trace/placement.h"

namespace lorry::compiler {
namespace {

using namespace trace;

std::vector<int32_t> steps_of(const Graph& graph, const std::vector<Unit>& units) {
  std::vector<int32_t> steps(graph.nodes.size());
  for (size_t u = 0; u < units.size(); ++u)
    for (const int32_t n : units[u].nodes) steps[static_cast<size_t>(n)] = static_cast<int32_t>(u);
  return steps;
}

/// Whether a unit reads the old contents of a memory only at the element that it writes.
trace::Overwrites overwritten_by(const Graph& graph, const std::vector<Unit>& units) {
  return [&](int32_t step, int32_t old, int32_t made) {
    const Unit& unit = units[static_cast<size_t>(step)];
    if (unit.kind == Unit::library) {
      const Node& node = graph.nodes[static_cast<size_t>(unit.nodes[0])];
      return !node.targets.empty() && overwrites(node, old, made);
    }
    if (unit.kind == Unit::product) return false;
    const Value& memory = graph.values[static_cast<size_t>(old)];
    for (size_t i = 0; i < unit.inputs.size(); ++i) {
      const Argument& x = unit.inputs[i];
      if (x.kind != Argument::value || x.value_index != old) continue;
      if (!is_whole(x.window, memory)) return false;
      if (unit.kind == Unit::row && unit.extents[i] != extent_of_result(memory.layout, unit.rows)) return false;
    }
    return true;
  };
}

std::vector<Unit> units_of(const Graph& graph, bool epilogues) {
  std::vector<Unit> units = fuse(graph);
  if (epilogues) join_products(graph, units);
  return units;
}

}  // namespace

Program::Program(const trace::Graph& graph, bool epilogues)
    : graph_(simplify(graph)),
      units_(units_of(graph_, epilogues)),
      lifetimes_(graph_, steps_of(graph_, units_)),
      in_input_(made_in_inputs(graph_, steps_of(graph_, units_), overwritten_by(graph_, units_))),
      guard_(graph_) {
  for (const Unit& unit : units_)
    kernels_.push_back(unit.kind == Unit::library ? nullptr : make_kernel(graph_, unit, in_input_));
  for (const Unit& unit : units_)
    callback_ends_.push_back(static_cast<size_t>(std::ranges::count_if(
        graph_.callbacks, [&](const HostCallback& x) { return x.position <= static_cast<size_t>(unit.nodes[0]); })));
}

std::vector<Tensor> Program::run(std::span<const Tensor> arguments, RunDraws draws,
                                 std::span<const Tensor> into) const {
  const ModeScope nobody_listens(0, kListenerModes);
  Evaluation evaluation(graph_, arguments, lifetimes_, std::move(draws), in_input_);
  if (!into.empty()) evaluation.use_memory_of(into);
  size_t called = 0;
  const auto call_back = [&](size_t end) {
    for (; called < end; ++called) (*graph_.callbacks[called].call)();
  };
  for (size_t u = 0; u < units_.size(); ++u) {
    const auto step = static_cast<int32_t>(u);
    call_back(callback_ends_[u]);
    const kernels::FusedKernel* const kernel = kernels_[u].get();
    if (kernel == nullptr || !kernel->ready() ||
        !run_fused(units_[u], *kernel, device_of(graph_, units_[u]), evaluation)) {
      evaluation.use_new_memory(kernel != nullptr);
      for (const int32_t n : units_[u].nodes) evaluation.run(graph_.nodes[static_cast<size_t>(n)], step);
      evaluation.use_new_memory(false);
    }
    evaluation.end(step);
  }
  call_back(graph_.callbacks.size());
  return evaluation.finish();
}

std::string Program::explain() const {
  std::string text;
  for (size_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = units_[u];
    text += fmt::format("{}: ", u);
    for (const int32_t n : unit.nodes) text += fmt::format("{} ", name(graph_.nodes[static_cast<size_t>(n)].op));
    if (unit.kind == Unit::map) text += fmt::format("over {}, {} bytes saved", unit.sizes, unit.bytes_saved);
    if (unit.kind == Unit::row)
      text += fmt::format("over {} rows of {}, {} bytes saved", unit.rows.rows, unit.rows.n, unit.bytes_saved);
    if (unit.kind == Unit::product)
      text += fmt::format("as one product with {}, {} bytes saved", kernels::name(unit.epilogue), unit.bytes_saved);
    if (kernels_[u] != nullptr && !kernels_[u]->ready()) text += "; operator by operator, until its kernel is compiled";
    if (!unit.refused.empty()) text += fmt::format("; not fused with an earlier unit: {}", unit.refused);
    text += "\n";
  }
  return text;
}

std::string Program::sources() const {
  std::string text;
  for (const auto& kernel : kernels_)
    if (kernel != nullptr) text += kernel->source();
  return text;
}

void Program::wait() const {
  for (const auto& kernel : kernels_)
    if (kernel != nullptr) kernel->wait();
}

}  // namespace lorry::compiler
