#pragma once

// Waits of the host for a GPU. Every wait of Lorry goes through waits::around, which announces it: to a handler of
// events, and to the rule that this thread has set (profile/sync.h), which may forbid it. Without either, a wait costs
// four more loads, and code that does not wait costs nothing.
//
//   waits::around("the host waited for a stream", [&] { cudaStreamSynchronize(...); });
//
// Why the host waits is said further out, by the code that knows: a Reason for a scope. Without any, a wait inside an
// operator is Wait::other, and one outside operators was asked for by the program.

#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "lorry/base/events.h"
#include "lorry/base/synchronisation_error.h"

namespace lorry::waits {

using events::Wait;

/// "value", "size", ...
const char* name(Wait wait);
/// What the host waits for: "to read an element's value".
const char* purpose(Wait wait);
/// What to do instead.
const char* remedy(Wait wait);

enum class Policy : uint8_t { allow, warn, forbid };

/// What this thread does about waits.
struct Rule {
  Policy policy = Policy::allow;
  bool asked_too = false;  ///< waits that the program asked for count as well
  bool on_cpu = false;     ///< so do reads of tensors on the CPU, which wait for nothing
};
inline constinit thread_local Rule t_rule{};

/// Sets the rule of this thread for a scope.
class RuleScope {
 public:
  explicit RuleScope(const Rule& rule) : before_(std::exchange(t_rule, rule)) {}
  ~RuleScope() { t_rule = before_; }
  RuleScope(const RuleScope&) = delete;
  RuleScope& operator=(const RuleScope&) = delete;

 private:
  const Rule before_;
};

namespace detail {
inline constinit thread_local Wait t_reason = Wait::none;
}

/// Says why the host waits in a scope. Of nested ones the outermost counts, because it knows what the call is for; but
/// memory and out_of_memory replace it. Wait::none says nothing.
class Reason {
 public:
  explicit Reason(Wait wait) {
    if (wait == Wait::none) return;
    before_ = detail::t_reason;
    const bool replaces = before_ == Wait::none || wait == Wait::out_of_memory ||
                          (wait == Wait::memory && before_ != Wait::out_of_memory);
    if (replaces) detail::t_reason = wait;
    is_set_ = true;
  }
  ~Reason() {
    if (is_set_) detail::t_reason = before_;
  }
  Reason(const Reason&) = delete;
  Reason& operator=(const Reason&) = delete;

 private:
  Wait before_ = Wait::none;
  bool is_set_ = false;
};

/// Who hears of every wait when it is over, beside the handler of events: a profiler. Called on the thread that waited.
using Observer = void (*)(const events::Event& wait) noexcept;

/// What is asked after each wait, on the thread that waited: it throws if what was waited for did not come, such as
/// what another process was to send. Not after waits that must not fail.
using Check = void (*)();

namespace detail {
inline constinit std::atomic<Observer> g_observer{nullptr};
inline constinit std::atomic<Check> g_check{nullptr};

/// Announces a wait for its lifetime.
class Announced {
 public:
  /// May throw SynchronisationError, before the wait, unless `must_wait`.
  Announced(const char* text, bool must_wait);
  ~Announced();
  Announced(const Announced&) = delete;
  Announced& operator=(const Announced&) = delete;

 private:
  const char* const text_;
  const Wait wait_;
  const char* const source_;
  std::string line_;
  std::chrono::steady_clock::time_point begin_;
};

void expect(Wait wait, bool on_cpu);

}  // namespace detail

/// Whether anybody is told of this thread's waits.
inline bool heard() {
  return t_rule.policy != Policy::allow || events::has_handler() ||
         detail::g_observer.load(std::memory_order_relaxed) != nullptr;
}
/// Sets the observer; null removes it.
inline void set_observer(Observer observer) noexcept { detail::g_observer.store(observer, std::memory_order_release); }

/// Sets the check; null removes it.
inline void set_check(Check check) noexcept { detail::g_check.store(check, std::memory_order_release); }

/// Calls wait(), and announces that: under Policy::warn a warning before it; afterwards, also if it throws, an event
/// with the time that it took. Under Policy::forbid throws SynchronisationError before the wait, unless it is of a kind
/// that is not forbidden: Wait::asked (by default), Wait::setup and Wait::memory.
template <class F>
void around(const char* text, F&& wait) {
  if (!heard()) [[likely]] {
    std::forward<F>(wait)();
  } else {
    const detail::Announced announced(text, false);
    std::forward<F>(wait)();
  }
  if (const Check check = detail::g_check.load(std::memory_order_acquire)) [[unlikely]]
    check();
}

/// The same for a wait that must not fail, such as one before memory is freed: under Policy::forbid it is announced as
/// under Policy::warn.
template <class F>
void around_noexcept(const char* text, F&& wait) noexcept {
  if (!heard()) [[likely]]
    return std::forward<F>(wait)();
  const detail::Announced announced(text, true);
  std::forward<F>(wait)();
}

/// For calls that will wait only after they have done work: throws SynchronisationError now if this thread forbids such
/// a wait. A Reason around the call replaces `wait`. on_cpu: the tensor does not lie on a GPU, so that nothing will be
/// waited for; with Rule::on_cpu it counts anyway, and under Policy::warn the warning is emitted here.
inline void expect(Wait wait, bool on_cpu = false) {
  if (t_rule.policy != Policy::allow) [[unlikely]]
    detail::expect(wait, on_cpu);
}

/// For code under a lock that a handler of events may need, such as an allocator's. Waits in its scope are announced
/// when the outermost such scope ends, as one wait that took as long as all of them. Make it before the lock.
class Deferred {
 public:
  Deferred() noexcept;
  ~Deferred();
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

 private:
  friend class detail::Announced;
  static inline constinit thread_local Deferred* t_outermost = nullptr;
  const bool is_outermost_;
  Wait wait_ = Wait::none;  ///< none: nothing was waited for
  const char* text_ = nullptr;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::nanoseconds took_{};
};

}  // namespace lorry::waits
