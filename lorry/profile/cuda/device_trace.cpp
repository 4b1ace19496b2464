#include "lorry/profile/device_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "lorry/base/class_name.h"
#include "lorry/device/device.h"
#include "lorry/profile/clock.h"
#include "lorry/profile/cuda/cupti.h"

namespace lorry::profile {
namespace {

// The records of this version of CUPTI.
#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
using PeerCopyRecord = CUpti_ActivityMemcpyPtoP4;
#else
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
using PeerCopyRecord = CUpti_ActivityMemcpyPtoP4;
#endif
using FillRecord = CUpti_ActivityMemset4;

constexpr CUpti_ActivityKind kKinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMCPY2,           CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_RUNTIME,           CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
constexpr size_t kBufferBytes = size_t{8} << 20, kBufferAlignment = 8;

/// Functions of the runtime that enqueue nothing, wait for nothing, and are called often.
constexpr CUpti_CallbackId kQuiet[] = {
    CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020,     CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020,        CUPTI_RUNTIME_TRACE_CBID_cudaSetDevice_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020,       CUPTI_RUNTIME_TRACE_CBID_cudaStreamIsCapturing_v10000,
    CUPTI_RUNTIME_TRACE_CBID_cudaFuncGetAttributes_v3020};
/// Libraries launch their kernels by these functions of the driver.
constexpr CUpti_CallbackId kDriverLaunches[] = {
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz};

CopyKind kind_of_copy(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA:
      return CopyKind::to_device;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH:
      return CopyKind::to_host;
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
      return CopyKind::on_host;
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return CopyKind::between_devices;
    default:
      return CopyKind::on_device;
  }
}

/// Receives CUPTI's records, on its threads.
class Records {
 public:
  explicit Records(const Cupti& cupti) : cupti_(cupti) { traced_.names.emplace_back(); }

  void read(CUcontext context, uint32_t stream, uint8_t* buffer, size_t bytes) {
    const std::scoped_lock lock(mutex_);
    CUpti_Activity* record = nullptr;
    while (bytes > 0 && cupti_.next_record(buffer, bytes, &record) == CUPTI_SUCCESS) add(*record);
    size_t dropped = 0;
    if (cupti_.dropped_records(context, stream, &dropped) == CUPTI_SUCCESS)
      traced_.dropped += static_cast<int64_t>(dropped);
  }
  Traced take() {
    const std::scoped_lock lock(mutex_);
    return std::move(traced_);
  }
  void note_failure(std::string why) {
    const std::scoped_lock lock(mutex_);
    traced_.failures.push_back(std::move(why));
  }

 private:
  int32_t name(std::string_view text) {
    const auto at = numbers_.find(text);
    if (at != numbers_.end()) return at->second;
    const auto number = static_cast<int32_t>(traced_.names.size());
    traced_.names.push_back(text.starts_with("_Z") ? lorry::detail::demangled(std::string(text).c_str())
                                                   : std::string(text));
    keys_.push_back(std::make_unique<std::string>(text));
    numbers_.emplace(*keys_.back(), number);
    return number;
  }
  int32_t name_of_function(CUpti_CallbackDomain domain, CUpti_CallbackId function) {
    const char* text = nullptr;
    if (cupti_.callback_name(domain, function, &text) != CUPTI_SUCCESS || text == nullptr) return name("cuda");
    std::string_view shown = text;  // such as cudaLaunchKernel_v7000
    if (const size_t version = shown.rfind("_v"); version != std::string_view::npos) shown = shown.substr(0, version);
    return name(shown);
  }

