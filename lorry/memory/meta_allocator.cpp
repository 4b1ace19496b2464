#include "lorry/memory/meta_allocator.h"

#include <array>

#include "lorry/base/modes.h"

namespace lorry::memory {
namespace {

// Above the 47 to 52 bits of a process's addresses, and low enough that adding an offset cannot overflow.
constexpr uint64_t kFirst = uint64_t{1} << 53, kEnd = uint64_t{1} << 55;
constexpr int kIndices = 2 + kMaxDevices;

/// Returns addresses that no meta allocator has returned before, so that two blocks never seem to overlap.
class MetaProvider final : public Provider {
 public:
  void* take(int64_t bytes) override {
    static constinit std::atomic<uint64_t> next{kFirst};
    const uint64_t wanted = (static_cast<uint64_t>(bytes) + kBoundary - 1) / kBoundary * kBoundary;
    uint64_t at = next.load(std::memory_order_relaxed);
    do {
      if (wanted > kEnd - at) return nullptr;
    } while (!next.compare_exchange_weak(at, at + wanted, std::memory_order_relaxed));
    return reinterpret_cast<void*>(at);
  }
  void give_back(void*, int64_t) noexcept override {}
  void* record(Stream) noexcept override { return nullptr; }
  bool done(Stream, void*) noexcept override { return true; }
  void wait(Stream, void*) noexcept override {}
  void recycle(Stream, void*) noexcept override {}
  bool capturing(Stream) noexcept override { return false; }
  void fill(void*, unsigned char, int64_t, Stream) noexcept override {}
  bool holds(const void*, unsigned char, int64_t, Stream) noexcept override { return true; }

 private:
  static constexpr uint64_t kBoundary = 2 << 20;  // the alignment of memory from systems and drivers
};

std::mutex& estimates() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

}  // namespace

CachingAllocator& meta_allocator(Device device, const char* where) {
  if (device.index < 0 || device.index >= kIndices)
    raise_as<DeviceError>(running_or(where), "no device {} here; expected meta", device);
  static std::array<std::atomic<CachingAllocator*>, kIndices> all{};
  static std::mutex& mutex = *new std::mutex;
  std::atomic<CachingAllocator*>& own = all[static_cast<size_t>(device.index)];
  if (CachingAllocator* made = own.load(std::memory_order_acquire)) return *made;
  const std::scoped_lock lock(mutex);
  if (own.load(std::memory_order_relaxed) == nullptr)
    own.store(new CachingAllocator(std::make_unique<MetaProvider>(), to_string(device),
                                   device.index == 0 ? Caching::on : Caching::direct),
              std::memory_order_release);
  return *own.load(std::memory_order_relaxed);
}

Estimate::Estimate() : lock_(estimates()) {}

}  // namespace lorry::memory
