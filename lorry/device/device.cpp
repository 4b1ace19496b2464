#include "lorry/device/device.h"

#include <unistd.h>

#include <cstring>
#include <optional>

#include "lorry/base/modes.h"
#include "lorry/base/waits.h"
#include "lorry/device/capture.h"
#include "lorry/device/cpu/calls.h"
#include "lorry/device/runtime.h"

namespace lorry::device {
namespace {

MemoryUse host_memory() {
  const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  return {sysconf(_SC_AVPHYS_PAGES) * page, sysconf(_SC_PHYS_PAGES) * page};
}

/// A copy within the host's memory.
class HostCopy final : public cpu::Call {
 public:
  HostCopy(void* to, const void* from, int64_t bytes) : to_(to), from_(from), bytes_(static_cast<size_t>(bytes)) {}
  void run() const override { std::memcpy(to_, from_, bytes_); }
  void addresses(AddressVisitor& visitor) const override { visitor(to_, from_); }

 private:
  void* to_;
  const void* from_;
  size_t bytes_;
};

void copy_on_host(void* to, Device, const void* from, Device, int64_t bytes, Stream) {
  cpu::Calls* const calls = cpu::recorded_calls();
  if (calls != nullptr) calls->before_call();
  std::memcpy(to, from, static_cast<size_t>(bytes));
  if (calls != nullptr) calls->add(std::make_unique<HostCopy>(to, from, bytes));
}

class HostWork final : public WorkGraph {
 public:
  void finish() override { recording_.reset(); }
  void ended(const SpanCost& cost) noexcept override { calls_.note_cost(cost); }
  void launch(Stream) override { calls_.run(); }
  int64_t nodes() const override { return static_cast<int64_t>(calls_.size()); }
  int64_t bytes() const override { return calls_.bytes(); }
  void addresses(AddressVisitor& visitor) const override { calls_.addresses(visitor); }
  int64_t rebind(std::span<const Move> moves) override {
    if (slots_.size() == 0) find_slots();
    std::vector<int32_t> calls;
    return slots_.move(moves, calls);
  }

 private:
  void find_slots() {
    struct Finder final : AddressVisitor {
      explicit Finder(AddressSlots& s) : slots(s) {}
      void found(const void* const* address) override { slots.add(const_cast<const void**>(address), 0); }
      AddressSlots& slots;
    } finder(slots_);
    calls_.addresses(finder);  // arguments that the calls own
    slots_.sort();
  }

