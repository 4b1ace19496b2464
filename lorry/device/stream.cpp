#include "lorry/device/stream.h"

#include "lorry/base/modes.h"
#include "lorry/base/waits.h"
#include "lorry/device/capture.h"
#include "lorry/device/fence.h"
#include "lorry/device/runtime.h"

namespace lorry {
namespace {
/// Meta devices that stand in for others (memory/meta_allocator.h) have streams too.
const device::Runtime& runtime_of(Device device, const char* where) {
  if (!device.is_meta()) device::require_device(device, where);
  return device::runtime(device.type, where);
}
}  // namespace

bool is_capturing(Stream stream) { return runtime_of(stream.device, "is_capturing").capturing(stream); }

void Stream::synchronize() const {
  const device::Runtime& runtime = runtime_of(device, "synchronize");
  if (!device.is_cuda()) return runtime.synchronize_stream(*this);
  device::require_not_captured("synchronize");
  waits::around("the host waited for a stream", [&] { runtime.synchronize_stream(*this); });
}

StreamScope::StreamScope(Stream stream) : device_(stream.device), before_(nullptr) {
  if (device_ == kCPU) return;
  runtime_of(device_, "StreamScope");
  if (device_.is_meta()) return;
  if (stream.handle != nullptr && !several_streams()) detail::g_several_streams.store(true, std::memory_order_relaxed);
  before_ = std::exchange(detail::t_streams[device_.index], stream.handle);
}
StreamScope::~StreamScope() {
  if (device_.is_cuda()) detail::t_streams[device_.index] = before_;
}

OwnedStream::OwnedStream(Device device, int priority)
    : stream_{device, runtime_of(device, "stream").make_stream(device.index, priority)} {}
OwnedStream::~OwnedStream() {
  if (stream_.handle != nullptr)
    device::runtime(stream_.device.type, "stream").destroy_stream(stream_.device.index, stream_.handle);
}

Event::Event(Device device, bool timed)
    : device_(device), handle_(runtime_of(device, "event").make_event(device.index, timed)) {}
Event::~Event() {
  if (handle_ != nullptr) device::runtime(device_.type, "event").destroy_event(device_.index, handle_);
}
void Event::record(Stream stream) const {
  require<DeviceError>(stream.device == device_, "event: the stream is on another device; got {}; expected {}",
                       stream.device, device_);
  device::runtime(device_.type, "event").record_event(handle_, stream);
}
void Event::block(Stream stream) const { device::runtime(device_.type, "event").block_stream(handle_, stream); }
bool Event::done() const { return device::runtime(device_.type, "event").event_done(device_.index, handle_); }
void Event::synchronize() const {
  const device::Runtime& runtime = device::runtime(device_.type, "event");
  if (!device_.is_cuda()) return;
  device::require_not_captured("synchronize");
  if (waits::heard() && done()) return;  // no wait, so nothing to announce
  waits::around("the host waited for an event", [&] { runtime.synchronize_event(device_.index, handle_); });
}
double Event::milliseconds_since(const Event& start) const {
  return device::runtime(device_.type, "event").milliseconds(device_.index, start.handle_, handle_);
}

void fence(Stream earlier, Stream later) {
  if (earlier == later || !earlier.device.is_cuda() || !later.device.is_cuda()) return;
  const Event done(earlier.device);
  done.record(earlier);
  done.block(later);
}

}  // namespace lorry
