#include "lorry/trace/graph.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

namespace lorry::trace {

const formula::RandomKey* key_of(const Node& node) {
  for (const door::Attribute& a : node.attributes)
    if (const auto* key = std::get_if<formula::RandomKey>(&a)) return key;
  return nullptr;
}

bool is_whole(const Window& window, const Value& value) { return window.offset == 0 && window.layout == value.layout; }

bool is_same(const Scalar& a, const Scalar& b) {
  if (a.dtype() != b.dtype()) return false;
  return a.is_floating() ? std::bit_cast<int64_t>(a.to<double>()) == std::bit_cast<int64_t>(b.to<double>())
                         : a.to<int64_t>() == b.to<int64_t>();
}

bool is_same(const door::Attribute& a, const door::Attribute& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&]<class T>(const T& x) {
        const T& y = std::get<T>(b);
        if constexpr (std::is_same_v<T, Scalar>)
          return is_same(x, y);
        else if constexpr (std::is_same_v<T, double>)
          return std::bit_cast<int64_t>(x) == std::bit_cast<int64_t>(y);
        else if constexpr (std::is_same_v<T, formula::RandomKey>)
          return false;
        else
          return x == y;
      },
      a);
}

bool is_same(const Argument& a, const Argument& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == Argument::number) return is_same(a.scalar, b.scalar);
  return a.kind == Argument::undefined || (a.value_index == b.value_index && a.dtype == b.dtype &&
                                           a.window.offset == b.window.offset && a.window.layout == b.window.layout);
}

// ---- verification ---------------------------------------------------------------------------------------------------

namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), made_(graph.values.size(), false) {}

  void run() {
    where_ = "the inputs";
    for (const GraphInput& x : graph_.inputs) {
      require_that(x.argument < static_cast<int>(graph_.arguments.size()),
                   "an input of an argument that does not exist");
      require_that(x.argument >= 0 || x.captured != nullptr, "an input with neither an argument nor a captured tensor");
      make(x.value, -1);
    }
    for (const GraphConstant& x : graph_.constants) {
      make(x.value, -1);
      require_that(x.tensor.layout() == value(x.value).layout, "a constant of another layout");
    }
    for (const Argument& x : graph_.arguments) read(x);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) verify(static_cast<int32_t>(n));
    where_ = "the host's callbacks";
    size_t position = 0;
    for (const HostCallback& x : graph_.callbacks) {
      require_that(x.position >= position && x.position <= graph_.nodes.size(), "out of order");
      position = x.position;
    }
    where_ = "the results";
    for (const GraphOutput& x : graph_.outputs) read(x.tensor);
    for (const GraphGrad& x : graph_.grads) {
      input(x.input);
      read(x.gradient);
    }
    for (const WriteBack& x : graph_.write_backs) {
      require_that(was_made(x.value), "a write-back of a value that is not made");
      require_that(same_memory(value(x.value), value(input(x.input).value)), "a write-back of another layout");
    }
    require_that(std::ranges::all_of(made_, [](bool made) { return made; }), "a value that no node makes");
  }

 private:
  void require_that(bool condition, const char* problem) const {
    if (!condition) raise_as<CompileError>("trace", "the graph is not well formed: {}: {}", where_, problem);
  }

  static bool same_memory(const Value& a, const Value& b) {
    return a.dtype == b.dtype && a.device == b.device && a.layout == b.layout;
  }

  const Value& value(int32_t i) const {
    require_that(i >= 0 && static_cast<size_t>(i) < graph_.values.size(), "no such value");
    return graph_.values[static_cast<size_t>(i)];
  }
  const GraphInput& input(int i) const {
    require_that(i >= 0 && static_cast<size_t>(i) < graph_.inputs.size(), "no such input");
    return graph_.inputs[static_cast<size_t>(i)];
  }
  bool was_made(int32_t i) const { return value(i).node >= -1 && made_[static_cast<size_t>(i)]; }

  void make(int32_t i, int32_t node) {
    require_that(!was_made(i), "a value that is made twice");
    require_that(value(i).node == node, "a value that names another node");
    made_[static_cast<size_t>(i)] = true;
  }

  void read(const Argument& x) const {
    if (x.kind != Argument::value) return;
    require_that(was_made(x.value_index), "a value is read before it is made");
    shows(x, value(x.value_index));
  }

  /// Requires that x's window lies within the value.
  void shows(const Argument& x, const Value& in) const {
    require_that(x.dtype == in.dtype && x.device == in.device, "a window of another dtype or device");
    require_that(x.window.offset >= 0 && x.window.offset + x.window.layout.extent() <= in.layout.extent(),
                 "a window reaches outside its value");
  }

  void verify(int32_t index) {
    const Node& node = graph_.nodes[static_cast<size_t>(index)];
    where_ = fmt::format("node {} ({})", index, name(node.op));
    require_that(node.op < Op::count, "no such operator");
    for (const Argument& x : node.arguments) {
      require_that(x.kind != Argument::uninitialised || node.form == Node::in_place, "uninitialised memory is read");
      read(x);
    }
    verify_draw(node);
    require_that(node.form != Node::pure || node.targets.empty(), "a node that writes nothing has targets");
    require_that(node.targets.size() <= node.results.size(), "targets and results that do not match");
    require_that(node.form != Node::in_place || node.targets.size() <= node.arguments.size(),
                 "more targets than arguments");
    for (size_t i = 0; i < node.targets.size(); ++i) verify_target(node, i);
    for (size_t i = 0; i < node.results.size(); ++i) {
      const auto before = node.results.begin() + static_cast<std::ptrdiff_t>(i);
      if (node.results[i] >= 0 && std::find(node.results.begin(), before, node.results[i]) == before)
        make(node.results[i], index);
    }
  }

  void verify_draw(const Node& node) const {
    if (node.generator < 0) return;
    require_that(static_cast<size_t>(node.generator) < graph_.generators.size(), "no such generator");
    const formula::RandomKey* const key = key_of(node);
    require_that(key != nullptr, "a draw without a key");
    require_that(key->offset < graph_.generators[static_cast<size_t>(node.generator)].draws,
                 "a draw beyond those of its generator");
  }

  void verify_target(const Node& node, size_t i) const {
    const Argument& target = node.targets[i];
    const int32_t result = node.results[i];
    const bool replaces = target.kind == Argument::value || target.kind == Argument::uninitialised;
    require_that(replaces == (result >= 0), "a target without a result");
    if (!replaces) return;
    shows(target, value(result));
    if (target.kind != Argument::value) return;
    read(target);
    require_that(same_memory(value(target.value_index), value(result)), "a write that changes a layout");
  }

  const Graph& graph_;
  std::vector<bool> made_;
  std::string where_;
};

}  // namespace

void verify(const Graph& graph) { Verifier(graph).run(); }

// ---- printing -------------------------------------------------------------------------------------------------------