  cpu::Calls calls_;
  AddressSlots slots_;
  std::optional<cpu::RecordCalls> recording_{&calls_};
};

/// Work is done when a call returns, so there is nothing to wait for; streams and events are null.
constexpr Runtime kCpuRuntime = {
    .count = [] { return 1; },
    .why_absent = [] { return std::string(); },
    .info = [](int) { return DeviceInfo{.name = "cpu", .memory_bytes = host_memory().total_bytes}; },
    .memory_use = [](int) { return host_memory(); },
    .driver_facts = [](int) { return DriverFacts{}; },
    .context_cost = [](int) { return std::optional<ContextCost>(); },
    .synchronize = [](int) {},
    .throw_reported = [](int) {},
    .copy = copy_on_host,
    .make_stream = [](int, int) -> void* { return nullptr; },
    .destroy_stream = [](int, void*) noexcept {},
    .synchronize_stream = [](Stream) {},
    .capturing = [](Stream) noexcept { return cpu::recorded_calls() != nullptr; },
    .make_event = [](int, bool) -> void* { return nullptr; },
    .destroy_event = [](int, void*) noexcept {},
    .record_event = [](void*, Stream) {},
    .block_stream = [](void*, Stream) {},
    .event_done = [](int, void*) { return true; },
    .synchronize_event = [](int, void*) {},
    .milliseconds = [](int, void*, void*) { return 0.0; },
    .capture_work = [](Stream) -> std::unique_ptr<WorkGraph> { return std::make_unique<HostWork>(); },
};

/// Nothing is computed on meta, so there is nothing to wait for, and copies do nothing.
constexpr Runtime kMetaRuntime = [] {
  Runtime meta = kCpuRuntime;
  meta.info = [](int) { return DeviceInfo{.name = "meta"}; };
  meta.memory_use = [](int) { return MemoryUse{}; };
  meta.copy = [](void*, Device to, const void*, Device, int64_t, Stream) {
    if (!to.is_meta()) lorry::detail::raise_no_elements("copy");
  };
  return meta;
}();

/// In the order of DeviceType; null if this build does not support the type.
#ifdef LORRY_WITH_CUDA
constexpr const Runtime* kRuntimes[kDeviceTypeCount] = {&kCpuRuntime, &lorry::cuda::kDeviceRuntime, &kMetaRuntime};
#else
constexpr const Runtime* kRuntimes[kDeviceTypeCount] = {&kCpuRuntime, nullptr, &kMetaRuntime};
#endif

}  // namespace

const Runtime& runtime(DeviceType type, const char* where) {
  if (static_cast<int>(type) >= kDeviceTypeCount)
    raise_as<DeviceError>(running_or(where), "no such type of device; got number {}; expected cpu, cuda or meta",
                          static_cast<int>(type));
  if (const Runtime* row = kRuntimes[static_cast<int>(type)]) [[likely]]
    return *row;
  raise_as<DeviceError>(running_or(where), "this build has no CUDA; expected cpu; build Lorry where nvcc is installed");
}

int count(DeviceType type) {
  const Runtime* row = kRuntimes[static_cast<int>(type)];
  return row == nullptr ? 0 : row->count();
}

std::string why_absent(DeviceType type) {
  const Runtime* row = kRuntimes[static_cast<int>(type)];
  return row == nullptr ? "this build has no CUDA" : row->why_absent();
}

void require_device(Device device, const char* where) {
  const Runtime& row = runtime(device.type, where);
  const int devices = row.count();
  if (device.index >= 0 && device.index < devices) [[likely]]
    return;
  if (devices == 0)
    raise_as<DeviceError>(running_or(where), "no device {} here: {}; expected cpu", device, row.why_absent());
  const std::string why = row.why_absent();
  raise_as<DeviceError>(running_or(where), "no device {} here{}{}; expected {} to {}", device, why.empty() ? "" : ": ",
                        why, to_string(Device{device.type, 0}),
                        to_string(Device{device.type, static_cast<int8_t>(devices - 1)}));
}

DeviceInfo info(Device device) {
  require_device(device, "device::info");
  return runtime(device.type, "device::info").info(device.index);
}

MemoryUse memory_use(Device device) {
  require_device(device, "device::memory_use");
  return runtime(device.type, "device::memory_use").memory_use(device.index);
}

DriverFacts driver_facts(Device device) {
  require_device(device, "device::driver_facts");
  return runtime(device.type, "device::driver_facts").driver_facts(device.index);
}

std::optional<ContextCost> context_cost(Device device) {
  require_device(device, "device::context_cost");
  return runtime(device.type, "device::context_cost").context_cost(device.index);
}

void synchronize(Device device) {
  require_device(device, "synchronize");
  const Runtime& row = runtime(device.type, "synchronize");
  if (device.is_cuda()) require_not_captured("synchronize");
  if (!device.is_cuda()) return row.synchronize(device.index);
  waits::around("the host waited for a device", [&] { row.synchronize(device.index); });
}

void throw_reported(Device device) { runtime(device.type, "throw_reported").throw_reported(device.index); }

void copy(void* to, Device to_device, const void* from, Device from_device, int64_t bytes, Stream stream) {
  if (bytes == 0) return;
  const bool of_source = to_device.is_cpu() || from_device.is_meta();
  runtime(of_source ? from_device.type : to_device.type, "copy").copy(to, to_device, from, from_device, bytes, stream);
}

std::unique_ptr<WorkGraph> capture_work(Stream stream) {
  return runtime(stream.device.type, "capture").capture_work(stream);
}

}  // namespace lorry::device
