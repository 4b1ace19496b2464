#include "lorry/trace/evaluation.h"

#include <algorithm>

#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/ops.h"
#include "lorry/trace/recorder.h"

namespace lorry::trace {
namespace {

/// Some elements of x's storage.
Tensor window_of(const Tensor& x, const Window& window) {
  return door::make_view(x, window.layout, x.storage_offset() + window.offset);
}

Tensor memory_like(const Value& v) {
  return empty_strided(v.layout.size_list(), v.layout.stride_list(), {v.dtype, v.device});
}

/// By addresses: two storages may be of one piece of somebody else's memory.
bool overlap(const Tensor& x, const Tensor& y) {
  return x.device() == y.device() &&
         spans_overlap(x.data_ptr(), x.layout(), size_of(x.dtype()), y.data_ptr(), y.layout(), size_of(y.dtype()));
}

/// Whether a node reads a value nowhere but where it makes `result` of it.
bool reads_only_for(const Node& node, int32_t value, int32_t result) {
  const auto reads = [&](const Argument& x) { return x.kind == Argument::value && x.value_index == value; };
  for (size_t i = 0; i < node.targets.size(); ++i)
    if (reads(node.targets[i]) && node.results[i] != result) return false;
  const size_t first = node.form == Node::in_place ? node.targets.size() : 0;
  return std::none_of(node.arguments.begin() + static_cast<std::ptrdiff_t>(first), node.arguments.end(), reads);
}

}  // namespace

Lifetimes::Lifetimes(const Graph& graph, std::span<const int32_t> step_of) : last(graph.values.size(), -1) {
  const auto use = [&](const Argument& x, int32_t step) {
    if (x.kind == Argument::value)
      last[static_cast<size_t>(x.value_index)] = std::max(last[static_cast<size_t>(x.value_index)], step);
  };
  int32_t steps = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const Argument& x : graph.nodes[n].arguments) use(x, step_of[n]);
    for (const Argument& x : graph.nodes[n].targets) use(x, step_of[n]);
    steps = std::max(steps, step_of[n] + 1);
  }
  for (const GraphOutput& x : graph.outputs) use(x.tensor, kAtTheEnd);
  for (const GraphGrad& x : graph.grads) use(x.gradient, kAtTheEnd);
  for (const GraphInput& x : graph.inputs) last[static_cast<size_t>(x.value)] = kAtTheEnd;
  for (const WriteBack& x : graph.write_backs) last[static_cast<size_t>(x.value)] = kAtTheEnd;
  ends.resize(static_cast<size_t>(steps));
  for (size_t v = 0; v < last.size(); ++v)
    if (last[v] >= 0 && last[v] != kAtTheEnd) ends[static_cast<size_t>(last[v])].push_back(static_cast<int32_t>(v));
}

Evaluation::Evaluation(const Graph& graph, std::span<const Tensor> arguments, RunCall run, const Lifetimes& lifetimes)
    : graph_(graph),
      arguments_(arguments),
      run_(run),
      lifetimes_(lifetimes),
      values_(graph.values.size()),
      owned_(graph.values.size(), false) {
  if (Recorder::active())
    raise_as<ValueError>("trace", "a graph is run while this thread is being recorded; call the function itself");
  check_arguments();
  for (const GraphInput& x : graph_.inputs) value(x.value) = bind(x);
  for (const GraphConstant& x : graph_.constants) value(x.value) = x.tensor;
}

// ---- arguments ------------------------------------------------------------------------------------------------------

void Evaluation::check_arguments() const {
  if (arguments_.size() != graph_.arguments.size())
    raise_as<ValueError>("trace", "another number of arguments; got {}; expected {}", arguments_.size(),
                         graph_.arguments.size());
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& wanted = graph_.arguments[i];
    const Tensor& x = arguments_[i];
    if (!x.defined() || x.layout() != wanted.window.layout || x.dtype() != wanted.dtype || x.device() != wanted.device)
      raise_as<ValueError>("trace", "argument {} differs from the recorded one; got {}; expected {} {} by {} on {}", i,
                           x, wanted.dtype, wanted.window.layout.size_list(), wanted.window.layout.stride_list(),
                           wanted.device);
    for (size_t j = 0; j < i; ++j)
      if (!shares_as_recorded(i, j))
        raise_as<ValueError>("trace", "arguments {} and {} do not share memory as the recorded ones did", j, i);
    for (const GraphInput& captured : graph_.inputs)
      if (captured.argument < 0 && wanted.kind == Argument::value && overlap(x, bind(captured)))
        raise_as<ValueError>("trace", "argument {} shares memory with a tensor that the function captured", i);
  }
}

