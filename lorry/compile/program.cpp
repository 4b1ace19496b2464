#include "lorry/compile/program.h"

#include <algorithm>

#include "lorry/compile/simplify.h"
#include "lorry/foreach/run_row.h"
#include "lorry/kernels/backend.h"

namespace lorry::compiler {
namespace {

using namespace trace;

/// A number as kernels read it.
struct Number {
  union {
    double real;
    int64_t whole;
  };
  explicit Number(const Scalar& x) {
    if (x.is_floating())
      real = x.to<double>();
    else
      whole = x.to<int64_t>();
  }
};

std::vector<int32_t> steps_of(const Graph& graph, const std::vector<Unit>& units) {
  std::vector<int32_t> steps(graph.nodes.size());
  for (size_t u = 0; u < units.size(); ++u)
    for (const int32_t n : units[u].nodes) steps[static_cast<size_t>(n)] = static_cast<int32_t>(u);
  return steps;
}

/// The write-backs that a fused unit can make itself: nothing after it reads what the memory held, and it reads no
/// other element of that than it writes.
std::vector<int> made_in_inputs(const Graph& graph, const std::vector<Unit>& units, std::span<const int32_t> step_of) {
  std::vector<int> in_input(graph.values.size(), -1);
  for (const WriteBack& w : graph.write_backs) {
    const int32_t maker = graph.values[static_cast<size_t>(w.value)].node;
    if (maker < 0) continue;
    const int32_t step = step_of[static_cast<size_t>(maker)];
    const Unit& unit = units[static_cast<size_t>(step)];
    const int32_t old = graph.inputs[static_cast<size_t>(w.input)].value;
    const Value& memory = graph.values[static_cast<size_t>(old)];
    if (!unit.fused || memory.layout.has_internal_overlap()) continue;
    const auto reads = [&](const Argument& x) { return x.kind == Argument::value && x.value_index == old; };
    bool free =
        std::ranges::all_of(unit.inputs, [&](const Argument& x) { return !reads(x) || is_whole(x.window, memory); });
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      free &= step_of[n] <= step || (std::ranges::none_of(graph.nodes[n].arguments, reads) &&
                                     std::ranges::none_of(graph.nodes[n].targets, reads));
    // What the caller gets besides is memory of its own.
    const auto gives = [&](const Argument& x) { return x.kind == Argument::value && x.value_index == w.value; };
    free &=
        std::ranges::none_of(graph.grads, [&](const GraphGrad& x) { return reads(x.gradient) || gives(x.gradient); });
    free &= std::ranges::all_of(
        graph.outputs, [&](const GraphOutput& x) { return x.input >= 0 || (!reads(x.tensor) && !gives(x.tensor)); });
    if (free && in_input[static_cast<size_t>(w.value)] < 0) in_input[static_cast<size_t>(w.value)] = w.input;
  }
  return in_input;
}

void run_fused(const Graph& graph, const Unit& unit, std::span<const int> in_input, Evaluation& evaluation) {
  std::vector<Number> numbers;
  std::vector<kernels::FusedOperand> inputs;
  std::vector<kernels::FusedOutput> outputs;
  std::vector<Tensor> held;
  numbers.reserve(unit.inputs.size());
  for (const Argument& x : unit.inputs) {
    kernels::FusedOperand& operand = inputs.emplace_back();
    if (x.kind == Argument::number) {
      operand.data = &numbers.emplace_back(x.scalar);
      operand.layout.rank = -1;
      operand.dtype = x.scalar.is_floating() ? kF64 : kI64;
      continue;
    }
    const Tensor& from = held.emplace_back(evaluation.read(x));
    operand.data = from.data_ptr();
    operand.layout = expand(from.layout(), unit.sizes);
    operand.dtype = x.dtype;
  }
  for (size_t o = 0; o < unit.outputs.size(); ++o) {
    const int32_t v = unit.outputs[o];
    const int input = in_input[static_cast<size_t>(v)];
    const Tensor& to =
        input < 0 ? evaluation.make(v) : evaluation.make_in_input(v, graph.inputs[static_cast<size_t>(input)]);
    outputs.push_back({{to.data_ptr(), to.layout(), to.dtype()}, unit.output_registers[o]});
  }
  const Device device = graph.values[static_cast<size_t>(unit.outputs[0])].device;
  kernels::backend(device).fused->run({unit.sizes, inputs, unit.steps, outputs}, current_stream(device));
}

}  // namespace

Program::Program(const trace::Graph& graph, RunCall run)
    : graph_(simplify(graph)),
      units_(fuse(graph_)),
      lifetimes_(graph_, steps_of(graph_, units_)),
      in_input_(made_in_inputs(graph_, units_, steps_of(graph_, units_))),
      run_(run != nullptr ? run : foreach::run) {}

std::vector<Tensor> Program::run(std::span<const Tensor> arguments) const {
  const ModeScope nobody_listens(0, kListenerModes);
  Evaluation evaluation(graph_, arguments, run_, lifetimes_);
  for (size_t u = 0; u < units_.size(); ++u) {
    const auto step = static_cast<int32_t>(u);
    if (units_[u].fused)
      run_fused(graph_, units_[u], in_input_, evaluation);
    else
      evaluation.run(graph_.nodes[static_cast<size_t>(units_[u].nodes[0])], step);
    evaluation.end(step);
  }
  return evaluation.finish();
}

std::string Program::explain() const {
  std::string text;
  for (size_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = units_[u];
    text += fmt::format("{}: ", u);
    for (const int32_t n : unit.nodes) text += fmt::format("{} ", name(graph_.nodes[static_cast<size_t>(n)].op));
    if (unit.fused) text += fmt::format("over {}, {} bytes saved", unit.sizes, unit.bytes_saved);
    if (!unit.refused.empty()) text += fmt::format("; not with the unit before: {}", unit.refused);
    text += "\n";
  }
  return text;
}

}  // namespace lorry::compiler
