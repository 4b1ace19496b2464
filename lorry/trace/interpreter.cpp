#include "lorry/trace/interpreter.h"

#include <algorithm>
#include <limits>

#include "lorry/foreach/run_row.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/ops.h"

namespace lorry::trace {
namespace {

constexpr int32_t kAtTheEnd = std::numeric_limits<int32_t>::max();

/// Some elements of x's storage.
Tensor window_of(const Tensor& x, const Window& window) {
  return door::make_view(x, window.layout, x.storage_offset() + window.offset);
}

Tensor memory_like(const Value& v) {
  return empty_strided(v.layout.size_list(), v.layout.stride_list(), {v.dtype, v.device});
}

class Interpreter {
 public:
  Interpreter(const Graph& graph, std::span<const Tensor> arguments, const InterpreterOptions& options)
      : graph_(graph),
        arguments_(arguments),
        run_(options.run != nullptr ? options.run : foreach::run),
        values_(graph.values.size()),
        last_use_(graph.values.size(), -1),
        owned_(graph.values.size(), false) {}

  std::vector<Tensor> run() {
    check_arguments();
    find_last_uses();
    const ModeScope nobody_listens(0, kListenerModes);
    for (const GraphInput& x : graph_.inputs) value(x.value) = bind(x);
    for (const GraphConstant& x : graph_.constants) value(x.value) = x.tensor;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      run(graph_.nodes[n]);
      for (size_t v = 0; v < values_.size(); ++v)
        if (last_use_[v] == static_cast<int32_t>(n)) values_[v] = {};
    }
    return finish();
  }

 private:
  Tensor& value(int32_t i) { return values_[static_cast<size_t>(i)]; }
  const Value& facts(int32_t i) const { return graph_.values[static_cast<size_t>(i)]; }

  // ---- arguments ----------------------------------------------------------------------------------------------------

  void check_arguments() const {
    if (arguments_.size() != graph_.arguments.size())
      raise_as<ValueError>("interpret", "another number of arguments; got {}; expected {}", arguments_.size(),
                           graph_.arguments.size());
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const Argument& wanted = graph_.arguments[i];
      const Tensor& x = arguments_[i];
      if (!x.defined() || x.layout() != wanted.window.layout || x.dtype() != wanted.dtype ||
          x.device() != wanted.device)
        raise_as<ValueError>("interpret", "argument {} differs from the recorded one; got {}; expected {} {} on {}", i,
                             x, wanted.dtype, wanted.window.layout.size_list(), wanted.device);
      for (size_t j = 0; j < i; ++j)
        if (!shares(i, j))
          raise_as<ValueError>("interpret", "arguments {} and {} do not share memory as the recorded ones did", j, i);
    }
  }

  /// Whether two arguments lie to each other as the recorded ones did.
  bool shares(size_t i, size_t j) const {
    const Argument &a = graph_.arguments[i], &b = graph_.arguments[j];
    if (a.kind != Argument::value || b.kind != Argument::value) return true;
    const Tensor &x = arguments_[i], &y = arguments_[j];
    const bool one_storage = x.storage().id() == y.storage().id();
    if (a.value_index == b.value_index)
      return one_storage && x.storage_offset() - y.storage_offset() == a.window.offset - b.window.offset;
    return !one_storage ||
           !spans_overlap(x.data_ptr(), x.layout(), size_of(x.dtype()), y.data_ptr(), y.layout(), size_of(y.dtype()));
  }

  /// The memory of an input, in the layout of its value.
  Tensor bind(const GraphInput& x) {
    const Tensor& from = x.argument >= 0 ? arguments_[static_cast<size_t>(x.argument)] : x.captured->tensor();
    return door::make_view(from.detach(), facts(x.value).layout, from.storage_offset() + x.offset);
  }

  // ---- nodes --------------------------------------------------------------------------------------------------------

