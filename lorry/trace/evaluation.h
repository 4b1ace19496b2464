#pragma once

// One run of a graph: holds the values' memory, with inputs bound to the caller's tensors. The interpreter runs every
// node with it; the compiler runs the nodes that it did not fuse.

#include <array>
#include <cstddef>
#include <memory_resource>
#include <span>
#include <vector>

#include "lorry/trace/graph.h"

namespace lorry::trace {

/// The step in which each value is read last. A step runs one node or several.
struct Lifetimes {
  static constexpr int32_t kAtTheEnd = INT32_MAX;
  std::vector<int32_t> last;               ///< per value; -1: it is never read
  std::vector<std::vector<int32_t>> ends;  ///< per step: the values that it reads last

  /// step_of: the step of each node.
  Lifetimes(const Graph& graph, std::span<const int32_t> step_of);
};

/// The draws of a run, one entry per generator of the graph.
using RunDraws = std::vector<detail::Draws>;
/// Takes a run's draws from the generators.
RunDraws take_draws(const Graph& graph);

/// The elements of x's storage that a window selects.
Tensor window_of(const Tensor& x, const Window& window);
/// Makes the call of a node (door::run) with tensors in the place of its arguments; those of numbers are not read.
/// targets: the tensors that it writes.
std::vector<Tensor> call_of(const Node& node, std::vector<Tensor> tensors, const std::vector<Tensor>& targets,
                            std::span<const door::Attribute> attributes);

class Evaluation {
 public:
  /// Binds the inputs. The graph's Guard must hold for the arguments. in_input: for each value, the input in whose
  /// memory it is computed, or -1; may be empty. Everything except `draws` must outlive this object.
  Evaluation(const Graph& graph, std::span<const Tensor> arguments, const Lifetimes& lifetimes, RunDraws draws,
             std::span<const int> in_input = {});
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

  /// Whether results get new memory, ignoring in_input. Needed if the nodes of a step run one by one, because in_input
  /// is correct only for a step that runs all its nodes at once.
  void use_new_memory(bool on) { uses_new_memory_ = on; }
  /// Computes the results in the memory of these tensors, one for each output of the graph, with the layouts of the
  /// outputs. They must outlive this object.
  void use_memory_of(std::span<const Tensor> outputs);
  /// Runs a node as part of a step.
  void run(const Node& node, int32_t step);
  /// The tensor that an argument stands for.
  Tensor read(const Argument& x);
  /// The same for a step that may overwrite it: if the step is the last to read the value, and the value's memory was
  /// allocated here, the tensor is the only one that refers to that memory.
  Tensor read_last(const Argument& x, int32_t step);
  /// Stores a tensor as a value, in the recorded layout. Its memory becomes the value's if nobody else holds it.
  void store(int32_t value, Tensor made);
  /// The tensors that a node writes: the memory of its results, filled with the values that they replace.
  std::vector<Tensor> targets(const Node& node, int32_t step);
  /// The address of the first element of an argument that is a value.
  void* address(const Argument& x);
  /// Allocates memory for a value.
  const Tensor& make(int32_t value);
  /// Releases it.
  void drop(int32_t v) { value(v) = {}; }
  /// Releases the values that a step reads last.
  void end(int32_t step);
  /// Writes back, sets gradients, and returns the results.
  std::vector<Tensor> finish();

 private:
  Tensor& value(int32_t i) { return values_[static_cast<size_t>(i)]; }
  const Value& facts(int32_t i) const { return graph_.values[static_cast<size_t>(i)]; }
  int input_of(int32_t i) const {
    return in_input_.empty() || uses_new_memory_ ? -1 : in_input_[static_cast<size_t>(i)];
  }
  /// The memory of an input, in the layout of its value.
  const Tensor& input(int32_t i) { return value(graph_.inputs[static_cast<size_t>(i)].value); }
  Tensor bind(const GraphInput& x) const;
  std::vector<door::Attribute> with_key(const Node& node) const;
  Tensor shown(const Argument& x);

  /// For small graphs, the memory of all vectors.
  std::array<std::byte, 512> buffer_;
  std::pmr::monotonic_buffer_resource memory_{buffer_.data(), buffer_.size()};
  const Graph& graph_;
  std::span<const Tensor> arguments_;
  const Lifetimes& lifetimes_;
  std::span<const int> in_input_;
  std::pmr::vector<Tensor> values_;
  RunDraws draws_;
  std::span<const Tensor> given_;                        ///< see use_memory_of
  std::pmr::vector<const Tensor*> given_for_{&memory_};  ///< for each value: the given tensor it is made in
  bool uses_new_memory_ = false;
  std::pmr::vector<bool> owned_;  ///< whether the memory was allocated here and is not the caller's
};

}  // namespace lorry::trace
