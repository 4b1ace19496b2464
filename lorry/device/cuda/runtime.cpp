#include "lorry/device/cuda/runtime.h"

#include <cuda.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "lorry/base/env.h"
#include "lorry/base/modes.h"
#include "lorry/base/waits.h"
#include "lorry/device/cuda/capture.h"
#include "lorry/device/cuda/device_assert.h"
#include "lorry/device/cuda/driver.h"
#include "lorry/device/cuda/driver_facts.h"
#include "lorry/device/cuda/graph.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/device/runtime.h"

namespace lorry::cuda {
namespace {

struct Found {
  int count = 0;
  std::string why;
  Properties properties[kMaxDevices];
};

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

CUresult (*g_retain)(CUcontext*, CUdevice) = nullptr;

void find_context_stack() {
  find_driver(detail::g_stack.current, "cuCtxGetCurrent");
  find_driver(detail::g_stack.push, "cuCtxPushCurrent");
  find_driver(detail::g_stack.pop, "cuCtxPopCurrent");
  find_driver(g_retain, "cuDevicePrimaryCtxRetain");
}

#ifndef LORRY_CUDA_LOWEST
#define LORRY_CUDA_LOWEST 0
#endif

/// Finds the devices, once. Reading their attributes creates no context.
const Found& found() {
  static const Found kFound = [] {
    Found f;
    const cudaError_t error = cudaGetDeviceCount(&f.count);
    if (error != cudaSuccess) {
      f.count = 0;
      f.why = error == cudaErrorInsufficientDriver ? "there is no NVIDIA driver, or it is older than this build's CUDA"
                                                   : cudaGetErrorString(error);
      cudaGetLastError();  // clear the error: this call may fail
      return f;
    }
    if (f.count == 0) f.why = "there is no NVIDIA GPU";
    f.count = std::min(f.count, kMaxDevices);
    for (int i = 0; i < f.count; ++i) {
      const int major = attribute(cudaDevAttrComputeCapabilityMajor, i),
                minor = attribute(cudaDevAttrComputeCapabilityMinor, i);
      if (major * 10 + minor >= LORRY_CUDA_LOWEST) continue;
      // Devices keep CUDA's numbers, so all devices after an unusable one are unusable too. By default CUDA numbers the
      // fastest device first.
      f.count = i;
      f.why = fmt::format(
          "this build has no code for GPU {}; got compute capability {}.{}; expected {}.{} or higher; add it to "
          "CMAKE_CUDA_ARCHITECTURES, or leave the GPU out of CUDA_VISIBLE_DEVICES",
          i, major, minor, LORRY_CUDA_LOWEST / 10, LORRY_CUDA_LOWEST % 10);
    }
    for (int i = 0; i < f.count; ++i)
      f.properties[i] = {
          attribute(cudaDevAttrMultiProcessorCount, i), attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, i),
          attribute(cudaDevAttrL2CacheSize, i),
          attribute(cudaDevAttrComputeCapabilityMajor, i) * 10 + attribute(cudaDevAttrComputeCapabilityMinor, i)};
    if (f.count > 1) find_context_stack();
    detail::g_several = f.count > 1;
    detail::g_blocking = env::text("CUDA_LAUNCH_BLOCKING") == "1";
    return f;
  }();
  return kFound;
}

/// Errors after which every call in the context fails. Only those that all versions of CUDA name.
bool is_fault(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

/// The description of the first fault, which every later error repeats.
struct FaultRecord {
  std::mutex mutex;
  std::string description;
};
FaultRecord& fault_record() {
  static FaultRecord& record = *new FaultRecord;
  return record;
}

std::string in_flight() {
  const uint32_t next = detail::g_in_flight.next.load();
  std::vector<std::string> names;
  for (uint32_t back = 1; back <= std::min(next, detail::InFlight::kLength) && names.size() < 8; ++back) {
    const char* name = detail::g_in_flight.operators[(next - back) % detail::InFlight::kLength].load();
    if (name != nullptr && (names.empty() || names.back() != name)) names.emplace_back(name);
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none of Lorry's" : text;
}

void* look_up(const char* name, [[maybe_unused]] unsigned version, cudaDriverEntryPointQueryResult& result) {
  void* address = nullptr;
#if CUDART_VERSION >= 12050
  check(cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &result), name);
#else
  check(cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &result), name);
#endif
  return address;
}

const char* running() { return running_or("a call outside any operator"); }

}  // namespace

