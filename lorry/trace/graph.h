#pragma once

// Graph: a function of tensors without side effects. A value is what a piece of memory holds at one time; it is made
// once and never changes. A write makes the next value. Views are no nodes: an argument says through which strides it
// reads a value, a target through which strides it replaces elements of one.
//
//   %0: f32 [4, 8]                                        argument 0
//   %1: f32 [4, 8]      = mul(%0, 2)
//   %2: f32 [4, 8]      = add_(%1 as [4] by [8], %0 as [4] by [8] from 1)
//   return %2

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lorry/ops/dispatch/listener.h"
#include "lorry/trace/recorder.h"

namespace lorry::trace {

/// Which elements of a value, in which order: a layout whose offset counts from the value's first element.
using Window = View;

struct Value {
  DType dtype;
  Device device;
  Layout layout;      ///< of the memory that holds it
  int32_t node = -1;  ///< what makes it; -1: an input or a constant
};

/// What a node reads or replaces.
struct Argument {
  enum Kind : uint8_t {
    undefined,  ///< no tensor
    number,
    empty,          ///< a tensor without elements
    value,          ///< of a value, what the window shows
    uninitialised,  ///< memory that holds nothing yet; only as a target
  };
  Kind kind = undefined;
  int32_t value_index = -1;
  Window window{};  ///< its layout is the tensor's
  DType dtype = kF32;
  Device device = kCPU;
  Scalar scalar = 0;
};

/// A call. Its form is that of the announcement (door::CallView).
struct Node {
  enum Form : uint8_t { pure, in_place, out };
  Op op{};
  Form form = pure;
  RunCall run = nullptr;  ///< null: foreach::run
  std::vector<Argument> arguments;
  /// What is replaced: in place the first arguments, of an out= form the given tensors.
  std::vector<Argument> targets;
  /// A value for each output, those of the targets first; -1 where it has no elements or is undefined. Targets in one
  /// value have one result.
  std::vector<int32_t> results;
  std::vector<door::Attribute> attributes;
  /// The generator of the graph whose draw the key among the attributes numbers: its offset counts the draws of a run
  /// from 0. -1: no key, or one that is the same in each run.
  int32_t generator = -1;
  std::string scope;  ///< where in the program it was called (Scope::path)
};

/// A value that the caller brings: memory of an argument, or of a tensor that the function captured.
struct GraphInput {
  int32_t value;
  int argument = -1;                                   ///< the first argument in that memory; -1: captured
  std::shared_ptr<door::Observed> captured = nullptr;  ///< a tensor in that memory
  /// The captured tensors of that storage, also of an argument's: a run finds them there.
  std::vector<std::shared_ptr<Captured>> tensors = {};
  std::shared_ptr<const Captured> leaf = nullptr;  ///< of these the leaf that requires a gradient
  /// Whether it is a gradient: that of `leaf`, which lies elsewhere, or, where that is an argument, of argument
  /// `gradient_of`.
  bool is_gradient = false;
  int gradient_of = -1;
  int64_t offset = 0;  ///< of the value's first element from the argument's (captured tensor's)
};

/// A generator from which a run takes its draws: those that are read and those that are not.
struct GraphGenerator {
  std::shared_ptr<detail::RandomSequence> sequence;
  uint64_t draws = 0;
};

struct GraphConstant {
  int32_t value;
  Tensor tensor;
};

/// A tensor that the function returns.
struct GraphOutput {
  Argument tensor;  ///< undefined, empty or a value; outputs of one value share memory
  int input = -1;   ///< it shows the memory of this input, after the write-backs
};

/// What the memory of an input holds at the end.
struct WriteBack {
  int input;
  int32_t value;
};

/// The gradient of an input at the end; undefined where it was taken away.
struct GraphGrad {
  int input;
  Argument gradient;
  bool was_none = false;  ///< the function relies on finding none
};

struct Graph {
  std::vector<Argument> arguments;  ///< what the caller passes: where its arguments lie in the inputs
  std::vector<Value> values;
  std::vector<Node> nodes;  ///< in an order in which they can run
  std::vector<GraphInput> inputs;
  std::vector<GraphConstant> constants;
  std::vector<GraphGenerator> generators;
  std::vector<GraphOutput> outputs;
  std::vector<WriteBack> write_backs;
  std::vector<GraphGrad> grads;
  size_t backward_from = SIZE_MAX;      ///< the nodes from here on are the function's backward
  std::vector<HostCallback> callbacks;  ///< in the order of their positions among the nodes
};

/// The random key among a node's attributes; null where there is none.
const formula::RandomKey* key_of(const Node& node);

/// Whether a window is the whole value, in the value's own layout.
bool is_whole(const Window& window, const Value& value);

/// Throws CompileError that names the node, where the graph is not well formed: a value is made twice or read before it
/// is made, a window reaches outside, targets and results do not go together, a draw is none of its generator.
void verify(const Graph& graph);

/// A line a node, as above.
std::string to_string(const Graph& graph);

}  // namespace lorry::trace
