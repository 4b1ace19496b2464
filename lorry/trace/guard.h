#pragma once

// Guard: whether a graph says what its function would do with other tensors. It does where the arguments have the
// recorded sizes, strides, dtypes and devices and share memory as the recorded ones did, captured leaves have the
// memory that they had, and gradients are there, or not, as they were.

#include <span>
#include <string>
#include <vector>

#include "lorry/trace/graph.h"

namespace lorry::trace {

class Guard {
 public:
  /// The graph outlives the guard.
  explicit Guard(const Graph& graph);

  /// Empty where the graph may run with these arguments; else what differs, for a message.
  std::string why_not(std::span<const Tensor> arguments) const;
  /// The same without the reason.
  bool holds(std::span<const Tensor> arguments) const;
  /// False once something that the function captured is gone: no call finds it again.
  bool may_hold_again() const;
  /// How many arguments have the recorded sizes, strides, dtype and device.
  size_t matching(std::span<const Tensor> arguments) const;

 private:
  using Memory = std::pair<uintptr_t, uintptr_t>;  ///< from an address to another
  struct Span {
    Memory memory;
    size_t group;  ///< the first of the arguments in one piece of memory; gradients follow
  };
  template <class Fail>
  bool check(std::span<const Tensor> arguments, const Fail& fail) const;
  template <class Fail>
  bool check_memory(std::span<const Tensor> arguments, const Fail& fail) const;
  template <class Fail>
  bool check_captured(std::span<const Tensor> arguments, const Fail& fail) const;

  const Graph& graph_;
  std::vector<size_t> groups_;    ///< of each argument: the first one in the same piece of memory
  std::vector<Memory> captured_;  ///< of captured tensors, in order
  /// Captured tensors, and the input in whose storage each lies.
  std::vector<std::pair<const Captured*, size_t>> tensors_;
  std::vector<size_t> gradients_;  ///< inputs that are gradients
  std::vector<size_t> unseen_;     ///< inputs of captured memory of which no tensor is known: others were made of it
};

/// The tensor in whose memory an input lies: an argument, a captured tensor, or the present gradient of a leaf.
Tensor source_of(const GraphInput& input, std::span<const Tensor> arguments);

}  // namespace lorry::trace
