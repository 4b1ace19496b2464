#pragma once

// Loops over tensors among the calls of a program: the same few operators again and again, each time on other tensors.

#include <vector>

#include "lorry/profile/program_view.h"

namespace lorry::profile {

/// A loop among the calls of sequence_of().
struct Loop {
  size_t begin = 0;    ///< index of its first call
  size_t body = 0;     ///< calls for each tensor; 0: there is no loop
  size_t tensors = 0;  ///< how often the body runs

  size_t end() const { return begin + body * tensors; }
};

/// The main thread's calls without views, which do no work: indexes of spans.
std::vector<int32_t> sequence_of(const ProgramView& program);

/// The loop that begins at calls[begin], with the shortest body. Every operator of it has a foreach form, reads and
/// writes other tensors in each round, and needs nothing of the round before. Calls that are claimed are in no loop.
Loop loop_at(const ProgramView& program, const std::vector<int32_t>& calls, size_t begin, const Claims& claims);

}  // namespace lorry::profile
