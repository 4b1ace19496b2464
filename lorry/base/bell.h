#pragma once

// The bell: rooms ring it when something happens that a user may want to hear of (a copy made for strides, a
// wait for a GPU, a warning). With no listener, ringing is one relaxed load.

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace lorry::bell {

enum class Event {
  warning,
  hidden_copy,
  synchronisation,  ///< the host waits for what a GPU's stream, or the whole GPU, was given to do
};

/// What a listener hears.
struct Ring {
  Event event;
  std::string_view source;  ///< the operator or room that rang
  std::string_view text;
  std::chrono::nanoseconds took{};  ///< how long the host waited; 0 where nothing is waited for
};

using Listener = std::function<void(const Ring&)>;

/// Replaces the listener and returns the previous one; an empty function silences the bell.
Listener listen(Listener listener);

namespace detail {
inline constinit std::atomic<bool> listening{false};
void ring(const Ring&);
}  // namespace detail

inline bool heard() { return detail::listening.load(std::memory_order_relaxed); }

inline void ring(Event event, std::string_view source, std::string_view text) {
  if (heard()) [[unlikely]] detail::ring({event, source, text});
}

/// Calls wait() and rings when it is over, also by an exception, with the time that it took. Without a listener no
/// clock is read.
template <class F>
void ring_after(Event event, std::string_view source, std::string_view text, F&& wait) {
  if (!heard()) [[likely]]
    return std::forward<F>(wait)();
  const auto start = std::chrono::steady_clock::now();
  const auto ring = [&] { detail::ring({event, source, text, std::chrono::steady_clock::now() - start}); };
  try {
    std::forward<F>(wait)();
  } catch (...) {
    ring();
    throw;
  }
  ring();
}

}  // namespace lorry::bell
