#include "lorry/compile/pointwise_step.h"

#include <map>
#include <utility>

#include "lorry/kernels/backend.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/pointwise_call.h"

namespace lorry::compiler {

using kernels::FusedStep;
using namespace trace;

namespace {

/// A tensor that promotes like an argument; its elements are 1.
const Tensor& stand_in(const Argument& x) {
  static thread_local std::map<std::pair<DType, bool>, Tensor> made;
  Tensor& t = made[{x.dtype, x.window.layout.rank > 0}];
  if (!t.defined()) t = ones(x.window.layout.rank > 0 ? Dims{1} : Dims{}, {x.dtype, kCPU});
  return t;
}

}  // namespace

std::optional<FusedStep> pointwise_step(const Graph& graph, const Node& node) {
  if (node.results.size() != 1 || node.results[0] < 0) return std::nullopt;
  const Value& result = graph.values[static_cast<size_t>(node.results[0])];
  if (kernels::backend(result.device).fused == nullptr) return std::nullopt;
  FusedStep step;
  step.dtype = result.dtype;
  if (node.op == Op::cast || node.op == Op::clone) {
    step.kind = FusedStep::convert;
    return step;
  }
  if ((node.op == Op::copy || node.op == Op::fill) && node.form == Node::in_place &&
      node.targets[0].kind == Argument::uninitialised && is_whole(node.targets[0].window, result)) {
    step.kind = FusedStep::convert;
    step.in[0] = 1;
    return step;
  }
  if (row(node.op).kind != OpKind::pointwise || node.form != Node::pure) return std::nullopt;
  std::vector<Operand> operands;
  for (const Argument& x : node.arguments) {
    if (x.kind != Argument::number && x.kind != Argument::value) return std::nullopt;
    operands.push_back(x.kind == Argument::number ? Operand(x.scalar) : Operand(stand_in(x)));
  }
  const ModeScope nobody_listens(0, kToldModes);
  const ops::Resolved resolved = ops::resolve(node.op, operands);
  if (resolved.converts || resolved.depends_on_values) return std::nullopt;
  step.op = resolved.row;
  step.compute = resolved.compute;
  step.result = resolved.result;
  step.arity = static_cast<int8_t>(row(resolved.row).arity);
  for (int16_t k = 0; k < step.arity; ++k) step.in[k] = k;
  return step;
}

}  // namespace lorry::compiler
