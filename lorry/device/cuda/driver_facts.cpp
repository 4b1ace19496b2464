#include "lorry/device/cuda/driver_facts.h"

#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <mutex>
#include <string>

#include "lorry/device/cuda/driver.h"
#include "lorry/device/cuda/library.h"
#include "lorry/device/cuda/runtime.h"

namespace lorry::cuda {
namespace {

/// NVML, the driver's library of facts, which comes with the driver and needs no context. Its functions return 0 on
/// success.
class Nvml {
 public:
  /// The library, opened once; its functions are null where there is none.
  static const Nvml& the() {
    static const Nvml& nvml = *new Nvml;
    return nvml;
  }

  /// The driver's version; empty if it is not known.
  std::string driver_version() const {
    char text[96] = {};
    return version_ != nullptr && version_(text, sizeof text) == 0 ? text : "";
  }
  /// Bytes of the device's memory that all processes use together; none if they are not known.
  std::optional<int64_t> used_bytes(int device) const {
    char bus[32] = {};
    if (find_ == nullptr || memory_ == nullptr) return std::nullopt;
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, device) != cudaSuccess) {
      cudaGetLastError();
      return std::nullopt;
    }
    void* found = nullptr;
    Memory memory{};
    if (find_(bus, &found) != 0 || memory_(found, &memory) != 0) return std::nullopt;
    return static_cast<int64_t>(memory.used);
  }

 private:
  struct Memory {
    unsigned long long total, free, used;
  };

  Nvml() {
    const Library library = open_library("libnvidia-ml.so.1");
    if (library.handle == nullptr) return;
    int (*init)() = nullptr;
    find(init, library, "nvmlInit_v2");
    if (init == nullptr || init() != 0) return;
    find(version_, library, "nvmlSystemGetDriverVersion");
    find(find_, library, "nvmlDeviceGetHandleByPciBusId_v2");
    find(memory_, library, "nvmlDeviceGetMemoryInfo");
  }
  template <class F>
  static void find(F*& function, const Library& library, const char* name) {
    function = reinterpret_cast<F*>(::dlsym(library.handle, name));
  }

  int (*version_)(char* text, unsigned length) = nullptr;
  int (*find_)(const char* bus, void** device) = nullptr;
  int (*memory_)(void* device, Memory* memory) = nullptr;
};

/// The version that the kernel's module says, where NVML is missing: "NVRM version: NVIDIA UNIX x86_64 Kernel Module
/// 570.124.06 ...": the first word that begins with a digit and has a dot.
std::string module_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;)
    if (word[0] >= '0' && word[0] <= '9' && word.find('.') != std::string::npos) return word;
  return {};
}

/// "12.8" for 12080.
std::string version_text(int version) {
  return version == 0 ? "" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

int mhz(cudaDeviceAttr attribute, int device) {
  int khz = 0;
  if (cudaDeviceGetAttribute(&khz, attribute, device) == cudaSuccess) return khz / 1000;
  cudaGetLastError();
  return 0;
}

bool has_context(int device) {
  CUresult (*state)(CUdevice, unsigned*, int*) = nullptr;
  find_driver(state, "cuDevicePrimaryCtxGetState");
  unsigned flags = 0;
  int active = 0;
  return state(device, &flags, &active) != CUDA_SUCCESS || active != 0;
}

std::optional<device::ContextCost> create_context(int device) {
  if (has_context(device)) return std::nullopt;
  const std::optional<int64_t> before = Nvml::the().used_bytes(device);
  const auto start = std::chrono::steady_clock::now();
  const DeviceGuard guard(device);
  check(cudaFree(nullptr), "cudaFree");
  device::ContextCost cost;
  cost.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::optional<int64_t> after = Nvml::the().used_bytes(device);
  if (!before || !after || *after < *before) return cost;
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  cost.bytes = *after - *before;
  cost.others_bytes = std::max<int64_t>(0, static_cast<int64_t>(total - free) - *cost.bytes);
  return cost;
}

}  // namespace

device::DriverFacts driver_facts(int device) {
  int driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  std::string version = Nvml::the().driver_version();
  if (version.empty()) version = module_version();
  return {.driver = version,
          .driver_cuda = version_text(driver),
          .runtime_cuda = version_text(runtime),
          .clock_mhz = mhz(cudaDevAttrClockRate, device),
          .memory_clock_mhz = mhz(cudaDevAttrMemoryClockRate, device)};
}

std::optional<device::ContextCost> context_cost(int device) {
  struct Costs {
    std::mutex mutex;
    bool measured[kMaxDevices] = {};
    std::optional<device::ContextCost> of[kMaxDevices];
  };
  static Costs& costs = *new Costs;
  const std::scoped_lock lock(costs.mutex);
  if (!costs.measured[device]) {
    costs.of[device] = create_context(device);
    costs.measured[device] = true;
  }
  return costs.of[device];
}

}  // namespace lorry::cuda
