#pragma once

// A compiled function whose results have gradients: two programs, the forward and the backward.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lorry/compile/partition.h"
#include "lorry/compile/program.h"

namespace lorry::compiler {

/// The results that require gradients, and the tensors that get gradients.
struct Differentiation {
  std::vector<size_t> results;    ///< the results that require a gradient
  std::vector<size_t> arguments;  ///< the arguments that get a gradient
  /// Arguments that are the same tensor as an earlier argument and get its gradient, each with that argument.
  std::vector<std::pair<size_t, size_t>> same;
  std::vector<std::shared_ptr<const trace::Captured>> leaves;  ///< the captured tensors that get a gradient
  std::vector<Layout> gradient_layouts;                        ///< the layouts of the gradients of `results`
};

/// Determines it for these results, while they are being recorded.
Differentiation differentiation_of(const trace::Recorder& recorder, std::span<const Tensor> arguments,
                                   const std::vector<Tensor>& results);

/// Records the backward of the results by running it, from gradients of ones. Returns the gradients of `arguments`,
/// then of `leaves` (undefined if there is none); they are further results of the recording. No tensor's grad changes,
/// and the tape is kept.
std::vector<Tensor> record_backward(trace::Recorder& recorder, std::span<const Tensor> arguments,
                                    const std::vector<Tensor>& results, Differentiation& differentiation);

class DifferentiableProgram : public std::enable_shared_from_this<DifferentiableProgram> {
 public:
  /// Throws CompileError.
  DifferentiableProgram(const trace::Graph& graph, size_t arguments, size_t results,
                        const Differentiation& differentiation, const ProgramOptions& options);

  const Program& forward() const { return forward_; }
  const Program& backward() const { return backward_; }
  /// The bytes of values saved for the backward, without arguments and captured tensors.
  int64_t saved_bytes() const;
  /// Whether the same arguments are one tensor as in the recording. The guard of the forward must hold too.
  bool holds(std::span<const Tensor> arguments) const;
  /// Like Program::run. The results have the backward as their history; it throws GradError if gradients of gradients
  /// are requested.
  std::vector<Tensor> run(std::span<const Tensor> arguments) const;

 private:
  struct Call;
  DifferentiableProgram(Partition parts, size_t results, Differentiation differentiation,
                        const ProgramOptions& options);
  std::vector<Tensor> gradients(std::vector<Tensor> saved, const std::vector<Tensor>& grads,
                                const trace::RunDraws& draws) const;

  Differentiation differentiation_;
  size_t results_;
  std::vector<size_t> saved_inputs_;
  Program forward_, backward_;
};

}  // namespace lorry::compiler
