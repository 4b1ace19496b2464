#pragma once

// The same kernel call on the CPU and on CUDA: arrays that lie on one or the other, filled from and read into vectors.

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "lorry/device/device.h"
#include "lorry/kernels/common/array.h"
#include "lorry/memory/allocate.h"

namespace lorry::test {

inline constexpr Device kGPU{DeviceType::cuda, 0};

#define LORRY_SKIP_WITHOUT_CUDA() \
  if (!device::available(DeviceType::cuda)) GTEST_SKIP() << device::why_absent(DeviceType::cuda)

/// The CPU and every GPU there is.
inline std::vector<Device> all_devices() {
  std::vector<Device> devices = {kCPU};
  for (int i = 0; i < device::count(DeviceType::cuda); ++i)
    devices.push_back({DeviceType::cuda, static_cast<int8_t>(i)});
  return devices;
}

/// A copy of `values` on a device; its first element lies `shift` elements into its memory.
template <class T>
class Copied {
 public:
  Copied(Device device, const std::vector<T>& values, int64_t shift = 0)
      : device_(device),
        count_(static_cast<int64_t>(values.size())),
        shift_(shift),
        memory_(memory::allocate(device, bytes())) {
    if (count_ > 0)
      device::copy(data(), device_, values.data(), kCPU, count_ * int64_t{sizeof(T)}, current_stream(device_));
    current_stream(device_).synchronize();
  }
  ~Copied() { memory::release(device_, memory_, bytes()); }
  Copied(const Copied&) = delete;
  Copied& operator=(const Copied&) = delete;
  Copied(Copied&& other) noexcept
      : device_(other.device_),
        count_(other.count_),
        shift_(other.shift_),
        memory_(std::exchange(other.memory_, nullptr)) {}

  T* data() const { return static_cast<T*>(memory_) + shift_; }
  kernels::Array array() const { return array({count_}); }
  kernels::Array array(const Dims& sizes) const { return {data(), dtype_of<T>, Layout::contiguous(sizes)}; }

  std::vector<T> read() const {
    std::vector<T> values(static_cast<size_t>(count_));
    if (count_ > 0)
      device::copy(values.data(), kCPU, data(), device_, count_ * int64_t{sizeof(T)}, current_stream(device_));
    current_stream(device_).synchronize();
    return values;
  }

 private:
  int64_t bytes() const { return (count_ + shift_) * int64_t{sizeof(T)}; }

  Device device_;
  int64_t count_, shift_;
  void* memory_;
};

/// Equal to the bit, except that all NaNs are one: a GPU's conversions drop what a NaN carries.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0 && !(a[i] != a[i] && b[i] != b[i])) return false;
  return true;
}

}  // namespace lorry::test
