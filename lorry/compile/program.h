#pragma once

// A compiled function of tensors: a graph's units, ready to run again and again.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lorry/compile/fuse.h"
#include "lorry/trace/evaluation.h"
#include "lorry/trace/guard.h"

namespace lorry::compiler {

class Program {
 public:
  /// Simplifies and fuses.
  explicit Program(const trace::Graph& graph);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// What must hold of the arguments of a run.
  const trace::Guard& guard() const { return guard_; }
  /// Writes what the function wrote, sets the gradients that it set, calls the host back, and returns what it returned,
  /// to the bit. Draws random numbers as the function would if it were called now, and advances its generators as much.
  /// The guard holds for the arguments. Any number of threads may run it.
  std::vector<Tensor> run(std::span<const Tensor> arguments) const { return run(arguments, trace::take_draws(graph_)); }
  /// The same with draws that were taken before.
  std::vector<Tensor> run(std::span<const Tensor> arguments, trace::RunDraws draws) const;

  const trace::Graph& graph() const { return graph_; }
  const std::vector<Unit>& units() const { return units_; }
  /// A line a unit: what it computes, the bytes that fusing saves, and why it was not fused with what comes before.
  std::string explain() const;
  /// What was generated for its kernels.
  std::string sources() const;
  /// Returns when its kernels are compiled, or refused.
  void wait() const;

 private:
  trace::Graph graph_;
  std::vector<Unit> units_;
  trace::Lifetimes lifetimes_;
  std::vector<int> in_input_;  ///< of each value: the input in whose memory it is made, -1
  std::vector<std::unique_ptr<const kernels::FusedKernel>> kernels_;  ///< of each unit; null: a library unit
  std::vector<size_t> callback_ends_;  ///< of each unit: how many of the host's callbacks come before it
  trace::Guard guard_;
};

}  // namespace lorry::compiler
