#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lorry/memory/memory.h"

namespace lorry::memory {

/// What every allocator says when the system has no more.
struct Shortage {
  std::string_view of;  ///< the device or kind of memory
  int64_t requested;
  Stats stats;
  int64_t largest_free;
  int64_t limit;                ///< 0 without one
  std::string situation;        ///< of the system, as Provider::situation says it
  std::vector<LiveBlock> live;  ///< largest first
};

/// Throws OutOfMemory naming the operator that runs.
[[noreturn, gnu::cold]] void raise_out_of_memory(const Shortage& shortage);

}  // namespace lorry::memory
