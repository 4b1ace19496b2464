#pragma once

// What each row of formula/reduce.def gives, in a plain loop of long double over the elements that go into one result.

#include <vector>

#include "lorry/ops/dispatch/table.h"

namespace lorry::test {

/// Throws std::out_of_range for a row without a reference: a new one needs a line in reduction_reference.cpp.
double reduction_reference(Op op, const std::vector<double>& elements);

}  // namespace lorry::test
