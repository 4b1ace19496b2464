#include "lorry/foreach/run_row.h"

#include <algorithm>
#include <optional>

#include "lorry/foreach/argument.h"
#include "lorry/foreach/norm.h"
#include "lorry/foreach/operator_plan.h"
#include "lorry/ops/dispatch/arguments.h"

namespace lorry::foreach {
namespace {

using door::attribute_of;
using door::CallView;
using door::refuse;
using door::require_attributes;
using door::tensor_of;
using door::tensors_of;

std::vector<Tensor> all_tensors(const CallView& call) { return tensors_of(call, 0, call.inputs.size()); }
std::vector<Tensor> all_but_last(const CallView& call) {
  if (call.inputs.empty()) refuse(call, "another number of inputs");
  return tensors_of(call, 0, call.inputs.size() - 1);
}

/// Of a call whose last input is the scale.
NormFinish finish_of(const CallView& call) {
  require_attributes(call, 3);
  return {.ord = attribute_of<double>(call, 0),
          .max_norm = attribute_of<double>(call, 1),
          .scale = tensor_of(call, call.inputs.size() - 1),
          .skip_nonfinite = attribute_of<bool>(call, 2)};
}

/// The arguments that `counts` makes of the inputs.
std::vector<Argument> arguments_of(const CallView& call) {
  std::vector<Argument> arguments;
  size_t at = 0;
  for (const int64_t count : attribute_of<std::vector<int64_t>>(call, 0)) {
    const size_t taken = count == 0 ? 1 : static_cast<size_t>(count);
    if (count < 0 || taken > call.inputs.size() - at) refuse(call, "the counts are not those of the inputs");
    const door::Input& first = call.inputs[at];
    if (first.scalar() == nullptr && first.tensor() == nullptr) refuse(call, "an input is missing");
    if (count == 0) {
      arguments.push_back(first.scalar() != nullptr ? Argument(*first.scalar()) : Argument(*first.tensor()));
    } else if (first.tensor() != nullptr) {
      arguments.emplace_back(tensors_of(call, at, at + taken));
    } else {
      std::vector<Scalar> numbers;
      for (size_t i = at; i < at + taken; ++i) {
        if (call.inputs[i].scalar() == nullptr) refuse(call, "an input is no number");
        numbers.push_back(*call.inputs[i].scalar());
      }
      arguments.emplace_back(std::move(numbers));
    }
    at += taken;
  }
  const auto is_list = [](const Argument& x) { return x.list() != nullptr; };
  if (at != call.inputs.size() || std::ranges::none_of(arguments, is_list) || (call.in_place && !is_list(arguments[0])))
    refuse(call, "the counts are not those of the inputs");
  return arguments;
}

/// The operator of one entry that a row over lists applies to all; Op::count for another row.
Op entry_operator(Op op) {
  for (const Op own : {Op::copy, Op::cast, Op::fill})
    if (foreach_of(own) == op) return own;
  const int at = static_cast<int>(op) - static_cast<int>(Op::foreach_abs);
  return at >= 0 ? static_cast<Op>(static_cast<int>(Op::abs) + at) : Op::count;
}

std::vector<Tensor> run_operator(const CallView& call, Op op) {
  require_attributes(call, op == Op::cast ? 2 : 1);
  const std::vector<Argument> arguments = arguments_of(call);
  const bool only_in_place = op == Op::copy || op == Op::fill;
  const size_t expected = op == Op::cast ? 1 : only_in_place ? 2 : static_cast<size_t>(row(op).inputs);
  if (arguments.size() != expected) refuse(call, "another number of arguments");
  if (call.in_place ? op == Op::cast : only_in_place) refuse(call, "no such form");
  if (op == Op::copy && arguments[1].list() == nullptr) refuse(call, "the sources are no list");
  if (op == Op::fill && !arguments[1].is_number()) refuse(call, "the value is no number");
  const detail::Request request{.op = op,
                                .arguments = arguments,
                                .in_place = call.in_place,
                                .to = op == Op::cast ? attribute_of<DType>(call, 1) : kF32};
  std::vector<Tensor> results;
  detail::execute(request, call.in_place ? nullptr : &results);
  return call.in_place ? arguments[0].list()->tensors() : results;
}

std::optional<DType> dtype_named(const CallView& call, const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (const DType dtype : kDTypes)
    if (lorry::name(dtype) == name) return dtype;
  refuse(call, "there is no such dtype");
}

std::vector<Tensor> with(std::vector<Tensor> list, const Tensor& last) {
  list.push_back(last);
  return list;
}

}  // namespace

std::vector<Tensor> run(const CallView& call) {
  if (call.op >= Op::count || row(call.op).kind != OpKind::list) return door::run(call);
  const auto number = [&](size_t i) { return attribute_of<double>(call, i); };
  if (const Op op = entry_operator(call.op); op != Op::count) return run_operator(call, op);
  const bool writes = std::string_view(row(call.op).arguments).starts_with("in place");
  if (call.in_place != writes) refuse(call, "no such form");
  switch (call.op) {
    case Op::foreach_norm:
      require_attributes(call, 2);
      return norm(all_tensors(call), number(0), dtype_named(call, attribute_of<std::string>(call, 1))).tensors();
#define LORRY_LIST_REDUCTION(name, ...) \
  case Op::foreach_##name:              \
    require_attributes(call, 0);        \
    return name(all_tensors(call)).tensors();
#include "lorry/formula/list.def"
    case Op::norms: {
      require_attributes(call, 1);
      const Norms made = norms(all_tensors(call), number(0));
      return with(made.per_tensor.tensors(), made.total);
    }
    case Op::total_norm:
      require_attributes(call, 1);
      return {total_norm(all_tensors(call), number(0))};
    case Op::power_sum:
      require_attributes(call, 1);
      return {power_sum(all_tensors(call), number(0))};
    case Op::finish_norm: {
      if (call.inputs.size() != 2) refuse(call, "another number of inputs");
      const FinishedNorm made = finish_norm(tensor_of(call, 0), finish_of(call));
      return {made.norm, made.factor};
    }
    case Op::clip_factor: {
      const FinishedNorm made = clip_factor(all_but_last(call), finish_of(call));
      return {made.norm, made.factor};
    }
    case Op::scale_norm: {
      require_attributes(call, 0);
      const std::vector<Tensor> list = all_but_last(call);
      scale_norm_(list, tensor_of(call, list.size()));
      return list;
    }
    case Op::clip_norm: {
      require_attributes(call, 3);
      const std::vector<Tensor> list = all_tensors(call);
      const Tensor total = clip_norm_(list, number(0), number(1), attribute_of<bool>(call, 2));
      return with(list, total);
    }
    default:
      raise_as<ValueError>("run", "{} is a row of another room; expected door::run, which calls CallView::run",
                           name(call.op));
  }
}

}  // namespace lorry::foreach
