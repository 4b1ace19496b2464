#include "lorry/compile/partition.h"

#include <algorithm>

#include "lorry/compile/min_cut.h"
#include "lorry/compile/pointwise_step.h"
#include "lorry/formula/formulas.h"

namespace lorry::compiler {
namespace {

using namespace trace;

/// A graph made of some nodes of another graph.
class Part {
 public:
  explicit Part(const Graph& from) : from_(from), value_of_(from.values.size(), -1) {
    graph.generators = from.generators;
  }

  void add_input(GraphInput x) {
    x.value = add_value(x.value, -1);
    graph.inputs.push_back(std::move(x));
  }
  /// Adds an argument that is a whole value.
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

/// Whether the formula of a row takes more than a few instructions.
constexpr bool kTakesLong[] = {
#define LORRY_POINTWISE(name, Formula, arity, deciding, result, domain) formula::kLong<formula::Formula, double>,
#include "lorry/formula/pointwise.def"
};

/// Whether a node's result may be recomputed instead of saved: on a GPU, where memory is the bottleneck and not
/// arithmetic, all pointwise results; on a CPU only those of cheap formulas.
bool may_be_recomputed(const Graph& graph, const Node& node) {
  if (node.form != Node::pure) return false;
  const std::optional<kernels::FusedStep> step = pointwise_step(graph, node);
  if (!step) return false;
  const bool on_cpu = graph.values[static_cast<size_t>(node.results[0])].device.is_cpu();
  return step->kind == kernels::FusedStep::convert || !on_cpu || !kTakesLong[static_cast<size_t>(step->op)];
}

class Partitioner {
 public:
  Partitioner(const Graph& graph, size_t arguments, size_t results)
      : graph_(graph), arguments_(arguments), results_(results) {}

  Partition run() {
    find_forward();
    require_results_only();
    find_read();
    choose();
    Part forward(graph_), backward(graph_);
    Partition made;
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const GraphInput& x = graph_.inputs[i];
      if (is_gradient(x)) continue;
      if (saved_[static_cast<size_t>(x.value)]) made.saved_inputs.push_back(forward.graph.inputs.size());
      input_of_.push_back(static_cast<int>(i));
      forward.add_input(x);
    }
    add_forward(forward);
    add_inputs(backward, made.saved_inputs);
    for (size_t v = 0; v < saved_.size(); ++v)
      if (saved_[v] && is_made_forward(static_cast<int32_t>(v))) {
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
    return node >= 0 && is_forward_[static_cast<size_t>(node)];
  }

  /// Finds the nodes of the function: those before its backward, and later ones that its results need.
  void find_forward() {
    is_forward_.assign(graph_.nodes.size(), false);
    std::vector<bool> needed(graph_.values.size(), false);
    const auto need = [&](const Argument& x) {
      if (x.kind == Argument::value) needed[static_cast<size_t>(x.value_index)] = true;
    };
    for (size_t i = 0; i < results_; ++i) need(graph_.outputs[i].tensor);
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      const Node& node = graph_.nodes[n];
      is_forward_[n] = n < graph_.backward_from || std::ranges::any_of(node.results, [&](int32_t r) {
                         return r >= 0 && needed[static_cast<size_t>(r)];
                       });
      if (!is_forward_[n]) continue;
      std::ranges::for_each(node.arguments, need);
      std::ranges::for_each(node.targets, need);
    }
  }

  void require_results_only() const {
    if (!graph_.grads.empty()) refuse("the function sets gradients too");
    for (const WriteBack& x : graph_.write_backs)
      if (!is_made_forward(x.value)) refuse("its backward writes memory from outside");
    for (const HostCallback& x : graph_.callbacks)
      if (x.position > graph_.backward_from) refuse("its backward calls the host");
    for (size_t i = 0; i < results_; ++i) {
      const GraphOutput& x = graph_.outputs[i];
      if (x.tensor.kind == Argument::undefined) refuse("a result is undefined");
      if (x.input >= 0) refuse("a result shares memory with an argument or a captured tensor");
      for (size_t j = 0; j < i; ++j)
        if (x.tensor.kind == Argument::value && graph_.outputs[j].tensor.kind == Argument::value &&
            x.tensor.value_index == graph_.outputs[j].tensor.value_index)
          refuse("two results share memory");
    }
  }

  /// Finds the values that the backward reads.
  void find_read() {
    read_.assign(graph_.values.size(), false);
    const auto read = [&](const Argument& x) {
      if (x.kind == Argument::value) read_[static_cast<size_t>(x.value_index)] = true;
    };
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (is_forward_[n]) continue;
      std::ranges::for_each(graph_.nodes[n].arguments, read);
      std::ranges::for_each(graph_.nodes[n].targets, read);
    }
    for (size_t i = results_; i < graph_.outputs.size(); ++i) read(graph_.outputs[i].tensor);
  }

