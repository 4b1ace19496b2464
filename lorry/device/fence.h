#pragma once

// Order between streams.

#include <atomic>

#include "lorry/device/stream.h"

namespace lorry {

namespace detail {
inline constinit std::atomic<bool> g_several_streams{false};
}

/// Whether a stream other than a default one was ever current in this process. Until then all work of a device is in
/// order.
inline bool several_streams() { return detail::g_several_streams.load(std::memory_order_relaxed); }

/// What is enqueued on `later` from now on runs after what was enqueued on `earlier` so far. Of GPUs' streams alone.
void fence(Stream earlier, Stream later);

}  // namespace lorry