  /// What records of kernels, copies and fills have in common.
  template <class Record>
  TracedWork& add_work(const Record& x, DeviceWork work) {
    TracedWork& made = traced_.work.emplace_back();
    made.record.work = work;
    made.record.device = static_cast<int8_t>(x.deviceId), made.record.stream = static_cast<int32_t>(x.streamId);
    made.record.begin = static_cast<int64_t>(x.start), made.record.end = static_cast<int64_t>(x.end);
    made.record.correlation = x.correlationId;
    made.graph = x.graphId, made.node = x.graphNodeId;
    return made;
  }
  void add_kernel(const KernelRecord& x) {
    DeviceRecord& made = add_work(x, DeviceWork::kernel).record;
    made.name = name(x.name != nullptr ? x.name : "kernel");
    const auto put = [](uint32_t(&to)[3], int32_t a, int32_t b, int32_t c) {
      to[0] = static_cast<uint32_t>(a), to[1] = static_cast<uint32_t>(b), to[2] = static_cast<uint32_t>(c);
    };
    put(made.grid, x.gridX, x.gridY, x.gridZ), put(made.block, x.blockX, x.blockY, x.blockZ);
    made.registers = x.registersPerThread;
    made.shared_bytes = static_cast<uint32_t>(x.staticSharedMemory + x.dynamicSharedMemory);
  }
  void add_copy(const CopyRecord& x) {
    DeviceRecord& made = add_work(x, DeviceWork::copy).record;
    made.bytes = static_cast<int64_t>(x.bytes);
    made.copy = kind_of_copy(x.copyKind);
    made.pageable =
        x.srcKind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE || x.dstKind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
    constexpr const char* kNames[] = {"copy",
                                      "copy to the device",
                                      "copy to the host",
                                      "copy on the device",
                                      "copy between devices",
                                      "copy on the host"};
    made.name = name(kNames[static_cast<int>(made.copy)]);
  }
  void add_call(const CUpti_ActivityAPI& x, CUpti_CallbackDomain domain) {
    traced_.calls.push_back({.call = {.begin = static_cast<int64_t>(x.start),
                                      .end = static_cast<int64_t>(x.end),
                                      .name = name_of_function(domain, x.cbid),
                                      .correlation = x.correlationId},
                             .system_thread = x.threadId});
  }
  template <class Record>
  static const Record& as(const CUpti_Activity& record) {
    return reinterpret_cast<const Record&>(record);
  }
  void add(const CUpti_Activity& record) {
    switch (record.kind) {
      case CUPTI_ACTIVITY_KIND_KERNEL:
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return add_kernel(as<KernelRecord>(record));
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        return add_copy(as<CopyRecord>(record));
      case CUPTI_ACTIVITY_KIND_MEMCPY2: {
        const auto& x = as<PeerCopyRecord>(record);
        DeviceRecord& made = add_work(x, DeviceWork::copy).record;
        made.bytes = static_cast<int64_t>(x.bytes), made.copy = CopyKind::between_devices;
        made.name = name("copy between devices");
        return;
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& x = as<FillRecord>(record);
        DeviceRecord& made = add_work(x, DeviceWork::fill).record;
        made.bytes = static_cast<int64_t>(x.bytes), made.name = name("fill");
        return;
      }
      case CUPTI_ACTIVITY_KIND_RUNTIME:
        return add_call(as<CUpti_ActivityAPI>(record), CUPTI_CB_DOMAIN_RUNTIME_API);
      case CUPTI_ACTIVITY_KIND_DRIVER:
        return add_call(as<CUpti_ActivityAPI>(record), CUPTI_CB_DOMAIN_DRIVER_API);
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const auto& x = as<CUpti_ActivityExternalCorrelation>(record);
        if (x.externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0)
          traced_.external.emplace_back(x.correlationId, x.externalId);
        return;
      }
      default:
        return;
    }
  }

  const Cupti& cupti_;
  std::mutex mutex_;
  Traced traced_;
  std::unordered_map<std::string_view, int32_t> numbers_;
  std::vector<std::unique_ptr<std::string>> keys_;
};

/// The records of the trace that runs; CUPTI's callbacks have no argument for it.
std::mutex g_mutex;
Records* g_records = nullptr;
const Cupti* g_cupti = nullptr;

void CUPTIAPI buffer_requested(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer != nullptr ? kBufferBytes : 0;
  *most_records = 0;
}

