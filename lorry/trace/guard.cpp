#include "lorry/trace/guard.h"

#include <algorithm>

#include "lorry/base/error.h"

namespace lorry::trace {
namespace {

std::pair<uintptr_t, uintptr_t> span_of(const Tensor& x) {
  const auto first = reinterpret_cast<uintptr_t>(x.data_ptr());
  return {first, first + static_cast<uintptr_t>(x.layout().extent() * size_of(x.dtype()))};
}

/// The leaf whose gradient an input is.
const Tensor& leaf_of(const GraphInput& x, std::span<const Tensor> arguments) {
  return x.gradient_of >= 0 ? arguments[static_cast<size_t>(x.gradient_of)] : x.leaf;
}

bool is_alike(const Argument& recorded, const Tensor& x) {
  return x.defined() && x.dtype() == recorded.dtype && x.device() == recorded.device &&
         x.layout() == recorded.window.layout;
}

}  // namespace

Tensor source_of(const GraphInput& x, std::span<const Tensor> arguments) {
  if (x.argument >= 0) return arguments[static_cast<size_t>(x.argument)];
  return x.is_gradient ? leaf_of(x, arguments).grad() : x.captured->tensor();
}

Guard::Guard(const Graph& graph) : graph_(graph) {
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const GraphInput& x = graph.inputs[i];
    if (x.argument >= 0) continue;
    (x.is_gradient ? gradients_ : x.leaf.defined() ? leaves_ : sole_).push_back(i);
    if (x.is_gradient) continue;
    const Storage& storage = x.captured->tensor().storage();
    const auto first = reinterpret_cast<uintptr_t>(storage.data());
    captured_.push_back({first, first + static_cast<uintptr_t>(storage.bytes()), -1});
  }
  std::ranges::sort(captured_, {}, &Span::first);
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

size_t Guard::alike(std::span<const Tensor> arguments) const {
  size_t count = 0;
  for (size_t i = 0; i < std::min(arguments.size(), graph_.arguments.size()); ++i)
    count += is_alike(graph_.arguments[i], arguments[i]);
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
    if (is_alike(recorded, x)) continue;
    fail("argument {} differs from the recorded one; got {}; expected {} {} by {} on {}", i, x, recorded.dtype,
         recorded.window.layout.size_list(), recorded.window.layout.stride_list(), recorded.device);
    return false;
  }
  return check_captured(arguments, fail) && check_memory(arguments, fail);
}

/// Arguments in one piece of memory lie to each other as the recorded ones did; others share none, neither with each
/// other nor with what the function captured.
template <class Fail>
bool Guard::check_memory(std::span<const Tensor> arguments, const Fail& fail) const {
  static thread_local std::vector<Span> spans;
  spans.clear();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument& recorded = graph_.arguments[i];
    if (recorded.kind != Argument::value) continue;
    const Tensor& x = arguments[i];
    const auto [first, end] = span_of(x);
    const auto same = std::ranges::find_if(spans, [&](const Span& s) {
      return graph_.arguments[static_cast<size_t>(s.group)].value_index == recorded.value_index;
    });
    const size_t j = same == spans.end() ? i : static_cast<size_t>(same->group);
    if (j != i && (x.storage().id() != arguments[j].storage().id() ||
                   x.storage_offset() - arguments[j].storage_offset() !=
                       recorded.window.offset - graph_.arguments[j].window.offset)) {
      fail("arguments {} and {} do not share memory as the recorded ones did", j, i);
      return false;
    }
    for (const Span& s : spans)
      if (s.group != static_cast<int32_t>(j) && s.first < end && first < s.end) {
        fail("arguments {} and {} do not share memory as the recorded ones did", s.group, i);
        return false;
      }
    const auto captured = std::ranges::upper_bound(captured_, first, {}, &Span::end);
    bool meets = captured != captured_.end() && captured->first < end;
    for (const size_t g : gradients_) {
      const auto [begin, stop] = span_of(source_of(graph_.inputs[g], arguments));
      meets |= begin < end && first < stop;
    }
    if (meets) {
      fail("argument {} shares memory with a tensor that the function captured", i);
      return false;
    }
    spans.push_back({first, end, static_cast<int32_t>(j)});
  }
  return true;
}

template <class Fail>
bool Guard::check_captured(std::span<const Tensor> arguments, const Fail& fail) const {
  for (const size_t i : leaves_) {
    const GraphInput& x = graph_.inputs[i];
    if (x.leaf.storage().id() == x.captured->tensor().storage().id()) continue;
    fail("a captured tensor has other memory than when it was recorded; got {}", x.leaf);
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
  for (const size_t i : sole_) {
    const Tensor& x = graph_.inputs[i].captured->tensor();
    const Tensor* const frozen = graph_.inputs[i].frozen.get();
    const int64_t ours = frozen != nullptr && frozen->node()->owners() == 1 ? 1 : 0;
    if (x.storage().users() > ours) {
      if (frozen == nullptr || !frozen->requires_grad()) continue;
      fail("a captured tensor requires a gradient now; got {}", *frozen);
      return false;
    }
    fail("a captured tensor is no longer used by anybody else: the function reads another one now; it was {}", x);
    return false;
  }
  for (const GraphGrad& g : graph_.grads) {
    if (!g.was_none) continue;
    const GraphInput& x = graph_.inputs[static_cast<size_t>(g.input)];
    const Tensor& leaf = x.argument >= 0 ? arguments[static_cast<size_t>(x.argument)] : x.leaf;
    if (!leaf.grad().defined()) continue;
    fail("a tensor has a gradient, to which the function would add; got {}", leaf);
    return false;
  }
  return true;
}

}  // namespace lorry::trace
