#pragma once

// A compiled function of tensors: a graph's units and their kernels.

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
  /// Simplifies and fuses. epilogues: CompileOptions::epilogues.
  explicit Program(const trace::Graph& graph, bool epilogues = false);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// The condition for the arguments of a run.
  const trace::Guard& guard() const { return guard_; }
  /// Runs the function, with its bits except for epilogues: writes what it wrote, sets the gradients it set, calls its
  /// host callbacks, and returns its results. Takes random draws as the function would if it were called now, and
  /// advances the generators as much. The guard must hold for the arguments. Thread-safe.
  std::vector<Tensor> run(std::span<const Tensor> arguments) const { return run(arguments, trace::take_draws(graph_)); }
  /// The same with draws that have been taken already. `into`: memory for the results, with their layouts; or empty.
  std::vector<Tensor> run(std::span<const Tensor> arguments, trace::RunDraws draws,
                          std::span<const Tensor> into = {}) const;

  const trace::Graph& graph() const { return graph_; }
  const std::vector<Unit>& units() const { return units_; }
  /// One line per unit: its operators, the bytes that fusing saves, and why it was not fused with an earlier unit.
  std::string explain() const;
  /// The generated sources of its kernels.
  std::string sources() const;
  /// Waits until all kernels have been compiled or have failed to compile.
  void wait() const;

 private:
  trace::Graph graph_;
  std::vector<Unit> units_;
  trace::Lifetimes lifetimes_;
  std::vector<int> in_input_;  ///< per value: the input in whose memory it is computed; -1: none
  std::vector<std::unique_ptr<const kernels::FusedKernel>> kernels_;  ///< per unit; null for library units
  std::vector<size_t> callback_ends_;  ///< per unit: the number of host callbacks before it
  trace::Guard guard_;
};

}  // namespace lorry::compiler
