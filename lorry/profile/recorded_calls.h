#pragma once

// Calls of a recording, made again over tensors of the same sizes, strides, dtypes and devices. The values are ones:
// the time of a call hardly depends on them.

#include <functional>
#include <optional>
#include <utility>

#include "lorry/profile/program_view.h"

namespace lorry::profile {

/// Calls of a finding as they are and as cured. They own their tensors.
struct CallPair {
  std::function<void()> now, then;
  int64_t count;  ///< how many of Finding::count each of them makes
};

/// The first loop over tensors of a finding of kind foreach, and one foreach call for each operator of its body.
/// None if the recording does not have it, or has it without operands.
std::optional<CallPair> loop_and_list(const ProgramView& program, const Finding& finding);

/// All copies of a finding of kind pageable, and the same copies from or to pinned memory. Copies of equal tensors
/// share one.
std::optional<CallPair> pageable_and_pinned(const ProgramView& program, const Finding& finding);

}  // namespace lorry::profile
