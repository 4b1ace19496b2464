#include "lorry/ops/dispatch/arguments.h"

namespace lorry::door {

void refuse(const CallView& call, std::string_view what) {
  raise_as<ValueError>("run", "{}; expected those of {} (\"{}\")", what, name(call.op), row(call.op).arguments);
}

const char* kind_of(const Attribute& attribute) {
  static constexpr const char* kKinds[] = {
      "bool", "i64", "f64", "number", "dims", "dtype", "device", "random key", "list of whole numbers", "text"};
  static_assert(std::size(kKinds) == std::variant_size_v<Attribute>);
  return kKinds[attribute.index()];
}

void require_attributes(const CallView& call, size_t count) {
  if (call.attributes.size() != count) refuse(call, "another number of attributes");
}

const Tensor& tensor_of(const CallView& call, size_t i) {
  if (i >= call.inputs.size()) refuse(call, "another number of inputs");
  if (call.inputs[i].tensor() == nullptr) refuse(call, fmt::format("input {} is a number", i));
  return *call.inputs[i].tensor();
}

std::vector<Tensor> tensors_of(const CallView& call, size_t first, size_t end) {
  std::vector<Tensor> list;
  for (size_t i = first; i < end; ++i) list.push_back(tensor_of(call, i));
  return list;
}

Operand operand_of(const CallView& call, size_t i) {
  const Scalar* const number = i < call.inputs.size() ? call.inputs[i].scalar() : nullptr;
  return number != nullptr ? Operand(*number) : Operand(tensor_of(call, i));
}

}  // namespace lorry::door
