#include "lorry/compile/partition.h"

#include <algorithm>

namespace lorry::compiler {
namespace {

using namespace trace;

/// Some nodes of a graph as a graph of their own.
class Part {
 public:
  explicit Part(const Graph& from) : from_(from), value_of_(from.values.size(), -1) {
    graph.generators = from.generators;
  }

  void add_input(GraphInput x) {
    x.value = add_value(x.value, -1);
    graph.inputs.push_back(std::move(x));
  }
  /// An argument that holds all of a value.
  void add_argument(int32_t value) {
    const auto argument = static_cast<int>(graph.arguments.size());
    add_input({.value = value, .argument = argument});
    graph.arguments.push_back(mapped(whole(value)));
  }
  void add_constant(const GraphConstant& x) { graph.constants.push_back({add_value(x.value, -1), x.tensor}); }
  void add_node(Node node) {
    for (Argument& x : node.arguments) x = mapped(std::move(x));
    for (Argument& x : node.targets) x = mapped(std::move(x));
    const auto index = static_cast<int32_t>(graph.nodes.size());
    for (int32_t& r : node.results)
      if (r >= 0) r = has(r) ? value_of_[static_cast<size_t>(r)] : add_value(r, index);
    graph.nodes.push_back(std::move(node));
  }
  bool has(int32_t value) const { return value_of_[static_cast<size_t>(value)] >= 0; }
  Argument mapped(Argument x) const {
    if (x.kind == Argument::value) x.value_index = value_of_[static_cast<size_t>(x.value_index)];
    return x;
  }
  Argument whole(int32_t value) const {
    const Value& v = from_.values[static_cast<size_t>(value)];
    return {
        .kind = Argument::value, .value_index = value, .window = {v.layout, 0}, .dtype = v.dtype, .device = v.device};
  }

  Graph graph;

 private:
  int32_t add_value(int32_t old, int32_t node) {
    Value v = from_.values[static_cast<size_t>(old)];
    v.node = node;
    graph.values.push_back(v);
    return value_of_[static_cast<size_t>(old)] = static_cast<int32_t>(graph.values.size()) - 1;
  }

  const Graph& from_;
  std::vector<int32_t> value_of_;
};

class Partitioner {
 public:
  Partitioner(const Graph& graph, size_t arguments, size_t results)
      : graph_(graph), arguments_(arguments), results_(results) {}

  Partition run() {
    require_results_only();
    find_read();
    Part forward(graph_), backward(graph_);
    Partition made;
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const GraphInput& x = graph_.inputs[i];
      if (is_gradient(x)) continue;
      if (read_[static_cast<size_t>(x.value)]) made.saved_inputs.push_back(forward.graph.inputs.size());
      input_of_.push_back(static_cast<int>(i));
      forward.add_input(x);
    }
    add_forward(forward);
    add_inputs(backward, made.saved_inputs);
    for (size_t v = 0; v < read_.size(); ++v)
      if (read_[v] && is_made_forward(static_cast<int32_t>(v))) {
        forward.graph.outputs.push_back({.tensor = forward.mapped(forward.whole(static_cast<int32_t>(v)))});
        backward.add_argument(static_cast<int32_t>(v));
      }
    add_backward(backward);
    made.forward = std::move(forward.graph);
    made.backward = std::move(backward.graph);
    verify(made.forward);
    verify(made.backward);
    return made;
  }

 private:
  [[noreturn]] static void refuse(const char* why) {
    raise_as<CompileError>("compile", "results require gradients, and {}; call backward inside, or detach them", why);
  }
  bool is_gradient(const GraphInput& x) const { return x.argument >= static_cast<int>(arguments_); }
  bool is_made_forward(int32_t value) const {
    const int32_t node = graph_.values[static_cast<size_t>(value)].node;
    return node >= 0 && node < static_cast<int32_t>(graph_.backward_from);
  }

