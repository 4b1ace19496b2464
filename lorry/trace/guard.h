#pragma once

// Guard: decides whether a graph can be used with given arguments. It can if the arguments have the recorded sizes,
// strides, dtypes and devices and share memory in the same way, captured leaves still have their memory, and gradients
// exist, or do not, as recorded.

#include <span>
#include <string>
#include <vector>

#include "lorry/trace/graph.h"

namespace lorry::trace {

class Guard {
 public:
  /// The graph must outlive the guard.
  explicit Guard(const Graph& graph);

  /// Empty if the graph can run with these arguments; else a message that says what differs.
  std::string why_not(std::span<const Tensor> arguments) const;
  /// The same without a message.
  bool holds(std::span<const Tensor> arguments) const;
  /// False once a captured tensor no longer exists: then no call can match again.
  bool may_hold_again() const;
  /// The number of arguments with the recorded sizes, strides, dtype and device.
  size_t matching(std::span<const Tensor> arguments) const;

 private:
  using Memory = std::pair<uintptr_t, uintptr_t>;  ///< a range of addresses
  struct Span {
    Memory memory;
    size_t group;  ///< the first argument that shares this memory; numbers of gradients follow those of arguments
  };
  template <class Fail>
  bool check(std::span<const Tensor> arguments, const Fail& fail) const;
  template <class Fail>
  bool check_memory(std::span<const Tensor> arguments, const Fail& fail) const;
  template <class Fail>
  bool check_captured(std::span<const Tensor> arguments, const Fail& fail) const;

  const Graph& graph_;
  std::vector<size_t> groups_;    ///< for each argument: the first one in the same memory
  std::vector<Memory> captured_;  ///< memory of captured tensors, in order of address
  /// Captured tensors, each with the input in whose storage it lies.
  std::vector<std::pair<const Captured*, size_t>> tensors_;
  std::vector<size_t> gradients_;  ///< the inputs that are gradients
  /// inputs in captured memory that has no known tensor: other tensors were made from it
  std::vector<size_t> unseen_;
};

/// The tensor with the memory of an input: an argument, a captured tensor, or the current gradient of a leaf.
Tensor source_of(const GraphInput& input, std::span<const Tensor> arguments);

}  // namespace lorry::trace
