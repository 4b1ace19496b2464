#include "lorry/trace/evaluation.h"

#include <algorithm>

#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/dispatch/run.h"
#include "lorry/ops/ops.h"
#include "lorry/trace/guard.h"
#include "lorry/trace/placement.h"

namespace lorry::trace {
namespace {

Tensor memory_like(const Value& v) { return lorry::detail::empty_of(v.layout, {v.dtype, v.device}); }

}  // namespace

Tensor window_of(const Tensor& x, const Window& window) {
  return door::make_view(x, window.layout, x.storage_offset() + window.offset);
}

std::vector<Tensor> call_of(const Node& node, std::vector<Tensor> tensors, const std::vector<Tensor>& targets,
                            std::span<const door::Attribute> attributes) {
  if (node.form == Node::in_place) std::ranges::copy(targets, tensors.begin());
  std::vector<Operand> numbers;
  for (const Argument& x : node.arguments) numbers.push_back(x.scalar);
  std::vector<door::Input> inputs;
  for (size_t i = 0; i < tensors.size(); ++i)
    inputs.push_back(node.arguments[i].kind == Argument::number ? door::Input(numbers[i]) : door::Input(&tensors[i]));
  return door::run({.op = node.op,
                    .in_place = node.form == Node::in_place,
                    .out = node.form == Node::out,
                    .inputs = inputs,
                    .outputs = node.form == Node::out ? targets : std::vector<Tensor>(),
                    .attributes = attributes,
                    .run = node.run});
}

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

RunDraws take_draws(const Graph& graph) {
  RunDraws draws;
  for (const GraphGenerator& x : graph.generators) draws.push_back(x.sequence->take(x.draws));
  return draws;
}

Evaluation::Evaluation(const Graph& graph, std::span<const Tensor> arguments, const Lifetimes& lifetimes,
                       RunDraws draws, std::span<const int> in_input)
    : graph_(graph),
      arguments_(arguments),
      lifetimes_(lifetimes),
      in_input_(in_input),
      values_(graph.values.size(), &memory_),
      draws_(std::move(draws)),
      owned_(graph.values.size(), false, &memory_) {
  for (const GraphInput& x : graph_.inputs) value(x.value) = bind(x);
  for (const GraphConstant& x : graph_.constants) value(x.value) = x.tensor;
}

/// The memory of an input, as a tensor with the layout of its value.
Tensor Evaluation::bind(const GraphInput& x) const {
  Tensor from = source_of(x, arguments_);
  if (x.offset == 0 && from.layout() == facts(x.value).layout && from.dtype() == facts(x.value).dtype) return from;
  const int64_t first = from.storage_offset() + x.offset, end = first + facts(x.value).layout.extent();
  if (first < 0 || end * size_of(from.dtype()) > from.storage().bytes() || from.dtype() != facts(x.value).dtype)
    raise_as<ValueError>("trace", "there is less memory around a tensor than when it was recorded; got {}", from);
  return door::make_view(from.detach(), facts(x.value).layout, first);
}

// ---- nodes ----------------------------------------------------------------------------------------------------------

Tensor Evaluation::read(const Argument& x) {
  if (x.kind == Argument::value)
    return is_whole(x.window, facts(x.value_index)) ? value(x.value_index) : window_of(value(x.value_index), x.window);
  if (x.kind == Argument::empty) return lorry::detail::empty_of(x.window.layout, {x.dtype, x.device});
  return {};
}

Tensor Evaluation::read_last(const Argument& x, int32_t step) {
  if (x.kind != Argument::value || !owned_[static_cast<size_t>(x.value_index)] ||
      lifetimes_.last[static_cast<size_t>(x.value_index)] != step)
    return read(x);
  Tensor read_here = door::owning(read(x));
  drop(x.value_index);
  return read_here;
}

void* Evaluation::address(const Argument& x) {
  return static_cast<char*>(value(x.value_index).data_ptr()) + x.window.offset * size_of(x.dtype);
}

void Evaluation::use_memory_of(std::span<const Tensor> outputs) {
  given_ = outputs;
  given_for_.assign(graph_.values.size(), nullptr);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const GraphOutput& x = graph_.outputs[i];
    if (x.input < 0 && x.tensor.kind == Argument::value && is_whole(x.tensor.window, facts(x.tensor.value_index)) &&
        outputs[i].layout() == facts(x.tensor.value_index).layout)
      given_for_[static_cast<size_t>(x.tensor.value_index)] = &outputs[i];
  }
}

