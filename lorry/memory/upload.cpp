#include "lorry/memory/upload.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "lorry/base/modes.h"
#include "lorry/base/waits.h"
#include "lorry/device/cpu/team.h"
#include "lorry/device/runtime.h"
#include "lorry/memory/allocate.h"

namespace lorry::memory {
namespace {

constexpr int64_t kGrain = 256 << 10;  ///< bytes per thread of the team's copy; fewer are not worth a second thread

void read(char* into, const char* from, int64_t bytes) {
  cpu::parallel_for(bytes, kGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(into + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

struct Slot {
  explicit Slot(Device device) : memory(kUploadChunk), sent(device) {}
  Staging memory;
  Event sent;
};

}  // namespace

Staging::Staging(int64_t bytes) : data_(static_cast<char*>(allocate_pinned(bytes))), bytes_(bytes) {}
Staging::~Staging() { release_pinned(data_, bytes_); }
void Staging::send(void* to, Device device, int64_t bytes, Stream stream) const {
  require_no_capture(device, bytes, stream);
  enqueue(to, device, bytes, stream);
}
void Staging::enqueue(void* to, Device device, int64_t bytes, Stream stream) const {
  record_pinned(data_, stream);  // before the copy: if this failed after it, the memory could be reused too early
  device::copy(to, device, data_, kCPU, bytes, stream);
}

void require_no_capture(Device device, int64_t bytes, Stream stream) {
  if (device::runtime(device.type, "upload").capturing(stream))
    raise_as<CaptureError>(running_or("upload"),
                           "host memory is copied to {} while its stream is captured; got {} bytes; expected tensors "
                           "that are already on the device; copy before the capture, or write into a tensor of the "
                           "device between replays",
                           device, bytes);
}

void upload(void* to, Device device, const void* from, int64_t bytes, Stream stream) {
  if (bytes == 0) return;
  require_no_capture(device, bytes, stream);
  if (!device.is_cuda()) return device::copy(to, device, from, kCPU, bytes, stream);
  auto* const target = static_cast<char*>(to);
  const auto* const source = static_cast<const char*>(from);
  if (bytes <= kUploadChunk) {
    const Staging staging(bytes);
    read(staging.data(), source, bytes);
    return staging.enqueue(target, device, bytes, stream);
  }
  const waits::Reason reason(waits::Wait::from_host);
  if (bytes > kChunksInFlight * kUploadChunk) waits::expect(waits::Wait::from_host);
  std::optional<Slot> slots[kChunksInFlight];
  int next = 0;
  for (int64_t at = 0; at < bytes; at += kUploadChunk, next = (next + 1) % kChunksInFlight) {
    std::optional<Slot>& slot = slots[next];
    if (slot)
      slot->sent.synchronize();
    else
      slot.emplace(device);
    const int64_t count = std::min(kUploadChunk, bytes - at);
    read(slot->memory.data(), source + at, count);
    slot->memory.enqueue(target + at, device, count, stream);
    slot->sent.record(stream);
  }
}

}  // namespace lorry::memory
