#pragma once

// Events: what a program may want to hear of beside results: a copy made for strides, a wait for a GPU, a warning.
// While nobody handles them, emitting one is a relaxed load.

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
  synchronisation,  ///< the host waits for what a GPU's stream, or the whole GPU, was given to do
};

/// What a handler is given.
struct Event {
  Kind kind;
  std::string_view source;  ///< the operator or room that emitted it
  std::string_view text;
  std::chrono::nanoseconds took{};  ///< how long the host waited; 0 where nothing is waited for
};

/// Called on the thread that emits, from any thread, perhaps from several at a time.
using Handler = std::function<void(const Event&)>;

/// Replaces the handler of all threads and returns the previous one; an empty function handles nothing.
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

/// Calls wait() and emits when it is over, also by an exception, with the time that it took. Without a handler no clock
/// is read.
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
