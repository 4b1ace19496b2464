#pragma once

// One run of a graph: the memory of its values, bound to the caller's tensors. The interpreter runs every node so; the
// compiler runs the nodes that it did not fuse.

#include <span>
#include <vector>

#include "lorry/trace/graph.h"

namespace lorry::trace {

/// Makes a call from its announcement: foreach::run, or optim::run where there are optimizer steps.
using RunCall = std::vector<Tensor> (*)(const door::CallView& call);

/// When values are read last, in steps of a run: a step runs one node or several.
struct Lifetimes {
  static constexpr int32_t kAtTheEnd = INT32_MAX;
  std::vector<int32_t> last;               ///< of each value; -1: it is not read
  std::vector<std::vector<int32_t>> ends;  ///< the values that a step reads last

  /// step_of: of each node.
  Lifetimes(const Graph& graph, std::span<const int32_t> step_of);
};

class Evaluation {
 public:
  /// Binds the inputs. Throws ValueError where the arguments have other sizes, strides, dtypes, devices or share other
  /// memory than the recorded ones. All four live as long as this.
  Evaluation(const Graph& graph, std::span<const Tensor> arguments, RunCall run, const Lifetimes& lifetimes);

  /// Runs a node as part of a step.
  void run(const Node& node, int32_t step);
  /// What an argument shows, as a tensor.
  Tensor read(const Argument& x);
  /// New memory for a value.
  const Tensor& make(int32_t value);
  /// Memory of an input for a value of the same layout, instead of a write-back.
  const Tensor& make_in_input(int32_t value, const GraphInput& input);
  /// Lets go of what a step read last.
  void end(int32_t step);
  /// Writes back, sets gradients, returns the results.
  std::vector<Tensor> finish();

 private:
  Tensor& value(int32_t i) { return values_[static_cast<size_t>(i)]; }
  const Value& facts(int32_t i) const { return graph_.values[static_cast<size_t>(i)]; }
  void check_arguments() const;
  bool shares_as_recorded(size_t i, size_t j) const;
  Tensor bind(const GraphInput& x) const;
  void take(int32_t i, const Tensor& made);
  std::vector<Tensor> replaced(const Node& node, int32_t step);
  Tensor shown(const Argument& x);

  const Graph& graph_;
  std::span<const Tensor> arguments_;
  RunCall run_;
  const Lifetimes& lifetimes_;
  std::vector<Tensor> values_;
  std::vector<bool> owned_;  ///< made here, not the caller's memory
};

}  // namespace lorry::trace