namespace {

std::string shape(DType dtype, Device device, const Layout& layout) {
  const std::string where = device.is_cpu() ? "" : fmt::format(" {}", device);
  const std::string strides = layout.is_contiguous() ? "" : fmt::format(" by {}", layout.stride_list());
  return fmt::format("{} {}{}{}", dtype, layout.size_list(), strides, where);
}

std::string shown(const Graph& graph, const Argument& x, const std::string& of) {
  const auto& v = graph.values[static_cast<size_t>(x.value_index)];
  if (is_whole(x.window, v)) return of;
  return fmt::format("{} as {} by {} from {}", of, x.window.layout.size_list(), x.window.layout.stride_list(),
                     x.window.offset);
}

std::string to_string(const Graph& graph, const Argument& x) {
  switch (x.kind) {
    case Argument::undefined:
      return "none";
    case Argument::number:
      return x.scalar.is_boolean()    ? fmt::format("{}", x.scalar.to<bool>())
             : x.scalar.is_floating() ? fmt::format("{}", x.scalar.to<double>())
                                      : fmt::format("{}", x.scalar.to<int64_t>());
    case Argument::empty:
      return fmt::format("empty {}", shape(x.dtype, x.device, x.window.layout));
    case Argument::uninitialised:
      return fmt::format("new {}", shape(x.dtype, x.device, x.window.layout));
    case Argument::value:
      return shown(graph, x, fmt::format("%{}", x.value_index));
  }
  return {};
}

std::string to_string(const door::Attribute& attribute) {
  return std::visit(
      [](const auto& a) -> std::string {
        using A = std::decay_t<decltype(a)>;
        if constexpr (std::is_same_v<A, Scalar>) {
          return a.is_floating() ? fmt::format("{}", a.template to<double>())
                                 : fmt::format("{}", a.template to<int64_t>());
        } else if constexpr (std::is_same_v<A, formula::RandomKey>) {
          return fmt::format("seed {} offset {}", a.seed, a.offset);
        } else if constexpr (std::is_same_v<A, std::vector<int64_t>>) {
          return fmt::format("{}", fmt::join(a, " "));
        } else {
          return fmt::format("{}", a);
        }
      },
      attribute);
}

std::string list(const std::vector<std::string>& items) { return fmt::format("{}", fmt::join(items, ", ")); }

std::string to_string(const Graph& graph, const Node& node) {
  std::vector<std::string> items, attributes;
  for (const Argument& x : node.arguments) items.push_back(to_string(graph, x));
  for (const door::Attribute& a : node.attributes)
    attributes.push_back(node.generator >= 0 && std::holds_alternative<formula::RandomKey>(a)
                             ? fmt::format("draw {} of generator {}", key_of(node)->offset, node.generator)
                             : to_string(a));
  std::string text = fmt::format("{}{}({}", name(node.op), node.form == Node::in_place ? "_" : "", list(items));
  if (!attributes.empty()) text += "; " + list(attributes);
  text += ")";
  if (node.form == Node::out) {
    items.clear();
    for (const Argument& x : node.targets) items.push_back(to_string(graph, x));
    text += " into " + list(items);
  }
  return text;
}

std::string to_string(const Graph& graph, const GraphInput& x) {
  const Value& v = graph.values[static_cast<size_t>(x.value)];
  return fmt::format("%{}: {} = {}\n", x.value, shape(v.dtype, v.device, v.layout),
                     x.argument >= 0 ? fmt::format("argument {}", x.argument)
                     : x.is_gradient ? "captured gradient"
                                     : "captured");
}

}  // namespace

std::string to_string(const Graph& graph) {
  std::string text;
  for (const GraphInput& x : graph.inputs) text += to_string(graph, x);
  for (const GraphConstant& x : graph.constants) {
    const Value& v = graph.values[static_cast<size_t>(x.value)];
    text += fmt::format("%{}: {} = constant\n", x.value, shape(v.dtype, v.device, v.layout));
  }
  for (size_t i = 0; i < graph.generators.size(); ++i)
    text += fmt::format("generator {}: {} draws\n", i, graph.generators[i].draws);
  auto callback = graph.callbacks.begin();
  const auto call_back = [&](size_t nodes) {
    for (; callback != graph.callbacks.end() && callback->position == nodes; ++callback)
      text += fmt::format("the host calls {}\n", callback->name);
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    call_back(n);
    std::vector<std::string> results;
    int32_t last = -1;
    for (const int32_t r : node.results) {
      if (r < 0 || r == last) continue;
      const Value& v = graph.values[static_cast<size_t>(last = r)];
      results.push_back(fmt::format("%{}: {}", r, shape(v.dtype, v.device, v.layout)));
    }
    text += fmt::format("{} = {}", list(results), to_string(graph, node));
    text += node.scope.empty() ? "\n" : fmt::format("  # {}\n", node.scope);
  }
  call_back(graph.nodes.size());
  for (const WriteBack& x : graph.write_backs)
    text += fmt::format("%{} <- %{}\n", graph.inputs[static_cast<size_t>(x.input)].value, x.value);
  for (const GraphGrad& x : graph.grads)
    text += fmt::format("gradient of %{} <- {}\n", graph.inputs[static_cast<size_t>(x.input)].value,
                        to_string(graph, x.gradient));
  std::vector<std::string> results;
  for (const GraphOutput& x : graph.outputs)
    results.push_back(to_string(graph, x.tensor) + (x.input < 0 ? "" : " (shared)"));
  return text + fmt::format("return {}\n", list(results));
}

}  // namespace lorry::trace
