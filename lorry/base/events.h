#pragma once

// Events report what a program cannot see from results: a copy made because of strides, a wait for a GPU, a warning.
// Waits are announced through base/waits.h.
// Without a handler, emitting an event costs one relaxed load.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace lorry::events {

enum class Kind {
  warning,
  hidden_copy,
  synchronisation,  ///< the host waits for the work of a GPU's stream, or of the whole GPU
};

/// Why the host waits (base/waits.h).
enum class Wait : uint8_t {
  none,           ///< the event is about no wait
  asked,          ///< the program asked: synchronize(), or CUDA_LAUNCH_BLOCKING
  value,          ///< the host reads one element: item()
  elements,       ///< the host reads elements: to_vector(), printing
  size,           ///< the size of a result depends on elements: nonzero, masked_select, unique
  to_host,        ///< a copy to the host
  from_host,      ///< a copy from the host: of pinned memory that is waited for, or of much pageable memory
  memory,         ///< memory is taken from the system or returned to it
  out_of_memory,  ///< the system has no memory left, and cached memory is returned before the next attempt
  setup,          ///< what is done once: tables of a device, captures, choosing the fastest kernel
  other,
};

struct Event {
  Kind kind;
  std::string_view source;  ///< the operator or room that emitted it
  std::string_view text;
  std::chrono::nanoseconds took{};  ///< how long the host waited; 0 for events without a wait
  Wait wait = Wait::none;
  std::chrono::steady_clock::time_point begin{};  ///< of the wait
  std::string_view line{};  ///< of the program, such as "train.cpp:31"; only under profile::warn_sync, if it is known
};

/// Called on the thread that emits the event; several threads may call it at the same time.
using Handler = std::function<void(const Event&)>;

/// Sets the handler for all threads and returns the previous one. An empty function removes the handler.
Handler set_handler(Handler handler);

namespace detail {
inline constinit std::atomic<bool> handled{false};
void emit(const Event&);
}  // namespace detail

/// Whether there is a handler.
inline bool has_handler() { return detail::handled.load(std::memory_order_relaxed); }

inline void emit(Kind kind, std::string_view source, std::string_view text) {
  if (has_handler()) [[unlikely]]
    detail::emit({kind, source, text});
}

}  // namespace lorry::events
