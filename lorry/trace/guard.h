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
  /// How many arguments have the recorded sizes, strides, dtype and device.
  size_t alike(std::span<const Tensor> arguments) const;

 private:
  struct Span {
    uintptr_t first, end;
    int32_t group;  ///< arguments in one piece of memory; -1: captured
  };
  template <class Fail>
  bool check(std::span<const Tensor> arguments, const Fail& fail) const;
  template <class Fail>
  bool check_memory(std::span<const Tensor> arguments, const Fail& fail) const;
  template <class Fail>
  bool check_captured(std::span<const Tensor> arguments, const Fail& fail) const;

  const Graph& graph_;
  std::vector<Span> captured_;                     ///< memory of captured tensors, in order
  std::vector<size_t> leaves_, gradients_, sole_;  ///< inputs that are captured leaves, gradients, and neither
};

/// The tensor in whose memory an input lies: an argument, a captured tensor, or the present gradient of a leaf.
Tensor source_of(const GraphInput& input, std::span<const Tensor> arguments);

}  // namespace lorry::trace
