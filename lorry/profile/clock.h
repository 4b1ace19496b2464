#pragma once

// The clock of a session: the processor's counter, which is read in 8 ns, where a system's clock takes 20 and more.
// Ticks are converted to nanoseconds afterwards, from two moments at which both clocks were read.

#include <time.h>

#include <chrono>
#include <cstdint>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace lorry::profile {

/// Nanoseconds of the system's monotonic clock.
inline int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// For how many nanoseconds this thread has run on a processor.
inline int64_t thread_cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
}

namespace detail {
/// Whether the counter runs at one rate whatever the processor does (an "invariant" time-stamp counter). Without one,
/// ticks are nanoseconds of the system's clock.
inline bool has_invariant_counter() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}
inline const bool g_invariant_counter = has_invariant_counter();
}  // namespace detail

/// The counter now.
inline uint64_t ticks() {
#if defined(__x86_64__)
  if (detail::g_invariant_counter) [[likely]]
    return __rdtsc();
#elif defined(__aarch64__)
  uint64_t now;
  asm volatile("mrs %0, cntvct_el0" : "=r"(now));
  return now;
#endif
  return static_cast<uint64_t>(steady_ns());
}

/// A moment on both clocks.
struct ClockReading {
  uint64_t ticks = 0;
  int64_t ns = 0;

  /// Of several readings the one during which the least time passed.
  static ClockReading now() {
    ClockReading best;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 5; ++i) {
      const uint64_t before = profile::ticks();
      const int64_t ns = steady_ns();
      const uint64_t after = profile::ticks();
      if (after - before >= least) continue;
      least = after - before;
      best = {before + (after - before) / 2, ns};
    }
    return best;
  }
};

/// Converts ticks to nanoseconds since `first`.
class TickScale {
 public:
  /// The two readings must be apart: the rate is as exact as the readings are short against the time between them.
  TickScale(const ClockReading& first, const ClockReading& last)
      : first_(first),
        ns_per_tick_(last.ticks > first.ticks
                         ? static_cast<double>(last.ns - first.ns) / static_cast<double>(last.ticks - first.ticks)
                         : 1.0) {}
  int64_t since_start(uint64_t ticks) const {
    return static_cast<int64_t>(static_cast<double>(static_cast<int64_t>(ticks - first_.ticks)) * ns_per_tick_);
  }

 private:
  ClockReading first_;
  double ns_per_tick_;
};

}  // namespace lorry::profile
