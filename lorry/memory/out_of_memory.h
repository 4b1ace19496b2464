#pragma once

// The OutOfMemory error that all allocators throw.

#include <string>
#include <string_view>
#include <vector>

#include "lorry/memory/memory.h"

namespace lorry::memory {

/// The contents of the message.
struct Shortage {
  std::string_view of;  ///< the device or kind of memory
  int64_t requested;
  Stats stats;
  int64_t largest_free;
  int64_t limit;                ///< set by set_limit; 0: none
  std::string situation;        ///< the text of Provider::situation
  std::vector<LiveBlock> live;  ///< largest first
};

/// Throws OutOfMemory that names the running operator.
[[noreturn, gnu::cold]] void raise_out_of_memory(const Shortage& shortage);

}  // namespace lorry::memory
