#include "lorry/kernels/cuda/common/tickets.h"

#include <mutex>
#include <unordered_map>

#include "lorry/base/waits.h"
#include "lorry/device/capture.h"
#include "lorry/device/cuda/capture.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/memory/memory.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int64_t kEach = 1024;   ///< counters per stream
constexpr size_t kStreams = 512;  ///< streams per device that have counters of their own: 2 MB

/// The counters of a device's streams. They are never released and are not allocated from the caching allocator, whose
/// statistics programs use to find leaks.
class StreamCounters {
 public:
  /// Null if there are more streams than counters, or if the device had no memory left when they were first needed.
  uint32_t* of(Stream stream) {
    const std::scoped_lock lock(mutex_);
    if (!asked_) memory_ = zeroed(stream.device);
    asked_ = true;
    if (memory_ == nullptr) return nullptr;
    const auto [at, is_new] = known_.try_emplace(stream.handle, known_.size());
    if (at->second < kStreams) return memory_ + at->second * kEach;
    if (is_new) known_.erase(at);
    return nullptr;
  }

 private:
  /// Null if the device has no memory left, even after emptying the cache.
  static uint32_t* zeroed(Device device) {
    using lorry::cuda::check;
    const lorry::cuda::DeviceGuard guard(device.index);
    const lorry::cuda::Unrestricted scope(guard);
    const device::NotCaptured outside;
    constexpr size_t kBytes = kStreams * kEach * sizeof(uint32_t);
    void* memory = nullptr;
    cudaError_t error = cudaMalloc(&memory, kBytes);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      memory::empty_cache(device);
      error = cudaMalloc(&memory, kBytes);
    }
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(error, "cudaMalloc");
    // On a stream of its own, because a capture may forbid the default stream.
    const OwnedStream stream(device);
    lorry::cuda::fill_bytes(stream, memory, 0, kBytes);
    const waits::Reason once_a_device(waits::Wait::setup);
    stream.synchronize();
    return static_cast<uint32_t*>(memory);
  }

  std::mutex mutex_;
  bool asked_ = false;
  uint32_t* memory_ = nullptr;
  std::unordered_map<void*, size_t> known_;
};

uint32_t* counters_of(Stream stream) {
  static StreamCounters* const kDevices = new StreamCounters[kMaxDevices];
  struct Last {
    Stream stream;
    uint32_t* counters;
  };
  static thread_local Last last{};
  if (last.counters == nullptr || !(last.stream == stream)) last = {stream, kDevices[stream.device.index].of(stream)};
  return last.counters;
}

}  // namespace

Tickets::Tickets(int64_t count, Stream stream)
    : data_(count <= kEach && !lorry::cuda::capturing(stream) ? counters_of(stream) : nullptr) {
  if (data_ != nullptr) return;
  const int64_t bytes = count * static_cast<int64_t>(sizeof(uint32_t));
  data_ = own_.emplace(bytes, stream).as<uint32_t>();
  lorry::cuda::fill_bytes(stream, data_, 0, bytes);
}

}  // namespace lorry::kernels::cuda