  void find_last_uses() {
    const auto use = [&](const Argument& x, int32_t n) {
      if (x.kind == Argument::value) last_use_[static_cast<size_t>(x.value_index)] = n;
    };
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (const Argument& x : graph_.nodes[n].arguments) use(x, static_cast<int32_t>(n));
      for (const Argument& x : graph_.nodes[n].targets) use(x, static_cast<int32_t>(n));
    }
    for (const GraphOutput& x : graph_.outputs) use(x.tensor, kAtTheEnd);
    for (const GraphGrad& x : graph_.grads) use(x.gradient, kAtTheEnd);
    for (const GraphInput& x : graph_.inputs) last_use_[static_cast<size_t>(x.value)] = kAtTheEnd;
    for (const WriteBack& x : graph_.write_backs) last_use_[static_cast<size_t>(x.value)] = kAtTheEnd;
  }

  Tensor read(const Argument& x) {
    if (x.kind == Argument::value) return window_of(value(x.value_index), x.window);
    if (x.kind == Argument::empty)
      return empty_strided(x.window.layout.size_list(), x.window.layout.stride_list(), {x.dtype, x.device});
    return {};
  }

  void run(const Node& node) {
    std::vector<Tensor> tensors;
    std::vector<Operand> numbers;
    for (const Argument& x : node.arguments) {
      tensors.push_back(read(x));
      numbers.push_back(x.scalar);
    }
    std::vector<Tensor> targets = replaced(node);
    if (node.form == Node::in_place) std::ranges::copy(targets, tensors.begin());
    std::vector<door::Input> inputs;
    for (size_t i = 0; i < tensors.size(); ++i)
      inputs.push_back(node.arguments[i].kind == Argument::number ? door::Input(numbers[i]) : door::Input(&tensors[i]));
    std::vector<Tensor> made = run_({.op = node.op,
                                     .in_place = node.form == Node::in_place,
                                     .out = node.form == Node::out,
                                     .inputs = inputs,
                                     .outputs = node.form == Node::out ? targets : std::vector<Tensor>(),
                                     .attributes = node.attributes});
    for (size_t i = node.targets.size(); i < node.results.size(); ++i)
      if (node.results[i] >= 0) take(node.results[i], made.at(i));
  }

  /// What an operator made becomes a value, in the recorded layout.
  void take(int32_t i, const Tensor& made) {
    if (made.layout() == facts(i).layout && made.storage().users() == 1) {
      value(i) = made;
    } else {
      value(i) = memory_like(facts(i));
      value(i).copy_(made);
    }
    owned_[static_cast<size_t>(i)] = true;
  }

  /// The memory of a node's results, holding what they replace, as the tensors to be written.
  std::vector<Tensor> replaced(const Node& node) {
    std::vector<Tensor> targets;
    for (size_t i = 0; i < node.targets.size(); ++i) {
      const Argument& x = node.targets[i];
      const int32_t result = node.results[i];
      if (result < 0) {
        targets.push_back(read(x));
        continue;
      }
      if (!value(result).defined()) {
        const int32_t old = x.value_index;
        const bool in_its_place = x.kind == Argument::value && owned_[static_cast<size_t>(old)] &&
                                  last_use_[static_cast<size_t>(old)] == facts(result).node;
        value(result) = in_its_place ? value(old) : memory_like(facts(result));
        if (!in_its_place && x.kind == Argument::value) value(result).copy_(value(old));
        owned_[static_cast<size_t>(result)] = true;
      }
      targets.push_back(window_of(value(result), x.window));
    }
    return targets;
  }

  // ---- the end ------------------------------------------------------------------------------------------------------

  std::vector<Tensor> finish() {
    for (const WriteBack& x : graph_.write_backs)
      bind(graph_.inputs[static_cast<size_t>(x.input)]).copy_(value(x.value));
    for (const GraphConstant& x : graph_.constants)  // which the caller may write
      if (last_use_[static_cast<size_t>(x.value)] == kAtTheEnd) value(x.value) = x.tensor.clone();
    for (const GraphGrad& x : graph_.grads) {
      const GraphInput& input = graph_.inputs[static_cast<size_t>(x.input)];
      const Tensor leaf = input.argument >= 0 ? arguments_[static_cast<size_t>(input.argument)] : input.leaf;
      if (leaf.defined()) leaf.set_grad(shown(x.gradient));
    }
    std::vector<Tensor> outputs;
    for (const GraphOutput& x : graph_.outputs)
      outputs.push_back(x.input < 0 ? shown(x.tensor)
                                    : window_of(bind(graph_.inputs[static_cast<size_t>(x.input)]), x.tensor.window));
    return outputs;
  }

  /// A tensor for the caller, which is no view unless it shows a part.
  Tensor shown(const Argument& x) {
    if (x.kind != Argument::value || !is_whole(x.window, facts(x.value_index))) return read(x);
    return value(x.value_index);
  }

  const Graph& graph_;
  std::span<const Tensor> arguments_;
  std::vector<Tensor> (*run_)(const door::CallView& call);
  std::vector<Tensor> values_;
  std::vector<int32_t> last_use_;
  std::vector<bool> owned_;  ///< made by a node, not the caller's memory
};

}  // namespace

std::vector<Tensor> interpret(const Graph& graph, std::span<const Tensor> arguments,
                              const InterpreterOptions& options) {
  return Interpreter(graph, arguments, options).run();
}

}  // namespace lorry::trace
