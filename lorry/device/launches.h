#pragma once

// What this process puts on a GPU's streams: every kernel, library call, copy, fill and graph is described to the
// observers of the thread that enqueues it. Nothing reaches a stream by another way (device/cuda/launch.cpp). Without
// an observer that costs one test.

#include <cstdint>
#include <span>
#include <utility>

#include "lorry/device/stream.h"

namespace lorry::device {

/// A value that a kernel is given, as bytes.
struct LaunchParameter {
  const void* value;
  uint32_t bytes;
};

/// An address that a launch was given: of a tensor, of scratch memory, or of host memory that a copy reads or writes.
/// Whatever else is in a kernel's parameters is a value: sizes, strides, scalars, host addresses that never move.
struct LaunchAddress {
  const void* address;     ///< never null
  int32_t parameter = -1;  ///< the kernel's parameter that holds it; -1 where there are no parameters
  uint32_t offset = 0;     ///< where in that parameter, in bytes
};

/// One launch. All that it points to lives until the observer returns.
struct Launch {
  enum class Kind : uint8_t { kernel, library, copy, fill, graph };

  Kind kind = Kind::kernel;
  Stream stream = {};
  /// The operator that runs, by the name that the user called (base/modes.h); null between calls.
  const char* operator_name = nullptr;
  /// The function that was called: the kernel's (mangled) symbol, or such as "cublasLtMatmul", "cudaMemcpyAsync".
  const char* function = nullptr;
  /// A copy's target comes before its source. Of a library call: what the caller handed in; the library's own kernels
  /// and their parameters are not known. A graph's are in its nodes.
  std::span<const LaunchAddress> addresses = {};
  int64_t bytes = 0;  ///< that a copy or a fill writes

  // Of kernels only.
  const void* kernel = nullptr;  ///< the host's function, which names it to the CUDA runtime
  uint32_t grid[3] = {}, block[3] = {}, cluster[3] = {1, 1, 1};
  int64_t shared_bytes = 0;   ///< dynamic shared memory
  bool programmatic = false;  ///< may start before the kernel ahead of it ends
  std::span<const LaunchParameter> parameters = {};
};

class LaunchObserver {
 public:
  /// After each launch that succeeded. What it launches itself is not observed.
  virtual void launched(const Launch& launch) noexcept = 0;

 protected:
  ~LaunchObserver() = default;
};

class ObserveLaunches;
namespace detail {
inline constinit thread_local ObserveLaunches* t_launch_observers = nullptr;
}
/// Whether anybody observes this thread's launches.
inline bool launches_observed() { return detail::t_launch_observers != nullptr; }

/// Shows this thread's launches to an observer for a scope. Scopes nest: the innermost observer is told first, then
/// those around it.
class [[nodiscard]] ObserveLaunches {
 public:
  explicit ObserveLaunches(LaunchObserver& observer) : observer_(observer), outer_(detail::t_launch_observers) {
    detail::t_launch_observers = this;
  }
  ~ObserveLaunches() { detail::t_launch_observers = outer_; }
  ObserveLaunches(const ObserveLaunches&) = delete;
  ObserveLaunches& operator=(const ObserveLaunches&) = delete;

 private:
  friend void announce(const Launch& launch) noexcept;
  LaunchObserver& observer_;
  ObserveLaunches* const outer_;
};

/// Hides this thread's launches from its observers for a scope: launches that are captured and do not run.
class [[nodiscard]] HideLaunches {
 public:
  HideLaunches() : outer_(std::exchange(detail::t_launch_observers, nullptr)) {}
  ~HideLaunches() { detail::t_launch_observers = outer_; }
  HideLaunches(const HideLaunches&) = delete;
  HideLaunches& operator=(const HideLaunches&) = delete;

 private:
  ObserveLaunches* const outer_;
};

/// Tells this thread's observers.
void announce(const Launch& launch) noexcept;

/// How many kernels this thread has launched while it lives; those that libraries launch for themselves are not known.
class LaunchCount final : LaunchObserver {
 public:
  int64_t kernels() const { return kernels_; }

 private:
  void launched(const Launch& launch) noexcept override { kernels_ += launch.kind == Launch::Kind::kernel; }

  int64_t kernels_ = 0;
  ObserveLaunches scope_{*this};
};

}  // namespace lorry::device
