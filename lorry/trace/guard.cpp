#include "lorry/trace/guard.h"

#include <algorithm>
#include <map>
#include <set>

#include "lorry/base/error.h"

namespace lorry::trace {
namespace {

using Memory = std::pair<uintptr_t, uintptr_t>;

/// Not by data_ptr(): nobody is to think that the host reads or writes there.
Memory span_of(const Tensor& x) {
  const auto first = reinterpret_cast<uintptr_t>(x.node()->data());
  return {first, first + static_cast<uintptr_t>(x.layout().extent() * size_of(x.dtype()))};
}

/// The leaf of which an input is the gradient.
const Tensor& leaf_of(const GraphInput& x, std::span<const Tensor> arguments) {
  return x.gradient_of >= 0 ? arguments[static_cast<size_t>(x.gradient_of)] : x.leaf->tensor();
}

bool matches(const Argument& recorded, const Tensor& x) {
  return x.defined() && x.dtype() == recorded.dtype && x.device() == recorded.device &&
         x.layout() == recorded.window.layout;
}

}  // namespace

Tensor source_of(const GraphInput& x, std::span<const Tensor> arguments) {
  if (x.argument >= 0) return arguments[static_cast<size_t>(x.argument)];
  return x.is_gradient ? leaf_of(x, arguments).grad() : x.captured->tensor();
}

Guard::Guard(const Graph& graph) : graph_(graph) {
  std::map<int32_t, size_t> first;  // value to its first argument
  for (size_t i = 0; i < graph.arguments.size(); ++i)
    groups_.push_back(first.emplace(graph.arguments[i].value_index, i).first->second);
  std::set<const Captured*> known;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const GraphInput& x = graph.inputs[i];
    if (x.is_gradient) {
      gradients_.push_back(i);
      continue;
    }
    for (const auto& t : x.tensors)
      if (known.insert(t.get()).second) tensors_.emplace_back(t.get(), i);
    if (x.argument >= 0) continue;
    if (x.tensors.empty()) unseen_.push_back(i);
    const Storage& storage = x.captured->tensor().storage();
    const auto first = reinterpret_cast<uintptr_t>(storage.data());
    captured_.emplace_back(first, first + static_cast<uintptr_t>(storage.bytes()));
  }
  std::ranges::sort(captured_);
}

bool Guard::may_hold_again() const {
  return std::ranges::all_of(tensors_, [](const auto& t) { return t.first->is_used(); }) &&
         std::ranges::all_of(unseen_,
                             [&](size_t i) { return graph_.inputs[i].captured->tensor().storage().users() > 0; });
}

bool Guard::holds(std::span<const Tensor> arguments) const {
  return check(arguments, [](const auto&...) {});
}

std::string Guard::why_not(std::span<const Tensor> arguments) const {
  std::string reason;
  check(arguments, [&](fmt::string_view text, const auto&... values) {
    reason = fmt::vformat(text, fmt::make_format_args(values...));
  });
  return reason;
}

size_t Guard::matching(std::span<const Tensor> arguments) const {
  size_t count = 0;
  for (size_t i = 0; i < std::min(arguments.size(), graph_.arguments.size()); ++i)
    count += matches(graph_.arguments[i], arguments[i]);
  return count;
}

template <class Fail>
bool Guard::check(std::span<const Tensor> arguments, const Fail& fail) const {
  if (arguments.size() != graph_.arguments.size()) {
    fail("another number of arguments; got {}; expected {}", arguments.size(), graph_.arguments.size());
    return false;
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument& recorded = graph_.arguments[i];
    const Tensor& x = arguments[i];
    if (matches(recorded, x)) continue;
    fail("argument {} differs from the recorded one; got {}; expected {} {} by {} on {}", i, x, recorded.dtype,
         recorded.window.layout.size_list(), recorded.window.layout.stride_list(), recorded.device);
    return false;
  }
  return check_captured(arguments, fail) && check_memory(arguments, fail);
}

