#include "lorry/memory/out_of_memory.h"

#include "lorry/base/modes.h"

namespace lorry::memory {

void raise_out_of_memory(const Shortage& s) {
  std::string largest;
  for (size_t i = 0; i < s.live.size() && i < 10; ++i)
    largest += fmt::format("{}{} bytes by {}", i ? ", " : "", s.live[i].bytes,
                           *s.live[i].made_by ? s.live[i].made_by : "the caller");
  raise_as<OutOfMemory>(
      running_or("allocate"),
      "out of memory on {}; requested {} bytes; allocated {}, reserved {}, free {} (largest free block {}){}{}; "
      "largest live blocks: {}; "
      "release tensors or use smaller ones",
      s.of, s.requested, s.stats.allocated, s.stats.reserved, s.stats.reserved - s.stats.allocated, s.largest_free,
      s.limit == 0 ? std::string() : fmt::format(", limit {}", s.limit), s.situation,
      largest.empty() ? "none" : largest);
}

}  // namespace lorry::memory
