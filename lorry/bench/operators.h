#pragma once

// Rounds of the suites `operators` and `attention`, for a program that measures another library in turn with Lorry.

#include <iosfwd>
#include <string>

#include "lorry/bench/suites.h"

namespace lorry::bench {

/// Writes the names of the chosen cases of a suite as one line, a JSON array. Then each line of `in`, a name, is
/// answered with one line, a JSON object: the median time of a call over a tenth of a second. The inputs of a case are
/// made when it is named the first time, and stay until another is. Throws ValueError for a name that is none.
void operator_rounds(const std::string& suite, const Filter& filter, std::istream& in, std::ostream& out);

}  // namespace lorry::bench