/// Arguments that share memory must have the same relative offsets as the recorded ones. Other arguments must share no
/// memory with each other, with gradients or with captured tensors, and gradients must not share memory either.
template <class Fail>
bool Guard::check_memory(std::span<const Tensor> arguments, const Fail& fail) const {
  static thread_local std::vector<Span> spans;
  spans.clear();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument& recorded = graph_.arguments[i];
    if (recorded.kind != Argument::value) continue;
    const Tensor &x = arguments[i], &y = arguments[groups_[i]];
    if (groups_[i] != i && (x.storage().id() != y.storage().id() ||
                            x.storage_offset() - y.storage_offset() !=
                                recorded.window.offset - graph_.arguments[groups_[i]].window.offset)) {
      fail("arguments {} and {} do not share memory in the recorded way", groups_[i], i);
      return false;
    }
    spans.push_back({span_of(x), groups_[i]});
  }
  for (size_t k = 0; k < gradients_.size(); ++k)
    spans.push_back({span_of(source_of(graph_.inputs[gradients_[k]], arguments)), arguments.size() + k});
  const auto name = [&](size_t group) {
    return group < arguments.size()
               ? fmt::format("argument {}", group)
               : fmt::format("the gradient that is input {} of the graph", gradients_[group - arguments.size()]);
  };
  if (spans.size() > 1) std::ranges::sort(spans, {}, [](const Span& s) { return s.memory.first; });
  for (size_t i = 0, widest = 0; i < spans.size(); ++i) {
    const Memory& m = spans[i].memory;
    if (i > 0 && m.first < spans[widest].memory.second && spans[i].group != spans[widest].group) {
      fail("{} and {} do not share memory in the recorded way", name(spans[widest].group), name(spans[i].group));
      return false;
    }
    if (m.second >= spans[widest].memory.second) widest = i;
    const auto captured = std::ranges::upper_bound(captured_, m.first, {}, &Memory::second);
    if (captured == captured_.end() || captured->first >= m.second) continue;
    fail("{} shares memory with a tensor that the function captured", name(spans[i].group));
    return false;
  }
  return true;
}

template <class Fail>
bool Guard::check_captured(std::span<const Tensor> arguments, const Fail& fail) const {
  for (const auto& [captured, i] : tensors_) {
    const Tensor& x = captured->tensor();
    const int argument = graph_.inputs[i].argument;
    if (!captured->is_used())
      fail("a captured tensor is no longer used by anybody else: the function reads another one now; it was {}", x);
    else if (argument < 0 && captured->has_other_memory())
      fail("a captured tensor has other memory than when it was recorded; got {}", x);
    else if (captured->has_other_layout())
      fail("a captured tensor has another layout than when it was recorded; got {}", x);
    else if (argument >= 0 && x.storage().id() != arguments[static_cast<size_t>(argument)].storage().id())
      fail("argument {} does not share memory with a captured tensor as the recorded one did; got {}", argument, x);
    else if (captured->is_frozen && x.requires_grad())
      fail("a captured tensor requires a gradient now; got {}", x);
    else
      continue;
    return false;
  }
  for (const size_t i : gradients_) {
    const GraphInput& x = graph_.inputs[i];
    const Tensor& leaf = leaf_of(x, arguments);
    const Tensor gradient = leaf.grad(), &recorded = x.captured->tensor();
    if (gradient.defined() && gradient.dtype() == recorded.dtype() && gradient.layout() == recorded.layout()) continue;
    fail("the gradient of a tensor differs from the recorded one; got {} of {}; expected {}", gradient, leaf, recorded);
    return false;
  }
  for (const size_t i : unseen_) {
    const Tensor& x = graph_.inputs[i].captured->tensor();
    if (x.storage().users() > 0) continue;
    fail("a captured tensor is no longer used by anybody else: the function reads another one now; it was {}", x);
    return false;
  }
  for (const GraphGrad& g : graph_.grads) {
    if (!g.was_none) continue;
    const GraphInput& x = graph_.inputs[static_cast<size_t>(g.input)];
    const Tensor& leaf = x.argument >= 0 ? arguments[static_cast<size_t>(x.argument)] : x.leaf->tensor();
    if (!leaf.grad().defined()) continue;
    fail("a tensor has a gradient, to which the function would add; got {}", leaf);
    return false;
  }
  return true;
}

}  // namespace lorry::trace
