#include "lorry/compile/rows.h"

#include <algorithm>

#include "lorry/kernels/backend.h"

namespace lorry::compiler {
namespace {

using namespace trace;
using kernels::Extent;
using kernels::RowStep;

/// The row of formula/reduce.def for an operator; null if it is not a reduction.
const formula::FoldRow* reduction(Op op) {
  const int i = static_cast<int>(op) - kPointwiseCount;
  return i >= 0 && i < formula::kFoldRowCount ? &formula::kFoldRows[i] : nullptr;
}

/// The number of elements in `dims` if these are the last dimensions; else 0.
int64_t count_of_last(const Layout& layout, const Dims& dims) {
  int64_t n = 1;
  for (int d = layout.rank - dims.size(); d < layout.rank; ++d) {
    if (!dims.contains(d)) return 0;
    n *= layout.sizes[d];
  }
  return n;
}
Dims last_dims(const Layout& layout, int64_t count) {
  Dims dims;
  for (int64_t d = layout.rank - count; d < layout.rank; ++d) dims.push_back(d);
  return dims;
}

/// The row step of an operator, and the dimensions that form a row; none if it is not an operator over rows.
std::optional<std::pair<RowStep, Dims>> operator_step(const Node& node, const Layout& x) {
  RowStep step;
  step.in[0] = 0;
  if (const formula::FoldRow* row = reduction(node.op)) {
    step.kind = RowStep::fold;
    step.reduction = *row;
    return std::pair(step, attribute<Dims>(node, 0));
  }
  switch (node.op) {
    case Op::softmax:
    case Op::log_softmax:
      step.kind = RowStep::softmax;
      step.log = node.op == Op::log_softmax;
      return std::pair(step, Dims{attribute<int64_t>(node, 0)});
    case Op::softmax_backward:
    case Op::log_softmax_backward:
      step.kind = RowStep::softmax_backward;
      step.log = node.op == Op::log_softmax_backward;
      step.in[1] = 1;
      return std::pair(step, Dims{attribute<int64_t>(node, 0)});
    case Op::layer_norm:
    case Op::rms_norm:
      step.kind = RowStep::norm;
      step.centred = node.op == Op::layer_norm;
      step.parameter = attribute<double>(node, 1);
      for (int16_t k = 1; k < static_cast<int16_t>(node.arguments.size()); ++k)
        if (node.arguments[static_cast<size_t>(k)].kind != Argument::undefined) step.in[k] = k;
      return std::pair(step, last_dims(x, attribute<int64_t>(node, 0)));
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<int64_t> merged_stride(const Layout& layout, int first, int end, int64_t otherwise) {
  std::optional<int64_t> stride;
  int64_t expected = 0;
  for (int d = end; d-- > first;) {
    if (layout.sizes[d] == 1) continue;
    if (!stride) stride = expected = layout.strides[d];
    if (layout.strides[d] != expected) return std::nullopt;
    expected *= layout.sizes[d];
  }
  return stride.value_or(otherwise);
}

std::optional<Extent> extent_of(const Layout& layout, const RowDomain& rows) {
  if (layout.numel() != rows.rows * rows.n) return std::nullopt;
  int split = layout.rank;
  for (int64_t n = 1; n < rows.n && split > 0;) {
    n *= layout.sizes[--split];
    if (n > rows.n) return layout.is_contiguous() ? std::optional(Extent::wide) : std::nullopt;
  }
  const std::optional<int64_t> along = merged_stride(layout, split, layout.rank, 0);
  const std::optional<int64_t> across = merged_stride(layout, 0, split, along == 1 ? rows.n : 1);
  if (along == 1 && across == rows.n) return Extent::wide;
  if (along == 1 && across == 0) return Extent::column;
  if (along == 0 && across == 1) return Extent::narrow;
  if (along == 0 && across == 0) return Extent::single;
  return std::nullopt;
}

Extent extent_of_result(const Layout& layout, const RowDomain& rows) {
  return layout.numel() == rows.rows ? Extent::narrow : Extent::wide;
}

std::optional<RowNode> row_node(const Graph& graph, const Node& node, std::string& why) {
  if (node.form != Node::pure || node.arguments.empty() || node.arguments[0].kind != Argument::value) return {};
  const Argument& x = node.arguments[0];
  const kernels::FusedKernels* fused = kernels::backend(x.device).fused;
  const auto known = operator_step(node, x.window.layout);
  if (!known || fused == nullptr || fused->make_rows == nullptr) return {};
  RowNode made{known->first, {}};
  RowStep& step = made.step;
  made.rows.n = count_of_last(x.window.layout, known->second);
  const auto refuse = [&](const char* reason) {
    why = reason;
    return std::nullopt;
  };
  if (made.rows.n == 0) return refuse("its rows are not the last dimensions");
  if (made.rows.n == 1) return refuse("its rows are single elements");
  if (made.rows.n * size_of(x.dtype) > kernels::kMaxRowBytes) return refuse("its rows are too long for the cache");
  made.rows.rows = x.window.layout.numel() / made.rows.n;
  if (step.reduction.finish == formula::Finish::divide) step.parameter = static_cast<double>(made.rows.n);
  for (const int16_t k : step.in)
    if (k >= 0 && !node.arguments[static_cast<size_t>(k)].window.layout.is_contiguous())
      return refuse("its operands are not contiguous");
  if (fused->row_distribution != nullptr)
    made.rows.distribution = fused->row_distribution(step, x.dtype, made.rows.n, why);
  if (made.rows.distribution < 0) return std::nullopt;
  step.results = static_cast<int8_t>(node.results.size());
  for (size_t i = 0; i < node.results.size(); ++i) {
    if (node.results[i] < 0) return {};
    const Value& result = graph.values[static_cast<size_t>(node.results[i])];
    if (!result.layout.is_contiguous()) return refuse("its results are not contiguous");
    step.result[i] = {result.dtype, extent_of_result(result.layout, made.rows)};
  }
  return made;
}

}  // namespace lorry::compiler
