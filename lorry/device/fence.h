#pragma once

// Ordering the work of different streams.

#include <atomic>

#include "lorry/device/stream.h"

namespace lorry {

namespace detail {
inline constinit std::atomic<bool> g_several_streams{false};
}

/// Whether a stream other than a default one has ever been current in this process. If not, all work of each device
/// runs in the order in which it was enqueued.
inline bool several_streams() { return detail::g_several_streams.load(std::memory_order_relaxed); }

/// Work enqueued on `later` from now on runs after the work enqueued on `earlier` so far. Both are streams of GPUs.
void fence(Stream earlier, Stream later);

}  // namespace lorry
