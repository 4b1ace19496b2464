#include "lorry/trace/interpreter.h"

#include <numeric>

#include "lorry/trace/evaluation.h"
#include "lorry/trace/guard.h"
#include "lorry/trace/placement.h"

namespace lorry::trace {

std::vector<Tensor> interpret(const Graph& graph, std::span<const Tensor> arguments) {
  if (Recorder::active())
    raise_as<ValueError>("trace", "a graph is run while this thread is being recorded; call the function itself");
  if (const std::string reason = Guard(graph).why_not(arguments); !reason.empty())
    raise_as<ValueError>("trace", "{}", reason);
  std::vector<int32_t> steps(graph.nodes.size());
  std::iota(steps.begin(), steps.end(), 0);
  const Lifetimes lifetimes(graph, steps);
  const ModeScope nobody_listens(0, kToldModes);
  const std::vector<int> in_input = made_in_inputs(graph, steps, [&](int32_t n, int32_t old, int32_t made) {
    const Node& node = graph.nodes[static_cast<size_t>(n)];
    return !node.targets.empty() && overwrites(node, old, made);
  });
  Evaluation evaluation(graph, arguments, lifetimes, take_draws(graph), in_input);
  auto callback = graph.callbacks.begin();
  for (size_t n = 0; n <= graph.nodes.size(); ++n) {
    for (; callback != graph.callbacks.end() && callback->position == n; ++callback) (*callback->call)();
    if (n == graph.nodes.size()) break;
    evaluation.run(graph.nodes[n], steps[n]);
    evaluation.end(steps[n]);
  }
  return evaluation.finish();
}

}  // namespace lorry::trace