void* detail::driver_function(const char* name, unsigned version) {
  cudaDriverEntryPointQueryResult result;
  void* const address = look_up(name, version, result);
  if (result != cudaDriverEntryPointSuccess) failed(cudaErrorSymbolNotFound, name);
  return address;
}

void* detail::driver_function_if_any(const char* name, unsigned version) {
  int newest = 0;
  check(cudaDriverGetVersion(&newest), "cudaDriverGetVersion");
  if (newest < static_cast<int>(version)) return nullptr;
  cudaDriverEntryPointQueryResult result;
  void* const address = look_up(name, version, result);
  return result == cudaDriverEntryPointSuccess ? address : nullptr;
}

bool detail::g_several = false;
bool detail::g_blocking = false;
detail::InFlight detail::g_in_flight;
detail::ContextStack detail::g_stack{};

int device_count() { return found().count; }
std::string why_none() { return found().why; }
const Properties& properties(int device) { return found().properties[device]; }

void detail::failed(cudaError_t error, const char* call) {
  // Reading the last error clears it, unless it is a fault.
  cudaGetLastError();
  const bool fault = is_fault(error) || cudaGetLastError() != cudaSuccess;
  if (error == cudaErrorMemoryAllocation)
    raise_as<OutOfMemory>(running(), "out of memory on cuda in {}; release tensors or use smaller ones", call);
  if (!fault)
    raise_as<CudaError>(running(), "{} failed: {} ({})", call, cudaGetErrorString(error), cudaGetErrorName(error));
  FaultRecord& record = fault_record();
  const std::scoped_lock lock(record.mutex);
  if (record.description.empty()) {
    record.description = fmt::format("{} ({}), first seen by {} in {}; the last operators launched, newest first: {}",
                                     cudaGetErrorString(error), cudaGetErrorName(error), running(), call, in_flight());
  }
  raise_as<CudaError>(running(),
                      "the device has had a fault and this process can no longer use it: {}; set "
                      "CUDA_LAUNCH_BLOCKING=1 to find the operator",
                      record.description);
}

void detail::wait_after_launch(Stream stream) {
  if (capturing(stream)) return;                  // nothing runs, and waiting would invalidate the capture
  const waits::Reason asked(waits::Wait::asked);  // by CUDA_LAUNCH_BLOCKING
  waits::around("the host waited for a launch",
                [&] { check(cudaStreamSynchronize(handle(stream)), "cudaStreamSynchronize"); });
  throw_assert(stream.device.index);
}

detail::Pushed detail::push_device(int device, cudaError_t* error) noexcept {
  // The driver's errors have the same numbers as the runtime's.
  const auto succeeded = [&](int result) { return (*error = static_cast<cudaError_t>(result)) == cudaSuccess; };
  CUctx_st* wanted = g_stack.contexts[device].load(std::memory_order_acquire);
  if (wanted == nullptr) {
    // The driver numbers devices like the runtime. This is the context that the runtime uses too; it is never released.
    if (!succeeded(g_retain(&wanted, device))) return Pushed::failed;
    g_stack.contexts[device].store(wanted, std::memory_order_release);
  }
  CUctx_st* now = nullptr;
  if (!succeeded(g_stack.current(&now))) return Pushed::failed;
  if (now == wanted) return Pushed::no;
  return succeeded(g_stack.push(wanted)) ? Pushed::yes : Pushed::failed;
}

void detail::pop_device() noexcept {
  CUctx_st* ours = nullptr;
  g_stack.pop(&ours);
}

int device_in_use() noexcept {
  for (int i = 0; i < kMaxDevices; ++i)
    if (detail::g_stack.contexts[i].load(std::memory_order_relaxed) != nullptr) return i;
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess ? device : 0;
}

bool capturing(Stream stream) noexcept {
  const DeviceGuard guard(stream.device.index, std::nothrow);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(handle(stream), &status);
  if (error == cudaSuccess) return status != cudaStreamCaptureStatusNone;
  cudaGetLastError();
  return error == cudaErrorStreamCaptureImplicit;
}

