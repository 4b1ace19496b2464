#pragma once

// A compiled function of tensors: a graph's units and their kernels.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lorry/base/span.h"
#include "lorry/compile/fuse.h"
#include "lorry/compile/tune.h"
#include "lorry/trace/evaluation.h"
#include "lorry/trace/guard.h"

namespace lorry::compiler {

/// Which units may give other bits than the operators: products with epilogues (epilogue.h), and sums over columns.
enum class Epilogues : uint8_t {
  none,
  fast,  ///< those that are faster than the operators on an H200
  all,
};

struct ProgramOptions {
  Epilogues epilogues = Epilogues::none;
  bool autotune = false;  ///< CompileOptions::max_autotune
};

/// A graph's units in the order in which they run, and what follows from that order.
class Schedule {
 public:
  Schedule(const trace::Graph& graph, std::vector<Unit> units);
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  std::vector<Tensor> run(std::span<const Tensor> arguments, trace::RunDraws draws, std::span<const Tensor> into) const;
  const std::vector<Unit>& units() const { return units_; }
  std::string explain() const;
  std::string sources() const;
  void wait() const;

 private:
  void run_unit(size_t u, trace::Evaluation& evaluation) const;
  static void describe_unit(const void* unit, SpanDescription& to);

  const trace::Graph& graph_;
  std::vector<Unit> units_;
  trace::Lifetimes lifetimes_;
  std::vector<int> in_input_;  ///< per value: the input in whose memory it is computed; -1: none
  /// Per unit; null if the library runs it.
  std::vector<std::shared_ptr<const kernels::FusedKernel>> kernels_;
  const uint64_t first_span_;          ///< the id of the first unit's span
  std::vector<size_t> callback_ends_;  ///< per unit: the number of host callbacks before it
};

class Program {
 public:
  /// Simplifies and fuses.
  explicit Program(const trace::Graph& graph, const ProgramOptions& options = {});
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
  const std::vector<Unit>& units() const { return schedule().units(); }
  /// One line per unit: its operators, the bytes that fusing saves, and why it was not fused with an earlier unit.
  std::string explain() const;
  /// The generated sources of its kernels.
  std::string sources() const { return schedule().sources(); }
  /// Waits until all kernels have been compiled or have failed to compile.
  void wait() const;

 private:
  /// The schedule to run: the usual one, and when tuning is done the fastest.
  const Schedule& schedule() const { return *schedules_[tuner_.best()]; }

  trace::Graph graph_;
  std::vector<std::unique_ptr<const Schedule>> schedules_;  ///< the usual one first
  mutable Tuner tuner_;
  trace::Guard guard_;
};

}  // namespace lorry::compiler
