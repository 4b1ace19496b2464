#include "lorry/compile/fold.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "lorry/base/modes.h"
#include "lorry/ops/ops.h"

namespace lorry::compiler {
namespace {

using namespace trace;

bool is_number(const Argument& x, double value) { return x.kind == Argument::number && x.scalar.to<double>() == value; }

/// Whether adding x changes nothing: -0.0, or 0 among whole numbers.
bool adds_nothing(const Argument& x, DType result) {
  return is_number(x, 0) && (!is_floating(result) || std::signbit(x.scalar.to<double>()));
}
bool subtracts_nothing(const Argument& x) { return is_number(x, 0) && !std::signbit(x.scalar.to<double>()); }

/// The node that makes all of an argument's value; null if there is none.
const Node* maker(const Graph& graph, const Argument& x) {
  if (x.kind != Argument::value) return nullptr;
  const int32_t node = graph.values[static_cast<size_t>(x.value_index)].node;
  return node < 0 ? nullptr : &graph.nodes[static_cast<size_t>(node)];
}

/// The operator applied twice is the operator applied once.
bool is_idempotent(Op op) {
  constexpr Op kAll[] = {Op::abs, Op::sign, Op::floor, Op::ceil, Op::round, Op::trunc, Op::relu};
  return std::ranges::count(kAll, op) > 0;
}

/// The argument that a node would only repeat, if it has the result's elements; null if there is none.
const Argument* repeated(const Graph& graph, const Node& node, DType result) {
  const std::vector<Argument>& x = node.arguments;
  switch (node.op) {
    case Op::mul:
      return is_number(x[1], 1) ? &x[0] : is_number(x[0], 1) ? &x[1] : nullptr;
    case Op::div:
      return is_number(x[1], 1) ? &x[0] : nullptr;
    case Op::add:
      return adds_nothing(x[1], result) ? &x[0] : adds_nothing(x[0], result) ? &x[1] : nullptr;
    case Op::sub:
      return subtracts_nothing(x[1]) ? &x[0] : nullptr;
    case Op::maximum:
    case Op::minimum:
      return is_same(x[0], x[1]) ? &x[0] : nullptr;
    case Op::where:
      return is_same(x[1], x[2]) ? &x[1] : nullptr;
    case Op::neg:
      if (const Node* made = maker(graph, x[0]);
          made != nullptr && made->op == Op::neg && made->form == Node::pure &&
          is_whole(x[0].window, graph.values[static_cast<size_t>(x[0].value_index)]))
        return &made->arguments[0];
      return nullptr;
    default:
      if (const Node* made = is_idempotent(node.op) ? maker(graph, x[0]) : nullptr;
          made != nullptr && made->op == node.op && made->form == Node::pure)
        return &x[0];
      return nullptr;
  }
}

/// The number with which an argument's value was filled, rounded to its dtype.
std::optional<Scalar> filling(const Graph& graph, const Argument& x) {
  const Node* const made = maker(graph, x);
  if (made == nullptr || made->op != Op::fill || made->form != Node::in_place) return {};
  const Argument &target = made->targets[0], &number = made->arguments[1];
  const Value& value = graph.values[static_cast<size_t>(x.value_index)];
  if (number.kind != Argument::number || target.window.layout.numel() != value.layout.numel()) return {};
  const ModeScope quiet(0, kToldModes);  // nobody is told of this, nor defers it
  const Tensor rounded = full({}, number.scalar, {x.dtype, kCPU});
  return is_floating(x.dtype) ? Scalar(rounded.to(kF64).item<double>()) : Scalar(rounded.item<int64_t>());
}

/// Operators that take a number where they take a tensor, and then compute the same.
bool takes_numbers(Op op) {
  constexpr Op kAll[] = {Op::add, Op::sub, Op::mul, Op::div, Op::maximum, Op::minimum,
                         Op::eq,  Op::ne,  Op::lt,  Op::le,  Op::gt,      Op::ge};
  return std::ranges::count(kAll, op) > 0;
}

}  // namespace

int32_t repeated_value(const Graph& graph, const Node& node, const Value& result) {
  const Argument* const x = repeated(graph, node, result.dtype);
  if (x == nullptr || x->kind != Argument::value) return -1;
  const Value& value = graph.values[static_cast<size_t>(x->value_index)];
  const bool same = is_whole(x->window, value) && value.dtype == result.dtype && x->dtype == value.dtype &&
                    value.device == result.device && value.layout == result.layout;
  return same ? x->value_index : -1;
}

void replace_filled_operands(const Graph& graph, Node& node, const Value& result) {
  if (!takes_numbers(node.op) || result.layout.numel() == 0) return;
  for (size_t k = 0; k < 2; ++k) {
    Argument& x = node.arguments[k];
    const Argument& other = node.arguments[1 - k];
    if (other.kind != Argument::value || other.dtype != x.dtype || x.dtype == kBool || other.device != x.device ||
        !same_sizes(other.window.layout, result.layout))
      continue;
    const std::optional<Scalar> number = filling(graph, x);
    if (!number) continue;
    x = Argument{.kind = Argument::number, .dtype = number->dtype(), .scalar = *number};
    return;
  }
}

}  // namespace lorry::compiler