namespace {

// ---- the row of the table of devices --------------------------------------------------------------------------------

/// Streams are never destroyed but reused. The allocator identifies a block's stream by its handle, and could mistake a
/// new stream with the handle of a destroyed one for the old stream.
struct StreamPool {
  std::mutex mutex;
  std::vector<std::pair<int, cudaStream_t>> idle[kMaxDevices];  // priority, stream
  std::vector<std::pair<int, cudaStream_t>> made[kMaxDevices];
};
StreamPool& pool() {
  static StreamPool& the = *new StreamPool;
  return the;
}

void* make_stream(int device, int priority) {
  const DeviceGuard guard(device);
  int lowest = 0, highest = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  priority = std::max(highest, std::min(lowest, priority));
  const std::scoped_lock lock(pool().mutex);
  auto& idle = pool().idle[device];
  for (auto it = idle.begin(); it != idle.end(); ++it) {
    if (it->first != priority) continue;
    const cudaStream_t stream = it->second;
    idle.erase(it);
    return stream;
  }
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority), "cudaStreamCreateWithPriority");
  pool().made[device].emplace_back(priority, stream);
  return stream;
}

void destroy_stream(int device, void* stream) noexcept {
  const std::scoped_lock lock(pool().mutex);
  for (const auto& [priority, made] : pool().made[device])
    if (made == stream) pool().idle[device].emplace_back(priority, made);
}

device::DeviceInfo info(int device) {
  cudaDeviceProp p;
  check(cudaGetDeviceProperties(&p, device), "cudaGetDeviceProperties");
  return {p.name, static_cast<int64_t>(p.totalGlobalMem), p.major, p.minor, p.multiProcessorCount};
}

device::MemoryUse memory_use(int device) {
  const DeviceGuard guard(device);
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

void synchronize(int device) {
  const DeviceGuard guard(device);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  throw_assert(device);
}

void synchronize_stream(Stream stream) {
  const DeviceGuard guard(stream.device.index);
  check(cudaStreamSynchronize(handle(stream)), "cudaStreamSynchronize");
  throw_assert(stream.device.index);
}

void* make_event(int device, bool timed) {
  const DeviceGuard guard(device);
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreateWithFlags");
  return event;
}

void record_event(void* event, Stream stream) {
  const DeviceGuard guard(stream.device.index);
  check(cudaEventRecord(static_cast<cudaEvent_t>(event), handle(stream)), "cudaEventRecord");
}

void block_stream(void* event, Stream stream) {
  const DeviceGuard guard(stream.device.index);
  check(cudaStreamWaitEvent(handle(stream), static_cast<cudaEvent_t>(event)), "cudaStreamWaitEvent");
}

void destroy_event(int device, void* event) noexcept {
  const DeviceGuard guard(device, std::nothrow);
  if (guard.holds()) cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

bool event_done(int device, void* event) {
  const DeviceGuard guard(device);
  const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(event));
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check(status, "cudaEventQuery");
  return true;
}

void synchronize_event(int device, void* event) {
  const DeviceGuard guard(device);
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "cudaEventSynchronize");
}

double milliseconds(int device, void* start, void* end) {
  const DeviceGuard guard(device);
  float ms = 0;
  check(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(start), static_cast<cudaEvent_t>(end)),
        "cudaEventElapsedTime");
  return ms;
}

}  // namespace

const device::Runtime kDeviceRuntime = {
    .count = device_count,
    .why_absent = why_none,
    .info = info,
    .memory_use = memory_use,
    .driver_facts = driver_facts,
    .context_cost = context_cost,
    .synchronize = synchronize,
    .throw_reported = [](int device) { throw_assert(device); },
    .copy = copy,
    .make_stream = make_stream,
    .destroy_stream = destroy_stream,
    .synchronize_stream = synchronize_stream,
    .capturing = capturing,
    .make_event = make_event,
    .destroy_event = destroy_event,
    .record_event = record_event,
    .block_stream = block_stream,
    .event_done = event_done,
    .synchronize_event = synchronize_event,
    .milliseconds = milliseconds,
    .capture_work = capture_work,
};

}  // namespace lorry::cuda