void CUPTIAPI buffer_completed(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
  {
    const std::scoped_lock lock(g_mutex);
    if (g_records != nullptr && valid > 0) try {
        g_records->read(context, stream, buffer, valid);
      } catch (const std::bad_alloc&) {
        g_records->note_failure("there was no memory for the records of GPUs");
      }
  }
  std::free(buffer);
}

uint64_t CUPTIAPI timestamp() { return static_cast<uint64_t>(steady_ns()); }

class CuptiTrace final : public DeviceTrace {
 public:
  explicit CuptiTrace(const Cupti& cupti) : cupti_(cupti), records_(cupti) {
    const std::scoped_lock lock(g_mutex);
    g_records = &records_;
  }
  ~CuptiTrace() override {
    disable();
    const std::scoped_lock lock(g_mutex);
    g_records = nullptr;
  }

  /// Returns why it is not possible; empty: the trace has begun.
  std::string start() {
    for (const CUpti_ActivityKind kind : kKinds)
      if (const CUptiResult result = cupti_.enable(kind); result != CUPTI_SUCCESS)
        return fmt::format("CUPTI refuses to trace: {}", cupti_.text_of(result));
    if (cupti_.enable_runtime_api != nullptr)
      for (const CUpti_CallbackId function : kQuiet) cupti_.enable_runtime_api(function, 0);
    if (cupti_.enable_driver_api != nullptr)
      for (const CUpti_CallbackId function : kDriverLaunches) cupti_.enable_driver_api(function, 1);
    else
      cupti_.enable(CUPTI_ACTIVITY_KIND_DRIVER);
    return {};
  }

  int64_t now() override {
    uint64_t ns = 0;
    cupti_.get_timestamp(&ns);
    return static_cast<int64_t>(ns);
  }
  void push(uint64_t number) noexcept override {
    cupti_.push_external(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, number);
  }
  void pop() noexcept override {
    uint64_t last = 0;
    cupti_.pop_external(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
  }
  Traced stop() override {
    if (const CUptiResult result = cupti_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED); result != CUPTI_SUCCESS)
      records_.note_failure(fmt::format("CUPTI could not hand over its records: {}", cupti_.text_of(result)));
    disable();
    return records_.take();
  }

 private:
  void disable() {
    if (std::exchange(disabled_, true)) return;
    if (cupti_.enable_driver_api != nullptr)
      for (const CUpti_CallbackId function : kDriverLaunches) cupti_.enable_driver_api(function, 0);
    else
      cupti_.disable(CUPTI_ACTIVITY_KIND_DRIVER);
    for (const CUpti_ActivityKind kind : kKinds) cupti_.disable(kind);
  }

  const Cupti& cupti_;
  Records records_;
  bool disabled_ = false;
};

/// Opens CUPTI and registers its callbacks, once.
const Cupti* prepare(std::string& why_not) {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  if (g_cupti != nullptr) return g_cupti;
  const Cupti* const cupti = Cupti::open(why_not);
  if (cupti == nullptr) return nullptr;
  cupti->set_thread_id_type(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
  if (cupti->register_timestamp != nullptr) cupti->register_timestamp(timestamp);
  if (const CUptiResult result = cupti->register_callbacks(buffer_requested, buffer_completed);
      result != CUPTI_SUCCESS) {
    why_not = fmt::format("CUPTI refuses: {}", cupti->text_of(result));
    return nullptr;
  }
  return g_cupti = cupti;
}

}  // namespace

std::unique_ptr<DeviceTrace> trace_devices(std::string& why_not) {
  if (!device::available(DeviceType::cuda)) return nullptr;
  const Cupti* const cupti = prepare(why_not);
  if (cupti == nullptr) return nullptr;
  auto trace = std::make_unique<CuptiTrace>(*cupti);
  why_not = trace->start();
  if (!why_not.empty()) return nullptr;
  return trace;
}

}  // namespace lorry::profile
