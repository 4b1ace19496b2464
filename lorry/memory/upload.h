#pragma once

// Copies from host memory to a device whose source may be changed or freed as soon as the call returns. The driver does
// not guarantee this for pageable memory, so bytes go through pinned memory, which is reused after the stream has read
// it. A call does not wait for the device, unless the copy has more than four chunks.

#include <cstdint>

#include "lorry/device/stream.h"

namespace lorry::memory {

/// Pinned memory that the host fills, for one copy to a device.
class Staging {
 public:
  /// Throws OutOfMemory.
  explicit Staging(int64_t bytes);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  char* data() const { return data_; }
  /// Enqueues a copy of the first `bytes` to the device's memory. Do not write to data() until the stream is done.
  /// Throws CaptureError if the stream is being captured: a graph would read the memory after it has been reused.
  void send(void* to, Device device, int64_t bytes, Stream stream) const;

 private:
  friend void upload(void* to, Device device, const void* from, int64_t bytes, Stream stream);
  void enqueue(void* to, Device device, int64_t bytes, Stream stream) const;

  char* data_;
  int64_t bytes_;
};

/// Throws CaptureError that names the operator if the stream is being captured. bytes: the size of the copy from host
/// memory that was attempted.
void require_no_capture(Device device, int64_t bytes, Stream stream);

/// Large enough for the thread team, and four chunks fit a processor's cache.
inline constexpr int64_t kUploadChunk = 4 << 20;
inline constexpr int kChunksInFlight = 4;

/// Copies from host memory, pageable or pinned, to a device in the order of `stream`. The source has been read when the
/// call returns. Throws OutOfMemory, and CaptureError if the stream is being captured.
void upload(void* to, Device device, const void* from, int64_t bytes, Stream stream);

}  // namespace lorry::memory
