#pragma once

// The arguments of an announced call, by type, for functions that make calls again (run.h). All throw ValueError, with
// what the operator's row expects, if an argument is missing or of another kind.

#include <string_view>
#include <vector>

#include "lorry/ops/dispatch/listener.h"

namespace lorry::door {

/// Throws ValueError: what is wrong, and the arguments of the operator's row.
[[noreturn]] void refuse(const CallView& call, std::string_view what);

/// The kind of an attribute: "i64", "dims", ...
const char* kind_of(const Attribute& attribute);

void require_attributes(const CallView& call, size_t count);

/// Attribute i.
template <class A>
const A& attribute_of(const CallView& call, size_t i) {
  if (i >= call.attributes.size()) refuse(call, "another number of attributes");
  const A* value = std::get_if<A>(&call.attributes[i]);
  if (value == nullptr)
    refuse(call, fmt::format("attribute {} is of another kind; got {} instead of {}", i, kind_of(call.attributes[i]),
                             kind_of(Attribute(A()))));
  return *value;
}

/// Input i, a tensor that may be undefined.
const Tensor& tensor_of(const CallView& call, size_t i);
/// Inputs first to end - 1, which are tensors.
std::vector<Tensor> tensors_of(const CallView& call, size_t first, size_t end);
/// Input i, a tensor or a number.
Operand operand_of(const CallView& call, size_t i);

}  // namespace lorry::door
