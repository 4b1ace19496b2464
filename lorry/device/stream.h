#pragma once

// Streams and events. A stream is a queue of work on a device: work on one stream runs in order, different streams run
// concurrently. On the CPU and on meta, work is done when a call returns, and handles are null.

#include <utility>

#include "lorry/layout/device.h"

namespace lorry {

inline constexpr int kMaxDevices = 16;

/// Refers to a stream; does not own it. The null handle is the device's default stream.
struct Stream {
  Device device;
  void* handle = nullptr;

  friend bool operator==(const Stream&, const Stream&) = default;
  /// Waits until the work enqueued so far is done. Throws the errors of that work.
  void synchronize() const;
};

namespace detail {
inline constinit thread_local void* t_streams[kMaxDevices] = {};
}

/// The stream on which this thread's calls on `device` run: that of the innermost StreamScope, else the default stream.
inline Stream current_stream(Device device) {
  const bool has_streams = device.is_cuda() && static_cast<unsigned>(device.index) < static_cast<unsigned>(kMaxDevices);
  return {device, has_streams ? detail::t_streams[device.index] : nullptr};
}

/// Whether the stream's work is being captured into a graph. Then the host must not wait for it.
bool is_capturing(Stream stream);

/// Makes a stream current on this thread for a scope. Throws DeviceError for a device that does not exist.
class StreamScope {
 public:
  explicit StreamScope(Stream stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  Device device_;
  void* before_;
};

/// Creates a stream and destroys it. Priority 0 is the lowest; streams of priority -1 and below run first if the device
/// supports priorities.
class OwnedStream {
 public:
  explicit OwnedStream(Device device, int priority = 0);
  ~OwnedStream();
  OwnedStream(OwnedStream&& other) noexcept
      : stream_{other.stream_.device, std::exchange(other.stream_.handle, nullptr)} {}
  OwnedStream& operator=(OwnedStream&& other) noexcept {
    stream_ = std::exchange(other.stream_, stream_);
    return *this;
  }
  operator Stream() const { return stream_; }
  void synchronize() const { stream_.synchronize(); }

 private:
  Stream stream_;
};

/// A point in a stream's work.
class Event {
 public:
  /// timed: whether milliseconds_since may be called; other events are cheaper.
  explicit Event(Device device, bool timed = false);
  ~Event();
  Event(Event&& other) noexcept : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    device_ = std::exchange(other.device_, device_);
    handle_ = std::exchange(other.handle_, handle_);
    return *this;
  }

  /// Marks the work enqueued on the stream so far.
  void record(Stream stream) const;
  /// Work enqueued on `stream` from now on runs after the marked work.
  void block(Stream stream) const;
  /// Whether the marked work is done; true before record.
  bool done() const;
  /// Waits until the marked work is done.
  void synchronize() const;
  /// Device time between two events. Both must be timed, recorded and done. Throws CudaError.
  double milliseconds_since(const Event& start) const;

 private:
  Device device_;
  void* handle_;
};

}  // namespace lorry
