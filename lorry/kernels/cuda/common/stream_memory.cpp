#include "lorry/kernels/cuda/common/stream_memory.h"

#include <deque>
#include <mutex>
#include <unordered_map>

#include "lorry/device/cuda/capture.h"
#include "lorry/device/cuda/lasting_zeros.h"
#include "lorry/memory/memory.h"

namespace lorry::kernels::cuda {
namespace {

constexpr size_t kStreams = 512, kTogether = 16;  ///< streams per device, and those whose memory is allocated at once
constexpr size_t kCounterBytes = StreamMemory::kCounters * sizeof(uint32_t), kSlotBytes = StreamMemory::kSlots * 16,
                 kEach = kCounterBytes + kSlotBytes;

/// The memory of a device's streams.
class StreamMemories {
 public:
  StreamMemory* of(Stream stream) {
    const std::scoped_lock lock(mutex_);
    if (const auto known = known_.find(stream.handle); known != known_.end()) return known->second;
    const size_t at = streams_.size();
    if (at == kStreams) return nullptr;
    if (at % kTogether == 0 && !out_of_memory_) next_ = zeroed(stream.device);
    out_of_memory_ = next_ == nullptr;
    if (out_of_memory_) return nullptr;
    std::byte* const memory = next_ + at % kTogether * kEach;
    StreamMemory* const fresh = &streams_.emplace_back();
    fresh->slots = memory;
    fresh->counters = reinterpret_cast<uint32_t*>(memory + kSlotBytes);
    return known_[stream.handle] = fresh;
  }

 private:
  /// Null if the device has no memory left, even after emptying the cache.
  static std::byte* zeroed(Device device) {
    constexpr size_t kBytes = kTogether * kEach;
    void* zeros = lorry::cuda::lasting_zeros(device, kBytes);
    if (zeros == nullptr) {
      memory::empty_cache(device);
      zeros = lorry::cuda::lasting_zeros(device, kBytes);
    }
    return static_cast<std::byte*>(zeros);
  }

  std::mutex mutex_;
  std::byte* next_ = nullptr;  ///< memory of the last kTogether streams
  bool out_of_memory_ = false;
  std::deque<StreamMemory> streams_;
  std::unordered_map<void*, StreamMemory*> known_;
};

}  // namespace

StreamMemory* memory_of(Stream stream) {
  if (lorry::cuda::capturing(stream)) return nullptr;
  static StreamMemories* const kDevices = new StreamMemories[kMaxDevices];
  struct Last {
    Stream stream;
    StreamMemory* memory;
  };
  static thread_local Last last{};
  if (last.memory == nullptr || !(last.stream == stream)) last = {stream, kDevices[stream.device.index].of(stream)};
  return last.memory;
}

}  // namespace lorry::kernels::cuda
