#pragma once

// Whether the calls of this thread are being captured, to be made again later (replay/graph.h). What a capture cannot
// repeat is refused here: above all, the host's waiting for a device or reading its memory, whose outcome would be that
// of the capture in each replay.

#include <string_view>
#include <utility>

#include "lorry/base/modes.h"

namespace lorry::device {

namespace detail {
inline constinit thread_local bool t_captured = false;
}

/// Whether this thread's calls are being captured.
inline bool is_captured() { return detail::t_captured; }

/// Captures this thread's calls, for a scope. Throws CaptureError inside another such scope.
class [[nodiscard]] CapturedScope {
 public:
  CapturedScope();
  ~CapturedScope() { detail::t_captured = false; }
  CapturedScope(const CapturedScope&) = delete;
  CapturedScope& operator=(const CapturedScope&) = delete;

 private:
  const ModeScope told_{uint32_t{kAddressMode}, 0u};
};

/// Inside a CapturedScope, allows what it refuses: for calls that are no part of what is captured.
class [[nodiscard]] NotCaptured {
 public:
  NotCaptured() : before_(std::exchange(detail::t_captured, false)) {}
  ~NotCaptured() { detail::t_captured = before_; }
  NotCaptured(const NotCaptured&) = delete;
  NotCaptured& operator=(const NotCaptured&) = delete;

 private:
  const bool before_;
};

/// Throws CaptureError: the running operator, or `where` outside operators, cannot be captured. The message names the
/// line of the program where that is known. what: "the host reads [3] f32 cuda:0". remedy: what to do instead.
[[noreturn, gnu::cold]] void refuse_capture(const char* where, std::string_view what, std::string_view remedy);

/// Throws CaptureError inside a CapturedScope: `where` would wait for the device.
inline void require_not_captured(const char* where) {
  if (is_captured()) [[unlikely]]
    refuse_capture(where, "the host waits for the device", "wait before the capture, or after a replay");
}

}  // namespace lorry::device
