#include "lorry/parallel/run_row.h"

#include "lorry/ops/dispatch/arguments.h"
#include "lorry/parallel/collectives.h"
#include "lorry/parallel/group.h"

namespace lorry::parallel {
namespace {

using door::attribute_of;
using door::refuse;
using door::require_attributes;
using door::tensor_of;
using door::tensors_of;

Reduction reduction_of(const door::CallView& call) {
  const int64_t value = attribute_of<int64_t>(call, 1);
  if (value < 0 || value > static_cast<int64_t>(Reduction::maximum)) refuse(call, "no such reduction");
  return static_cast<Reduction>(value);
}

/// The output of a call that was given one; a new tensor otherwise.
template <class Into, class New>
std::vector<Tensor> into_or_new(const door::CallView& call, const Into& into, const New& make) {
  if (!call.out || call.outputs.empty()) return {make()};
  into(call.outputs[0]);
  return {call.outputs[0]};
}

}  // namespace

std::vector<Tensor> run(const door::CallView& call) {
  const bool has_number = call.op != Op::all_gather && call.op != Op::all_to_all && call.op != Op::barrier;
  require_attributes(call, has_number ? 2 : 1);
  const ProcessGroup group(detail::group_named(attribute_of<std::string>(call, 0)));
  const std::vector<Tensor> tensors = tensors_of(call, 0, call.inputs.size());
  const auto number = [&] { return static_cast<int>(attribute_of<int64_t>(call, 1)); };
  const auto first = [&]() -> const Tensor& { return tensor_of(call, 0); };
  switch (call.op) {
    case Op::all_reduce:
      if (!call.in_place)
        return into_or_new(
            call, [&](const Tensor& out) { all_reduce_out(out, first(), group, reduction_of(call)); },
            [&] { return all_reduce(first(), group, reduction_of(call)); });
      return all_reduce_(tensors, group, reduction_of(call)), tensors;
    case Op::broadcast:
      return broadcast_(tensors, group, number()), tensors;
    case Op::all_gather:
      return into_or_new(
          call, [&](const Tensor& out) { all_gather_out(out, first(), group); },
          [&] { return all_gather(first(), group); });
    case Op::reduce_scatter:
      return into_or_new(
          call, [&](const Tensor& out) { reduce_scatter_out(out, first(), group, reduction_of(call)); },
          [&] { return reduce_scatter(first(), group, reduction_of(call)); });
    case Op::all_to_all:
      return {all_to_all(first(), group)};
    case Op::send:
      return send(first(), group, number()), std::vector<Tensor>();
    case Op::receive:
      return receive_(first(), group, number()), tensors;
    case Op::barrier:
      return barrier(group), std::vector<Tensor>();
    default:
      refuse(call, "not a row of the room parallel");
  }
}

}  // namespace lorry::parallel
