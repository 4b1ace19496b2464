#pragma once

// Graph: a function of tensors without side effects. A value is the contents of a piece of memory at one time; it is
// made once and never changes. A write makes a new value. Views are not nodes: an argument has the strides through
// which it reads a value, and a target the strides of the elements that it replaces.
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

/// Selects elements of a value, in an order: a layout with an offset from the value's first element.
using Window = View;

struct Value {
  DType dtype;
  Device device;
  Layout layout;      ///< the layout of its memory
  int32_t node = -1;  ///< the node that makes it; -1: an input or a constant
};

/// An operand of a node: something that it reads or replaces.
struct Argument {
  enum Kind : uint8_t {
    undefined,  ///< an undefined tensor
    number,
    empty,          ///< a tensor without elements
    value,          ///< the elements of a value that the window selects
    uninitialised,  ///< memory without contents; only as a target
  };
  Kind kind = undefined;
  int32_t value_index = -1;
  Window window{};  ///< its layout is that of the tensor
  DType dtype = kF32;
  Device device = kCPU;
  Scalar scalar = 0;
};

/// A call. Its form is that of the announced call (door::CallView).
struct Node {
  enum Form : uint8_t { pure, in_place, out };
  Op op{};
  Form form = pure;
  door::RunCall run = nullptr;  ///< CallView::run
  std::vector<Argument> arguments;
  /// The operands that are replaced: for in-place calls the first arguments, for out= forms the given tensors.
  std::vector<Argument> targets;
  /// A value per output, those of the targets first; -1 if the output has no elements or is undefined. Targets in the
  /// same value have the same result.
  std::vector<int32_t> results;
  std::vector<door::Attribute> attributes;
  /// The index of the graph's generator that the key among the attributes is drawn from; the key's offset is the number
  /// of the draw in the run, from 0. -1: there is no key, or it is constant.
  int32_t generator = -1;
  std::string scope;                     ///< the scope of the call (Scope::path)
  std::vector<const void*> frames = {};  ///< and its stack (call_stack)
};

/// An input value: memory of an argument, or of a tensor that the function captured.
struct GraphInput {
  int32_t value;
  int argument = -1;                                   ///< the first argument in that memory; -1: captured
  std::shared_ptr<door::Observed> captured = nullptr;  ///< a tensor in that memory
  /// The captured tensors in that storage, also if it is an argument's; a run finds the memory through them.
  std::vector<std::shared_ptr<Captured>> tensors = {};
  std::shared_ptr<const Captured> leaf = nullptr;  ///< among these, the leaf that requires a gradient
  /// True for a gradient: of `leaf`, or of argument `gradient_of`.
  bool is_gradient = false;
  int gradient_of = -1;
  int64_t offset = 0;  ///< of the value's first element, from that of the argument (or captured tensor)
};

/// Generator used by a run; its draws count even if unread.
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
  int input = -1;   ///< if not -1: it is a view of the memory of this input, after the write-backs
};

/// The final value of the memory of an input.
struct WriteBack {
  int input;
  int32_t value;
};

/// The final gradient of an input; undefined if the function removed it.
struct GraphGrad {
  int input;
  Argument gradient;
  bool was_none = false;  ///< the function relies on there being none before
};

struct Graph {
  std::vector<Argument> arguments;  ///< the caller's arguments, as views of the inputs
  std::vector<Value> values;
  std::vector<Node> nodes;  ///< in an order in which they can run
  std::vector<GraphInput> inputs;
  std::vector<GraphConstant> constants;
  std::vector<GraphGenerator> generators;
  std::vector<GraphOutput> outputs;
  std::vector<WriteBack> write_backs;
  std::vector<GraphGrad> grads;
  size_t backward_from = SIZE_MAX;      ///< index of the first node of the function's backward
  std::vector<HostCallback> callbacks;  ///< ordered by their position among the nodes
  std::vector<ViewCall> views;          ///< those that the function made: what must hold for a graph of other sizes
};

/// The random key among a node's attributes; null if there is none.
const formula::RandomKey* key_of(const Node& node);

/// Whether a window is the whole value, in the value's own layout.
bool is_whole(const Window& window, const Value& value);

/// Whether two numbers have the same dtype and the same bits.
bool is_same(const Scalar& a, const Scalar& b);
/// Whether two attributes have the same type and the same bits. Random keys are never the same: each call has its own.
bool is_same(const door::Attribute& a, const door::Attribute& b);
/// Whether two arguments are the same elements of one value in the same layout, the same number, or both undefined.
bool is_same(const Argument& a, const Argument& b);

/// Attribute i of a node, which is a T.
template <class T>
const T& attribute(const Node& node, size_t i) {
  return std::get<T>(node.attributes[i]);
}

/// Throws CompileError that names the node if the graph is not well formed: a value is made twice or read before it is
/// made, a window reaches outside its value, targets and results do not match, or a draw does not belong to its
/// generator.
void verify(const Graph& graph);

/// The graph as text, one line per node, as above.
std::string to_string(const Graph& graph);

}  // namespace lorry::trace
