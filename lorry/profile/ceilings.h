#pragma once

// Ceilings: the highest rates that a device was measured to reach. `lorry info --measure` prints them, `lorry bench`
// and diagnose() compare with them; nothing else in Lorry defines such a figure.
//
//   const profile::Ceilings& here = profile::ceilings(default_device());
//   fmt::print("a copy moves {:.0f} GB/s\n", here.copy_bytes_per_s / 1e9);
//
// A device is measured once, in about two seconds. The figures are kept in the process and in the folder of cached
// files ($LORRY_CACHE_DIR; see base/private_folder.h), and are measured again after a change of device, driver, clocks
// or number of threads.

#include <map>
#include <string>

#include "lorry/profile/benchmark.h"
#include "lorry/tensor/tensor.h"

namespace lorry::profile {

/// Each figure is that of the fastest among a few samples, so that other programs that run meanwhile matter little. All
/// were waited for. 0: does not apply to the device, or was not measured.
struct Ceilings {
  Device device;
  std::string name;             ///< the device's: "NVIDIA H200", or the processor's model
  double copy_bytes_per_s = 0;  ///< a copy of large_copy(device) bytes, read and written bytes counted
  double read_bytes_per_s = 0;  ///< a sum, which only reads
  /// GPU: an empty launch, one of many in a row. CPU: `x.add_(y)` of 64 floats, an operator call with almost no work.
  double launch_s = 0;
  double wait_s = 0;                           ///< GPU: an empty launch and waiting for it
  double team_s = 0;                           ///< CPU: starting a loop on all threads and waiting for them
  std::map<DType, double> matmul_flops_per_s;  ///< large square products: f64, f32, bf16, and f16 on GPUs
  double tf32_flops_per_s = 0;                 ///< GPUs: f32 products on tensor cores (Precision::tf32)
  double link_to_device_bytes_per_s = 0, link_to_host_bytes_per_s = 0;  ///< GPUs: copies of pinned host memory
  /// GPUs: Tensor::to(device) of pageable host memory, and back
  double pageable_to_device_bytes_per_s = 0, pageable_to_host_bytes_per_s = 0;

  double measured_in_s = 0;  ///< how long the measurement took
  std::string measured_at;   ///< its time in UTC, ISO 8601: "2026-01-31T12:00:00Z"
  bool cached = false;       ///< read from the folder of cached files

  friend bool operator==(const Ceilings&, const Ceilings&) = default;
};

struct CeilingsOptions {
  bool remeasure = false;  ///< measure now, and replace what is cached
  bool use_files = true;   ///< read and write the folder of cached files
};

/// The ceilings of a device. Measures them unless they are known; a file that is damaged or another user could have
/// written counts as absent. The result stays valid until the process ends. Thread-safe; while one thread measures, the
/// others that ask wait. A measurement waits for the device, takes up to 2.2 GB of its memory, which it returns
/// afterwards, and sets the process's matmul precision for a moment. No listener is told of it, and it draws no random
/// numbers of the default generator. Throws DeviceError for meta and for a device that does not exist, CaptureError
/// while the thread's calls are captured, and OutOfMemory.
const Ceilings& ceilings(Device device, const CeilingsOptions& options = {});

/// The size of a copy that reaches the device's full rate; calls over whole models are compared with it.
int64_t large_copy(Device device);

/// The rate of copies within a device's memory by their size. Starting and ending a copy takes time, so short copies
/// have a lower rate: a call is compared with a copy that moves as many bytes. Calls that only read, or only write, can
/// be faster than any copy, because memory loses time when it switches between the two.
class CopyRate {
 public:
  explicit CopyRate(Device device) : device_(device) {}

  /// The copy that moves `bytes`, half of them read and half written. Measured once per size.
  const BenchmarkResult& copy(int64_t bytes);
  /// Its rate in bytes per microsecond. Of large_copy(device) and more it is that of ceilings(device).
  double of(int64_t bytes);

 private:
  Device device_;
  std::map<int64_t, BenchmarkResult> measured_;
};

}  // namespace lorry::profile
