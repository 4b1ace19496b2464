#pragma once

// A compiled function whose results have gradients: its forward and its backward are two programs.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lorry/compile/partition.h"
#include "lorry/compile/program.h"

namespace lorry::compiler {

/// Of what a function's results have gradients.
struct Differentiation {
  std::vector<size_t> results;    ///< those that require a gradient
  std::vector<size_t> arguments;  ///< those that get one
  /// Those whose gradient is that of an argument before, since they are the same tensor: with that argument.
  std::vector<std::pair<size_t, size_t>> same;
  std::vector<std::shared_ptr<const trace::Captured>> leaves;  ///< captured tensors that get one
  std::vector<Layout> gradient_layouts;                        ///< of the gradients of `results`
};

/// Of these results, while they are recorded.
Differentiation differentiation_of(const trace::Recorder& recorder, std::span<const Tensor> arguments,
                                   const std::vector<Tensor>& results);

/// Runs the backward of the results, from gradients of ones, and so records it. Returns the gradients of `arguments`,
/// then of `leaves`, undefined where there is none; they are further results of the recording. No tensor's grad
/// changes, and the tape stays.
std::vector<Tensor> record_backward(trace::Recorder& recorder, std::span<const Tensor> arguments,
                                    const std::vector<Tensor>& results, Differentiation& differentiation);

class DifferentiableProgram : public std::enable_shared_from_this<DifferentiableProgram> {
 public:
  /// Throws CompileError.
  DifferentiableProgram(const trace::Graph& graph, size_t arguments, size_t results,
                        const Differentiation& differentiation);

  const Program& forward() const { return forward_; }
  const Program& backward() const { return backward_; }
  /// That pass from the forward to the backward, arguments and captured tensors apart.
  int64_t saved_bytes() const;
  /// Whether the arguments are one tensor where the recorded ones were; the guard of the forward holds.
  bool holds(std::span<const Tensor> arguments) const;
  /// As Program::run; the results lead to the backward, which throws GradError where gradients of gradients are asked
  /// for.
  std::vector<Tensor> run(std::span<const Tensor> arguments) const;

 private:
  struct Call;
  DifferentiableProgram(Partition parts, size_t results, Differentiation differentiation);
  std::vector<Tensor> gradients(std::vector<Tensor> saved, const std::vector<Tensor>& grads,
                                const trace::RunDraws& draws) const;

  Differentiation differentiation_;
  size_t results_;
  std::vector<size_t> saved_inputs_;
  Program forward_, backward_;
};

}  // namespace lorry::compiler
