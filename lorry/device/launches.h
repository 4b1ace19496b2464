#pragma once

// Observers of launches. Everything that Lorry enqueues on a GPU's stream (kernels, library calls, copies, fills and
// graphs) goes through device/cuda/launch.cpp, which describes it to the observers of the enqueuing thread. Without an
// observer this costs one test per launch.

#include <cstdint>
#include <span>
#include <utility>

#include "lorry/device/stream.h"

namespace lorry::device {

/// A kernel's argument, as bytes.
struct LaunchParameter {
  const void* value;
  uint32_t bytes;
};

/// An address passed to a launch: of a tensor, of scratch memory, or of host memory that a copy reads or writes. All
/// other bytes of a kernel's parameters are values: sizes, strides, scalars, numbers of launches, constant addresses.
struct LaunchAddress {
  const void* address;     ///< never null
  int32_t parameter = -1;  ///< the kernel's parameter that holds it; -1 if the launch has no parameters
  uint32_t offset = 0;     ///< in that parameter, in bytes
};

/// One launch. Everything it points to is valid until the observer returns.
struct Launch {
  enum class Kind : uint8_t { kernel, library, copy, fill, graph };

  Kind kind = Kind::kernel;
  Stream stream = {};
  /// The running operator, under the name that the user called (base/modes.h); null between calls.
  const char* operator_name = nullptr;
  /// The function that was called: a kernel's mangled symbol, or for example "cublasLtMatmul" or "cudaMemcpyAsync".
  const char* function = nullptr;
  /// Copies: the destination, then the source. Library calls: the addresses that the caller passed (the library's own
  /// kernels and their parameters are unknown). Graphs: empty, because the addresses are in the graph's nodes.
  std::span<const LaunchAddress> addresses = {};
  int64_t bytes = 0;  ///< written by a copy or a fill

  // Kernels only:
  const void* kernel = nullptr;  ///< the host function that identifies the kernel to the CUDA runtime
  uint32_t grid[3] = {}, block[3] = {}, cluster[3] = {1, 1, 1};
  int64_t shared_bytes = 0;   ///< dynamic shared memory
  bool programmatic = false;  ///< may start before the preceding kernel ends (programmatic dependent launch)
  std::span<const LaunchParameter> parameters = {};
};

class LaunchObserver {
 public:
  /// Called after each launch that succeeded. Launches made inside this call are not observed.
  virtual void launched(const Launch& launch) noexcept = 0;

 protected:
  ~LaunchObserver() = default;
};

class ObserveLaunches;
namespace detail {
inline constinit thread_local ObserveLaunches* t_launch_observers = nullptr;
}
/// Whether this thread's launches are observed.
inline bool launches_observed() { return detail::t_launch_observers != nullptr; }

/// Notifies an observer of this thread's launches, for a scope. Scopes nest: the innermost observer is notified first.
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

/// Hides this thread's launches from its observers, for a scope: for launches that are only captured and do not run.
class [[nodiscard]] HideLaunches {
 public:
  HideLaunches() : outer_(std::exchange(detail::t_launch_observers, nullptr)) {}
  ~HideLaunches() { detail::t_launch_observers = outer_; }
  HideLaunches(const HideLaunches&) = delete;
  HideLaunches& operator=(const HideLaunches&) = delete;

 private:
  ObserveLaunches* const outer_;
};

/// Notifies this thread's observers.
void announce(const Launch& launch) noexcept;

/// Counts the kernels that this thread launches during the object's lifetime, except those launched by libraries.
class LaunchCount final : LaunchObserver {
 public:
  int64_t kernels() const { return kernels_; }

 private:
  void launched(const Launch& launch) noexcept override { kernels_ += launch.kind == Launch::Kind::kernel; }

  int64_t kernels_ = 0;
  ObserveLaunches scope_{*this};
};

}  // namespace lorry::device