  void require_results_only() const {
    if (!graph_.grads.empty()) refuse("the function sets gradients too");
    for (const WriteBack& x : graph_.write_backs)
      if (!is_made_forward(x.value)) refuse("its backward writes memory from outside");
    for (const HostCallback& x : graph_.callbacks)
      if (x.position > graph_.backward_from) refuse("its backward calls the host");
    for (size_t i = 0; i < results_; ++i) {
      const GraphOutput& x = graph_.outputs[i];
      if (x.input >= 0) refuse("a result lies in the memory of an argument or of a captured tensor");
      for (size_t j = 0; j < i; ++j)
        if (x.tensor.kind == Argument::value && graph_.outputs[j].tensor.kind == Argument::value &&
            x.tensor.value_index == graph_.outputs[j].tensor.value_index)
          refuse("two results share memory");
    }
  }

  /// What the backward reads.
  void find_read() {
    read_.assign(graph_.values.size(), false);
    const auto read = [&](const Argument& x) {
      if (x.kind == Argument::value) read_[static_cast<size_t>(x.value_index)] = true;
    };
    for (size_t n = graph_.backward_from; n < graph_.nodes.size(); ++n) {
      std::ranges::for_each(graph_.nodes[n].arguments, read);
      std::ranges::for_each(graph_.nodes[n].targets, read);
    }
    for (size_t i = results_; i < graph_.outputs.size(); ++i) read(graph_.outputs[i].tensor);
    for (const WriteBack& x : graph_.write_backs)
      if (read_[static_cast<size_t>(graph_.inputs[static_cast<size_t>(x.input)].value)])
        refuse("its backward reads memory from outside that it writes");
  }

  void add_forward(Part& forward) const {
    for (size_t i = 0; i < arguments_; ++i) forward.graph.arguments.push_back(forward.mapped(graph_.arguments[i]));
    for (const GraphConstant& x : graph_.constants) forward.add_constant(x);
    for (size_t n = 0; n < graph_.backward_from; ++n) forward.add_node(graph_.nodes[n]);
    forward.graph.callbacks = graph_.callbacks;
    for (size_t i = 0; i < results_; ++i)
      forward.graph.outputs.push_back({.tensor = forward.mapped(graph_.outputs[i].tensor)});
    for (const WriteBack& x : graph_.write_backs)
      forward.graph.write_backs.push_back({static_cast<int>(std::ranges::find(input_of_, x.input) - input_of_.begin()),
                                           forward.mapped(forward.whole(x.value)).value_index});
  }

  /// The saved inputs: they lie in the same tensors, which are now arguments.
  void add_inputs(Part& backward, const std::vector<size_t>& saved) const {
    for (const size_t i : saved) {
      const GraphInput& x = graph_.inputs[static_cast<size_t>(input_of_[i])];
      const auto argument = static_cast<int>(backward.graph.arguments.size());
      backward.add_input({.value = x.value, .argument = argument, .offset = x.offset});
      backward.graph.arguments.push_back(backward.mapped(backward.whole(x.value)));
    }
  }

  void add_backward(Part& backward) const {
    for (size_t i = arguments_; i < graph_.arguments.size(); ++i) {
      const auto input = std::ranges::find(graph_.inputs, static_cast<int>(i), &GraphInput::argument);
      const auto argument = static_cast<int>(backward.graph.arguments.size());
      if (input != graph_.inputs.end())
        backward.add_input({.value = input->value, .argument = argument, .offset = input->offset});
      backward.graph.arguments.push_back(backward.mapped(graph_.arguments[i]));
    }
    for (const GraphConstant& x : graph_.constants) backward.add_constant(x);
    for (size_t n = graph_.backward_from; n < graph_.nodes.size(); ++n) backward.add_node(graph_.nodes[n]);
    for (size_t i = results_; i < graph_.outputs.size(); ++i)
      backward.graph.outputs.push_back({.tensor = backward.mapped(graph_.outputs[i].tensor)});
  }

  const Graph& graph_;
  const size_t arguments_, results_;
  std::vector<bool> read_;     ///< of each value, by the backward
  std::vector<int> input_of_;  ///< of each input of the forward, the graph's
};

}  // namespace

Partition partition(const Graph& graph, size_t arguments, size_t results) {
  return Partitioner(graph, arguments, results).run();
}

}  // namespace lorry::compiler
