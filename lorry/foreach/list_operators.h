#pragma once

// List operators that are no row of formula/pointwise.def. Each has a kernel of its own in kernels/list.h and an object
// here, which says how it is planned and launched. Their public functions are in foreach.cpp.

#include "lorry/foreach/operator_plan.h"
#include "lorry/kernels/list.h"

namespace lorry::foreach::detail {

struct ListOperator {
  Op op;
  /// The arrays of its lists: what is written, then arguments first_read to end_read - 1.
  size_t first_read, end_read;
  /// Whether an entry may read the elements that it writes.
  bool may_read_result;
  /// Checks an entry's operands. Sets `ungrouped` if the kernel cannot take them.
  ops::Resolved (*resolve)(const Request& request, std::span<const Operand> operands, bool& ungrouped);
  void (*launch)(const Request& request, const kernels::List& list, const kernels::ForeachKernels& backend,
                 const Stream& stream);
  /// The operator of one entry, as a user calls it.
  Tensor (*call)(const Request& request, std::span<const Operand> operands);
};

/// Null for a row of formula/pointwise.def.
const ListOperator* list_operator(Op op);

/// A number of the host as kernels take it.
kernels::ListOperand number_operand(const Scalar& number);

}  // namespace lorry::foreach::detail
