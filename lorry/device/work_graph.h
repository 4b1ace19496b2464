#pragma once

// Work of a stream that is captured once and launched many times, as a whole: on a GPU a CUDA graph, on the CPU a list
// of kernel calls.

#include <cstdint>
#include <memory>

#include "lorry/device/addresses.h"
#include "lorry/device/stream.h"

namespace lorry::device {

class WorkGraph {
 public:
  virtual ~WorkGraph() = default;
  /// Ends the capture and prepares the launches. Throws CudaError if the captured work does not form a graph, and if
  /// the device has no memory for it.
  virtual void finish() = 0;
  /// Enqueues the work. On the CPU it is done when the call returns.
  virtual void launch(Stream stream) = 0;
  /// Kernels, copies and fills.
  virtual int64_t nodes() const = 0;
  /// Memory of the work itself, without that of tensors. On a GPU: by how much the device's free memory shrank when the
  /// graph was prepared; the driver takes memory in large pieces, so that one graph may take a piece and others none.
  virtual int64_t bytes() const = 0;
  /// Shows the visitor every address that the work uses.
  virtual void addresses(AddressVisitor& visitor) const = 0;
  /// Replaces addresses in [from, from + bytes) by those at the same distance from `to`, in later launches. Returns how
  /// many there were. On a GPU, addresses of library calls are looked for in the parameters of the library's kernels.
  virtual int64_t rebind(const void* from, int64_t bytes, const void* to) = 0;
};

/// Captures the work that this thread enqueues on the stream (on the CPU: all its kernel calls) until finish(), or
/// until the object is destroyed. On a GPU the work does not run, the stream is not the default one, and nothing may
/// wait for it. On the CPU it runs too.
std::unique_ptr<WorkGraph> capture_work(Stream stream);

/// The address at the same distance from `to` as `address` from `from`; null if it is not in [from, from + bytes).
inline const void* moved(const void* address, const void* from, int64_t bytes, const void* to) {
  const uintptr_t distance = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(from);
  return distance < static_cast<uintptr_t>(bytes) ? static_cast<const char*>(to) + distance : nullptr;
}

}  // namespace lorry::device
