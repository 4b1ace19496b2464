#pragma once

// Ceilings: what a device was measured to reach. `lorry info --measure` prints them, and benchmarks are set against
// them.

#include <map>

#include "lorry/profile/benchmark.h"
#include "lorry/tensor/tensor.h"

namespace lorry::profile {

/// Bytes of a long copy, whose rate is the device's: what calls over whole models are compared with.
int64_t large_copy(Device device);

/// The rate of copies within a device's memory. A copy starts and ends, so that short ones have a lower rate than long
/// ones: a call is compared with the copy that moves as many bytes. What only reads, or only writes, can be faster than
/// any copy: memory loses time when it changes from one to the other.
class CopyRate {
 public:
  explicit CopyRate(Device device) : device_(device) {}

  /// The copy that moves `bytes`, half of them read and half written. Measured once for each number.
  const BenchmarkResult& copy(int64_t bytes);
  /// Its bytes a microsecond.
  double of(int64_t bytes) { return static_cast<double>(bytes) / copy(bytes).median_us; }

 private:
  Device device_;
  std::map<int64_t, BenchmarkResult> measured_;
};

/// Bytes a microsecond from pinned memory of the host to a GPU, or back.
double link_rate(Device gpu, bool to_gpu);

/// Floating-point operations a microsecond of a square matrix product.
double matmul_rate(Device device, DType dtype);

}  // namespace lorry::profile
