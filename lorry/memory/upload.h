#pragma once

// From host memory to a device, where the host's copy may change or go as soon as the call returns. The driver does not promise that
// of pageable memory, so bytes pass through pinned memory, which is handed out again when the stream has read it. Nothing waits for
// the device but a copy of several chunks, which has four of them under way.

#include <cstdint>

#include "lorry/device/stream.h"

namespace lorry::memory {

/// Pinned memory that the host fills for one copy to a device.
class Staging {
 public:
  /// Throws OutOfMemory.
  explicit Staging(int64_t bytes);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  char* data() const { return data_; }
  /// Enqueues a copy of the first `bytes` to the device's memory. What is in data() stays until the stream is done.
  void send(void* to, Device device, int64_t bytes, Stream stream) const;

 private:
  char* data_;
  int64_t bytes_;
};

inline constexpr int64_t kUploadChunk = 4 << 20;  ///< worth the team's effort, and four of them stay in a processor's cache
inline constexpr int kUploadsUnderWay = 4;

/// Copies from the host's memory, pageable or not, to a device's in the order of `stream`. The source has been read on return. Not
/// for a stream that is captured: a graph keeps nothing of the source. Throws OutOfMemory, and CaptureError.
void upload(void* to, Device device, const void* from, int64_t bytes, Stream stream);

}  // namespace lorry::memory
