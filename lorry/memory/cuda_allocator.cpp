#include "lorry/memory/cuda_allocator.h"

#include <algorithm>
#include <memory>
#include <new>

#include "lorry/base/env.h"
#include "lorry/base/modes.h"
#include "lorry/base/waits.h"
#include "lorry/device/cuda/capture.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/device/cuda/runtime.h"
#include "lorry/device/device.h"

namespace lorry::memory {
namespace {

/// For calls made by release, which must not throw and may run while the process ends: returns false on failure.
bool succeeded(cudaError_t error) noexcept {
  if (error == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}

/// Events of every device, kept for reuse.
class CudaProvider : public Provider {
 public:
  void* record(Stream stream) noexcept override {
    const cuda::DeviceGuard guard(stream.device.index, std::nothrow);
    const cuda::Unrestricted scope(guard);
    if (!guard.holds()) return nullptr;
    auto& idle = idle_[stream.device.index];
    cudaEvent_t event = nullptr;
    if (!idle.empty()) {
      event = idle.back();
      idle.pop_back();
    } else if (!succeeded(cudaEventCreateWithFlags(&event, cudaEventDisableTiming))) {
      return nullptr;
    }
    if (succeeded(cudaEventRecord(event, cuda::handle(stream)))) return event;
    recycle(stream, event);
    return nullptr;
  }
  bool done(Stream stream, void* event) noexcept override {
    const cuda::DeviceGuard guard(stream.device.index, std::nothrow);
    const cuda::Unrestricted scope(guard);
    return guard.holds() && succeeded(cudaEventQuery(static_cast<cudaEvent_t>(event)));
  }
  void wait(Stream stream, void* event) noexcept override {
    const cuda::DeviceGuard guard(stream.device.index, std::nothrow);
    const waits::Reason reason(waits::Wait::memory);
    if (guard.holds())
      waits::around_noexcept("the host waited for an event",
                             [&] { succeeded(cudaEventSynchronize(static_cast<cudaEvent_t>(event))); });
  }
  void recycle(Stream stream, void* event) noexcept override {
    try {
      idle_[stream.device.index].push_back(static_cast<cudaEvent_t>(event));
    } catch (const std::bad_alloc&) {
      const cuda::DeviceGuard guard(stream.device.index, std::nothrow);
      if (guard.holds()) succeeded(cudaEventDestroy(static_cast<cudaEvent_t>(event)));
    }
  }
  bool waits_for_device() const override { return true; }
  bool capturing(Stream stream) noexcept override { return stream.device.is_cuda() && cuda::capturing(stream); }
  void fill(void* data, unsigned char value, int64_t bytes, Stream stream) noexcept override {
    const cuda::DeviceGuard guard(stream.device.index, std::nothrow);
    if (guard.holds()) succeeded(cuda::try_fill_bytes(stream, data, value, bytes));
  }
  bool holds(const void* data, unsigned char value, int64_t bytes, Stream stream) noexcept override {
    const cuda::DeviceGuard guard(stream.device.index, std::nothrow);
    if (!guard.holds()) return true;
    const waits::Reason reason(waits::Wait::memory);
    constexpr int64_t kPiece = 1 << 20;
    const std::unique_ptr<unsigned char[]> host(new (std::nothrow) unsigned char[kPiece]);
    if (host == nullptr) return true;
    for (int64_t at = 0; at < bytes; at += kPiece) {
      const int64_t piece = std::min(kPiece, bytes - at);
      const char* const from = static_cast<const char*>(data) + at;
      if (!succeeded(cuda::try_copy(host.get(), kCPU, from, stream.device, piece, stream))) return true;
      bool done = false;
      waits::around_noexcept("the host waited for a stream",
                             [&] { done = succeeded(cudaStreamSynchronize(cuda::handle(stream))); });
      if (!done) return true;
      if (!std::all_of(host.get(), host.get() + piece, [value](unsigned char byte) { return byte == value; }))
        return false;
    }
    return true;
  }

 private:
  std::vector<cudaEvent_t> idle_[kMaxDevices];
};

/// Returns null if there is no memory left; throws other errors, such as a fault of the device.
void* or_null(cudaError_t error, void* data, const char* call) {
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  cuda::check(error, call);
  return data;
}

class DeviceProvider : public CudaProvider {
 public:
  explicit DeviceProvider(int device) : device_(device) {}
  void* take(int64_t bytes) override {
    const cuda::DeviceGuard guard(device_);
    const cuda::Unrestricted scope(guard);
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
    return or_null(error, data, "cudaMalloc");
  }
  void give_back(void* data, int64_t) noexcept override {
    const cuda::DeviceGuard guard(device_, std::nothrow);
    const cuda::Unrestricted scope(guard);
    if (!guard.holds()) return;
    const waits::Reason reason(waits::Wait::memory);
    waits::around_noexcept("the host waited for a device, to free memory", [&] {
      succeeded(cudaDeviceSynchronize());
      succeeded(cudaFree(data));
    });
  }

 protected:
  const int device_;
};

/// Managed memory whose pages are put on the device at once, so that the device's free memory shows whether more fits.
/// With more managed memory than the device has, pages would be evicted while kernels run.
class ManagedProvider final : public DeviceProvider {
 public:
  using DeviceProvider::DeviceProvider;
  void* take(int64_t bytes) override {
    const cuda::DeviceGuard guard(device_);
    const cuda::Unrestricted scope(guard);
    size_t free = 0, total = 0;
    cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    if (free < kSpared || static_cast<size_t>(bytes) > free - kSpared) return nullptr;
    void* data = nullptr;
    const cudaError_t error = cudaMallocManaged(&data, static_cast<size_t>(bytes));
    if (or_null(error, data, "cudaMallocManaged") == nullptr) return nullptr;
    const Stream stream{{DeviceType::cuda, static_cast<int8_t>(device_)}};
    const waits::Reason reason(waits::Wait::memory);
    bool done = succeeded(cuda::try_fill_bytes(stream, data, 0, bytes));
    waits::around_noexcept("the host waited for a device, whose memory was taken",
                           [&] { done = succeeded(cudaDeviceSynchronize()) && done; });
    if (done) return data;
    give_back(data, bytes);
    return nullptr;
  }

 private:
  static constexpr size_t kSpared = size_t{512} << 20;  // left free for contexts and libraries, which grow too
};

class PinnedProvider final : public CudaProvider {
 public:
  void* take(int64_t bytes) override {
    const cuda::DeviceGuard guard(cuda::device_in_use());
    const cuda::Unrestricted scope(guard);
    void* data = nullptr;
    const cudaError_t error = cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocPortable);
    return or_null(error, data, "cudaHostAlloc");
  }
  /// No wait is needed: a free pinned block is used by no device, because its events on all streams have passed.
  void give_back(void* data, int64_t) noexcept override {
    const cuda::DeviceGuard guard(cuda::device_in_use(), std::nothrow);
    const cuda::Unrestricted scope(guard);
    const waits::Reason reason(waits::Wait::memory);
    if (guard.holds())
      waits::around_noexcept("the host waited for a device, to free pinned memory",
                             [&] { succeeded(cudaFreeHost(data)); });
  }
};

Caching caching_from_environment() {
  const auto value = env::text("LORRY_CUDA_MEMORY");
  if (!value) return Caching::on;
  if (*value == "poison") return Caching::poison;
  if (*value == "direct") return Caching::direct;
  raise<ValueError>("LORRY_CUDA_MEMORY: not a way to handle memory; got '{}'; expected poison or direct, or nothing",
                    *value);
}

}  // namespace

std::atomic<CachingAllocator*> detail::g_cuda_allocators[kMaxDevices] = {};

CachingAllocator& detail::make_cuda_allocator(Device device, const char* where) {
  device::require_device(device, where);
  static const Caching kCaching = caching_from_environment();
  static std::mutex& mutex = *new std::mutex;
  const std::scoped_lock lock(mutex);
  auto& made = g_cuda_allocators[device.index];
  if (made.load(std::memory_order_relaxed) == nullptr)
    made.store(new CachingAllocator(std::make_unique<DeviceProvider>(device.index), to_string(device), kCaching),
               std::memory_order_release);
  return *made.load(std::memory_order_relaxed);
}

CachingAllocator& managed_allocator(Device device, const char* where) {
  static std::mutex& mutex = *new std::mutex;
  static CachingAllocator* made[kMaxDevices] = {};
  device::require_device(device, where);
  const std::scoped_lock lock(mutex);
  CachingAllocator*& own = made[device.index];
  if (own == nullptr)
    own = new CachingAllocator(std::make_unique<ManagedProvider>(device.index),
                               fmt::format("managed memory of {}", to_string(device)));
  return *own;
}

CachingAllocator& pinned_allocator() {
  static CachingAllocator& allocator = *new CachingAllocator(std::make_unique<PinnedProvider>(), "pinned host memory");
  return allocator;
}

}  // namespace lorry::memory
