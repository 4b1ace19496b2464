#include "lorry/trace/interpreter.h"

#include <numeric>

#include "lorry/foreach/run_row.h"

namespace lorry::trace {

std::vector<Tensor> interpret(const Graph& graph, std::span<const Tensor> arguments,
                              const InterpreterOptions& options) {
  std::vector<int32_t> steps(graph.nodes.size());
  std::iota(steps.begin(), steps.end(), 0);
  const Lifetimes lifetimes(graph, steps);
  const ModeScope nobody_listens(0, kListenerModes);
  Evaluation evaluation(graph, arguments, options.run != nullptr ? options.run : foreach::run, lifetimes);
  for (const int32_t n : steps) {
    evaluation.run(graph.nodes[static_cast<size_t>(n)], n);
    evaluation.end(n);
  }
  return evaluation.finish();
}

}  // namespace lorry::trace
