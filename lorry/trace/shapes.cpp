#include "lorry/trace/shapes.h"

#include <optional>

#include "lorry/layout/views.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/dispatch/run.h"
#include "lorry/ops/ops.h"

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
    std::vector<Tensor> tensors;
    std::vector<Operand> numbers;
    for (const Argument& x : node.arguments) {
      tensors.push_back(read(x));
      numbers.push_back(x.scalar);
    }
    std::vector<Tensor> targets;
    for (size_t i = 0; i < node.targets.size(); ++i) {
      if (node.results[i] >= 0 && !value(node.results[i]).defined()) make(node.results[i]);
      targets.push_back(node.results[i] >= 0 ? window(value(node.results[i]), node.targets[i]) : read(node.targets[i]));
    }
    if (node.form == Node::in_place) std::ranges::copy(targets, tensors.begin());
    std::vector<door::Input> inputs;
    for (size_t i = 0; i < tensors.size(); ++i)
      inputs.push_back(node.arguments[i].kind == Argument::number ? door::Input(numbers[i]) : door::Input(&tensors[i]));
    std::vector<door::Attribute> attributes = node.attributes;
    for (door::Attribute& a : attributes)
      if (std::holds_alternative<Device>(a)) a = kMeta;
    const std::vector<Tensor> made = door::run({.op = node.op,
                                                .in_place = node.form == Node::in_place,
                                                .out = node.form == Node::out,
                                                .inputs = inputs,
                                                .outputs = node.form == Node::out ? targets : std::vector<Tensor>(),
                                                .attributes = attributes,
                                                .run = node.run});
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
  void make(int32_t i) {
    const Value& x = graph_.values[static_cast<size_t>(i)];
    value(i) = empty_strided(x.layout.size_list(), x.layout.stride_list(), {x.dtype, kMeta});
  }
  static Tensor window(const Tensor& of, const Argument& x) {
    if (of.layout() == x.window.layout && x.window.offset == 0) return of;
    return door::make_view(of, x.window.layout, of.storage_offset() + x.window.offset);
  }
  Tensor read(const Argument& x) {
    if (x.kind == Argument::value) return window(value(x.value_index), x);
    if (x.kind == Argument::empty || x.kind == Argument::uninitialised)
      return empty_strided(x.window.layout.size_list(), x.window.layout.stride_list(), {x.dtype, kMeta});
    return {};
  }

  const Graph& graph_;
  std::vector<Tensor> values_;
};

}  // namespace

namespace {

/// Whether two layouts have the same elements in the same order. A dimension of size 1 may have any stride.
bool same_elements(const Layout& a, const Layout& b) {
  if (!same_sizes(a, b)) return false;
  for (int d = 0; d < a.rank; ++d)
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

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
    return view && same_elements(view->layout, x.to) && view->offset == x.offset;
  } catch (const Error&) {  // the view itself would throw
    return false;
  }
}

std::string why_shapes_differ(const Graph& graph) {
  const ModeScope nobody_listens(0, kListenerModes | kSizesMode);
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