/// Whether two arguments lie to each other as the recorded ones did.
bool Evaluation::shares_as_recorded(size_t i, size_t j) const {
  const Argument &a = graph_.arguments[i], &b = graph_.arguments[j];
  if (a.kind != Argument::value || b.kind != Argument::value) return true;
  const Tensor &x = arguments_[i], &y = arguments_[j];
  if (a.value_index != b.value_index) return !overlap(x, y);
  return x.storage().id() == y.storage().id() &&
         x.storage_offset() - y.storage_offset() == a.window.offset - b.window.offset;
}

/// The memory of an input, in the layout of its value.
Tensor Evaluation::bind(const GraphInput& x) const {
  const Tensor& from = x.argument >= 0 ? arguments_[static_cast<size_t>(x.argument)] : x.captured->tensor();
  if (x.argument < 0 && x.leaf.defined() && x.leaf.storage().id() != from.storage().id())
    raise_as<ValueError>("trace", "a captured tensor has other memory than when it was recorded; got {}", x.leaf);
  const int64_t first = from.storage_offset() + x.offset, end = first + facts(x.value).layout.extent();
  if (first < 0 || end * size_of(from.dtype()) > from.storage().bytes() || from.dtype() != facts(x.value).dtype)
    raise_as<ValueError>("trace", "there is less memory around a tensor than when it was recorded; got {}", from);
  return door::make_view(from.detach(), facts(x.value).layout, from.storage_offset() + x.offset);
}

// ---- nodes ----------------------------------------------------------------------------------------------------------

Tensor Evaluation::read(const Argument& x) {
  if (x.kind == Argument::value) return window_of(value(x.value_index), x.window);
  if (x.kind == Argument::empty)
    return empty_strided(x.window.layout.size_list(), x.window.layout.stride_list(), {x.dtype, x.device});
  return {};
}

const Tensor& Evaluation::make(int32_t v) {
  owned_[static_cast<size_t>(v)] = true;
  return value(v) = memory_like(facts(v));
}

const Tensor& Evaluation::make_in_input(int32_t v, const GraphInput& input) { return value(v) = bind(input); }

void Evaluation::end(int32_t step) {
  for (const int32_t v : lifetimes_.ends[static_cast<size_t>(step)]) value(v) = {};
}

void Evaluation::run(const Node& node, int32_t step) {
  std::vector<Tensor> tensors;
  std::vector<Operand> numbers;
  for (const Argument& x : node.arguments) {
    tensors.push_back(read(x));
    numbers.push_back(x.scalar);
  }
  std::vector<Tensor> targets = replaced(node, step);
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
void Evaluation::take(int32_t i, const Tensor& made) {
  if (made.layout() == facts(i).layout && made.dtype() == facts(i).dtype && made.storage().users() == 1) {
    value(i) = made;
  } else {
    value(i) = memory_like(facts(i));
    value(i).copy_(made);
  }
  owned_[static_cast<size_t>(i)] = true;
}

/// The memory of a node's results, holding what they replace, as the tensors to be written.
std::vector<Tensor> Evaluation::replaced(const Node& node, int32_t step) {
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
                                lifetimes_.last[static_cast<size_t>(old)] == step && reads_only_for(node, old, result);
      value(result) = in_its_place ? value(old) : memory_like(facts(result));
      if (!in_its_place && x.kind == Argument::value) value(result).copy_(value(old));
      owned_[static_cast<size_t>(result)] = true;
    }
    targets.push_back(window_of(value(result), x.window));
  }
  return targets;
}

// ---- the end ------------------------------------------------------------------------------------------------------

std::vector<Tensor> Evaluation::finish() {
  for (const WriteBack& x : graph_.write_backs) {
    if (const Tensor to = bind(graph_.inputs[static_cast<size_t>(x.input)]); to.data_ptr() == value(x.value).data_ptr())
      to.storage().written_by("compile");
    else
      to.copy_(value(x.value));
  }
  for (const GraphConstant& x : graph_.constants)  // which the caller may write
    if (lifetimes_.last[static_cast<size_t>(x.value)] == Lifetimes::kAtTheEnd) value(x.value) = x.tensor.clone();
  for (const GraphGrad& x : graph_.grads) {
    const GraphInput& input = graph_.inputs[static_cast<size_t>(x.input)];
    const Tensor leaf = input.argument >= 0 ? arguments_[static_cast<size_t>(input.argument)] : input.leaf;
    leaf.set_grad(shown(x.gradient));
  }
  std::vector<Tensor> outputs;
  for (const GraphOutput& x : graph_.outputs)
    outputs.push_back(x.input < 0 ? shown(x.tensor)
                                  : window_of(bind(graph_.inputs[static_cast<size_t>(x.input)]), x.tensor.window));
  return outputs;
}

/// A tensor for the caller, which is no view unless it shows a part.
Tensor Evaluation::shown(const Argument& x) {
  if (x.kind != Argument::value || !is_whole(x.window, facts(x.value_index))) return read(x);
  return value(x.value_index);
}

}  // namespace lorry::trace
