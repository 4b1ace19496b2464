#include "lorry/trace/shapes.h"

#include <optional>

#include "lorry/layout/views.h"
#include "lorry/ops/creation.h"
#include "lorry/trace/evaluation.h"

namespace lorry::trace {
namespace {

/// The values of a graph on the meta device.
class MetaValues {
 public:
  explicit MetaValues(const Graph& graph) : graph_(graph), values_(graph.values.size()) {
    for (const GraphInput& x : graph.inputs) make(x.value);
    for (const GraphConstant& x : graph.constants) make(x.value);
  }

  /// Whether the results of a node have the layouts of its values.
  bool agrees(const Node& node) {
    std::vector<Tensor> tensors, targets;
    for (const Argument& x : node.arguments) tensors.push_back(read(x));
    for (size_t i = 0; i < node.targets.size(); ++i) {
      const int32_t result = node.results[i];
      if (result >= 0 && !value(result).defined()) make(result);
      targets.push_back(result >= 0 ? window_of(value(result), node.targets[i].window) : read(node.targets[i]));
    }
    std::vector<door::Attribute> attributes = node.attributes;
    for (door::Attribute& a : attributes)
      if (std::holds_alternative<Device>(a)) a = kMeta;
    const std::vector<Tensor> made = call_of(node, std::move(tensors), targets, attributes);
    for (size_t i = node.targets.size(); i < node.results.size(); ++i) {
      if (node.results[i] < 0) continue;
      const Value& expected = graph_.values[static_cast<size_t>(node.results[i])];
      if (made.at(i).layout() != expected.layout || made[i].dtype() != expected.dtype) return false;
      value(node.results[i]) = made[i];
    }
    return true;
  }

 private:
  Tensor& value(int32_t i) { return values_[static_cast<size_t>(i)]; }
  static Tensor memory(const Layout& layout, DType dtype) { return lorry::detail::empty_of(layout, {dtype, kMeta}); }
  void make(int32_t i) {
    const Value& x = graph_.values[static_cast<size_t>(i)];
    value(i) = memory(x.layout, x.dtype);
  }
  Tensor read(const Argument& x) {
    if (x.kind == Argument::value) return window_of(value(x.value_index), x.window);
    if (x.kind == Argument::empty || x.kind == Argument::uninitialised) return memory(x.window.layout, x.dtype);
    return {};
  }

  const Graph& graph_;
  std::vector<Tensor> values_;
};

/// The view of its layout; nothing if it has none.
std::optional<View> made_again(const ViewCall& x) {
  const auto number = [&](size_t i) { return std::get<int64_t>(x.attributes[i]); };
  switch (x.op) {
    case Op::view: {
      View view;
      if (!view_as(x.from, x.to.size_list(), view.layout)) return std::nullopt;
      return view;
    }
    case Op::expand:
      return View{expand(x.from, x.to.size_list())};
    case Op::permute:
      return views::permute(x.from, std::get<Dims>(x.attributes[0]));
    case Op::transpose:
      return views::transpose(x.from, number(0), number(1));
    case Op::select:
      return views::select(x.from, number(0), number(1));
    case Op::slice: {
      const views::Range range{number(1), number(2), number(3)};
      const int dim = wrap_dim(number(0), x.from.rank);
      const int64_t end = range.length > 0 ? range.start + (range.length - 1) * range.step + 1 : range.start;
      if (range.start < 0 || range.length < 0 || end > x.from.sizes[dim]) return std::nullopt;
      return views::slice(x.from, dim, range);
    }
    case Op::diagonal:
      return views::diagonal(x.from, number(0), number(1), number(2));
    case Op::unfold:
      return views::unfold(x.from, number(0), number(1), number(2));
    default:
      return std::nullopt;
  }
}

}  // namespace

bool holds(const ViewCall& x) {
  if (x.op == Op::as_strided) return true;
  try {
    const std::optional<View> view = made_again(x);
    return view && views::same_elements(view->layout, x.to) && view->offset == x.offset;
  } catch (const Error&) {  // the view itself would throw
    return false;
  }
}

std::string why_shapes_differ(const Graph& graph) {
  const ModeScope nobody_listens(0, kToldModes | kSizesMode);
  MetaValues values(graph);
  for (const Node& node : graph.nodes) {
    try {
      if (!values.agrees(node)) return fmt::format("{} gives results of other layouts on meta", name(node.op));
    } catch (const std::exception& error) {
      return fmt::format("{} on meta: {}", name(node.op), error.what());
    }
  }
  return {};
}

}  // namespace lorry::trace
