#pragma once

// A compiled function of tensors: a graph's units, ready to run again and again.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lorry/compile/fuse.h"
#include "lorry/trace/evaluation.h"

namespace lorry::compiler {

class Program {
 public:
  using RunCall = trace::RunCall;

  /// Simplifies and fuses.
  explicit Program(const trace::Graph& graph, RunCall run = nullptr);

  /// Writes what the function wrote, sets the gradients that it set, and returns what it returned, to the bit. The
  /// arguments have the sizes, strides, dtypes and shared memory of the recorded ones: ValueError otherwise.
  std::vector<Tensor> run(std::span<const Tensor> arguments) const;

  const trace::Graph& graph() const { return graph_; }
  const std::vector<Unit>& units() const { return units_; }
  /// A line a unit: what it computes, the bytes that fusing saves, and why it was not fused with what comes before.
  std::string explain() const;

 private:
  trace::Graph graph_;
  std::vector<Unit> units_;
  trace::Lifetimes lifetimes_;
  std::vector<int> in_input_;  ///< of each value: the input in whose memory it is made, -1
  RunCall run_;
};

}  // namespace lorry::compiler
