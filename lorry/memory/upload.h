#pragma once

// From host memory to a device, where the host's copy may change or go as soon as the call returns. The driver does not
// promise that of pageable memory, so bytes pass through pinned memory, which is handed out again when the stream has
// read it. Nothing waits for the device but a copy of several chunks, which has four of them under way.

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
  /// Throws CaptureError where the stream is captured: a graph would read the memory when it holds something else.
  void send(void* to, Device device, int64_t bytes, Stream stream) const;

 private:
  friend void upload(void* to, Device device, const void* from, int64_t bytes, Stream stream);
  void enqueue(void* to, Device device, int64_t bytes, Stream stream) const;

  char* data_;
  int64_t bytes_;
};

/// Throws CaptureError, naming the operator, where the stream is captured: `bytes` of the host's memory were to go to
/// the device.
void require_no_capture(Device device, int64_t bytes, Stream stream);

inline constexpr int64_t kUploadChunk =
    4 << 20;  ///< worth the team's effort, and four of them stay in a processor's cache
inline constexpr int kUploadsUnderWay = 4;

/// Copies from the host's memory, pageable or not, to a device's in the order of `stream`. The source has been read on
/// return. Not for a stream that is captured: a graph keeps nothing of the source. Throws OutOfMemory, and
/// CaptureError.
void upload(void* to, Device device, const void* from, int64_t bytes, Stream stream);

}  // namespace lorry::memory
