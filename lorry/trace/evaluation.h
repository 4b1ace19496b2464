#pragma once

// One run of a graph: the memory of its values, bound to the caller's tensors. The interpreter runs every node so; the
// compiler runs the nodes that it did not fuse.

#include <span>
#include <vector>

#include "lorry/trace/graph.h"

namespace lorry::trace {

/// When values are read last, in steps of a run: a step runs one node or several.
struct Lifetimes {
  static constexpr int32_t kAtTheEnd = INT32_MAX;
  std::vector<int32_t> last;               ///< of each value; -1: it is not read
  std::vector<std::vector<int32_t>> ends;  ///< the values that a step reads last

  /// step_of: of each node.
  Lifetimes(const Graph& graph, std::span<const int32_t> step_of);
};

/// The draws of a run, from each of its graph's generators.
using RunDraws = std::vector<detail::Draws>;
/// Takes them.
RunDraws take_draws(const Graph& graph);

class Evaluation {
 public:
  /// Binds the inputs. The graph's Guard holds for the arguments. in_input: of each value the input in whose memory it
  /// is made, -1; or empty. draws: of the run, from each generator. All but these live as long as this.
  Evaluation(const Graph& graph, std::span<const Tensor> arguments, const Lifetimes& lifetimes, RunDraws draws,
             std::span<const int> in_input = {});

  /// Whether results get memory of their own, whatever in_input says: for nodes that run one by one where in_input was
  /// made for a step of all of them.
  void place_apart(bool apart) { apart_ = apart; }
  /// Runs a node as part of a step.
  void run(const Node& node, int32_t step);
  /// What an argument shows, as a tensor.
  Tensor read(const Argument& x);
  /// Where the first element of what a value's argument shows lies.
  void* address(const Argument& x);
  /// Memory for a value.
  const Tensor& make(int32_t value);
  /// Takes that back.
  void drop(int32_t v) { value(v) = {}; }
  /// Lets go of what a step read last.
  void end(int32_t step);
  /// Writes back, sets gradients, returns the results.
  std::vector<Tensor> finish();

 private:
  Tensor& value(int32_t i) { return values_[static_cast<size_t>(i)]; }
  const Value& facts(int32_t i) const { return graph_.values[static_cast<size_t>(i)]; }
  int input_of(int32_t i) const { return in_input_.empty() || apart_ ? -1 : in_input_[static_cast<size_t>(i)]; }
  Tensor bind(const GraphInput& x) const;
  void take(int32_t i, const Tensor& made);
  std::vector<door::Attribute> with_key(const Node& node) const;
  std::vector<Tensor> replaced(const Node& node, int32_t step);
  Tensor shown(const Argument& x);

  const Graph& graph_;
  std::span<const Tensor> arguments_;
  const Lifetimes& lifetimes_;
  std::span<const int> in_input_;
  std::vector<Tensor> inputs_;  ///< the memory of each, in the layout of its value
  std::vector<Tensor> values_;
  RunDraws draws_;
  bool apart_ = false;
  std::vector<bool> owned_;  ///< made here, not the caller's memory
};

}  // namespace lorry::trace
