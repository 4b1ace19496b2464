#pragma once

// Work of a stream that is captured once and launched many times, as a whole: on a GPU a CUDA graph, on the CPU a list
// of kernel calls.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lorry/base/span.h"
#include "lorry/device/address_slots.h"
#include "lorry/device/addresses.h"
#include "lorry/device/stream.h"

namespace lorry::device {

/// While capturing it may be told the cost of each call, which it stores with that call's launches.
class WorkGraph : public CostObserver {
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
  /// Later launches use the memory where it is after the moves, all of which happen at once: two pieces of memory may
  /// change places. Returns how many addresses have changed. The first call finds where the work keeps its addresses;
  /// without moves it does only that. On a GPU, addresses of library calls are looked for in the parameters of the
  /// library's kernels. Throws CudaError.
  virtual int64_t rebind(std::span<const Move> moves) = 0;
  /// Of a GPU: the launches, in order, and how many nodes each became. Empty on the CPU.
  virtual std::vector<SpanPart> launches() const { return {}; }
};

/// Captures the work that this thread enqueues on the stream (on the CPU: all its kernel calls) until finish(), or
/// until the object is destroyed. On a GPU the work does not run, the stream is not the default one, and nothing may
/// wait for it. On the CPU it runs too.
std::unique_ptr<WorkGraph> capture_work(Stream stream);

}  // namespace lorry::device
