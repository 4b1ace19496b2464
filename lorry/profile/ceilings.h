#pragma once

// Ceilings: the measured maximum rates of a device. `lorry info --measure` prints them, and benchmarks are compared
// with them.

#include <map>

#include "lorry/profile/benchmark.h"
#include "lorry/tensor/tensor.h"

namespace lorry::profile {

/// The size of a copy that reaches the device's full rate; calls over whole models are compared with it.
int64_t large_copy(Device device);

/// The rate of copies within a device's memory. Starting and ending a copy takes time, so short copies have a lower
/// rate: a call is compared with a copy that moves as many bytes. Calls that only read, or only write, can be faster
/// than any copy, because memory loses time when it switches between the two.
class CopyRate {
 public:
  explicit CopyRate(Device device) : device_(device) {}

  /// The copy that moves `bytes`, half of them read and half written. Measured once per size.
  const BenchmarkResult& copy(int64_t bytes);
  /// Its rate in bytes per microsecond.
  double of(int64_t bytes) { return static_cast<double>(bytes) / copy(bytes).median_us; }

 private:
  Device device_;
  std::map<int64_t, BenchmarkResult> measured_;
};

/// Bytes per microsecond from pinned host memory to a GPU, or back.
double link_rate(Device gpu, bool to_gpu);

/// Floating-point operations per microsecond of a square matrix product.
double matmul_rate(Device device, DType dtype);

}  // namespace lorry::profile
