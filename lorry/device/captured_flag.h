#pragma once

// The flag of device/capture.h, for headers that everything includes.

namespace lorry::device::detail {

/// Whether this thread's calls are being captured.
inline constinit thread_local bool t_captured = false;

}  // namespace lorry::device::detail