  /// Chooses the values to save and to recompute: the fewest bytes from which everything that the backward reads can be
  /// computed. (Chen et al., "Training deep nets with sublinear memory cost", 2016, recompute in this way; finding the
  /// values by a minimum cut follows Horace He's partitioner of AOTAutograd.)
  void choose() {
    const size_t values = graph_.values.size();
    const auto before = [](size_t v) { return 2 + 2 * v; };  // a value is a pipe from this point to the next one
    MinCut network(2 + 2 * values);
    std::vector<bool> is_gradient_memory(values, false);
    std::vector<int64_t> cost(values, 0);
    for (size_t v = 0; v < values; ++v) cost[v] = graph_.values[v].layout.extent() * size_of(graph_.values[v].dtype);
    for (const GraphInput& x : graph_.inputs) {
      is_gradient_memory[static_cast<size_t>(x.value)] = is_gradient(x);
      // Parameters are kept alive anyway, and so are values saved by the function's own tape. Saving other captured
      // memory would forbid writes before the backward that the function allows.
      const bool lives_on = x.argument < 0 && (x.leaf != nullptr || read_[static_cast<size_t>(x.value)]);
      if (lives_on) cost[static_cast<size_t>(x.value)] = 0;
    }
    for (const GraphConstant& x : graph_.constants) cost[static_cast<size_t>(x.value)] = 0;
    for (size_t v = 0; v < values; ++v) {
      if (is_gradient_memory[v]) read_[v] = false;
      const int32_t maker = graph_.values[v].node;
      if (maker >= 0 && !is_forward_[static_cast<size_t>(maker)]) {
        read_[v] = false;
        continue;
      }
      network.add(before(v), before(v) + 1, cost[v]);
      if (read_[v]) network.add(before(v) + 1, 1, MinCut::kUnlimited);
      if (maker < 0 || !may_be_recomputed(graph_, graph_.nodes[static_cast<size_t>(maker)])) {
        network.add(0, before(v), MinCut::kUnlimited);
        continue;
      }
      for (const Argument& x : graph_.nodes[static_cast<size_t>(maker)].arguments)
        if (x.kind == Argument::value)
          network.add(before(static_cast<size_t>(x.value_index)) + 1, before(v), MinCut::kUnlimited);
    }
    const std::vector<bool> on_sink_side = network.on_sink_side();
    for (size_t v = 0; v < values; ++v) saved_.push_back(!on_sink_side[before(v)] && on_sink_side[before(v) + 1]);
    find_recomputed();
    for (const WriteBack& x : graph_.write_backs)
      if (saved_[static_cast<size_t>(graph_.inputs[static_cast<size_t>(x.input)].value)])
        refuse("its backward reads memory from outside that it writes");
  }

  void find_recomputed() {
    is_recomputed_.assign(graph_.nodes.size(), false);
    std::vector<bool> needed(graph_.values.size());
    for (size_t v = 0; v < needed.size(); ++v) needed[v] = read_[v] && !saved_[v];
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      const Node& node = graph_.nodes[n];
      is_recomputed_[n] = is_forward_[n] && std::ranges::any_of(node.results, [&](int32_t r) {
                            return r >= 0 && needed[static_cast<size_t>(r)];
                          });
      if (!is_recomputed_[n]) continue;
      for (const Argument& x : node.arguments)
        if (x.kind == Argument::value && !saved_[static_cast<size_t>(x.value_index)])
          needed[static_cast<size_t>(x.value_index)] = true;
    }
  }

  void add_forward(Part& forward) const {
    for (size_t i = 0; i < arguments_; ++i) forward.graph.arguments.push_back(forward.mapped(graph_.arguments[i]));
    for (const GraphConstant& x : graph_.constants) forward.add_constant(x);
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (is_forward_[n]) forward.add_node(graph_.nodes[n]);
    forward.graph.callbacks = graph_.callbacks;
    for (size_t i = 0; i < results_; ++i)
      forward.graph.outputs.push_back({.tensor = forward.mapped(graph_.outputs[i].tensor)});
    for (const WriteBack& x : graph_.write_backs)
      forward.graph.write_backs.push_back({static_cast<int>(std::ranges::find(input_of_, x.input) - input_of_.begin()),
                                           forward.mapped(forward.whole(x.value)).value_index});
  }

  /// Adds the saved inputs. They are in the same tensors, which are arguments now.
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
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (!is_forward_[n] || is_recomputed_[n]) backward.add_node(graph_.nodes[n]);
    for (size_t i = results_; i < graph_.outputs.size(); ++i)
      backward.graph.outputs.push_back({.tensor = backward.mapped(graph_.outputs[i].tensor)});
  }

  const Graph& graph_;
  const size_t arguments_, results_;
  std::vector<bool> is_forward_, is_recomputed_;  ///< per node
  /// Per value: whether the backward reads it, without making it; and whether it is saved.
  std::vector<bool> read_, saved_;
  std::vector<int> input_of_;  ///< per input of the forward: the graph's input
};

}  // namespace

Partition partition(const Graph& graph, size_t arguments, size_t results) {
  return Partitioner(graph, arguments, results).run();
}

}  // namespace lorry::compiler