const Tensor& Evaluation::make(int32_t v) {
  const int in = input_of(v);
  if (in < 0 && !given_.empty() && given_for_[static_cast<size_t>(v)] != nullptr)
    return value(v) = *given_for_[static_cast<size_t>(v)];
  owned_[static_cast<size_t>(v)] = in < 0;
  return value(v) = in < 0 ? memory_like(facts(v)) : input(in);
}

void Evaluation::end(int32_t step) {
  for (const int32_t v : lifetimes_.ends[static_cast<size_t>(step)]) value(v) = {};
}

void Evaluation::run(const Node& node, int32_t step) {
  std::vector<Tensor> tensors;
  for (const Argument& x : node.arguments) tensors.push_back(read(x));
  const std::vector<Tensor> written = targets(node, step);
  std::vector<Tensor> made =
      call_of(node, std::move(tensors), written, node.generator < 0 ? node.attributes : with_key(node));
  for (size_t i = node.targets.size(); i < node.results.size(); ++i)
    if (node.results[i] >= 0) store(node.results[i], std::move(made.at(i)));
}

/// A node's attributes, with the random key of this run.
std::vector<door::Attribute> Evaluation::with_key(const Node& node) const {
  std::vector<door::Attribute> attributes = node.attributes;
  const auto made = std::ranges::find_if(node.results, [](int32_t r) { return r >= 0; });
  for (door::Attribute& a : attributes)
    if (const auto* key = std::get_if<formula::RandomKey>(&a))
      a = draws_[static_cast<size_t>(node.generator)].key(facts(*made).device, key->offset);
  return attributes;
}

void Evaluation::store(int32_t i, Tensor made) {
  if (made.layout() == facts(i).layout && made.dtype() == facts(i).dtype && made.node_ptr()->users() == 1 &&
      made.storage().users() == 1) {
    value(i) = std::move(made);
  } else {
    value(i) = memory_like(facts(i));
    value(i).copy_(made);
  }
  owned_[static_cast<size_t>(i)] = true;
}

std::vector<Tensor> Evaluation::targets(const Node& node, int32_t step) {
  std::vector<Tensor> written;
  for (size_t i = 0; i < node.targets.size(); ++i) {
    const Argument& x = node.targets[i];
    const int32_t result = node.results[i];
    if (result < 0) {
      written.push_back(read(x));
      continue;
    }
    if (!value(result).defined()) {
      const int32_t old = x.value_index;
      const bool in_its_place = x.kind == Argument::value && input_of(result) < 0 && owned_[static_cast<size_t>(old)] &&
                                lifetimes_.last[static_cast<size_t>(old)] == step && overwrites(node, old, result);
      if (in_its_place)
        value(result) = value(old);
      else if (make(result); x.kind == Argument::value && value(old).data_ptr() != value(result).data_ptr())
        value(result).copy_(value(old));
      owned_[static_cast<size_t>(result)] = input_of(result) < 0;
    }
    written.push_back(is_whole(x.window, facts(result)) ? value(result) : window_of(value(result), x.window));
  }
  return written;
}

// ---- the end ------------------------------------------------------------------------------------------------------

std::vector<Tensor> Evaluation::finish() {
  for (const WriteBack& x : graph_.write_backs) {
    if (const Tensor& to = input(x.input); to.data_ptr() == value(x.value).data_ptr())
      to.storage().written_by("compile");
    else
      to.copy_(value(x.value));
  }
  for (const GraphConstant& x : graph_.constants)  // copied, because the caller may write to it
    if (lifetimes_.last[static_cast<size_t>(x.value)] == Lifetimes::kAtTheEnd) value(x.value) = x.tensor.clone();
  for (const GraphGrad& x : graph_.grads) {
    const GraphInput& of = graph_.inputs[static_cast<size_t>(x.input)];
    const Tensor leaf = of.argument >= 0 ? arguments_[static_cast<size_t>(of.argument)] : of.leaf->tensor();
    leaf.set_grad(shown(x.gradient));
  }
  std::vector<Tensor> outputs;
  outputs.reserve(graph_.outputs.size());
  for (const GraphOutput& x : graph_.outputs)
    outputs.push_back(x.input < 0 ? shown(x.tensor) : window_of(input(x.input).detach(), x.tensor.window));
  for (size_t i = 0; i < given_.size(); ++i)
    if (outputs[i].data_ptr() != given_[i].data_ptr()) given_[i].copy_(outputs[i]);
  return outputs;
}

/// A tensor for the caller. It is a view only if it shows a part of a value.
Tensor Evaluation::shown(const Argument& x) {
  if (x.kind != Argument::value || !is_whole(x.window, facts(x.value_index))) return read(x);
  return value(x.value_index);
}

}  // namespace lorry::trace
