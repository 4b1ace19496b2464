#pragma once

// Events report what a program cannot see from results: a copy made because of strides, a wait for a GPU, a warning.
// Without a handler, emitting an event costs one relaxed load.

#include <atomic>
#include <chrono>
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

struct Event {
  Kind kind;
  std::string_view source;  ///< the operator or room that emitted it
  std::string_view text;
  std::chrono::nanoseconds took{};  ///< how long the host waited; 0 for events without a wait
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

/// Calls wait(), then emits an event with the time that it took, also if it throws. Without a handler, no clock is
/// read.
template <class F>
void emit_after(Kind kind, std::string_view source, std::string_view text, F&& wait) {
  if (!has_handler()) [[likely]]
    return std::forward<F>(wait)();
  const auto start = std::chrono::steady_clock::now();
  const auto emit_now = [&] { detail::emit({kind, source, text, std::chrono::steady_clock::now() - start}); };
  try {
    std::forward<F>(wait)();
  } catch (...) {
    emit_now();
    throw;
  }
  emit_now();
}

}  // namespace lorry::events
